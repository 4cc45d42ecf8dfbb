#include "tls/tls-internal.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/wait.h>

enum {
	FILE_MAX_BYTES = 1 << 20,
	CHAIN_MAX = 16,
};

struct tls_identity {
	char *paths[2]; /* certificate, key */
	int fd;         /* to the keeper */
	pid_t keeper;
	SSL_CTX *context;
	int64_t expires_us;
	struct loop_io io; /* while a reload is under way */
	struct loop_task task;
	struct loop *loop;
	done_fn done;
	void *arg;
	int result;
	struct err error;
};

static const char *const file_kinds[2] = { "certificate", "private key" };

SSL_CTX *identity_context(const struct tls_identity *identity)
{
	return identity->context;
}

int64_t tls_identity_expires_us(const struct tls_identity *identity)
{
	return identity->expires_us;
}

/* ---- from text to a context ---- */

static void context_freep(SSL_CTX **context)
{
	SSL_CTX_free(*context);
}

static void bio_freep(BIO **bio)
{
	(void)BIO_free(*bio);
}

static void x509_freep(X509 **x)
{
	X509_free(*x);
}

static void key_freep(EVP_PKEY **key)
{
	EVP_PKEY_free(*key);
}

/* Without it OpenSSL would ask on the terminal. */
static int no_password(char *out, int size, int writing, void *asked)
{
	(void)out;
	(void)size;
	(void)writing;
	*(bool *)asked = true;
	return -1;
}

static int tls_error(struct err *e, const char *what)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	(void)err_set(e, -EINVAL, "%s: %s", what, reason ? reason : "refused");
	ERR_clear_error();
	return -EINVAL;
}

/* Exactly one protocol is spoken; a client that insists on another learns so in the handshake. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n,
	const unsigned char *in, unsigned in_n, void *arg)
{
	static const unsigned char only[] = "\x08http/1.1";
	unsigned char *chosen;

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto(&chosen, out_n, only, sizeof only - 1, in, in_n) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* Idle connections hold no buffers, and a write that was cut short may be repeated from where its
 * rest was put. The session tickets suffice for resumption: the cache would only cost memory. */
SSL_CTX *context_new(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());

	if (!context)
		return NULL;
	(void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	(void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
						   SSL_OP_CIPHER_SERVER_PREFERENCE |
						   SSL_OP_PRIORITIZE_CHACHA);
	(void)SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");
	(void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
						SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	(void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_num_tickets(context, 1);
	SSL_CTX_set_read_ahead(context, 1);
	SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	return context;
}

static int64_t time_us_of(const ASN1_TIME *time)
{
	struct tm tm = { 0 };

	return ASN1_TIME_to_tm(time, &tm) ? (int64_t)timegm(&tm) * 1000000 : 0;
}

/* The server's own certificate first, then those that lead to a root the clients know. */
static int use_certificates(SSL_CTX *context, struct str text, int64_t *ret_expires_us,
	struct err *e)
{
	CLEANUP(bio_freep) BIO *bio = BIO_new_mem_buf(text.p, (int)text.n);
	CLEANUP(x509_freep) X509 *own = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

	if (!own)
		return tls_error(e, "there is no certificate in PEM form in it");
	if (SSL_CTX_use_certificate(context, own) != 1)
		return tls_error(e, "it cannot be used");
	for (int i = 0; i < CHAIN_MAX; i++) {
		CLEANUP(x509_freep) X509 *next = PEM_read_bio_X509(bio, NULL, NULL, NULL);

		if (!next)
			break;
		if (SSL_CTX_add_extra_chain_cert(context, next) != 1)
			return tls_error(e, "a certificate of its chain cannot be used");
		next = NULL; /* the context's now */
	}
	ERR_clear_error(); /* the end of the text is one for OpenSSL */
	*ret_expires_us = time_us_of(X509_get0_notAfter(own));
	return 0;
}

static int use_key(SSL_CTX *context, struct str text, struct err *e)
{
	CLEANUP(bio_freep) BIO *bio = BIO_new_mem_buf(text.p, (int)text.n);
	CLEANUP(key_freep) EVP_PKEY *key = NULL;
	bool asked = false;

	if (bio)
		key = PEM_read_bio_PrivateKey(bio, NULL, no_password, &asked);
	if (!key && asked) {
		ERR_clear_error();
		return err_set(e, -EINVAL,
			"it is encrypted: nobody is there to type a password when the server "
			"starts");
	}
	if (!key)
		return tls_error(e, "there is no private key in PEM form in it");
	if (SSL_CTX_use_PrivateKey(context, key) != 1 || SSL_CTX_check_private_key(context) != 1)
		return tls_error(e, "it does not belong to the certificate");
	return 0;
}

static int use_texts(struct tls_identity *identity, struct str certificate, struct str key,
	struct err *e)
{
	CLEANUP(context_freep) SSL_CTX *context = context_new();
	int64_t expires_us = 0;
	int r;

	if (!context)
		return tls_error(e, "make a TLS context");
	r = use_certificates(context, certificate, &expires_us, e);
	if (r < 0)
		return err_wrap(e, r, "certificate %s", identity->paths[0]);
	r = use_key(context, key, e);
	if (r < 0)
		return err_wrap(e, r, "private key %s", identity->paths[1]);
	SSL_CTX_free(identity->context); /* connections that use it hold references of their own */
	identity->context = TAKE(context);
	identity->expires_us = expires_us;
	return 0;
}

/* ---- the files, through the keeper ---- */

static int read_files(struct tls_identity *identity, const int fds[2], struct err *e)
{
	CLEANUP(buf_done) struct buf certificate = BUF_INIT(FILE_MAX_BYTES);
	CLEANUP(buf_done) struct buf key = BUF_INIT(FILE_MAX_BYTES);
	struct buf *texts[2] = { &certificate, &key };
	int r = 0;

	for (int i = 0; r >= 0 && i < 2; i++) {
		r = fd_read_all(fds[i], texts[i]);
		if (r < 0)
			(void)err_sys(e, r, "read the %s %s", file_kinds[i], identity->paths[i]);
	}
	if (r >= 0)
		r = use_texts(identity, buf_str(&certificate), buf_str(&key), e);
	if (key.p)
		explicit_bzero(key.p, key.n);
	return r;
}

static int ask(struct tls_identity *identity, struct err *e)
{
	int r = fd_send(identity->fd, "r", 1, NULL, 0);

	return r < 0 ? err_sys(e, r, "ask for the certificate: its reader is gone") : 0;
}

static int take_answer(struct tls_identity *identity, struct err *e)
{
	struct keeper_answer answer = { 0 };
	int fds[FD_MAX_PASS], n_fds = 0, r;
	ssize_t n = fd_recv(identity->fd, &answer, sizeof answer, fds, &n_fds);

	if (n == sizeof answer && answer.code == 0 && n_fds == 2)
		r = read_files(identity, fds, e);
	else if (n == sizeof answer && answer.code < 0)
		r = err_sys(e, answer.code, "open the %s %s", file_kinds[answer.which == 1],
			identity->paths[answer.which == 1]);
	else
		r = err_set(e, -EPIPE, "read the certificate: its reader is gone");
	while (n_fds > 0)
		(void)close(fds[--n_fds]);
	return r;
}

static int start_keeper(struct tls_identity *identity, struct err *e)
{
	const char *const paths[2] = { identity->paths[0], identity->paths[1] };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "make a socket for the reader of the certificate");
	identity->keeper = fork();
	if (identity->keeper == 0)
		keeper_main(pair[1], paths);
	(void)close(pair[1]);
	identity->fd = pair[0];
	return identity->keeper < 0 ? err_sys(e, -errno, "start the reader of the certificate") : 0;
}

int tls_identity_open(const char *certificate, const char *key, struct tls_identity **ret,
	struct err *e)
{
	CLEANUP(tls_identity_freep) struct tls_identity *identity = XNEW(struct tls_identity);
	int r;

	identity->fd = -EBADF;
	identity->paths[0] = xstrdup(certificate);
	identity->paths[1] = xstrdup(key);
	r = start_keeper(identity, e);
	if (r >= 0)
		r = ask(identity, e);
	if (r >= 0)
		r = take_answer(identity, e);
	if (r < 0)
		return err_wrap(e, r, "TLS");
	*ret = TAKE(identity);
	return 0;
}

struct tls_identity *tls_identity_free(struct tls_identity *identity)
{
	if (!identity)
		return NULL;
	loop_io_remove(&identity->io);
	loop_task_cancel(&identity->task);
	close_fdp(&identity->fd); /* its end of file is the keeper's signal to leave */
	if (identity->keeper > 0)
		(void)waitpid(identity->keeper, NULL, 0);
	SSL_CTX_free(identity->context);
	free(identity->paths[0]);
	free(identity->paths[1]);
	free(identity);
	return NULL;
}

/* ---- again ---- */

static void on_reloaded(void *arg)
{
	struct tls_identity *identity = arg;
	done_fn done = TAKE(identity->done);

	done(identity->arg, identity->result, &identity->error);
}

static void end_reload(struct tls_identity *identity, int r)
{
	identity->result = r;
	loop_defer(identity->loop, &identity->task, on_reloaded, identity);
}

static void on_answer(void *arg, uint32_t events)
{
	struct tls_identity *identity = arg;

	(void)events;
	loop_io_remove(&identity->io);
	end_reload(identity, take_answer(identity, &identity->error));
}

void tls_identity_reload(struct tls_identity *identity, struct loop *loop, done_fn done, void *arg)
{
	int r;

	assert(!identity->done);
	identity->loop = loop;
	identity->done = done;
	identity->arg = arg;
	identity->error = (struct err){ 0 };
	r = ask(identity, &identity->error);
	if (r >= 0)
		r = loop_io_add(loop, &identity->io, identity->fd, EPOLLIN, on_answer, identity,
			&identity->error);
	if (r < 0)
		end_reload(identity, r);
}
