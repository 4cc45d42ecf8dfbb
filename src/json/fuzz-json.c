/* Whatever is accepted is written again, and the second text decodes to the same and is a fixed
 * point. */
#include "json/json.h"

struct leaf {
	struct str text;
	struct json_int number;
	struct json_strs strs;
};

struct root {
	struct str text;
	struct json_int number, lax;
	struct json_bool flag;
	struct json_map map;
	struct leaf object;
	bool has_object;
	struct json_list objects;
	struct str raw, bytes;
};

static const struct json_field leaf_fields[] = {
	JSON_FIELD(struct leaf, text, "t", JSON_STR, .flags = JSON_REQUIRED, .max = 20),
	JSON_FIELD(struct leaf, number, "n", JSON_INT, .min = -5, .max = 5),
	JSON_FIELD(struct leaf, strs, "s", JSON_STRS, .max = 4),
};
static const struct json_shape leaf_shape = JSON_SHAPE(struct leaf, leaf_fields);

static const struct json_field root_fields[] = {
	JSON_FIELD(struct root, text, "text", JSON_STR),
	JSON_FIELD(struct root, number, "number", JSON_INT, .alias = "num"),
	JSON_FIELD(struct root, lax, "lax", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct root, flag, "flag", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct root, map, "map", JSON_MAP),
	JSON_FIELD(struct root, object, "object", JSON_OBJECT, .shape = &leaf_shape,
		.present = offsetof(struct root, has_object) + 1),
	JSON_FIELD(struct root, objects, "objects", JSON_OBJECTS, .shape = &leaf_shape),
	JSON_FIELD(struct root, raw, "raw", JSON_RAW),
	JSON_FIELD(struct root, bytes, "bytes", JSON_BYTES),
};
static const struct json_shape root_shape =
	JSON_SHAPE(struct root, root_fields, .ignore_unknown = true);

static void write_int(struct jsonw *w, const char *key, const struct json_int *value)
{
	if (value->is_set)
		jsonw_int(w, key, value->value);
}

static void write_leaf(struct jsonw *w, const char *key, const struct leaf *leaf)
{
	jsonw_object(w, key);
	jsonw_str(w, "t", leaf->text);
	write_int(w, "n", &leaf->number);
	if (leaf->strs.is_set) {
		jsonw_array(w, "s");
		for (size_t i = 0; i < leaf->strs.n; i++)
			jsonw_str(w, NULL, leaf->strs.v[i]);
		jsonw_end_array(w);
	}
	jsonw_end_object(w);
}

static void write_leaves(struct jsonw *w, const struct json_list *list)
{
	const struct leaf *leaves = list->v;

	jsonw_array(w, "objects");
	for (size_t i = 0; i < list->n; i++)
		write_leaf(w, NULL, &leaves[i]);
	jsonw_end_array(w);
}

static void write_root(struct buf *out, const struct root *root)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	if (root->text.p)
		jsonw_str(&w, "text", root->text);
	write_int(&w, "number", &root->number);
	write_int(&w, "lax", &root->lax);
	if (root->flag.is_set)
		jsonw_bool(&w, "flag", root->flag.value);
	if (root->map.is_set)
		jsonw_map(&w, "map", &root->map);
	if (root->has_object)
		write_leaf(&w, "object", &root->object);
	if (root->objects.is_set)
		write_leaves(&w, &root->objects);
	if (root->raw.p)
		jsonw_raw(&w, "raw", root->raw);
	if (root->bytes.p)
		jsonw_base64(&w, "bytes", root->bytes);
	jsonw_end_object(&w);
	assert(!out->failed);
	assert(str_is_utf8(buf_str(out)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena *a = arena_new(16 << 20);
	struct buf first = BUF_INIT(16 << 20), second = BUF_INIT(16 << 20);
	struct json_list list;
	struct root root;
	struct err e = { 0 };

	if (json_decode(a, str_make(data, size), &root_shape, &root, &e) == 0) {
		write_root(&first, &root);
		assert(json_decode(a, buf_str(&first), &root_shape, &root, &e) == 0);
		write_root(&second, &root);
		assert(str_eq(buf_str(&first), buf_str(&second)));
	} else {
		assert(e.code < 0 && e.msg[0]);
	}
	(void)json_decode_list(a, str_make(data, size), &leaf_shape, &list, &e);
	buf_done(&first);
	buf_done(&second);
	(void)arena_free(a);
	return 0;
}
