/* Values at rest: sealed with a key of their own version, so that no two share a key. */
#include "secret/secret-internal.h"

static void version_key(const struct secret_op *op, uint8_t key[SHA256_SIZE])
{
	char text[SECRET_ID_SIZE + 24];
	int n = snprintf(text, sizeof text, "%s:%" PRId64, op->secret.id, op->secret.version);

	hmac_sha256(op->key, str_make(text, (size_t)n), key);
}

int op_seal(struct secret_op *op, struct err *e)
{
	uint8_t key[SHA256_SIZE];
	int r;

	version_key(op, key);
	r = seal_text(key, buf_str(&op->value), &op->box);
	explicit_bzero(key, sizeof key);
	return r < 0 ? err_set(e, -ENOMEM, "out of memory") : 0;
}

int op_open(struct secret_op *op, struct err *e)
{
	uint8_t key[SHA256_SIZE];
	int r;

	version_key(op, key);
	r = unseal_text(key, buf_str(&op->box), &op->value);
	explicit_bzero(key, sizeof key);
	if (r == -EBADMSG)
		return err_set(e, r, "secret '%s' is damaged, or was written under another seed",
			op->secret.name);
	return r < 0 ? err_set(e, -ENOMEM, "out of memory") : 0;
}
