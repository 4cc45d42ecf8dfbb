#include "base/sign.h"
#include "base/base.h"

static void feed(crypto_hash_sha256_state *state, struct str s)
{
	(void)crypto_hash_sha256_update(state, (const unsigned char *)s.p, s.n);
}

void sign_begin(struct signer *signer, const struct sign_claim *claim)
{
	(void)crypto_hash_sha256_init(&signer->head);
	feed(&signer->head, claim->path);
	feed(&signer->head, STR(":"));
	feed(&signer->head, str_of(claim->operation));
	feed(&signer->head, STR(":"));
	feed(&signer->head, claim->user);
	feed(&signer->head, STR(":"));
	signer->tail[0] = '\0';
	if (claim->expires)
		(void)snprintf(signer->tail, sizeof signer->tail, ":%" PRId64, claim->expires_s);
}

void sign_with(const struct signer *signer, const char *token, char out[SIGN_SIZE])
{
	crypto_hash_sha256_state state = signer->head;
	uint8_t digest[SHA256_SIZE];
	char text[48]; /* 44 characters, the last of them the '=' of 32 bytes */

	feed(&state, str_of(token));
	feed(&state, str_of(signer->tail));
	(void)crypto_hash_sha256_final(&state, digest);
	base64_encode(digest, sizeof digest, text);
	memcpy(out, "v1_", 3);
	memcpy(out + 3, text, SIGN_SIZE - 4);
	out[SIGN_SIZE - 1] = '\0';
}

bool sign_matches(const struct signer *signer, const char *token, struct str signature)
{
	char want[SIGN_SIZE];

	if (signature.n != SIGN_SIZE - 1)
		return false;
	sign_with(signer, token, want);
	return mem_equal_ct(want, signature.p, signature.n);
}

int sign_read_expiration(struct str text, struct sign_claim *claim)
{
	int64_t seconds;

	if (!text.p)
		return 0;
	if (str_to_int(text, INT64_MIN / 2, INT64_MAX / 2, &seconds) < 0)
		return -EINVAL;
	claim->expires = true;
	claim->expires_s = seconds;
	return 0;
}
