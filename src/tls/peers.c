#include "tls/tls-internal.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

SSL_CTX *peers_context(struct err *e)
{
	static const unsigned char protocol[] = "\x08http/1.1";
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());

	if (!context || SSL_CTX_set_default_verify_paths(context) != 1 ||
		SSL_CTX_set_alpn_protos(context, protocol, sizeof protocol - 1) != 0) {
		SSL_CTX_free(context);
		ERR_clear_error();
		(void)err_set(e, -EIO, "read whom this host trusts");
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

SSL *peers_connection(SSL_CTX *peers, int fd, const char *name)
{
	SSL *ssl = SSL_new(peers);
	char host[256];

	(void)snprintf(host, sizeof host, "%s", name);
	if (!ssl || SSL_set_fd(ssl, fd) != 1 || SSL_set_tlsext_host_name(ssl, host) != 1 ||
		SSL_set1_host(ssl, host) != 1) {
		SSL_free(ssl);
		ERR_clear_error();
		return NULL;
	}
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
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
