#include "edge/edge-internal.h"

#include "test.h"

TEST(cookies_stay_with_the_host_that_set_them)
{
	static const char *const cases[][2] = {
		{ "a=b", "a=b" },
		{ "a=b; Path=/; Secure", "a=b; Path=/; Secure" },
		{ "a=b; Domain=example.com; Path=/", "a=b; Path=/" },
		{ "a=b;domain=.example.com", "a=b" },
		{ "a=b; DOMAIN = example.com ; HttpOnly", "a=b; HttpOnly" },
		{ "a=b;\tdomain\t=x", "a=b" },
		{ "a=b; domain", "a=b" },
		{ "a=b; Domain=x; domain=y; Path=/", "a=b; Path=/" },
		{ "domain=x; Path=/", "domain=x; Path=/" },
		{ "a=\"b; Domain=x\"", "a=\"b" },
		{ "a=b; Domains=x", "a=b; Domains=x" },
		{ "a=b;", "a=b;" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(256);

		cookie_host_only(str_of(cases[i][0]), &out);
		ASSERT_STR(buf_str(&out).p, cases[i][1]);
	}
}
