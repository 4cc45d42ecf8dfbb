#include "guest/auth.h"
#include "base/sign.h"

bool auth_token_matches(const char *token, struct str given)
{
	if (!token)
		return true;
	return strlen(token) == given.n && mem_equal_ct(token, given.p, given.n);
}

static int check_signature(const char *token, const struct auth_claim *claim, int64_t now_s,
	struct err *e)
{
	struct sign_claim sign = { .path = claim->path,
		.user = claim->user,
		.operation = claim->operation };
	struct signer signer;

	if (!claim->signature.p)
		return err_set(e, -EACCES, "missing signature query parameter");
	if (sign_read_expiration(claim->expiration, &sign) < 0)
		return err_set(e, -EINVAL, "invalid signature_expiration query parameter");
	sign_begin(&signer, &sign);
	if (!sign_matches(&signer, token, claim->signature))
		return err_set(e, -EACCES, "invalid signature");
	if (sign.expires && sign.expires_s < now_s)
		return err_set(e, -EACCES, "signature is already expired");
	return 0;
}

int auth_file_check(const char *token, const struct auth_claim *claim, int64_t now_s, struct err *e)
{
	if (!token)
		return 0;
	if (claim->given_token.n == 0)
		return check_signature(token, claim, now_s, e);
	if (!auth_token_matches(token, claim->given_token))
		return err_set(e, -EACCES, "access token present in header but does not match");
	return 0;
}
