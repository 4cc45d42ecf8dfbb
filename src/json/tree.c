#include "json/tree.h"

#include <jansson.h>

/* A look at the brackets before anything is built: jansson itself allows 2,048 levels, and a tree
 * is many times its text. Where the text is malformed, jansson stops at or before the place where
 * the two readings part, so the bounds hold for whatever it builds. */
int json_node_check(struct str text, size_t max_values, struct err *e)
{
	size_t depth = 0, values = 1;
	bool in_string = false;

	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			values++;
			if (++depth > JSON_MAX_DEPTH)
				return err_set(e, -EINVAL, "nested deeper than %d", JSON_MAX_DEPTH);
		} else if (c == '}' || c == ']') {
			depth -= depth > 0;
		} else if (c == ',' && ++values > max_values) {
			return err_set(e, -EINVAL, "more than %zu values", max_values);
		}
	}
	return 0;
}

/* jansson quotes what it stumbled over ("... near 'sk-live-1'"). That may be a secret, and the
 * place is given anyway: leave it out. */
static int parse_failed(const json_error_t *error, struct err *e)
{
	const char *near = strstr(error->text, " near ");
	int n = near ? (int)(near - error->text) : (int)strlen(error->text);

	if (json_error_code(error) == json_error_out_of_memory)
		return err_set(e, -ENOBUFS, "no memory for the document");
	return err_set(e, -EINVAL, "not valid JSON at line %d, column %d: %.*s", error->line,
		error->column, n, error->text);
}

int json_node_parse(struct str text, struct json_t **ret, struct err *e)
{
	json_error_t error;
	json_t *root;
	int r;

	r = json_node_check(text, JSON_MAX_VALUES, e);
	if (r < 0)
		return r;
	root = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return parse_failed(&error, e);
	*ret = root;
	return 0;
}

struct json_t *json_node_free(struct json_t *node)
{
	json_decref(node);
	return NULL;
}

enum json_node_kind json_node_kind(const struct json_t *node)
{
	switch (json_typeof(node)) {
	case JSON_OBJECT:
		return NODE_OBJECT;
	case JSON_ARRAY:
		return NODE_ARRAY;
	case JSON_STRING:
		return NODE_STRING;
	case JSON_INTEGER:
		return NODE_INT;
	case JSON_REAL:
		return NODE_REAL;
	case JSON_TRUE:
	case JSON_FALSE:
		return NODE_BOOL;
	case JSON_NULL:
		return NODE_NULL;
	}
	return NODE_NULL;
}

struct str json_node_string(const struct json_t *node)
{
	return str_make(json_string_value(node), json_string_length(node));
}

int64_t json_node_int(const struct json_t *node)
{
	return json_integer_value(node);
}

double json_node_real(const struct json_t *node)
{
	return json_real_value(node);
}

bool json_node_bool(const struct json_t *node)
{
	return json_is_true(node);
}

size_t json_node_count(const struct json_t *node)
{
	return json_is_array(node) ? json_array_size(node) : json_object_size(node);
}

struct json_t *json_node_at(const struct json_t *array, size_t i)
{
	return json_array_get(array, i);
}

bool json_node_next(struct json_t *object, struct json_member *member)
{
	member->at =
		member->at ? json_object_iter_next(object, member->at) : json_object_iter(object);
	if (!member->at)
		return false;
	member->key =
		str_make(json_object_iter_key(member->at), json_object_iter_key_len(member->at));
	member->value = json_object_iter_value(member->at);
	return true;
}

struct json_t *json_node_new_object(void)
{
	return json_object();
}

struct json_t *json_node_new_array(void)
{
	return json_array();
}

struct json_t *json_node_new_string(struct str s)
{
	return json_stringn(s.p ? s.p : "", s.n);
}

struct json_t *json_node_new_int(int64_t value)
{
	return json_integer(value);
}

struct json_t *json_node_new_bool(bool value)
{
	return json_boolean(value);
}

struct json_t *json_node_get(const struct json_t *object, struct str key)
{
	return json_object_getn(object, key.p, key.n);
}

int json_node_take_member(struct json_t *object, struct str key, struct json_t *value)
{
	return json_object_setn_new(object, key.p, key.n, value) < 0 ? -ENOMEM : 0;
}

int json_node_take_item(struct json_t *array, struct json_t *value)
{
	return json_array_append_new(array, value) < 0 ? -ENOMEM : 0;
}
