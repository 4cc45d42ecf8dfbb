/* A file means the same with either kind of line ending, and with blank lines behind it: same
 * result, same values, same message with the same line in it. */
#include "json/json.h"

struct table {
	struct str text;
	struct json_int number;
	struct json_bool flag;
	struct json_strs strs;
};

struct root {
	struct str text;
	struct table a;
	struct json_map map;
};

static const struct json_field table_fields[] = {
	JSON_FIELD(struct table, text, "text", JSON_STR, .max = 20),
	JSON_FIELD(struct table, number, "number", JSON_INT),
	JSON_FIELD(struct table, flag, "flag", JSON_BOOL),
	JSON_FIELD(struct table, strs, "strs", JSON_STRS, .max = 4),
};
static const struct json_shape table_shape = JSON_SHAPE(struct table, table_fields);

static const struct json_field root_fields[] = {
	JSON_FIELD(struct root, text, "text", JSON_STR),
	JSON_FIELD(struct root, a, "a", JSON_OBJECT, .shape = &table_shape),
	JSON_FIELD(struct root, map, "map", JSON_MAP),
};
static const struct json_shape root_shape =
	JSON_SHAPE(struct root, root_fields, .ignore_unknown = true);

/* Everything that came of the text, as text. */
static void outcome(struct str text, struct buf *out)
{
	struct arena *a = arena_new(16 << 20);
	struct root root;
	struct err e = { 0 };
	struct jsonw w;
	int r = toml_decode(a, text, &root_shape, &root, &e);

	jsonw_init(&w, out);
	jsonw_array(&w, NULL);
	jsonw_int(&w, NULL, r);
	jsonw_strz(&w, NULL, e.msg);
	if (r == 0) {
		jsonw_str(&w, NULL, root.text);
		jsonw_str(&w, NULL, root.a.text);
		jsonw_int(&w, NULL, root.a.number.value);
		jsonw_bool(&w, NULL, root.a.flag.value);
		for (size_t i = 0; i < root.a.strs.n; i++)
			jsonw_str(&w, NULL, root.a.strs.v[i]);
		jsonw_map(&w, NULL, &root.map);
	}
	jsonw_end_array(&w);
	(void)arena_free(a);
}

/* LF to CRLF where it is not one already, and blank lines at the end. */
static void respell(struct str text, struct buf *out)
{
	for (size_t i = 0; i < text.n; i++) {
		if (text.p[i] == '\n' && (i == 0 || text.p[i - 1] != '\r'))
			buf_addc(out, '\r');
		buf_addc(out, text.p[i]);
	}
	buf_adds(out, "\n\r\n \n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf first = BUF_INIT(32 << 20), second = BUF_INIT(32 << 20),
		   text = BUF_INIT(32 << 20);

	respell(str_make(data, size), &text);
	outcome(str_make(data, size), &first);
	outcome(buf_str(&text), &second);
	assert(!first.failed && !second.failed && !text.failed);
	assert(str_eq(buf_str(&first), buf_str(&second)));
	buf_done(&first);
	buf_done(&second);
	buf_done(&text);
	return 0;
}
