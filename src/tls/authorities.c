/* Authorities that somebody else made, on their way to those who shall trust them: read, checked
 * and written again, so that nothing but certificates goes on. */
#include "tls/tls-internal.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

enum {
	MAX_AUTHORITIES = 256,
};

static void bio_freep(BIO **bio)
{
	(void)BIO_free(*bio);
}

static void x509_freep(X509 **x)
{
	X509_free(*x);
}

static int write_one(X509 *certificate, struct buf *out, struct err *e)
{
	CLEANUP(bio_freep) BIO *bio = BIO_new(BIO_s_mem());
	char *text;
	long n;

	if (!bio || PEM_write_bio_X509(bio, certificate) != 1)
		return err_set(e, -EINVAL, "a certificate cannot be written");
	n = BIO_get_mem_data(bio, &text);
	(void)buf_printf(out, "# %08lx\n", X509_subject_name_hash(certificate));
	return buf_add(out, text, (size_t)n) < 0
		       ? err_set(e, -E2BIG, "more than %zu bytes of certificates", out->max)
		       : 0;
}

/* A certificate of a server is what people take for its authority's. One without the extension may
 * be either: it is taken. So is one that has expired, or a server that was restarted would stay
 * down for it. */
static int check(X509 *certificate, int number, struct err *e)
{
	if (X509_get_extension_flags(certificate) & EXFLAG_BCONS &&
		!(X509_get_extension_flags(certificate) & EXFLAG_CA))
		return err_set(e, -EINVAL,
			"certificate %d is not an authority's (CA:FALSE): use that of who signed "
			"it",
			number);
	return 0;
}

int tls_authorities_read(struct str text, struct buf *out, struct err *e)
{
	CLEANUP(bio_freep) BIO *bio = BIO_new_mem_buf(text.p, (int)text.n);
	int n = 0, r = 0;

	if (text.n && memmem(text.p, text.n, "PRIVATE KEY-----", 16))
		return err_set(e, -EINVAL,
			"it holds a private key, which no sandbox should have: use the "
			"certificate alone");
	while (bio && r >= 0) {
		CLEANUP(x509_freep) X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL);

		if (!x)
			break;
		r = ++n > MAX_AUTHORITIES
			    ? err_set(e, -E2BIG, "more than %d certificates", MAX_AUTHORITIES)
			    : check(x, n, e);
		if (r >= 0)
			r = write_one(x, out, e);
	}
	if (r >= 0 && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		r = err_set(e, -EINVAL, "certificate %d cannot be read: is it PEM?", n + 1);
	ERR_clear_error();
	if (r >= 0 && n == 0)
		r = err_set(e, -EINVAL, "there is no certificate in it: it must be PEM");
	return r;
}
