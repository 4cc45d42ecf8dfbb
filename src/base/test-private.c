#include "base/base.h"
#include "base/private.h"

#include "test.h"

static uint32_t at(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (uint32_t)a << 24 | (uint32_t)b << 16 | (uint32_t)c << 8 | d;
}

TEST(a_list_opens_its_addresses_at_their_ports_and_nothing_else)
{
	struct private_list list = { 0 };

	ASSERT_EQ(private_list_add(&list, STR("10.0.0.5:8443, 192.168.7.0/24"), NULL), 0);
	ASSERT_EQ(private_list_add(&list, STR("172.16.0.0/12:53"), NULL), 0);
	ASSERT_EQ(list.n, 3);
	ASSERT(!private_is_closed(&list, at(10, 0, 0, 5), 8443));
	ASSERT(private_is_closed(&list, at(10, 0, 0, 5), 8444));
	ASSERT(private_is_closed(&list, at(10, 0, 0, 4), 8443));
	ASSERT(private_is_closed(&list, at(10, 0, 0, 6), 8443));
	ASSERT(!private_is_closed(&list, at(10, 0, 0, 5), 0)); /* at some port */
	ASSERT(!private_is_closed(&list, at(192, 168, 7, 255), 1));
	ASSERT(private_is_closed(&list, at(192, 168, 8, 0), 1));
	ASSERT(!private_is_closed(&list, at(172, 31, 255, 255), 53));
	ASSERT(private_is_closed(&list, at(172, 31, 255, 255), 54));
	ASSERT(private_is_closed(&list, at(169, 254, 169, 254), 80));
	ASSERT(private_is_closed(&list, at(127, 0, 0, 1), 8443));
	ASSERT(!private_is_closed(&list, at(8, 8, 8, 8), 1)); /* which no list is about */
}

TEST(what_is_no_private_range_is_refused_with_the_reason)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{ "", NULL },
		{ "10.0.0.5:8443,", "use ADDRESS" },
		{ "localhost", "use ADDRESS" },
		{ "10.0.0", "use ADDRESS" },
		{ "10.0.0.5:0", "use ADDRESS" },
		{ "10.0.0.5:65536", "use ADDRESS" },
		{ "10.0.0.5:", "use ADDRESS" },
		{ "10.0.0.5/33", "use ADDRESS" },
		{ "10.0.0.5/0", "use ADDRESS" },
		{ "fd00::1", "use ADDRESS" },
		{ "10.0.0.5/8", "bits set behind" },
		{ "8.8.8.8", "not within a private network" },
		{ "10.0.0.0/7", "not within a private network" },
		{ "0.0.0.0/1", "never opened" },
		{ "127.0.0.1:3128", "never opened" },
		{ "169.254.169.254", "never opened" },
		{ "169.254.0.0/16", "never opened" },
		{ "168.63.129.16", "never opened" },
		{ "192.0.0.192", "never opened" },
		{ "224.0.0.1", "never opened" },
		{ "255.255.255.255", "never opened" },
		{ "100.100.100.200", "a cloud serves" },
		{ "100.64.0.0/10", "a cloud serves" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct private_list list = { 0 };
		struct err e = { 0 };
		int r = private_list_add(&list, str_of(cases[i].text), &e);

		ASSERT_EQ(r, cases[i].why ? -EINVAL : 0);
		ASSERT(!cases[i].why || strstr(e.msg, cases[i].why));
	}
}

TEST(a_list_is_read_back_as_it_was_written)
{
	struct private_list list = { 0 }, again = { 0 };
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);

	ASSERT_EQ(private_list_add(&list, STR("10.0.0.5:8443,10.1.0.0/16,198.18.0.0/15:1"), NULL),
		0);
	private_list_write(&list, &text);
	ASSERT(str_is(buf_str(&text), "10.0.0.5:8443,10.1.0.0/16,198.18.0.0/15:1"));
	ASSERT_EQ(private_list_add(&again, buf_str(&text), NULL), 0);
	ASSERT_EQ(again.n, list.n);
	ASSERT(again.v[1].address == list.v[1].address && again.v[1].bits == 16);
	ASSERT(again.v[2].port == 1 && again.v[1].port == 0);
}

TEST(a_list_has_an_end)
{
	struct private_list list = { 0 };

	for (int i = 0; i < PRIVATE_MAX_OPENED; i++)
		ASSERT_EQ(private_list_add(&list, STR("10.0.0.5"), NULL), 0);
	ASSERT_EQ(private_list_add(&list, STR("10.0.0.5"), NULL), -E2BIG);
	ASSERT_EQ(list.n, PRIVATE_MAX_OPENED);
}
