#include "edge/edge-internal.h"

#include "test.h"

#define DIGITS "0123456789abcdef0123456789abcdef01234567"
#define KEY "e2b_" DIGITS
#define TOKEN DIGITS "89abcdef0123456789abcdef"

static bool is_wanted(void *arg, struct str word)
{
	return str_is(word, arg);
}

static bool finds(const char *text, const char *wanted)
{
	char copy[128];

	(void)snprintf(copy, sizeof copy, "%s", wanted);
	return credential_within(str_of(text), is_wanted, copy);
}

TEST(keys_and_tokens_are_found_wherever_they_stand)
{
	ASSERT(finds(KEY, KEY));
	ASSERT(finds("Bearer " KEY, KEY));
	ASSERT(finds("a=1; key=" KEY "; b=2", KEY));
	ASSERT(finds("xe2b_" DIGITS, KEY));
	ASSERT(finds(KEY "0", KEY)); /* whoever reads it may cut it */
	ASSERT(finds(TOKEN, TOKEN));
	ASSERT(finds("Bearer " TOKEN ",", TOKEN));
	ASSERT(finds("abc," TOKEN, TOKEN));
}

TEST(what_has_another_shape_is_not_even_asked_for)
{
	ASSERT(!finds("", ""));
	ASSERT(!finds("e2b_", "e2b_"));
	ASSERT(!finds("e2b_0123", "e2b_0123"));
	ASSERT(!finds(DIGITS, DIGITS));
	ASSERT(!finds(TOKEN "0", TOKEN "0"));
	ASSERT(!finds("E2B_" DIGITS, "E2B_" DIGITS));
	ASSERT(!finds(KEY, TOKEN));
}

TEST(logins_are_looked_into)
{
	char login[256] = "Basic ", wanted[] = KEY, other[] = TOKEN;
	static const char plain[] = "user:" KEY;

	base64_encode(plain, strlen(plain), login + 6);
	ASSERT(credential_in_login(str_of(login), is_wanted, wanted));
	ASSERT(!credential_in_login(str_of(login), is_wanted, other));
	ASSERT(!credential_in_login(str_of(login + 6), is_wanted, wanted));
	ASSERT(!credential_in_login(STR("Basic !"), is_wanted, wanted));
}

TEST(tokens_have_one_shape)
{
	ASSERT(credential_is_token(STR(TOKEN)));
	ASSERT(!credential_is_token(STR(DIGITS)));
	ASSERT(!credential_is_token(STR(TOKEN "0")));
	ASSERT(!credential_is_token(STR("G" DIGITS "89abcdef0123456789abcde")));
}
