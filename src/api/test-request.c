#include "api/api-internal.h"

#include "test.h"

#define TRACE "0123456789abcdef0123456789abcdef"
#define SPAN "0123456789abcdef"

TEST(traceparents_are_taken_as_the_standard_says)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "00-" TRACE "-" SPAN "-01", "00-" TRACE "-" SPAN "-01" },
		{ "00-" TRACE "-" SPAN "-00", "00-" TRACE "-" SPAN "-00" },
		{ "cc-" TRACE "-" SPAN "-01-what-comes", "00-" TRACE "-" SPAN "-01" },
		{ "00-" TRACE "-" SPAN "-01-more", "" },
		{ "00-" TRACE "-" SPAN "-01-", "" },
		{ "ff-" TRACE "-" SPAN "-01", "" },
		{ "00-00000000000000000000000000000000-" SPAN "-01", "" },
		{ "00-" TRACE "-0000000000000000-01", "" },
		{ "00-" TRACE "-" SPAN "-1", "" },
		{ "00-" TRACE "-" SPAN, "" },
		{ "00-0123456789ABCDEF0123456789abcdef-" SPAN "-01", "" },
		{ "0-" TRACE "-" SPAN "-01", "" },
		{ "", "" },
	};
	char got[SANDBOX_TRACE_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(request_trace(str_of(cases[i].text), got), cases[i].want[0] != '\0');
		ASSERT_STR(got, cases[i].want);
	}
	ASSERT(!request_trace(STR_NONE, got));
}

TEST(request_ids_are_plain)
{
	static const char *const good[] = { "a", "req_1", "a.b:c-D_9" }, *const bad[] = { "", " ",
		"a b", "a\n", "a\"b", "a=b", "\xc3\xa4", "a;b" };
	char big[API_REQUEST_ID_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		ASSERT(request_id_is_sane(str_of(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT(!request_id_is_sane(str_of(bad[i])));
	ASSERT(!request_id_is_sane(str_make("a\0b", 3)));
	memset(big, 'x', sizeof big);
	ASSERT(request_id_is_sane(str_make(big, sizeof big - 1)));
	ASSERT(!request_id_is_sane(str_make(big, sizeof big)));
}
