#include "json/json.h"

#include "test.h"

struct limits {
	struct json_int memory_mb;
	struct str note;
};

struct process {
	struct str cmd;
	struct json_strs args;
	struct json_map envs;
};

struct rule {
	struct str host;
	struct json_int port;
};

struct request {
	struct str name;
	struct json_int timeout;
	struct json_int size;
	struct json_bool secure;
	struct process process;
	bool has_process;
	struct json_list rules;
	struct str extra;
	struct str data;
	struct limits limits;
};

static const struct json_field process_fields[] = {
	JSON_FIELD(struct process, cmd, "cmd", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct process, args, "args", JSON_STRS, .max = 3),
	JSON_FIELD(struct process, envs, "envs", JSON_MAP, .max = 2),
};
static const struct json_shape process_shape = JSON_SHAPE(struct process, process_fields);

static const struct json_field rule_fields[] = {
	JSON_FIELD(struct rule, host, "host", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct rule, port, "port", JSON_INT, .min = 1, .max = 65535),
};
static const struct json_shape rule_shape = JSON_SHAPE(struct rule, rule_fields);

static const struct json_field limits_fields[] = {
	JSON_FIELD(struct limits, memory_mb, "memoryMB", JSON_INT, .min = 16, .max = INT64_MAX),
	JSON_FIELD(struct limits, note, "note", JSON_STR),
};
static const struct json_shape limits_shape =
	JSON_SHAPE(struct limits, limits_fields, .ignore_unknown = true);

static const struct json_field request_fields[] = {
	JSON_FIELD(struct request, name, "name", JSON_STR, .max = 5),
	JSON_FIELD(struct request, timeout, "timeoutMs", JSON_INT, .alias = "timeout_ms"),
	JSON_FIELD(struct request, size, "size", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct request, secure, "secure", JSON_BOOL),
	JSON_FIELD(struct request, process, "process", JSON_OBJECT, .shape = &process_shape,
		.present = offsetof(struct request, has_process) + 1),
	JSON_FIELD(struct request, rules, "rules", JSON_OBJECTS, .shape = &rule_shape, .max = 2),
	JSON_FIELD(struct request, extra, "extra", JSON_RAW),
	JSON_FIELD(struct request, data, "data", JSON_BYTES, .max = 4),
	JSON_FIELD(struct request, limits, "limits", JSON_OBJECT, .shape = &limits_shape),
};
static const struct json_shape request_shape = JSON_SHAPE(struct request, request_fields);

static void arena_freep(struct arena **a)
{
	*a = arena_free(*a);
}

TEST(a_full_document_fills_the_struct)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct request got;

	ASSERT_EQ(json_decode(a,
			  STR("{\"name\":\"a\\u00e9b\",\"timeout_ms\":-5,\"size\":\"42\","
			      "\"secure\":false,"
			      "\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"\"],"
			      "\"envs\":{\"B\":\"2\",\"A\":\"1\"}},"
			      "\"rules\":[{\"host\":\"x\",\"port\":1},{\"host\":\"y\"}],"
			      "\"extra\":{\"k\" : [1, 2.5, null, \"\\n\"]},\"data\":\"AAH_\","
			      "\"limits\":{\"memoryMB\":64,\"else\":[]}}"),
			  &request_shape, &got, NULL),
		0);
	ASSERT_BYTES(got.name, "a\xc3\xa9"
			       "b");
	ASSERT_EQ(got.name.p[got.name.n], 0);
	ASSERT(got.timeout.is_set && got.timeout.value == -5);
	ASSERT(got.size.is_set && got.size.value == 42);
	ASSERT(got.secure.is_set && !got.secure.value);
	ASSERT(got.has_process);
	ASSERT_BYTES(got.process.cmd, "sh");
	ASSERT_EQ(got.process.args.n, 2);
	ASSERT_BYTES(got.process.args.v[0], "-c");
	ASSERT_BYTES(got.process.args.v[1], "");
	ASSERT_EQ(got.process.envs.n, 2);
	ASSERT_BYTES(got.process.envs.v[0].key, "B");
	ASSERT_BYTES(got.process.envs.v[1].value, "1");
	ASSERT_EQ(got.rules.n, 2);
	ASSERT_EQ(((struct rule *)got.rules.v)[0].port.value, 1);
	ASSERT(!((struct rule *)got.rules.v)[1].port.is_set);
	ASSERT_BYTES(got.extra, "{\"k\":[1,2.5,null,\"\\n\"]}");
	ASSERT(str_eq(got.data, STR("\0\1\xff")));
	ASSERT_EQ(got.limits.memory_mb.value, 64);
}

TEST(absent_fields_leave_zeroes_even_where_the_struct_was_dirty)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct request got;

	memset(&got, 0xff, sizeof got);
	ASSERT_EQ(json_decode(a, STR("{}"), &request_shape, &got, NULL), 0);
	ASSERT(!got.name.p && !got.timeout.is_set && !got.secure.is_set && !got.has_process);
	ASSERT(!got.rules.is_set && !got.extra.p && !got.process.args.is_set);
}

TEST(empty_lists_and_maps_are_set_and_hold_nothing)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct request got;

	ASSERT_EQ(json_decode(a,
			  STR("{\"process\":{\"cmd\":\"\",\"args\":[],\"envs\":{}},\"rules\":[],"
			      "\"data\":\"\"}"),
			  &request_shape, &got, NULL),
		0);
	ASSERT(got.process.args.is_set && got.process.args.n == 0);
	ASSERT(got.process.envs.is_set && got.process.envs.n == 0);
	ASSERT(got.rules.is_set && got.rules.n == 0);
	ASSERT(got.process.cmd.p && got.process.cmd.n == 0);
	ASSERT(got.data.p && got.data.n == 0);
}

TEST(what_does_not_fit_is_refused_with_its_path)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ "[]", "must be an object" },
		{ "{\"other\":1}", "other: unknown key" },
		{ "{\"nam\":1}", "nam: unknown key; did you mean 'name'?" },
		{ "{\"Name\":1}", "Name: unknown key; did you mean 'name'?" },
		{ "{\"names\":1}", "names: unknown key; did you mean 'name'?" },
		{ "{\"timeoutMS\":1}", "timeoutMS: unknown key; did you mean 'timeoutMs'?" },
		{ "{\"timeutMs\":1}", "timeutMs: unknown key; did you mean 'timeoutMs'?" },
		{ "{\"process\":{\"cmds\":1}}", "process.cmds: unknown key; did you mean 'cmd'?" },
		{ "{\"name\":1}", "name: must be a string" },
		{ "{\"name\":null}", "name: must be a string" },
		{ "{\"name\":\"sixsix\"}", "name: must not be longer than 5 bytes" },
		{ "{\"timeoutMs\":\"5\"}", "timeoutMs: must be an integer" },
		{ "{\"timeoutMs\":5.0}", "timeoutMs: must be an integer" },
		{ "{\"timeoutMs\":1,\"timeout_ms\":2}", "timeout_ms: given twice" },
		{ "{\"size\":\"5x\"}", "size: must be an integer" },
		{ "{\"size\":5.5}", "size: must be an integer" },
		{ "{\"size\":1e300}", "size: must be an integer" },
		{ "{\"secure\":0}", "secure: must be true or false" },
		{ "{\"process\":[]}", "process: must be an object" },
		{ "{\"process\":{}}", "process.cmd: is required" },
		{ "{\"process\":{\"cmd\":\"\",\"envs\":[]}}", "process.envs: must be an object" },
		{ "{\"process\":{\"cmd\":\"\",\"envs\":{\"A\":1}}}",
			"process.envs.A: must be a string" },
		{ "{\"process\":{\"cmd\":\"\",\"envs\":{\"A\":\"\",\"B\":\"\",\"C\":\"\"}}}",
			"process.envs: must not have more than 2 entries" },
		{ "{\"process\":{\"cmd\":\"\",\"args\":\"x\"}}",
			"process.args: must be an array of strings" },
		{ "{\"process\":{\"cmd\":\"\",\"args\":[\"\",2]}}",
			"process.args[1]: must be a string" },
		{ "{\"rules\":{}}", "rules: must be an array of objects" },
		{ "{\"rules\":[{\"host\":\"a\"},{}]}", "rules[1].host: is required" },
		{ "{\"rules\":[{\"host\":\"a\",\"port\":0}]}",
			"rules[0].port: must be from 1 to 65535" },
		{ "{\"rules\":[1]}", "rules[0]: must be an object" },
		{ "{\"limits\":{\"memoryMB\":15}}", "limits.memoryMB: must be at least 16" },
		{ "{\"data\":\"A\"}", "data: must be valid base64" },
		{ "{\"data\":\"AA==\\n\"}", "data: must be valid base64" },
		{ "{\"data\":\"AAAAAAAA\"}", "data: must not be longer than 4 bytes" },
		{ "{\"data\":7}", "data: must be a base64 string" },
		{ "", "not valid JSON at line 1, column 0: '[' or '{' expected" },
		{ "\"x\"", "not valid JSON at line 1, column 3: '[' or '{' expected" },
		{ "{\"name\":\"s3cr3t}",
			"not valid JSON at line 1, column 16: premature end of input" },
		{ "{\"name\":s3cr3t}", "not valid JSON at line 1, column 9: invalid token" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct request got;
		struct err e = { 0 };

		ASSERT_EQ(json_decode(a, str_of(cases[i].text), &request_shape, &got, &e), -EINVAL);
		ASSERT_EQ(e.code, -EINVAL);
		ASSERT_STR(e.msg, cases[i].message);
	}
}

TEST(malformed_documents_are_refused)
{
	static const struct str cases[] = {
		STR("{\"name\":\"a\",\"name\":\"b\"}"),
		STR("{\"extra\":{\"a\":1,\"a\":2}}"),
		STR("{\"name\":\"\\u0000\"}"),
		STR("{\"na\\u0000me\":1}"),
		STR("{\"name\":\"\0\"}"),
		STR("{\"name\":\"\xff\"}"),
		STR("{\"name\":\"\xc0\xaf\"}"),
		STR("{\"name\":\"\\ud800\"}"),
		STR("{\"name\":\"\xed\xa0\x80\"}"),
		STR("{} {}"),
		STR("{}x"),
		STR("{}\0"),
		STR("{,}"),
		STR("{\"name\":\"a\",}"),
		STR("{'name':'a'}"),
		STR("{name:\"a\"}"),
		STR("{\"size\":01}"),
		STR("{\"size\":+1}"),
		STR("{\"size\":0x1}"),
		STR("{\"size\":1.}"),
		STR("{\"size\":NaN}"),
		STR("{\"size\":99999999999999999999}"),
		STR("{\"extra\":1e999}"),
		STR("{\"name\":\"a\nb\"}"),
		STR("// c\n{}"),
		STR("\xef\xbb\xbf{}"),
		STR("{"),
		STR("{\"\""),
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct request got;

		if (json_decode(a, cases[i], &request_shape, &got, NULL) != -EINVAL)
			TEST_FAIL("accepted: %.*s", STR_ARG(cases[i]));
	}
}

/* extra = n nested arrays, one level below the top object. */
static int decode_nested(size_t n)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 16);
	struct request got;

	buf_adds(&text, "{\"name\":\"[{\\\"[\",\"extra\":");
	for (size_t i = 0; i < n; i++)
		buf_addc(&text, '[');
	for (size_t i = 0; i < n; i++)
		buf_addc(&text, ']');
	buf_addc(&text, '}');
	return json_decode(a, buf_str(&text), &request_shape, &got, NULL);
}

TEST(thirty_two_levels_are_read_and_thirty_three_are_not)
{
	ASSERT_EQ(decode_nested(31), 0);
	ASSERT_EQ(decode_nested(32), -EINVAL);
	ASSERT_EQ(decode_nested(20000), -EINVAL);
}

TEST(a_flood_of_values_is_refused_before_a_tree_is_built)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);
	struct request got;
	struct err e;

	buf_adds(&text, "{\"extra\":[1");
	for (size_t i = 0; i < 300000; i++)
		buf_adds(&text, ",1");
	buf_adds(&text, "]}");
	ASSERT_EQ(json_decode(a, buf_str(&text), &request_shape, &got, &e), -EINVAL);
	ASSERT_STR(e.msg, "more than 262144 values");
}

TEST(a_full_arena_is_its_own_error)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(64);
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct request got;
	struct err e;

	buf_adds(&text, "{\"extra\":\"");
	for (size_t i = 0; i < 100; i++)
		buf_addc(&text, 'x');
	buf_adds(&text, "\"}");
	ASSERT_EQ(json_decode(a, buf_str(&text), &request_shape, &got, &e), -ENOBUFS);
	ASSERT_STR(e.msg, "extra: too large");
}

TEST(lax_takes_null_as_absent_and_proto_integers)
{
	static const struct {
		const char *text;
		bool is_set;
		int64_t value;
	} cases[] = {
		{ "{\"size\":null}", false, 0 },
		{ "{\"size\":7}", true, 7 },
		{ "{\"size\":\"-9223372036854775808\"}", true, INT64_MIN },
		{ "{\"size\":1e3}", true, 1000 },
		{ "{\"size\":-3.0}", true, -3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		struct request got;

		ASSERT_EQ(json_decode(a, str_of(cases[i].text), &request_shape, &got, NULL), 0);
		ASSERT_EQ(got.size.is_set, cases[i].is_set);
		ASSERT_EQ(got.size.value, cases[i].value);
	}
}

TEST(a_null_does_not_satisfy_what_is_required)
{
	static const struct json_field fields[] = {
		JSON_FIELD(struct rule, host, "host", JSON_STR, .flags = JSON_REQUIRED | JSON_LAX),
	};
	static const struct json_shape shape = JSON_SHAPE(struct rule, fields);
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct rule got;
	struct err e;

	ASSERT_EQ(json_decode(a, STR("{\"host\":null}"), &shape, &got, &e), -EINVAL);
	ASSERT_STR(e.msg, "host: is required");
}

TEST(raw_values_keep_their_meaning)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "0.1", "0.1" },
		{ "1.0", "1.0" },
		{ "-0", "0" },
		{ "1e5", "100000.0" },
		{ "1E-7", "1e-07" },
		{ "0.30000000000000004", "0.30000000000000004" },
		{ "9223372036854775807", "9223372036854775807" },
		{ " null ", "null" },
		{ "true", "true" },
		{ "\"\\/\\u0041\\u0007\"", "\"/A\\u0007\"" },
		{ "[ [ ] , { } ]", "[[],{}]" },
		{ "{\"z\":1,\"a\":{\"\":2}}", "{\"z\":1,\"a\":{\"\":2}}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
		CLEANUP(buf_done) struct buf text = BUF_INIT(1024);
		struct request got;

		buf_printf(&text, "{\"extra\":%s}", cases[i].in);
		ASSERT_EQ(json_decode(a, buf_str(&text), &request_shape, &got, NULL), 0);
		ASSERT_BYTES(got.extra, cases[i].out);
	}
}

TEST(a_list_at_the_top)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct json_list got;
	struct err e;

	ASSERT_EQ(json_decode_list(a, STR("[{\"host\":\"a\"},{\"host\":\"b\",\"port\":2}]"),
			  &rule_shape, &got, &e),
		0);
	ASSERT_EQ(got.n, 2);
	ASSERT_EQ(((struct rule *)got.v)[1].port.value, 2);
	ASSERT_EQ(json_decode_list(a, STR("[]"), &rule_shape, &got, &e), 0);
	ASSERT(got.is_set && got.n == 0);
	ASSERT_EQ(json_decode_list(a, STR("{}"), &rule_shape, &got, &e), -EINVAL);
	ASSERT_STR(e.msg, "must be an array of objects");
	ASSERT_EQ(json_decode_list(a, STR("[{\"host\":\"a\",\"x\":1}]"), &rule_shape, &got, &e),
		-EINVAL);
	ASSERT_STR(e.msg, "[0].x: unknown key");
}

TEST(a_long_path_is_cut_and_nothing_else_breaks)
{
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	CLEANUP(buf_done) struct buf text = BUF_INIT(8192);
	struct request got;
	struct err e;

	buf_adds(&text, "{\"process\":{\"cmd\":\"\",\"envs\":{\"");
	for (size_t i = 0; i < 4000; i++)
		buf_addc(&text, 'k');
	buf_adds(&text, "\":1}}}");
	ASSERT_EQ(json_decode(a, buf_str(&text), &request_shape, &got, &e), -EINVAL);
	ASSERT(str_has_prefix(str_of(e.msg), STR("process.envs.kkkk")));
	ASSERT(strstr(e.msg, ": must be a string"));
}

TEST(a_raw_map_keeps_values_of_any_type_as_their_text)
{
	struct holder {
		struct json_map map;
	};
	static const struct json_field fields[] = {
		JSON_FIELD(struct holder, map, "map", JSON_RAW_MAP, .max = 3),
	};
	static const struct json_shape shape = JSON_SHAPE(struct holder, fields);
	CLEANUP(arena_freep) struct arena *arena = arena_new(4096);
	struct holder got;
	struct err e = { 0 };

	ASSERT_EQ(json_decode(arena, STR("{\"map\":{\"a\":[1, {}],\"b\":\"x\",\"c\":null}}"),
			  &shape, &got, &e),
		0);
	ASSERT_EQ(got.map.n, 3);
	ASSERT_BYTES(got.map.v[0].value, "[1,{}]");
	ASSERT_BYTES(got.map.v[1].value, "\"x\"");
	ASSERT_BYTES(got.map.v[2].value, "null");
	ASSERT_EQ(json_decode(arena, STR("{\"map\":{\"a\":1,\"b\":2,\"c\":3,\"d\":4}}"), &shape,
			  &got, &e),
		-EINVAL);
}

TEST(null_is_absent_where_it_may_be_and_nothing_else_is_lax)
{
	static const struct json_field fields[] = {
		JSON_FIELD(struct rule, host, "host", JSON_STR, .flags = JSON_NULLABLE),
		JSON_FIELD(struct rule, port, "port", JSON_INT, .flags = JSON_NULLABLE),
	};
	static const struct json_shape shape = JSON_SHAPE(struct rule, fields);
	CLEANUP(arena_freep) struct arena *a = arena_new(1 << 16);
	struct rule rule;

	ASSERT_EQ(json_decode(a, STR("{\"host\":null,\"port\":null}"), &shape, &rule, NULL), 0);
	ASSERT(!rule.host.p && !rule.port.is_set);
	ASSERT_EQ(json_decode(a, STR("{\"port\":7}"), &shape, &rule, NULL), 0);
	ASSERT_EQ(rule.port.value, 7);
	ASSERT_EQ(json_decode(a, STR("{\"port\":\"7\"}"), &shape, &rule, NULL), -EINVAL);
	ASSERT_EQ(json_decode(a, STR("{\"port\":7.0}"), &shape, &rule, NULL), -EINVAL);
}
