#include "json/json.h"

#include "test.h"

struct server {
	struct str listen;
	struct json_int workers;
	struct json_bool tls;
	struct json_strs hosts;
};

struct config {
	struct str data_dir;
	struct server server;
	bool has_server;
	struct json_map env;
};

static const struct json_field server_fields[] = {
	JSON_FIELD(struct server, listen, "listen", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct server, workers, "workers", JSON_INT, .min = 1, .max = 1000000),
	JSON_FIELD(struct server, tls, "tls", JSON_BOOL),
	JSON_FIELD(struct server, hosts, "hosts", JSON_STRS),
};
static const struct json_shape server_shape = JSON_SHAPE(struct server, server_fields);

struct outer {
	struct json_map env;
};
static const struct json_field outer_fields[] = {
	JSON_FIELD(struct outer, env, "env", JSON_MAP),
};
static const struct json_shape outer_shape = JSON_SHAPE(struct outer, outer_fields);

static const struct json_field config_fields[] = {
	JSON_FIELD(struct config, data_dir, "data_dir", JSON_STR),
	JSON_FIELD(struct config, server, "server", JSON_OBJECT, .shape = &server_shape,
		.present = offsetof(struct config, has_server) + 1),
	JSON_FIELD(struct config, env, "env", JSON_MAP),
	JSON_FIELD(struct config, env, "outer", JSON_OBJECT, .shape = &outer_shape),
};
static const struct json_shape config_shape = JSON_SHAPE(struct config, config_fields);

static void arena_freep(struct arena **a)
{
	*a = arena_free(*a);
}

TEST(a_configuration_is_read)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct config got;
	struct err e = { 0 };

	ASSERT_EQ(toml_decode(a,
			  STR("# top\n"
			      "data_dir = '/var/lib/x\\y' # literal\n"
			      "\n"
			      "[ server ]\t# header\r\n"
			      "  listen = \"a\\tb\\u00e9\\U0001F600\\\"#\"\r\n"
			      "workers=1_000\n"
			      "tls = true\n"
			      "hosts = [ \"a\" , 'b,]', ]\n"
			      "[env]\n"
			      "\"quoted.key\" = \"1\"\n"
			      "bare-KEY_2 = \"\""),
			  &config_shape, &got, &e),
		0);
	ASSERT_BYTES(got.data_dir, "/var/lib/x\\y");
	ASSERT(got.has_server);
	ASSERT_BYTES(got.server.listen, "a\tb\xc3\xa9\xf0\x9f\x98\x80\"#");
	ASSERT_EQ(got.server.workers.value, 1000);
	ASSERT(got.server.tls.value);
	ASSERT_EQ(got.server.hosts.n, 2);
	ASSERT_BYTES(got.server.hosts.v[1], "b,]");
	ASSERT_BYTES(got.env.v[0].key, "quoted.key");
	ASSERT_BYTES(got.env.v[1].key, "bare-KEY_2");
}

TEST(tables_nest_by_their_names)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct config got;
	struct err e = { 0 };

	ASSERT_EQ(toml_decode(a, STR("[outer.env]\nA = \"1\"\n[outer]\n"), &config_shape, &got, &e),
		0);
	ASSERT_EQ(got.env.n, 1);
	ASSERT_BYTES(got.env.v[0].value, "1");
}

TEST(nothing_at_all_is_a_configuration)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct config got;

	ASSERT_EQ(toml_decode(a, STR(""), &config_shape, &got, NULL), 0);
	ASSERT_EQ(toml_decode(a, STR_NONE, &config_shape, &got, NULL), 0);
	ASSERT_EQ(toml_decode(a, STR("\n# x\n\t\n"), &config_shape, &got, NULL), 0);
	ASSERT(!got.data_dir.p && !got.has_server);
}

TEST(errors_name_their_line)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ "\n\nx = 1", "line 3: x: unknown key" },
		{ "[server]\nlisten = 5", "line 2: server.listen: must be a string" },
		{ "\n[server]\nworkers = 1\n", "line 2: server.listen: is required" },
		{ "[server]\nlisten=\"\"\nworkers = 0",
			"line 3: server.workers: must be from 1 to 1000000" },
		{ "[env]\nA = \"1\"\n[server.tls]", "line 3: server.tls: must be true or false" },
		{ "[server]\n\nhost = \"a\"",
			"line 3: server.host: unknown key; did you mean 'hosts'?" },
		{ "a\n", "line 1: expected '=' after the key" },
		{ "= 1\n", "line 1: expected a key" },
		{ "a.b = 1\n", "line 1: dotted keys are not supported: use a [table]" },
		{ "a = \n", "line 1: expected a \"string\", a decimal integer, true, false or an "
			    "array" },
		{ "a = 1.5\n", "line 1: expected a \"string\", a decimal integer, true, false or "
			       "an array" },
		{ "a = 1979-05-27\n", "line 1: expected a \"string\", a decimal integer, true, "
				      "false or an array" },
		{ "a = 1 2\n", "line 1: unexpected text after the value or header" },
		{ "a = 'x\n'\n", "line 1: a string lacks its closing quote" },
		{ "a = \"x\\\"\n", "line 1: a string lacks its closing quote" },
		{ "a = \"\\x41\"\n", "line 1: unknown escape in a string" },
		{ "a = \"\\u12g4\"\n", "line 1: an escape needs 4 hexadecimal digits" },
		{ "a = \"\\U0041\"\n", "line 1: an escape needs 8 hexadecimal digits" },
		{ "a = \"\\ud800\"\n", "line 1: an escape names no character" },
		{ "a = \"\\u0000\"\n", "line 1: an escape names no character" },
		{ "a = \"\"\"x\"\"\"\n", "line 1: strings over several lines are not supported" },
		{ "a = ['x'\n]", "line 1: expected ',' or ']' in an array" },
		{ "a = [\n]", "line 1: an array must be on one line and hold strings only" },
		{ "a = [1]\n", "line 1: an array must be on one line and hold strings only" },
		{ "a = {}\n", "line 1: expected a \"string\", a decimal integer, true, false or an "
			      "array" },
		{ "[[a]]\n", "line 1: arrays of tables are not supported" },
		{ "[a\n", "line 1: expected ']' at the end of the table's name" },
		{ "[]\n", "line 1: expected a key" },
		{ "[a.]\n", "line 1: expected a key" },
		{ "['a.b']\n", "line 1: a table's name must not have a '.' in quotes" },
		{ "[a] x\n", "line 1: unexpected text after the value or header" },
		{ "[a]\n[a]\n", "line 2: the table is there already" },
		{ "a = 1\n\"a\" = 2\n", "line 2: 'a' is there already" },
		{ "a = 1\n[a]\n", "line 2: 'a' is there already, and is no table" },
		{ "[a.b]\n[a]\nb = 1\n", "line 3: 'b' is there already" },
		{ "a = 'x'\n# \xff\n", "line 2: not UTF-8 text" },
		{ "# \x01\n", "line 1: control character in the text" },
		{ "a = 1\r\r\n", "line 1: control character in the text" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct config got;
		struct err e = { 0 };

		ASSERT_EQ(toml_decode(a, str_of(cases[i].text), &config_shape, &got, &e), -EINVAL);
		ASSERT_STR(e.msg, cases[i].message);
	}
}

TEST(integers_are_decimal_and_whole)
{
	static const struct {
		const char *text;
		int result;
		int64_t value;
	} cases[] = {
		{ "1", 0, 1 },
		{ "+7", 0, 7 },
		{ "1_0", 0, 10 },
		{ "1000000", 0, 1000000 },
		{ "007", -EINVAL, 0 },
		{ "_1", -EINVAL, 0 },
		{ "1_", -EINVAL, 0 },
		{ "1__0", -EINVAL, 0 },
		{ "+_1", -EINVAL, 0 },
		{ "+-1", -EINVAL, 0 },
		{ "++1", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
		{ "1e3", -EINVAL, 0 },
		{ "99999999999999999999999999999999", -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		CLEANUP(buf_done) struct buf text = BUF_INIT(256);
		struct config got;

		buf_printf(&text, "[server]\nlisten = ''\nworkers = %s\n", cases[i].text);
		if (toml_decode(a, buf_str(&text), &config_shape, &got, NULL) != cases[i].result)
			TEST_FAIL("wrong result for %s", cases[i].text);
		if (cases[i].result == 0)
			ASSERT_EQ(got.server.workers.value, cases[i].value);
	}
}

TEST(tables_nest_only_so_deep)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 12);
	struct config got;
	struct err e;

	buf_adds(&text, "[a");
	for (int i = 0; i < 40; i++)
		buf_adds(&text, ".a");
	buf_adds(&text, "]");
	ASSERT_EQ(toml_decode(a, buf_str(&text), &config_shape, &got, &e), -EINVAL);
	ASSERT_STR(e.msg, "line 1: nested deeper than 32");
}
