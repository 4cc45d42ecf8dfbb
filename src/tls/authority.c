/* An authority of this server's own, which sandboxes can be made to trust: it signs a certificate
 * for any name, so that we can stand between a sandbox and that host. */
#include "tls/tls-internal.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

enum {
	FILE_MAX_BYTES = 64 << 10,
	AUTHORITY_YEARS = 10,
	LEAF_DAYS = 7,
	LEAF_FRESH_MS = 24 * 60 * 60 * 1000, /* then a new one is made */
	MAX_LEAVES = 256,
	DAY_SECONDS = 24 * 60 * 60,
	COMMON_NAME_MAX = 64, /* longer names stand only where clients look anyway */
	SERIAL_BITS = 127,
};

struct leaf {
	SSL_CTX *context;
	int64_t made_ms;
	char name[]; /* the map's key */
};

struct tls_authority {
	X509 *certificate;
	EVP_PKEY *key, *leaf_key; /* one key for all hosts: it never leaves this process */
	struct buf pem;
	struct map leaves;
};

static void x509_freep(X509 **x)
{
	X509_free(*x);
}

static void key_freep(EVP_PKEY **key)
{
	EVP_PKEY_free(*key);
}

static void bio_freep(BIO **bio)
{
	(void)BIO_free(*bio);
}

static void context_freep(SSL_CTX **context)
{
	SSL_CTX_free(*context);
}

static int refused(struct err *e, const char *what)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	(void)err_set(e, -EINVAL, "%s: %s", what, reason ? reason : "refused");
	ERR_clear_error();
	return -EINVAL;
}

/* ---- certificates ---- */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *extension;
	X509V3_CTX context;
	bool ok;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	ok = extension && X509_add_ext(x, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return ok;
}

static bool set_serial(X509 *x)
{
	BIGNUM *serial = BN_new();
	bool ok = serial &&
		  BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
		  BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(x));

	BN_free(serial);
	return ok;
}

/* A new certificate for this key, not signed yet. */
static X509 *certificate_new(const char *common_name, EVP_PKEY *key, int days)
{
	CLEANUP(x509_freep) X509 *x = X509_new();
	const unsigned char *text = (const unsigned char *)common_name;

	if (!x || X509_set_version(x, X509_VERSION_3) != 1 || !set_serial(x) ||
		X509_set_pubkey(x, key) != 1 ||
		!X509_gmtime_adj(X509_getm_notBefore(x), -DAY_SECONDS) ||
		!X509_gmtime_adj(X509_getm_notAfter(x), (long)days * DAY_SECONDS))
		return NULL;
	if (X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, text, -1, -1,
		    0) != 1)
		return NULL;
	return TAKE(x);
}

static X509 *make_root(EVP_PKEY *key)
{
	CLEANUP(x509_freep)
	X509 *x = certificate_new("Atoll sandbox egress", key, AUTHORITY_YEARS * 365);

	if (!x || X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
		!add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
		!add_extension(x, x, NID_key_usage, "critical,keyCertSign") ||
		!add_extension(x, x, NID_subject_key_identifier, "hash") ||
		X509_sign(x, key, EVP_sha256()) == 0)
		return NULL;
	return TAKE(x);
}

/* `name` is of letters, digits, '-', '_' and dots only. */
static X509 *make_leaf(struct tls_authority *a, const char *name)
{
	CLEANUP(x509_freep) X509 *x = NULL;
	char alternative[300];

	x = certificate_new(strlen(name) <= COMMON_NAME_MAX ? name : "sandbox egress", a->leaf_key,
		LEAF_DAYS);
	(void)snprintf(alternative, sizeof alternative, "DNS:%s", name);
	if (!x || X509_set_issuer_name(x, X509_get_subject_name(a->certificate)) != 1 ||
		!add_extension(x, a->certificate, NID_basic_constraints, "critical,CA:FALSE") ||
		!add_extension(x, a->certificate, NID_key_usage, "critical,digitalSignature") ||
		!add_extension(x, a->certificate, NID_ext_key_usage, "serverAuth") ||
		!add_extension(x, a->certificate, NID_authority_key_identifier, "keyid") ||
		!add_extension(x, a->certificate, NID_subject_alt_name, alternative) ||
		X509_sign(x, a->key, EVP_sha256()) == 0)
		return NULL;
	return TAKE(x);
}

/* ---- contexts ---- */

static struct leaf *leaf_free(struct leaf *leaf)
{
	if (leaf)
		SSL_CTX_free(leaf->context); /* connections that use it hold references */
	free(leaf);
	return NULL;
}

static void drop_leaves(struct tls_authority *a)
{
	struct leaf *leaf;
	size_t at = 0;

	while ((leaf = map_next(&a->leaves, &at)))
		(void)leaf_free(leaf);
	map_done(&a->leaves);
}

static SSL_CTX *make_context(struct tls_authority *a, const char *name)
{
	CLEANUP(x509_freep) X509 *x = make_leaf(a, name);
	CLEANUP(context_freep) SSL_CTX *context = x ? context_new() : NULL;

	if (!context || SSL_CTX_use_certificate(context, x) != 1 ||
		SSL_CTX_use_PrivateKey(context, a->leaf_key) != 1)
		return NULL;
	return TAKE(context);
}

SSL_CTX *authority_context(struct tls_authority *a, const char *name)
{
	struct leaf *leaf = map_get(&a->leaves, str_of(name));
	SSL_CTX *context;
	size_t n = strlen(name);

	if (leaf && time_now_ms() - leaf->made_ms < LEAF_FRESH_MS)
		return leaf->context;
	if (leaf)
		(void)leaf_free(map_remove(&a->leaves, str_of(name)));
	context = make_context(a, name);
	if (!context) {
		ERR_clear_error();
		return NULL;
	}
	if (a->leaves.n >= MAX_LEAVES)
		drop_leaves(a);
	leaf = xcalloc(1, sizeof *leaf + n + 1);
	memcpy(leaf->name, name, n);
	leaf->context = context;
	leaf->made_ms = time_now_ms();
	(void)map_put(&a->leaves, str_of(leaf->name), leaf);
	return context;
}

/* ---- its file: the key, then the certificate ---- */

static int write_pem(struct tls_authority *a, bool with_key, struct buf *out, struct err *e)
{
	CLEANUP(bio_freep) BIO *bio = BIO_new(BIO_s_mem());
	char *text;
	long n;

	if (!bio ||
		(with_key &&
			PEM_write_bio_PrivateKey(bio, a->key, NULL, NULL, 0, NULL, NULL) != 1) ||
		PEM_write_bio_X509(bio, a->certificate) != 1)
		return refused(e, "write the authority");
	n = BIO_get_mem_data(bio, &text);
	return buf_add(out, text, (size_t)n) < 0 ? err_set(e, -ENOBUFS, "write the authority") : 0;
}

static int make(struct tls_authority *a, int dir_fd, const char *file, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(FILE_MAX_BYTES);
	int r;

	a->key = EVP_EC_gen("P-256");
	a->certificate = a->key ? make_root(a->key) : NULL;
	if (!a->certificate)
		return refused(e, "make an authority");
	r = write_pem(a, true, &text, e);
	if (r >= 0)
		r = file_replace(dir_fd, file, buf_str(&text), 0600, e);
	if (text.p)
		explicit_bzero(text.p, text.n);
	return r;
}

static int parse(struct tls_authority *a, struct str text, struct err *e)
{
	CLEANUP(bio_freep) BIO *bio = BIO_new_mem_buf(text.p, (int)text.n);

	a->key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
	a->certificate = a->key ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
	if (!a->certificate || X509_check_private_key(a->certificate, a->key) != 1)
		return refused(e,
			"read the authority: its file is damaged, remove it for a new one");
	return 0;
}

static int load(struct tls_authority *a, int dir_fd, const char *file, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(FILE_MAX_BYTES);
	cleanup_close int fd = file_open_own(dir_fd, file, geteuid(), e);
	int r;

	if (fd < 0)
		return fd == -ENOENT ? make(a, dir_fd, file, e) : fd;
	r = fd_read_all(fd, &text);
	r = r < 0 ? err_sys(e, r, "read it") : parse(a, buf_str(&text), e);
	if (text.p)
		explicit_bzero(text.p, text.n);
	return r;
}

int tls_authority_open(int dir_fd, const char *file, struct tls_authority **ret, struct err *e)
{
	CLEANUP(tls_authority_freep) struct tls_authority *a = XNEW(struct tls_authority);
	CLEANUP(key_freep) EVP_PKEY *leaf_key = EVP_EC_gen("P-256");
	int r;

	a->pem = BUF_INIT(FILE_MAX_BYTES);
	r = load(a, dir_fd, file, e);
	if (r >= 0)
		r = write_pem(a, false, &a->pem, e);
	if (r >= 0 && !leaf_key)
		r = refused(e, "make a key");
	if (r < 0)
		return err_wrap(e, r, "%s", file);
	a->leaf_key = TAKE(leaf_key);
	*ret = TAKE(a);
	return 0;
}

struct tls_authority *tls_authority_free(struct tls_authority *a)
{
	if (!a)
		return NULL;
	drop_leaves(a);
	X509_free(a->certificate);
	EVP_PKEY_free(a->key);
	EVP_PKEY_free(a->leaf_key);
	buf_done(&a->pem);
	free(a);
	return NULL;
}

struct str tls_authority_certificate(const struct tls_authority *a)
{
	return buf_str(&a->pem);
}
