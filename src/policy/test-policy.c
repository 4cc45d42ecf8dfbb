#include "policy/policy.h"

#include "test.h"

static void arena_freep(struct arena **a)
{
	*a = arena_free(*a);
}

static const struct json_bool unset = { false, false }, off = { true, false }, on = { true, true };

enum {
	GOOGLE = 0x08080808,
	GOOGLE2 = 0x08080404,
	PUBLIC = 0x5db8d822,
	METADATA = (int)0xa9fea9fe,
};

TEST(nothing_said_is_open)
{
	static const char *const open[] = { "", "{}", "{\"allowOut\":[\"1.1.1.1\"]}",
		"{\"denyOut\":[]}", "{\"allowOut\":null,\"denyOut\":null,\"rules\":null}",
		"{\"rules\":{\"a.example\":[]}}", "{\"denyOut\":[\"2001:db8::/32\"]}",
		"{\"rules\":{\"a.example\":[{\"transform\":{}}]}}" };

	for (size_t i = 0; i < ARRAY_SIZE(open); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct policy p;
		struct err e = { 0 };

		if (policy_parse(a, str_of(open[i]), unset, &p, &e) < 0 || !p.is_open)
			TEST_FAIL("%s: not open: %s", open[i], e.msg);
		ASSERT(!policy_by_name(&p));
		ASSERT(policy_allows_address(&p, PUBLIC));
		ASSERT(!policy_allows_address(&p, METADATA));
		ASSERT(policy_may_resolve(&p, STR("anything.example")));
	}
}

TEST(allowed_beats_denied_and_the_rest_stays_open)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct policy p;

	ASSERT_EQ(policy_parse(a, STR("{\"denyOut\":[\"8.8.0.0/16\"],\"allowOut\":[\"8.8.8.8\"]}"),
			  unset, &p, NULL),
		0);
	ASSERT(!p.is_open);
	ASSERT(policy_allows_address(&p, GOOGLE));
	ASSERT(!policy_allows_address(&p, GOOGLE2));
	ASSERT(policy_allows_address(&p, PUBLIC));
	ASSERT(policy_may_resolve(&p, STR("anything.example")));
}

TEST(without_internet_what_is_allowed_explicitly_stays)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct policy p;

	ASSERT_EQ(policy_parse(a, STR("{\"allowOut\":[\"8.8.8.8/32\"]}"), off, &p, NULL), 0);
	ASSERT(policy_denies_rest(&p));
	ASSERT(policy_allows_address(&p, GOOGLE));
	ASSERT(!policy_allows_address(&p, PUBLIC));
	ASSERT(!policy_may_resolve(&p, STR("example.com")));
	ASSERT_EQ(policy_parse(a, STR("{\"allowOut\":[\"example.com\"]}"), off, &p, NULL), 0);
	ASSERT(policy_denies_rest(&p) && policy_may_resolve(&p, STR("example.com")));
	ASSERT(!policy_may_resolve(&p, STR("other.example")));
	ASSERT(!policy_allows_address(&p, PUBLIC));
	ASSERT_EQ(policy_parse(a, STR("{\"allowOut\":[\"example.com\"]}"), on, &p, NULL), -EINVAL);
	ASSERT_EQ(policy_parse(a, STR_NONE, off, &p, NULL), 0);
	ASSERT(!policy_allows_address(&p, GOOGLE));
	ASSERT_EQ(policy_parse(a, STR_NONE, on, &p, NULL), 0);
	ASSERT(p.is_open);
}

TEST(nothing_opens_what_is_private)
{
	static const char *const private[] = { "0.1.2.3", "10.0.0.1", "100.64.0.1",
		"100.127.255.255", "127.0.0.1", "168.63.129.16", "169.254.169.254", "172.16.0.1",
		"172.31.255.255", "192.0.0.8", "192.168.1.1", "198.18.0.1", "198.19.255.255",
		"224.0.0.1", "240.0.0.1", "255.255.255.255" };
	static const char *const public[] = { "1.1.1.1", "9.255.255.255", "11.0.0.0",
		"100.63.255.255", "100.128.0.0", "126.255.255.255", "168.63.129.15",
		"169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255",
		"198.17.255.255", "198.20.0.0", "223.255.255.255" };
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct policy p;

	ASSERT_EQ(policy_parse(a, STR("{\"allowOut\":[\"0.0.0.0/0\",\"10.0.0.0/8\"]}"), unset, &p,
			  NULL),
		0);
	for (size_t i = 0; i < ARRAY_SIZE(private); i++) {
		unsigned v[4];

		ASSERT_EQ(sscanf(private[i], "%u.%u.%u.%u", &v[0], &v[1], &v[2], &v[3]), 4);
		if (policy_allows_address(&p, v[0] << 24 | v[1] << 16 | v[2] << 8 | v[3]))
			TEST_FAIL("%s is let through", private[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(public); i++) {
		unsigned v[4];

		ASSERT_EQ(sscanf(public[i], "%u.%u.%u.%u", &v[0], &v[1], &v[2], &v[3]), 4);
		if (!policy_allows_address(&p, v[0] << 24 | v[1] << 16 | v[2] << 8 | v[3]))
			TEST_FAIL("%s is not let through", public[i]);
	}
}

#define NAMES(list) "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[" list "]}"

TEST(names_match_as_they_look)
{
	static const struct {
		const char *network, *host;
		bool allowed;
	} cases[] = {
		{ NAMES("\"example.com\""), "example.com", true },
		{ NAMES("\"example.com\""), "EXAMPLE.com", true },
		{ NAMES("\"Example.COM.\""), "example.com", true },
		{ NAMES("\"example.com\""), "example.com.", true },
		{ NAMES("\"example.com\""), "www.example.com", false },
		{ NAMES("\"example.com\""), "notexample.com", false },
		{ NAMES("\"example.com\""), "example.com.evil.net", false },
		{ NAMES("\"example.com\""), "example.com..", false },
		{ NAMES("\"*.example.com\""), "example.com", false },
		{ NAMES("\"*.example.com\""), "a.example.com", true },
		{ NAMES("\"*.example.com\""), "a.b.Example.com", true },
		{ NAMES("\"*.example.com\""), "aexample.com", false },
		{ NAMES("\"*.example.com\""), ".example.com", false },
		{ NAMES("\"*.example.com\""), "..example.com", false },
		{ NAMES("\"*.example.com\""), "a b.example.com", false },
		{ NAMES("\"*\""), "anything.at.all", true },
		{ NAMES("\"*\""), "my_service.example.com", true },
		{ NAMES("\"*\""), "localhost", false },
		{ NAMES("\"*\""), "1.2.3.4", false },
		{ NAMES("\"*\""), "127.1", false },
		{ NAMES("\"*\""), "0x7f.0x1", false },
		{ NAMES("\"*\""), "0x7f.1", false },
		{ NAMES("\"*\""), "[::1]", false },
		{ NAMES("\"*\""), "", false },
		{ NAMES("\"*\""), ".", false },
		{ NAMES("\"1.2.3.4\""), "1.2.3.4", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct policy p;
		struct err e = { 0 };

		if (policy_parse(a, str_of(cases[i].network), unset, &p, &e) < 0)
			TEST_FAIL("%s: %s", cases[i].network, e.msg);
		if (policy_allows_name(&p, str_of(cases[i].host)) != cases[i].allowed)
			TEST_FAIL("%s: '%s' should%s match", cases[i].network, cases[i].host,
				cases[i].allowed ? "" : " not");
		ASSERT_EQ(policy_may_resolve(&p, str_of(cases[i].host)), cases[i].allowed);
		ASSERT(!policy_allows_address(&p, PUBLIC));
	}
}

#define RULES(text) "{\"rules\":{" text "}}"
#define HEADER(name, value) "[{\"transform\":{\"headers\":{\"" name "\":\"" value "\"}}}]"

TEST(rules_are_found_by_host_the_closest_first)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct policy p;

	ASSERT_EQ(policy_parse(a,
			  STR(RULES("\"*.example.com\":" HEADER("X",
				  "wide") ","
					  "\"*.api.example.com\":" HEADER("X",
						  "closer") ","
							    "\"V1.API.example.com\":" HEADER("X",
								    "exact"))),
			  unset, &p, NULL),
		0);
	ASSERT(!p.is_open && policy_by_name(&p));
	ASSERT(!policy_rule_for(&p, STR("example.com")));
	ASSERT_BYTES(policy_rule_for(&p, STR("a.example.com"))->headers[0].value, "wide");
	ASSERT_BYTES(policy_rule_for(&p, STR("api.example.com"))->headers[0].value, "wide");
	ASSERT_BYTES(policy_rule_for(&p, STR("x.api.example.com"))->headers[0].value, "closer");
	ASSERT_BYTES(policy_rule_for(&p, STR("v1.api.EXAMPLE.com."))->headers[0].value, "exact");
	/* A rule changes requests; it does not open a way for them. */
	ASSERT(!policy_allows_name(&p, STR("v1.api.example.com")));
	ASSERT(policy_allows_address(&p, PUBLIC));
}

TEST(a_value_is_cut_at_its_secrets)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct str rest, text, name;
	struct policy p;

	ASSERT_EQ(policy_parse(a,
			  STR(RULES("\"a.example\":" HEADER("Authorization",
				  " Bearer ${e2b.secrets.TOKEN}-${e2b.secrets.b}! ${other} "))),
			  unset, &p, NULL),
		0);
	rest = p.rules[0].headers[0].value;
	ASSERT(policy_next_secret(&rest, &text, &name));
	ASSERT_BYTES(text, "Bearer ");
	ASSERT_BYTES(name, "TOKEN");
	ASSERT(policy_next_secret(&rest, &text, &name));
	ASSERT_BYTES(text, "-");
	ASSERT_BYTES(name, "b");
	ASSERT(policy_next_secret(&rest, &text, &name));
	ASSERT_BYTES(text, "! ${other}");
	ASSERT(!name.p);
	ASSERT(!policy_next_secret(&rest, &text, &name));
}

TEST(what_is_wrong_is_refused_in_the_words_of_the_field)
{
	static const struct {
		const char *network, *says;
	} cases[] = {
		{ "{", "network" },
		{ "[]", "network" },
		{ "{\"allowOut\":\"x\"}", "allowOut" },
		{ "{\"denyOut\":[\"example.com\"]}", "network.denyOut: each entry must be" },
		{ "{\"denyOut\":[\"1.2.3.4/33\"]}", "network.denyOut" },
		{ "{\"denyOut\":[\"1.2.3\"]}", "network.denyOut" },
		{ "{\"denyOut\":[\"0.0.0.0\"]}", "0.0.0.0/0" },
		{ "{\"denyOut\":[\"0.0.0.0/8\"]}", "0.0.0.0/0" },
		{ "{\"denyOut\":[\"::\"]}", "0.0.0.0/0" },
		{ "{\"allowOut\":[\"0.0.0.0\"]}", "network.allowOut" },
		{ "{\"allowOut\":[\"exam ple.com\"],\"denyOut\":[\"0.0.0.0/0\"]}",
			"network.allowOut" },
		{ "{\"allowOut\":[\"\"],\"denyOut\":[\"0.0.0.0/0\"]}", "network.allowOut" },
		{ "{\"allowOut\":[\"a.*.com\"],\"denyOut\":[\"0.0.0.0/0\"]}", "network.allowOut" },
		{ "{\"allowOut\":[\"example.com\"]}", "0.0.0.0/0 in denyOut" },
		{ "{\"allowOut\":[\"example.com\"],\"denyOut\":[\"8.0.0.0/8\"]}", "in denyOut" },
		{ RULES("\"*\":" HEADER("X", "1")), "not a domain name" },
		{ RULES("\"1.2.3.4\":" HEADER("X", "1")), "not a domain name" },
		{ RULES("\"a.example\":{}"), "network.rules.a.example" },
		{ RULES("\"a.example\":[{\"transform\":{\"body\":1}}]"), "body" },
		{ RULES("\"a.example\":[{},{}]"), "at most one" },
		{ RULES("\"a.example\":" HEADER("X", "1") ",\"A.example\":" HEADER("X", "1")),
			"twice" },
		{ RULES("\"a.example\":[{\"transform\":{\"headers\":{\"X\":\"1\",\"x\":\"2\"}}}]"),
			"twice" },
		{ RULES("\"a.example\":" HEADER("X Y", "1")), "token" },
		{ RULES("\"a.example\":" HEADER("", "1")), "token" },
		{ RULES("\"a.example\":" HEADER("X", "a\\r\\nY: b")), "printable" },
		{ RULES("\"a.example\":" HEADER("Host", "other")), "cannot be set" },
		{ RULES("\"a.example\":" HEADER("content-length", "1")), "cannot be set" },
		{ RULES("\"a.example\":" HEADER("X", "${e2b.secrets.}")), "malformed" },
		{ RULES("\"a.example\":" HEADER("X", "${e2b.secrets.a")), "malformed" },
		{ RULES("\"a.example\":" HEADER("X", "${e2b.secrets.${e2b.secrets.a}}")),
			"malformed" },
		{ RULES("\"a.example\":" HEADER("X", "${e2b.identity.tokens.a}")), "identity" },
		{ RULES("\"a.example\":" HEADER("X", "${e2b.secret.a}")), "that is not" },
		{ RULES("\"a.example\":" HEADER("X", "${E2B.secrets.a}")), "that is not" },
		{ RULES("\"a.example\":" HEADER("X", "${e2b.secrets.a}${e2b.}")), "that is not" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct policy p;
		struct err e = { 0 };

		if (policy_read(a, str_of(cases[i].network), POLICY_CAMEL, unset, &p, &e) !=
			-EINVAL)
			TEST_FAIL("%s: accepted", cases[i].network);
		if (!strstr(e.msg, cases[i].says))
			TEST_FAIL("%s: '%s' says nothing of '%s'", cases[i].network, e.msg,
				cases[i].says);
	}
}

/* Servers before that check took them, and sent the text as it is. */
TEST(kept_headers_with_other_marks_go_on_as_they_were)
{
	static const char *const values[] = { "${e2b.foo}", "${E2B.secrets.X}", "${e2b.",
		"a ${e2b.secrets.b} ${e2b.c}" };

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
		struct policy p;
		struct err e = { 0 };

		(void)buf_printf(&text, RULES("\"a.example\":" HEADER("X", "%s")), values[i]);
		if (policy_parse(a, buf_str(&text), unset, &p, &e) < 0)
			TEST_FAIL("%s: %s", values[i], e.msg);
		ASSERT_EQ(p.n_rules, 1);
		ASSERT_BYTES(p.rules[0].headers[0].value, values[i]);
		ASSERT_EQ(policy_read(a, buf_str(&text), POLICY_CAMEL, unset, &p, &e), -EINVAL);
	}
}

TEST(the_other_spelling_means_the_same_and_its_errors_use_it)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct policy p;
	struct err e = { 0 };

	ASSERT_EQ(policy_read(a, STR("{\"deny_out\":[\"0.0.0.0/0\"],\"allow_out\":[\"8.8.8.8\"]}"),
			  POLICY_SNAKE, unset, &p, &e),
		0);
	ASSERT(policy_denies_rest(&p) && policy_allows_address(&p, 0x08080808));
	ASSERT_EQ(policy_read(a, STR("{\"allow_out\":[\"example.com\"]}"), POLICY_SNAKE, unset, &p,
			  &e),
		-EINVAL);
	ASSERT_STR(e.msg, "network.allow_out: domain names need 0.0.0.0/0 in deny_out");
	ASSERT_EQ(policy_read(a, STR("{\"deny_out\":[\"example.com\"]}"), POLICY_SNAKE, unset, &p,
			  &e),
		-EINVAL);
	ASSERT(strstr(e.msg, "network.deny_out: "));
}

/* `n` entries of `list` or `rules`, made by fmt from their index. */
static int parse_many(const char *open, const char *fmt, int n, const char *close, struct err *e)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(4 << 20);
	CLEANUP(buf_done) struct buf text = BUF_INIT(4 << 20);
	struct policy p;

	(void)buf_adds(&text, open);
	for (int i = 0; i < n; i++) {
		for (const char *c = fmt; *c; c++)
			(void)(*c == '#' ? buf_printf(&text, "%d", i % 200) : buf_addc(&text, *c));
		if (i + 1 < n)
			(void)buf_addc(&text, ',');
	}
	(void)buf_adds(&text, close);
	return policy_parse(a, buf_str(&text), unset, &p, e);
}

TEST(every_count_has_its_ceiling)
{
	static const struct {
		const char *open, *one, *close;
		int max;
	} cases[] = {
		{ "{\"denyOut\":[", "\"8.8.8.#\"", "]}", POLICY_MAX_RANGES },
		{ "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[", "\"a#.example\"", "]}",
			POLICY_MAX_NAMES },
		{ "{\"rules\":{", "\"a#.example\":" HEADER("X", "1"), "}}", POLICY_MAX_RULES },
		{ "{\"rules\":{\"a.example\":[{\"transform\":{\"headers\":{", "\"X#\":\"1\"",
			"}}}]}}", POLICY_MAX_HEADERS },
		{ "{\"rules\":{\"a.example\":"
		  "[{\"transform\":{\"headers\":{\"X\":\"",
			"${e2b.secrets.a#}", "\"}}}]}}", 32 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };

		if (parse_many(cases[i].open, cases[i].one, cases[i].max, cases[i].close, &e) < 0)
			TEST_FAIL("%s: %d refused: %s", cases[i].open, cases[i].max, e.msg);
		if (parse_many(cases[i].open, cases[i].one, cases[i].max + 1, cases[i].close, &e) !=
			-EINVAL)
			TEST_FAIL("%s: %d accepted", cases[i].open, cases[i].max + 1);
	}
}
