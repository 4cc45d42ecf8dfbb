#include "guest/auth.h"

enum {
	SIGNED_MAX_BYTES = 64 << 10
};

bool auth_token_matches(const char *token, struct str given)
{
	if (!token)
		return true;
	return strlen(token) == given.n && mem_equal_ct(token, given.p, given.n);
}

int auth_sign(const char *token, const struct auth_claim *claim, char out[AUTH_SIGNATURE_SIZE])
{
	CLEANUP(buf_done) struct buf raw = BUF_INIT(SIGNED_MAX_BYTES);
	uint8_t digest[SHA256_SIZE];
	char text[48]; /* 44 characters */

	buf_add_str(&raw, claim->path);
	buf_printf(&raw, ":%s:", claim->operation);
	buf_add_str(&raw, claim->user);
	buf_printf(&raw, ":%s", token);
	if (claim->expiration.p) {
		buf_addc(&raw, ':');
		buf_add_str(&raw, claim->expiration);
	}
	if (raw.failed)
		return -ENOBUFS;
	sha256(raw.p, raw.n, digest);
	base64_encode(digest, sizeof digest, text);
	text[base64_size(sizeof digest) - 1] = '\0'; /* the one '=' of 32 bytes */
	(void)snprintf(out, AUTH_SIGNATURE_SIZE, "v1_%s", text);
	return 0;
}

/* The expiration is signed as a number: "007" and "7" are the same claim. */
static int expiration_read(struct auth_claim *claim, char text[24], int64_t *ret_s, struct err *e)
{
	*ret_s = INT64_MAX;
	if (!claim->expiration.p)
		return 0;
	if (str_to_int(claim->expiration, INT64_MIN / 2, INT64_MAX / 2, ret_s) < 0)
		return err_set(e, -EINVAL, "invalid signature_expiration query parameter");
	(void)snprintf(text, 24, "%" PRId64, *ret_s);
	claim->expiration = str_of(text);
	return 0;
}

int auth_file_check(const char *token, const struct auth_claim *claim, int64_t now_s, struct err *e)
{
	struct auth_claim c = *claim;
	char want[AUTH_SIGNATURE_SIZE], expiration[24];
	int64_t expires_s;
	int r;

	if (!token)
		return 0;
	if (c.given_token.n)
		return auth_token_matches(token, c.given_token)
			       ? 0
			       : err_set(e, -EACCES,
					 "access token present in header but does not match");
	if (!c.signature.p)
		return err_set(e, -EACCES, "missing signature query parameter");
	r = expiration_read(&c, expiration, &expires_s, e);
	if (r < 0)
		return r;
	if (auth_sign(token, &c, want) < 0 || strlen(want) != c.signature.n ||
		!mem_equal_ct(want, c.signature.p, c.signature.n))
		return err_set(e, -EACCES, "invalid signature");
	if (expires_s < now_s)
		return err_set(e, -EACCES, "signature is already expired");
	return 0;
}
