#include "egress/dns.h"
#include "egress/names.h"

#include "test.h"

static struct dns_question question_of(const char *name, uint16_t type)
{
	struct dns_question q = { .type = type, .class = DNS_CLASS_IN };

	assert(dns_name_parse(str_of(name), &q.name) == 0);
	return q;
}

static bool is_private(const void *arg, uint32_t address)
{
	(void)arg;
	return policy_is_private(address);
}

#define BYTES(literal) str_make(literal, sizeof(literal) - 1)

/* id 0x1234, recursion wanted, www.Example.com A, EDNS with 4096 bytes. */
#define QUERY                                                                             \
	"\x12\x34\x01\x00\0\1\0\0\0\0\0\1\3www\7Example\3com\0\0\1\0\1\0\0\x29\x10\0\0\0" \
	"\0\0\0\0"

TEST(a_question_is_read)
{
	struct dns_query q;
	char text[DNS_TEXT_SIZE];

	ASSERT_EQ(dns_parse_query(BYTES(QUERY), &q), DNS_OK);
	ASSERT_EQ(q.id, 0x1234);
	ASSERT(q.wants_recursion && q.has_edns);
	ASSERT_EQ(q.udp_max, DNS_UDP_MAX);
	ASSERT_EQ(q.question.type, DNS_A);
	ASSERT_EQ(dns_name_text(&q.question.name, text), 0);
	ASSERT_STR(text, "www.example.com");
}

TEST(what_is_no_question_is_dropped_or_refused)
{
	static const struct {
		struct str message;
		int r;
	} cases[] = {
		{ { "", 0 }, -EBADMSG },
		{ { "\0\0\0\0\0\1\0\0\0\0\0", 11 }, -EBADMSG },
		{ { "\0\0\x80\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", 19 }, -EBADMSG },   /* a response */
		{ { "\0\0\x28\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", 19 }, DNS_NOTIMP }, /* an update */
		{ { "\0\0\1\0\0\2\0\0\0\0\0\0\1a\0\0\1\0\1", 19 }, DNS_FORMERR },  /* two */
		{ { "\0\0\1\0\0\1\0\1\0\0\0\0\1a\0\0\1\0\1", 19 }, DNS_FORMERR },  /* answers */
		{ { "\0\0\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0", 18 }, DNS_FORMERR },    /* cut */
		{ { "\0\0\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", 18 }, DNS_FORMERR }, /* a circle */
		{ { "\0\0\1\0\0\1\0\0\0\0\0\0\x41\0\0\1\0\1", 18 }, DNS_FORMERR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_query q;
		int r = dns_parse_query(cases[i].message, &q);

		if (r != cases[i].r)
			TEST_FAIL("case %zu: %d instead of %d", i, r, cases[i].r);
	}
}

/* What a server sends: a question, then records given as bytes. */
static void add_header(struct buf *out, int flags, const struct dns_question *q, int n_records)
{
	const char head[12] = { 0x12, 0x34, (char)(flags >> 8), (char)flags, 0, 1, 0,
		(char)n_records };

	(void)buf_add(out, head, sizeof head);
	(void)buf_add(out, q->name.p, q->name.n);
	(void)buf_addc(out, (char)(q->type >> 8));
	(void)buf_addc(out, (char)q->type);
	(void)buf_add(out, "\0\1", 2);
}

#define OWNER "\xc0\x0c" /* the question's name */

TEST(a_chain_of_names_is_followed_and_nothing_else_kept)
{
	CLEANUP(buf_done) struct buf m = BUF_INIT(1024);
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;
	struct dns_question q = question_of("www.example.com", DNS_A);

	add_header(&m, 0x8180, &q, 5);
	(void)buf_add_str(&m,
		BYTES(OWNER "\0\5\0\1\0\0\1\0\0\6\3cdn\xc0\x10")); /* CNAME cdn.example.com */
	(void)buf_add_str(&m, BYTES("\4evil\0\0\1\0\1\0\0\0\5\0\4\6\6\6\6")); /* somebody else */
	(void)buf_add_str(&m, BYTES("\3CDN\xc0\x10\0\1\0\1\0\0\0\x3c\0\4\x5d\xb8\xd8\x22"));
	(void)buf_add_str(&m,
		BYTES("\3cdn\xc0\x10\0\x10\0\1\0\0\0\x3c\0\4\3txt")); /* not asked for */
	(void)buf_add_str(&m, BYTES("\3cdn\xc0\x10\0\1\0\1\0\0\0\x78\0\4\x0a\0\0\1"));
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &q, true, &a), 0);
	ASSERT_EQ(a->n, 3);
	ASSERT_EQ(a->rcode, DNS_OK);
	ASSERT_EQ(a->ttl_s, 60);
	ASSERT_EQ(a->records[0].type, DNS_CNAME);
	ASSERT_EQ(a->records[0].data.n, 17);
	ASSERT(memcmp(a->records[0].data.p, "\3cdn\7example\3com", 17) == 0);
	ASSERT_EQ(dns_record_address(&a->records[1]), 0x5db8d822);
	ASSERT_EQ(dns_answer_drop(a, is_private, NULL), 1);
	ASSERT_EQ(a->n, 2);
}

TEST(an_answer_must_be_to_what_was_asked)
{
	struct dns_question q = question_of("www.example.com", DNS_A), other = q;
	CLEANUP(buf_done) struct buf m = BUF_INIT(1024);
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;

	add_header(&m, 0x8180, &q, 1);
	(void)buf_add_str(&m, BYTES(OWNER "\0\1\0\1\0\0\1\0\0\4\1\1\1\1"));
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1235, &q, true, &a), -EBADMSG);
	other.name.p[1] ^= 0x20; /* the case */
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &other, true, &a), -EBADMSG);
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &other, false, &a), 0);
	a = dns_answer_unref(a);
	other.name.p[1] = 'x';
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &other, false, &a), -EBADMSG);
	other = q;
	other.type = DNS_MX;
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &other, true, &a), -EBADMSG);
	m.p[2] &= 0x7f; /* a query */
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &q, true, &a), -EBADMSG);
	m.p[2] = (char)0x83; /* cut short */
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &q, true, &a), -E2BIG);
	m.p[2] = (char)0x81;
	m.n -= 1; /* a record that is not all there */
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 0x1234, &q, true, &a), -EBADMSG);
}

/* n addresses of one name, as an answer. */
static struct dns_answer *answer_of(const struct dns_question *q, int n)
{
	CLEANUP(buf_done) struct buf m = BUF_INIT(8192);
	struct dns_answer *a = NULL;

	add_header(&m, 0x8180, q, n);
	for (int i = 0; i < n; i++) {
		(void)buf_add_str(&m, BYTES(OWNER "\0\1\0\1\0\0\0\x64\0\4\5\5\5"));
		(void)buf_addc(&m, (char)i);
	}
	return dns_parse_answer(buf_str(&m), 0x1234, q, true, &a) == 0 ? a : NULL;
}

TEST(a_reply_fits_or_says_that_it_was_cut)
{
	struct dns_query query = { .id = 7, .wants_recursion = true, .udp_max = DNS_PLAIN_MAX };
	CLEANUP(buf_done) struct buf m = BUF_INIT(8192);
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;
	CLEANUP(dns_answer_unrefp) struct dns_answer *again = NULL;

	query.question = question_of("www.example.com", DNS_A);
	a = answer_of(&query.question, 29); /* 33 + 29 * 16 = 497 */
	ASSERT(a);
	ASSERT_EQ(dns_write_reply(&m, &query, DNS_OK, a, 40, query.udp_max), 0);
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 7, &query.question, true, &again), 0);
	ASSERT_EQ(again->n, 29);
	ASSERT_EQ(again->records[0].ttl_s, 60);
	a = dns_answer_unref(a);
	a = answer_of(&query.question, 30);
	buf_clear(&m);
	ASSERT_EQ(dns_write_reply(&m, &query, DNS_OK, a, 0, query.udp_max), 0);
	ASSERT_EQ(m.n, 33);
	again = dns_answer_unref(again);
	ASSERT_EQ(dns_parse_answer(buf_str(&m), 7, &query.question, true, &again), -E2BIG);
}

TEST(the_case_of_letters_is_mixed_and_means_nothing)
{
	struct dns_name name, mixed;
	int differ = 0;

	ASSERT_EQ(dns_name_parse(STR("abcdefghijklmnopqrstuvwxyz.example.com"), &name), 0);
	for (int i = 0; i < 8; i++) {
		mixed = name;
		dns_mix_case(&mixed);
		ASSERT(dns_name_equal(&name, &mixed));
		differ += memcmp(name.p, mixed.p, name.n) != 0;
	}
	ASSERT(differ > 0);
}

TEST(names_are_plain_text_or_none)
{
	static const char *const bad[] = { "", ".", "a..b", ".a", "a.",
		"0123456789012345678901234567890123456789012345678901234567890123.com" };
	struct dns_name name;
	char text[DNS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (dns_name_parse(str_of(bad[i]), &name) == 0)
			TEST_FAIL("'%s' is taken for a name", bad[i]);
	ASSERT_EQ(dns_name_parse(STR("a b.com"), &name), 0);
	ASSERT_EQ(dns_name_text(&name, text), -EINVAL);
}

TEST(names_of_the_hosts_network_are_asked_for_where_a_part_of_it_is_opened)
{
	static struct policy_range all[] = { { 0, 0, false } };
	static const struct policy open = { .is_open = true };
	static const struct policy closed = { .ranges = all, .n_ranges = 1 };
	static const struct {
		const char *name;
		uint16_t type;
		int judged;
	} cases[] = {
		{ "mirror.corp.internal", DNS_A, JUDGED_ASK },
		{ "mirror.corp.internal", DNS_AAAA, DNS_OK },
		{ "mirror.corp.internal", 16, DNS_NXDOMAIN },
		{ "myhost", DNS_A, JUDGED_ASK },
		{ "localhost", DNS_A, DNS_NXDOMAIN },
		{ "x.localhost", DNS_A, DNS_NXDOMAIN },
		{ "1.0.0.10.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN },
		{ "1.0.0.10.in-addr.arpa", DNS_A, DNS_NXDOMAIN },
		{ "1.ip6.arpa", DNS_A, DNS_NXDOMAIN },
		{ "a.home.arpa", DNS_A, DNS_NXDOMAIN },
	};
	char text[DNS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_question q = question_of(cases[i].name, cases[i].type);

		ASSERT_EQ(names_judge(&open, &q, true, text), cases[i].judged);
		if (cases[i].judged == JUDGED_ASK)
			ASSERT_EQ(names_judge(&closed, &q, true, text), JUDGED_DENY);
	}
}

TEST(questions_are_judged_by_policy_kind_and_zone)
{
	static struct policy_range all[] = { { 0, 0, false } };
	static struct str allowed[] = { { "example.com", 11 }, { "*.example.org", 13 } };
	static const struct policy open = { .is_open = true };
	static const struct policy closed = { .ranges = all, .n_ranges = 1 };
	static const struct policy named = { .ranges = all,
		.n_ranges = 1,
		.names = allowed,
		.n_names = 2 };
	static const struct {
		const struct policy *policy;
		const char *name;
		uint16_t type;
		int judged;
	} cases[] = {
		{ &open, "example.com", DNS_A, JUDGED_ASK },
		{ &open, "example.com", DNS_MX, JUDGED_ASK },
		{ &open, "example.com", DNS_AAAA, DNS_OK },
		{ &open, "example.com", DNS_HTTPS, DNS_OK },
		{ &open, "example.com", DNS_SVCB, DNS_OK },
		{ &open, "example.com", 255, DNS_REFUSED },
		{ &open, "example.com", 252, DNS_REFUSED },
		{ &open, "example.com", DNS_OPT, DNS_REFUSED },
		{ &open, "myhost", DNS_A, DNS_NXDOMAIN },
		{ &open, "printer.local", DNS_A, DNS_NXDOMAIN },
		{ &open, "local", DNS_A, DNS_NXDOMAIN },
		{ &open, "x.localhost", DNS_A, DNS_NXDOMAIN },
		{ &open, "metadata.google.internal", DNS_A, DNS_NXDOMAIN },
		{ &open, "notlocal.com", DNS_A, JUDGED_ASK },
		{ &open, "1.0.0.10.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN },
		{ &open, "168.192.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN },
		{ &open, "254.169.254.169.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN },
		{ &open, "8.8.8.8.in-addr.arpa", DNS_PTR, JUDGED_ASK },
		{ &open, "a.b.c.d.e.in-addr.arpa", DNS_PTR, DNS_NXDOMAIN },
		{ &open, "1.0.0.ip6.arpa", DNS_PTR, DNS_NXDOMAIN },
		{ &closed, "example.com", DNS_A, JUDGED_DENY },
		{ &closed, "example.com", DNS_AAAA, JUDGED_DENY },
		{ &named, "EXAMPLE.com", DNS_A, JUDGED_ASK },
		{ &named, "example.com", 16, JUDGED_ASK },
		{ &named, "example.com", DNS_AAAA, DNS_OK },
		{ &named, "secret-data.example.com", DNS_A, JUDGED_DENY },
		{ &named, "a.example.org", DNS_A, JUDGED_ASK },
		{ &named, "example.org", DNS_A, JUDGED_DENY },
		{ &named, "8.8.8.8.in-addr.arpa", DNS_PTR, JUDGED_DENY },
	};
	struct dns_question chaos = question_of("version.bind", DNS_A);
	char text[DNS_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_question q = question_of(cases[i].name, cases[i].type);
		int judged = names_judge(cases[i].policy, &q, false, text);

		if (judged != cases[i].judged)
			TEST_FAIL("case %zu, %s %u: judged %d", i, cases[i].name, cases[i].type,
				judged);
	}
	chaos.class = 3;
	ASSERT_EQ(names_judge(&open, &chaos, false, text), DNS_REFUSED);
}
