/* tls - HTTPS on the same port as HTTP.
 * Owns:   the listening socket while TLS is on, handshakes with their limits and deadlines, the
 * bytes between a client's TLS and the HTTP server, the certificate and its renewal. Uses:   base,
 * loop, http, OpenSSL. Never:  looks into what it carries; checks who the client is.
 *
 * The first byte of a connection tells what it speaks. TLS (1.2 and newer, HTTP/1.1 by ALPN) is
 * carried: the HTTP server gets one end of a socket pair and never learns of it. Plain HTTP is
 * handed over as it is when the client is on this machine; others are told to use https, so that no
 * key travels in the open by mistake. */
#pragma once

#include "http/http.h"

/* The certificate and its key. They are read by a small process of their own, which stays what its
 * parent was when it was made (root, that can read the key) and does nothing but open these two
 * files when asked: so a renewed certificate is found whichever way it was put there (written over,
 * renamed, a symlink turned), although the server itself may not read it. */
struct tls_identity;
/* Before threads, and before root is given up. Reads and checks both files. */
int tls_identity_open(const char *certificate, const char *key, struct tls_identity **ret,
	struct err *e);
struct tls_identity *tls_identity_free(struct tls_identity *identity);
DEFINE_CLEANUP(struct tls_identity, tls_identity_free)
/* Reads the files again. New connections get what is in them; open ones go on as they are, and when
 * the files are not good everything stays as it was. One at a time. */
void tls_identity_reload(struct tls_identity *identity, struct loop *loop, done_fn done, void *arg);
int64_t tls_identity_expires_us(const struct tls_identity *identity); /* wall clock */

struct tls_limits {                   /* zero: the default in parentheses */
	int64_t handshake_timeout_ms; /* accepted to ready (10 s) */
	int64_t stall_timeout_ms;     /* a client that takes none of what waits for it (60 s) */
};

/* An authority of this server's own: whoever trusts its certificate can be served as any host. */
struct tls_authority;
/* Its key and certificate are in a file of this directory; both are made when it is not there. */
int tls_authority_open(int dir_fd, const char *file, struct tls_authority **ret, struct err *e);
struct tls_authority *tls_authority_free(struct tls_authority *authority);
DEFINE_CLEANUP(struct tls_authority, tls_authority_free)
struct str tls_authority_certificate(const struct tls_authority *authority); /* PEM */

/* Other people's authorities, as PEM: adds each certificate of `text` to `out`, with nothing else
 * between them but "# HASH" before each, OpenSSL's name for it. -EINVAL: it holds none, one that is
 * damaged or no authority's, or a private key. -E2BIG. */
int tls_authorities_read(struct str text, struct buf *out, struct err *e);

struct tls_server;
/* Borrows loop, http and identity: all must outlive it. Without an identity (NULL) it serves only
 * connections that are given to it. */
struct tls_server *tls_server_new(struct loop *loop, struct http_server *http,
	struct tls_identity *identity, const struct tls_limits *limits);
/* Cuts what is left, without a callback. */
struct tls_server *tls_server_free(struct tls_server *server);
DEFINE_CLEANUP(struct tls_server, tls_server_free)
/* Takes a listening socket, also when it fails; as many as TLS_LISTENERS. */
enum {
	TLS_LISTENERS = 2,
};
int tls_server_take_listener(struct tls_server *server, int fd, struct err *e);
/* Serves a connection that speaks TLS as the host `name`. Takes the descriptor, and a reference to
 * the carriage of its own. */
void tls_server_take_connection(struct tls_server *server, int fd, struct http_carriage *carriage,
	struct tls_authority *authority, const char *name);
/* The other way round: TLS to the host `name` over a connected descriptor (taken), whose
 * certificate must be good for this name by what this host trusts. fn gets a descriptor for the
 * plain bytes, or -errno: -EKEYREJECTED the certificate is not good, else what broke. Called once,
 * on a later turn, unless cancelled. */
struct stream;
typedef void (*tls_connected_fn)(void *arg, int fd, const struct err *e);
struct stream *tls_server_connect(struct tls_server *server, int fd, const char *name,
	tls_connected_fn fn, void *arg);
/* The same to whoever answers, whatever its certificate: for services inside sandboxes, which no
 * name leads to and nobody else can be in the place of. */
struct stream *tls_server_connect_unchecked(struct tls_server *server, int fd, tls_connected_fn fn,
	void *arg);
void tls_connect_cancel(struct stream *stream);
/* While fn is told of its success: how the connection ends, as http_relay wants to know it. */
struct http_carriage *tls_connect_carriage(const struct stream *stream);
/* Stops listening; handshakes and what is carried go on. */
void tls_server_accept_no_more(struct tls_server *server);
/* Stops listening and ends handshakes; what is carried goes on. */
void tls_server_close(struct tls_server *server);
/* After the HTTP server has stopped: until the last bytes are with their clients, or the deadline
 * (-ETIMEDOUT, the rest is cut). */
void tls_server_drain(struct tls_server *server, int64_t deadline_ms, done_fn done, void *arg);
size_t tls_server_connections(const struct tls_server *server); /* handshakes among them */
size_t tls_server_handshakes(const struct tls_server *server);
