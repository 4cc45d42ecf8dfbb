/* Values at rest: nonce and secretbox, as one base64 text. */
#include "secret/secret-internal.h"

#include <sodium.h>

_Static_assert(crypto_secretbox_KEYBYTES == SHA256_SIZE, "a MAC is a key");

static void version_key(const struct secret_op *op, uint8_t key[SHA256_SIZE])
{
	char text[SECRET_ID_SIZE + 24];
	int n = snprintf(text, sizeof text, "%s:%" PRId64, op->secret.id, op->secret.version);

	hmac_sha256(op->key, str_make(text, (size_t)n), key);
}

int op_seal(struct secret_op *op, struct err *e)
{
	size_t n = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + op->value.n;
	CLEANUP(buf_done) struct buf sealed = BUF_INIT(n + 1);
	uint8_t *bytes = (uint8_t *)buf_reserve(&sealed, n);
	char *text = buf_reserve(&op->box, base64_size(n));
	uint8_t key[SHA256_SIZE];

	if (!bytes || !text)
		return err_set(e, -ENOMEM, "out of memory");
	version_key(op, key);
	random_bytes(bytes, crypto_secretbox_NONCEBYTES);
	(void)crypto_secretbox_easy(bytes + crypto_secretbox_NONCEBYTES,
		(const uint8_t *)buf_str(&op->value).p, op->value.n, bytes, key);
	base64_encode(bytes, n, text);
	op->box.n += base64_size(n);
	explicit_bzero(key, sizeof key);
	return 0;
}

int op_open(struct secret_op *op, struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(op->box.n + 1);
	const size_t head = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES;
	const uint8_t *p;
	uint8_t key[SHA256_SIZE];
	char *out;
	int r = base64_decode(buf_str(&op->box), &bytes);

	if (r < 0 || bytes.n < head)
		return err_set(e, -EBADMSG, "secret '%s' is damaged", op->secret.name);
	out = buf_reserve(&op->value, bytes.n - head + 1);
	if (!out)
		return err_set(e, -ENOMEM, "out of memory");
	p = (const uint8_t *)bytes.p;
	version_key(op, key);
	r = crypto_secretbox_open_easy((uint8_t *)out, p + crypto_secretbox_NONCEBYTES,
		bytes.n - crypto_secretbox_NONCEBYTES, p, key);
	explicit_bzero(key, sizeof key);
	if (r < 0)
		return err_set(e, -EBADMSG,
			"secret '%s' does not open: was it written under another seed?",
			op->secret.name);
	op->value.n = bytes.n - head;
	return 0;
}
