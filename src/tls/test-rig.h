/* A real server on a thread of its own, certificates made for the occasion, and a blocking client.
 */
#pragma once

#include "tls/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
	RIG_WAIT_MS = 30000
};

/* ---- certificates ---- */

static EVP_PKEY *make_key(void)
{
	return EVP_EC_gen("P-256");
}

/* Signed by its own key; `name` is what tells one from another. */
static X509 *make_certificate(EVP_PKEY *key, const char *name, int64_t valid_s)
{
	X509 *x = X509_new();
	X509_NAME *subject = X509_get_subject_name(x);

	(void)X509_set_version(x, 2);
	(void)ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	(void)X509_gmtime_adj(X509_getm_notBefore(x), -7200);
	(void)X509_gmtime_adj(X509_getm_notAfter(x), (long)valid_s);
	(void)X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name,
		-1, -1, 0);
	(void)X509_set_issuer_name(x, subject);
	(void)X509_set_pubkey(x, key);
	(void)X509_sign(x, key, EVP_sha256());
	return x;
}

struct pair { /* paths in a directory of their own */
	char dir[64], certificate[96], key[96];
};

static void write_pem(const char *path, X509 *x, EVP_PKEY *key, const char *password)
{
	char beside[128];
	BIO *bio;

	(void)snprintf(beside, sizeof beside, "%s.new", path);
	bio = BIO_new_file(beside, "w");
	if (x)
		(void)PEM_write_bio_X509(bio, x);
	if (key)
		(void)PEM_write_bio_PrivateKey(bio, key, password ? EVP_aes_128_cbc() : NULL,
			(const unsigned char *)password, password ? (int)strlen(password) : 0, NULL,
			NULL);
	(void)BIO_free(bio);
	(void)chmod(beside, 0600);
	(void)rename(beside, path);
}

static void pair_write(const struct pair *pair, const char *name)
{
	EVP_PKEY *key = make_key();
	X509 *x = make_certificate(key, name, 86400);

	write_pem(pair->certificate, x, NULL, NULL);
	write_pem(pair->key, NULL, key, NULL);
	X509_free(x);
	EVP_PKEY_free(key);
}

static void pair_init(struct pair *pair)
{
	(void)snprintf(pair->dir, sizeof pair->dir, "/tmp/atoll-tls-XXXXXX");
	(void)!mkdtemp(pair->dir);
	(void)snprintf(pair->certificate, sizeof pair->certificate, "%s/cert.pem", pair->dir);
	(void)snprintf(pair->key, sizeof pair->key, "%s/key.pem", pair->dir);
	pair_write(pair, "first");
}

static void pair_done(struct pair *pair)
{
	(void)dir_remove_tree(AT_FDCWD, pair->dir, NULL);
}

/* ---- the server ---- */

struct rig {
	struct pair pair;
	struct http_limits limits;
	int64_t grace_ms; /* of a stop, for each of its two parts */
	struct loop *loop;
	struct http_server *http;
	struct tls_identity *identity;
	struct tls_server *tls;
	int port, wake_fd;
	struct loop_io wake;
	pthread_t thread;
	atomic_int gone, reloads, reload_result;
	atomic_long body_bytes;
};

enum {
	WAKE_RELOAD = 1,
	WAKE_STOP = 1 << 20,
	WAKE_ABRUPT = 1 << 21,
	WAKE_STOP_LATE = 1 << 22, /* clients have as long as a busy machine needs */
};

static void rig_drained(void *arg, int r, const struct err *e)
{
	struct rig *rig = arg;

	(void)r;
	(void)e;
	loop_stop(rig->loop);
}

static void rig_http_stopped(void *arg, int r, const struct err *e)
{
	struct rig *rig = arg;

	(void)r;
	(void)e;
	tls_server_drain(rig->tls, loop_now_ms(rig->loop) + rig->grace_ms, rig_drained, rig);
}

static void rig_reloaded(void *arg, int r, const struct err *e)
{
	struct rig *rig = arg;

	(void)e;
	atomic_store(&rig->reload_result, r);
	atomic_fetch_add(&rig->reloads, 1);
}

static void rig_on_wake(void *arg, uint32_t events)
{
	struct rig *rig = arg;
	uint64_t what = 0;

	(void)events;
	(void)!read(rig->wake_fd, &what, sizeof what);
	if (what == WAKE_RELOAD) {
		tls_identity_reload(rig->identity, rig->loop, rig_reloaded, rig);
		return;
	}
	loop_io_remove(&rig->wake);
	if (what == WAKE_ABRUPT) {
		loop_stop(rig->loop);
		return;
	}
	rig->grace_ms = what == WAKE_STOP_LATE ? 60000 : 1000;
	tls_server_close(rig->tls);
	http_server_stop(rig->http, loop_now_ms(rig->loop) + rig->grace_ms, rig_http_stopped, rig);
}

static void *rig_main(void *arg)
{
	struct rig *rig = arg;

	(void)loop_run(rig->loop, NULL);
	rig->tls = tls_server_free(rig->tls);
	rig->http = http_server_free(rig->http);
	rig->identity = tls_identity_free(rig->identity);
	rig->loop = loop_free(rig->loop);
	return NULL;
}

static void handle(void *arg, struct http_exchange *x);

static bool rig_start(struct rig *rig, const struct tls_limits *limits)
{
	int fd = http_listen("127.0.0.1:0", NULL);
	struct sockaddr_in address = { 0 };
	socklen_t size = sizeof address;

	pair_init(&rig->pair);
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&address, &size) < 0 ||
		tls_identity_open(rig->pair.certificate, rig->pair.key, &rig->identity, NULL) < 0 ||
		loop_new(&rig->loop, NULL) < 0)
		return false;
	rig->port = ntohs(address.sin_port);
	rig->http = http_server_new(rig->loop, &rig->limits, handle, rig);
	rig->tls = tls_server_new(rig->loop, rig->http, rig->identity, limits);
	rig->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return tls_server_take_listener(rig->tls, fd, NULL) == 0 &&
	       loop_io_add(rig->loop, &rig->wake, rig->wake_fd, EPOLLIN, rig_on_wake, rig, NULL) ==
		       0 &&
	       pthread_create(&rig->thread, NULL, rig_main, rig) == 0;
}

static void rig_wake(struct rig *rig, uint64_t what)
{
	(void)!write(rig->wake_fd, &what, sizeof what);
}

static void rig_end(struct rig *rig, uint64_t how)
{
	if (rig->thread) {
		rig_wake(rig, how);
		(void)pthread_join(rig->thread, NULL);
		(void)close(rig->wake_fd);
	}
	rig->thread = 0;
}

static void rig_stop(struct rig *rig)
{
	rig_end(rig, WAKE_ABRUPT);
	pair_done(&rig->pair);
}

static bool becomes(atomic_int *value, int want)
{
	for (int i = 0; i < RIG_WAIT_MS && atomic_load(value) < want; i += 2)
		(void)poll(NULL, 0, 2);
	return atomic_load(value) >= want;
}

/* ---- the client ---- */

static int dial(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct timeval wait = { .tv_sec = RIG_WAIT_MS / 1000 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
		return fd;
	(void)close(fd);
	return -errno;
}

struct client {
	SSL_CTX *context;
	SSL *ssl;
	int fd;
};

static void client_done(struct client *c)
{
	SSL_free(c->ssl);
	SSL_CTX_free(c->context);
	close_fdp(&c->fd);
	c->fd = -EBADF;
}

/* `protocols` in ALPN's form, or NULL. */
static bool client_open(struct client *c, int port, const char *protocols, int max_version)
{
	c->fd = dial(port);
	c->context = SSL_CTX_new(TLS_client_method());
	if (max_version) {
		SSL_CTX_set_security_level(c->context, 0);
		(void)SSL_CTX_set_max_proto_version(c->context, max_version);
	}
	if (protocols)
		(void)SSL_CTX_set_alpn_protos(c->context, (const unsigned char *)protocols,
			(unsigned)strlen(protocols));
	c->ssl = SSL_new(c->context);
	(void)SSL_set_fd(c->ssl, c->fd);
	ERR_clear_error();
	return SSL_connect(c->ssl) == 1;
}

static bool say(struct client *c, const char *text)
{
	return SSL_write(c->ssl, text, (int)strlen(text)) == (int)strlen(text);
}

/* Reads until `until` or the end; always terminated. */
static const char *hear(struct client *c, char *out, size_t size, const char *until)
{
	size_t n = 0;
	int got;

	out[0] = '\0';
	while (n < size - 1) {
		got = SSL_read(c->ssl, out + n, (int)(size - 1 - n));
		if (got <= 0)
			break;
		n += (size_t)got;
		out[n] = '\0';
		if (until && strstr(out, until))
			break;
	}
	return out;
}

enum ending {
	END_CLEAN,
	END_CUT,
	END_RESET,
	END_NONE,
};

static enum ending heard_end(struct client *c)
{
	char bytes[4096];
	int n;

	do {
		ERR_clear_error();
		n = SSL_read(c->ssl, bytes, sizeof bytes);
	} while (n > 0);
	switch (SSL_get_error(c->ssl, n)) {
	case SSL_ERROR_ZERO_RETURN:
		return END_CLEAN;
	case SSL_ERROR_WANT_READ:
		return END_NONE;
	case SSL_ERROR_SYSCALL:
		return errno == ECONNRESET ? END_RESET : END_CUT;
	}
	return END_CUT;
}

/* The common name of the certificate that the server showed. */
static const char *shown_name(struct client *c, char out[64])
{
	X509 *x = SSL_get1_peer_certificate(c->ssl);

	out[0] = '\0';
	if (x)
		(void)X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, out, 64);
	X509_free(x);
	return out;
}
