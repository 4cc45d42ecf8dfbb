/* What the files of this room share.
 *
 *   identity.c      certificate and key: asking for them, checking them, renewing them
 *   authority.c     certificates for any name, signed by ourselves
 *   peers.c         servers that we connect to, and whether they are who they should be
 *   keeper-child.c  the process that opens the two files
 *   server.c        accepting, limits, stopping
 *   stream.c        one connection: from its first byte to its end */
#pragma once

#include "tls/tls.h"

#include <openssl/ssl.h>

enum {
	RECORD_BYTES = 16 * 1024, /* the most that one TLS record holds */
};

/* ---- keeper-child.c ---- */
/* What the keeper answers, with the descriptors of certificate and key when code is 0. */
struct keeper_answer {
	int code;
	int which; /* 0: the certificate, 1: the key */
};
/* Serves requests on `fd` until its other end is closed; does not return. */
_Noreturn void keeper_main(int fd, const char *const paths[2]);

/* ---- identity.c ---- */
SSL_CTX *identity_context(const struct tls_identity *identity); /* borrowed */
SSL_CTX *context_new(void); /* of a server, without a certificate yet */

/* ---- authority.c ---- */
/* Borrowed until the next call; NULL: it could not be made. */
SSL_CTX *authority_context(struct tls_authority *authority, const char *name);

/* ---- peers.c ---- */
struct peers_mark { /* tells whether a file is still what it was */
	ino_t inode;
	off_t size;
	int64_t changed_s, changed_ns;
};
struct peers {
	SSL_CTX *context;            /* NULL until a connection is made to somebody */
	int64_t looked_ms;           /* at the two: */
	struct peers_mark file, dir; /* where this host's list of authorities is */
};
/* Of a client that trusts whom this host trusts now; borrowed until the next call. NULL: the list
 * could not be read. */
SSL_CTX *peers_context(struct peers *peers);
/* For a connection to this host, NULL: to anybody. NULL when memory is out. */
SSL *peers_connection(SSL_CTX *peers, int fd, const char *name);
/* Why the handshake with it failed. */
int peers_why(const SSL *ssl, const char *name, struct err *e);

/* ---- server.c ---- */
struct tls_server {
	struct loop *loop;
	struct http_server *http;
	struct tls_identity *identity; /* NULL: it accepts nothing by itself */
	struct peers peers;
	struct tls_limits limits;
	struct loop_listener listeners[TLS_LISTENERS];
	struct list waiting; /* before or after being carried, the oldest first */
	struct list carried;
	size_t n_waiting, n_carried;
	struct loop_timer drain_timer;
	struct loop_task drain_task;
	done_fn drained;
	void *drained_arg;
	int drain_result;
	char *scratch; /* RECORD_BYTES, used within one callback only */
};

void server_stream_gone(struct tls_server *server);
bool peer_is_local(const struct sockaddr_storage *peer); /* a client on this machine */

/* ---- stream.c ---- */
/* Takes an accepted descriptor. */
void stream_start(struct tls_server *server, int fd, const struct sockaddr_storage *peer);
/* Takes one that speaks TLS; the certificate is the context's. Refers to the carriage itself. */
void stream_start_as(struct tls_server *server, int fd, struct http_carriage *carriage,
	SSL_CTX *context);
/* Takes a connected descriptor and ssl. */
struct stream *stream_connect(struct tls_server *server, int fd, SSL *ssl, const char *name,
	tls_connected_fn fn, void *arg);
void stream_destroy(struct list *node); /* in waiting or carried; without a farewell */
