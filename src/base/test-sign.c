#include "base/base.h"
#include "base/sign.h"
#include "test.h"

static const char token[] = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";

static struct signer signer_of(const char *path, const char *operation, const char *user,
	const char *expiration)
{
	struct sign_claim claim = { .path = str_of(path),
		.user = str_of(user),
		.operation = operation };
	struct signer signer;

	(void)sign_read_expiration(str_of(expiration), &claim);
	sign_begin(&signer, &claim);
	return signer;
}

/* The vectors were made with another implementation (Python's hashlib). */
TEST(signatures_are_what_clients_make)
{
	static const struct {
		const char *path, *operation, *user, *expiration, *want;
	} cases[] = {
		{ "hello.txt", "read", "user", NULL,
			"v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" },
		{ "", "write", "", NULL, "v1_+Ndakv8aCLGD5gjOtfiA7J8PrN3cGaRiZZq/4vOYGKA" },
		{ "/home/user/ä b.txt", "write", "root", "1700000000",
			"v1_RGEerWTQFTC3b7x+bDyGj/Xn2585v7I7ck0Ijknop1A" },
		{ "x", "read", "", "-5", "v1_g5f41Ck3PO8DRh2iYQ6iMEmURvfTJrzBRVI9YeLqdpg" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct signer signer = signer_of(cases[i].path, cases[i].operation, cases[i].user,
			cases[i].expiration);
		char got[SIGN_SIZE];

		sign_with(&signer, token, got);
		ASSERT_STR(got, cases[i].want);
		ASSERT(sign_matches(&signer, token, str_of(cases[i].want)));
	}
}

TEST(everything_in_a_claim_counts)
{
	struct signer signer = signer_of("a", "read", "user", "100");
	struct signer others[] = { signer_of("b", "read", "user", "100"),
		signer_of("a", "write", "user", "100"), signer_of("a", "read", "root", "100"),
		signer_of("a", "read", "user", "101"), signer_of("a", "read", "user", NULL) };
	char got[SIGN_SIZE];

	sign_with(&signer, token, got);
	ASSERT(sign_matches(&signer, token, str_of(got)));
	ASSERT(!sign_matches(&signer, "another", str_of(got)));
	ASSERT(!sign_matches(&signer, token, str_from(str_of(got), 1)));
	ASSERT(!sign_matches(&signer, token, STR_NONE));
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		ASSERT(!sign_matches(&others[i], token, str_of(got)));
}

TEST(an_expiration_is_a_number)
{
	struct signer plain = signer_of("a", "read", "", "7"),
		      zeros = signer_of("a", "read", "", "007");
	static const char *const bad[] = { "", "7s", "0x7", "1e3", "99999999999999999999", " 7" };
	struct sign_claim claim = { 0 };
	char got[SIGN_SIZE];

	sign_with(&plain, token, got);
	ASSERT(sign_matches(&zeros, token, str_of(got)));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT_EQ(sign_read_expiration(str_of(bad[i]), &claim), -EINVAL);
	ASSERT_EQ(sign_read_expiration(STR_NONE, &claim), 0);
	ASSERT(!claim.expires);
}
