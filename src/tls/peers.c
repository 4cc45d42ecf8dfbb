#include "tls/tls-internal.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

enum {
	LOOK_MS = 1000, /* how long the host's list is taken to be what it was */
};

static SSL_CTX *read_list(void)
{
	static const unsigned char protocol[] = "\x08http/1.1";
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());

	if (!context || SSL_CTX_set_default_verify_paths(context) != 1 ||
		SSL_CTX_set_alpn_protos(context, protocol, sizeof protocol - 1) != 0) {
		SSL_CTX_free(context);
		ERR_clear_error();
		return NULL;
	}
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	(void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	/* Many servers end without saying so; HTTP's own framing tells what was cut short. */
	(void)SSL_CTX_set_options(context,
		SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	(void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
						SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	(void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_read_ahead(context, 1);
	return context;
}

/* OpenSSL lets these variables name another file and directory, and so must we. */
static void look_at(struct peers_mark *mark, const char *variable, const char *usual)
{
	const char *other = secure_getenv(variable);
	struct stat st = { 0 };

	(void)stat(other ? other : usual, &st);
	*mark = (struct peers_mark){ .inode = st.st_ino,
		.size = st.st_size,
		.changed_s = st.st_mtim.tv_sec,
		.changed_ns = st.st_mtim.tv_nsec };
}

static bool is_same(const struct peers_mark *a, const struct peers_mark *b)
{
	return a->inode == b->inode && a->size == b->size && a->changed_s == b->changed_s &&
	       a->changed_ns == b->changed_ns;
}

/* The list is as good as the host's: who is taken from it, or put on it, is so for our next
 * connection. Should it not be read, the one before holds. */
SSL_CTX *peers_context(struct peers *peers)
{
	int64_t now_ms = time_now_ms();
	struct peers_mark file, dir;
	SSL_CTX *context;

	if (peers->context && now_ms - peers->looked_ms < LOOK_MS)
		return peers->context;
	peers->looked_ms = now_ms;
	look_at(&file, X509_get_default_cert_file_env(), X509_get_default_cert_file());
	look_at(&dir, X509_get_default_cert_dir_env(), X509_get_default_cert_dir());
	if (peers->context && is_same(&file, &peers->file) && is_same(&dir, &peers->dir))
		return peers->context;
	context = read_list();
	if (!context)
		return peers->context;
	SSL_CTX_free(peers->context); /* open connections have their own reference */
	peers->context = context;
	peers->file = file;
	peers->dir = dir;
	return context;
}

static int expect(SSL *ssl, const char *name)
{
	char host[256];

	(void)snprintf(host, sizeof host, "%s", name);
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (SSL_set_tlsext_host_name(ssl, host) != 1 || SSL_set1_host(ssl, host) != 1)
		return -ENOMEM;
	return 0;
}

SSL *peers_connection(SSL_CTX *peers, int fd, const char *name)
{
	SSL *ssl = SSL_new(peers);

	if (!ssl || SSL_set_fd(ssl, fd) != 1 || (name && expect(ssl, name) < 0)) {
		SSL_free(ssl);
		ERR_clear_error();
		return NULL;
	}
	if (!name)
		SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL);
	SSL_set_connect_state(ssl);
	return ssl;
}

int peers_why(const SSL *ssl, const char *name, struct err *e)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	long verified = SSL_get_verify_result(ssl);

	ERR_clear_error();
	if (verified != X509_V_OK)
		return err_set(e, -EKEYREJECTED, "the certificate of %s is not trusted: %s", name,
			X509_verify_cert_error_string(verified));
	return err_set(e, -EPROTO, "the TLS handshake with %s failed: %s", name,
		reason ? reason : "it was cut");
}
