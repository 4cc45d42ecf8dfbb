/* Tables to structs. Each value knows its place by a chain of stack frames, which costs nothing
 * until an error has to say where it is. */
#include "json/json-internal.h"

enum {
	MAX_FIELDS = 64,          /* of one shape: one bit each says what was given */
	MAX_RAW_BYTES = 16 << 20, /* text of one JSON_RAW value */
};

struct place {
	const struct place *up;
	struct str key; /* p NULL: an element, by its index */
	size_t index;
};

struct decoder {
	struct arena *arena;
	char *where; /* JSON_PATH_SIZE */
	struct err *e;
};

static size_t print_path(const struct place *at, char *out, size_t size)
{
	size_t n;
	int r;

	if (!at)
		return 0;
	n = print_path(at->up, out, size);
	if (at->key.p)
		r = snprintf(out + n, size - n, "%s%.*s", n > 0 ? "." : "",
			(int)MIN(at->key.n, size), at->key.p);
	else
		r = snprintf(out + n, size - n, "[%zu]", at->index);
	return MIN(n + (size_t)MAX(r, 0), size - 1);
}

__attribute__((format(printf, 4, 5))) static int fail(const struct decoder *d,
	const struct place *at, int code, const char *fmt, ...)
{
	char text[sizeof d->e->msg];
	va_list args;

	d->where[0] = '\0';
	(void)print_path(at, d->where, JSON_PATH_SIZE);
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	return err_set(d->e, code, "%s", text);
}

static int fail_full(const struct decoder *d, const struct place *at)
{
	return fail(d, at, -ENOBUFS, "too large");
}

static int copy_text(const struct decoder *d, const struct place *at, struct str s, struct str *ret)
{
	const char *copy = arena_dup(d->arena, s);

	if (!copy)
		return fail_full(d, at);
	*ret = str_make(copy, s.n);
	return 0;
}

static int check_length(const struct decoder *d, const struct place *at,
	const struct json_field *field, size_t n)
{
	if (field->max > 0 && n > (uint64_t)field->max)
		return fail(d, at, -EINVAL, "must not be longer than %" PRId64 " bytes",
			field->max);
	return 0;
}

/* Checks the count of a list or map and makes room for it; *ret is NULL when there is nothing to
 * hold. */
static int make_items(const struct decoder *d, const struct place *at,
	const struct json_field *field, size_t n, size_t item_size, void **ret)
{
	size_t size;

	*ret = NULL;
	if (field && field->max > 0 && n > (uint64_t)field->max)
		return fail(d, at, -EINVAL, "must not have more than %" PRId64 " entries",
			field->max);
	if (n == 0)
		return 0;
	if (__builtin_mul_overflow(n, item_size, &size))
		return fail_full(d, at);
	*ret = arena_alloc(d->arena, size);
	return *ret ? 0 : fail_full(d, at);
}

static int decode_str(const struct decoder *d, const struct place *at,
	const struct json_field *field, const struct json_t *node, struct str *out)
{
	struct str s;
	int r;

	if (json_node_kind(node) != NODE_STRING)
		return fail(d, at, -EINVAL, "must be a string");
	s = json_node_string(node);
	r = check_length(d, at, field, s.n);
	return r < 0 ? r : copy_text(d, at, s, out);
}

static int decode_bytes(const struct decoder *d, const struct place *at,
	const struct json_field *field, const struct json_t *node, struct str *out)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(0);
	struct str s;
	int r;

	if (json_node_kind(node) != NODE_STRING)
		return fail(d, at, -EINVAL, "must be a base64 string");
	s = json_node_string(node);
	bytes.max = s.n + 3; /* the decoder reserves by whole groups */
	r = base64_decode(s, &bytes);
	if (r == -ENOBUFS)
		return fail_full(d, at);
	if (r < 0)
		return fail(d, at, -EINVAL, "must be valid base64");
	r = check_length(d, at, field, bytes.n);
	return r < 0 ? r : copy_text(d, at, buf_str(&bytes), out);
}

static int decode_raw(const struct decoder *d, const struct place *at, struct json_t *node,
	struct str *out)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(MAX_RAW_BYTES);

	json_write_node(&text, node);
	return text.failed ? fail_full(d, at) : copy_text(d, at, buf_str(&text), out);
}

/* Proto3 JSON also writes int64 as a string, and allows 3.0 for 3. */
static bool read_int(const struct json_t *node, bool lax, int64_t *ret)
{
	const double exact =
		9007199254740992.0; /* 2^53: below it a real is the integer it looks like */
	enum json_node_kind kind = json_node_kind(node);

	if (kind == NODE_INT) {
		*ret = json_node_int(node);
		return true;
	}
	if (lax && kind == NODE_REAL) {
		double real = json_node_real(node);

		if (real < -exact || real > exact || real != (double)(int64_t)real)
			return false;
		*ret = (int64_t)real;
		return true;
	}
	return lax && kind == NODE_STRING &&
	       str_to_int(json_node_string(node), INT64_MIN, INT64_MAX, ret) == 0;
}

static int decode_int(const struct decoder *d, const struct place *at,
	const struct json_field *field, const struct json_t *node, struct json_int *out)
{
	int64_t value;

	if (!read_int(node, field->flags & JSON_LAX, &value))
		return fail(d, at, -EINVAL, "must be an integer");
	if (field->max > field->min && (value < field->min || value > field->max)) {
		if (field->max == INT64_MAX)
			return fail(d, at, -EINVAL, "must be at least %" PRId64, field->min);
		return fail(d, at, -EINVAL, "must be from %" PRId64 " to %" PRId64, field->min,
			field->max);
	}
	*out = (struct json_int){ .is_set = true, .value = value };
	return 0;
}

static int decode_bool(const struct decoder *d, const struct place *at, const struct json_t *node,
	struct json_bool *out)
{
	if (json_node_kind(node) != NODE_BOOL)
		return fail(d, at, -EINVAL, "must be true or false");
	*out = (struct json_bool){ .is_set = true, .value = json_node_bool(node) };
	return 0;
}

static int decode_map_value(const struct decoder *d, const struct place *at, enum json_kind kind,
	struct json_t *node, struct str *out)
{
	if (kind == JSON_RAW_MAP)
		return decode_raw(d, at, node, out);
	if (json_node_kind(node) != NODE_STRING)
		return fail(d, at, -EINVAL, "must be a string");
	return copy_text(d, at, json_node_string(node), out);
}

static int decode_map(const struct decoder *d, const struct place *at,
	const struct json_field *field, struct json_t *node, struct json_map *out)
{
	struct json_member member = { 0 };
	struct json_pair *pairs;
	void *items;
	size_t n = 0;
	int r;

	if (json_node_kind(node) != NODE_OBJECT)
		return fail(d, at, -EINVAL, "must be an object");
	r = make_items(d, at, field, json_node_count(node), sizeof *pairs, &items);
	if (r < 0)
		return r;
	pairs = items;
	while (json_node_next(node, &member)) {
		struct place here = { .up = at, .key = member.key };

		r = copy_text(d, &here, member.key, &pairs[n].key);
		if (r < 0)
			return r;
		r = decode_map_value(d, &here, field->kind, member.value, &pairs[n].value);
		if (r < 0)
			return r;
		n++;
	}
	*out = (struct json_map){ .v = pairs, .n = n, .is_set = true };
	return 0;
}

static int decode_strs(const struct decoder *d, const struct place *at,
	const struct json_field *field, const struct json_t *node, struct json_strs *out)
{
	size_t n = json_node_count(node);
	struct str *strs;
	void *items;
	int r;

	if (json_node_kind(node) != NODE_ARRAY)
		return fail(d, at, -EINVAL, "must be an array of strings");
	r = make_items(d, at, field, n, sizeof *strs, &items);
	if (r < 0)
		return r;
	strs = items;
	for (size_t i = 0; i < n; i++) {
		struct place here = { .up = at, .index = i };
		const struct json_t *item = json_node_at(node, i);

		if (json_node_kind(item) != NODE_STRING)
			return fail(d, &here, -EINVAL, "must be a string");
		r = copy_text(d, &here, json_node_string(item), &strs[i]);
		if (r < 0)
			return r;
	}
	*out = (struct json_strs){ .v = strs, .n = n, .is_set = true };
	return 0;
}

static int decode_object(const struct decoder *d, const struct place *at, struct json_t *node,
	const struct json_shape *shape, void *out);

/* `field` is NULL for a list at the top, which has no count limit of its own. */
static int decode_objects(const struct decoder *d, const struct place *at,
	const struct json_field *field, const struct json_t *node, const struct json_shape *shape,
	struct json_list *out)
{
	size_t n = json_node_count(node);
	void *items;
	int r;

	if (json_node_kind(node) != NODE_ARRAY)
		return fail(d, at, -EINVAL, "must be an array of objects");
	r = make_items(d, at, field, n, shape->size, &items);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct place here = { .up = at, .index = i };

		r = decode_object(d, &here, json_node_at(node, i), shape,
			(char *)items + i * shape->size);
		if (r < 0)
			return r;
	}
	*out = (struct json_list){ .v = items, .n = n, .is_set = true };
	return 0;
}

static int decode_nested(const struct decoder *d, const struct place *at,
	const struct json_field *field, struct json_t *node, char *base)
{
	if (field->present)
		*(bool *)(void *)(base + field->present - 1) = true;
	return decode_object(d, at, node, field->shape, base + field->offset);
}

static int decode_field(const struct decoder *d, const struct place *at,
	const struct json_field *field, struct json_t *node, char *base)
{
	void *member = base + field->offset;

	switch (field->kind) {
	case JSON_STR:
		return decode_str(d, at, field, node, member);
	case JSON_INT:
		return decode_int(d, at, field, node, member);
	case JSON_BOOL:
		return decode_bool(d, at, node, member);
	case JSON_MAP:
	case JSON_RAW_MAP:
		return decode_map(d, at, field, node, member);
	case JSON_STRS:
		return decode_strs(d, at, field, node, member);
	case JSON_OBJECT:
		return decode_nested(d, at, field, node, base);
	case JSON_OBJECTS:
		return decode_objects(d, at, field, node, field->shape, member);
	case JSON_RAW:
		return decode_raw(d, at, node, member);
	case JSON_BYTES:
		return decode_bytes(d, at, field, node, member);
	}
	assert(false); /* a table named a kind that does not exist */
	return -EINVAL;
}

static size_t find_field(const struct json_shape *shape, struct str key)
{
	for (size_t i = 0; i < shape->n_fields; i++) {
		const struct json_field *field = &shape->fields[i];

		if (str_is(key, field->name) || (field->alias && str_is(key, field->alias)))
			return i;
	}
	return shape->n_fields;
}

/* A letter of a name as far as it tells names apart: case and '_' and '-' do not. */
static bool next_letter(struct str *s, char *ret)
{
	while (s->n && (s->p[0] == '_' || s->p[0] == '-'))
		*s = str_from(*s, 1);
	if (!s->n)
		return false;
	*ret = s->p[0] >= 'A' && s->p[0] <= 'Z' ? (char)(s->p[0] | 0x20) : s->p[0];
	*s = str_from(*s, 1);
	return true;
}

static bool ends_alike(struct str a, struct str b)
{
	char x = 0, y = 0;
	bool has_a, has_b;

	do {
		has_a = next_letter(&a, &x);
		has_b = next_letter(&b, &y);
	} while (has_a && has_b && x == y);
	return !has_a && !has_b;
}

/* The same letters, but for one that is missing, one more, or one other. */
static bool looks_like(struct str a, struct str b)
{
	char x = 0, y = 0;

	for (;;) {
		struct str rest_a = a, rest_b = b;
		bool has_a = next_letter(&a, &x), has_b = next_letter(&b, &y);

		if (!has_a && !has_b)
			return true;
		if (has_a != has_b || x != y)
			return ends_alike(a, b) || ends_alike(rest_a, b) || ends_alike(a, rest_b);
	}
}

static int fail_unknown(const struct decoder *d, const struct place *at,
	const struct json_shape *shape)
{
	for (size_t i = 0; at->key.n > 2 && i < shape->n_fields; i++)
		if (looks_like(at->key, str_of(shape->fields[i].name)))
			return fail(d, at, -EINVAL, "unknown key; did you mean '%s'?",
				shape->fields[i].name);
	return fail(d, at, -EINVAL, "unknown key");
}

static int check_required(const struct decoder *d, const struct place *at,
	const struct json_shape *shape, uint64_t has)
{
	for (size_t i = 0; i < shape->n_fields; i++) {
		const struct json_field *field = &shape->fields[i];
		struct place here = { .up = at, .key = str_of(field->name) };

		if ((field->flags & JSON_REQUIRED) && !(has & UINT64_C(1) << i))
			return fail(d, &here, -EINVAL, "is required");
	}
	return 0;
}

static int decode_object(const struct decoder *d, const struct place *at, struct json_t *node,
	const struct json_shape *shape, void *out)
{
	struct json_member member = { 0 };
	uint64_t named = 0, has = 0; /* a null is named, but not there */
	int r;

	assert(out && shape->n_fields <= MAX_FIELDS);
	if (json_node_kind(node) != NODE_OBJECT)
		return fail(d, at, -EINVAL, "must be an object");
	while (json_node_next(node, &member)) {
		struct place here = { .up = at, .key = member.key };
		size_t i = find_field(shape, member.key);
		uint64_t bit = UINT64_C(1) << (i % MAX_FIELDS);

		if (i == shape->n_fields && shape->ignore_unknown)
			continue;
		if (i == shape->n_fields)
			return fail_unknown(d, &here, shape);
		if (named & bit) /* by its name and by its alias: two values, and which counts? */
			return fail(d, &here, -EINVAL, "given twice");
		named |= bit;
		if ((shape->fields[i].flags & (JSON_LAX | JSON_NULLABLE)) &&
			json_node_kind(member.value) == NODE_NULL)
			continue;
		r = decode_field(d, &here, &shape->fields[i], member.value, out);
		if (r < 0)
			return r;
		has |= bit;
	}
	return check_required(d, at, shape, has);
}

int json_node_decode(struct arena *a, struct json_t *root, const struct json_shape *shape,
	void *out, char where[JSON_PATH_SIZE], struct err *e)
{
	struct decoder d = { .arena = a, .where = where, .e = e };

	memset(out, 0, shape->size);
	return decode_object(&d, NULL, root, shape, out);
}

static int say_where(struct err *e, int r, const char *where)
{
	return r < 0 && *where ? err_wrap(e, r, "%s", where) : r;
}

int json_check(struct str text, size_t max_values, struct err *e)
{
	return json_node_check(text, max_values, e);
}

int json_decode(struct arena *a, struct str text, const struct json_shape *shape, void *out,
	struct err *e)
{
	CLEANUP(json_node_freep) struct json_t *root = NULL;
	char where[JSON_PATH_SIZE] = "";
	int r;

	memset(out, 0, shape->size);
	r = json_node_parse(text, &root, e);
	if (r < 0)
		return r;
	return say_where(e, json_node_decode(a, root, shape, out, where, e), where);
}

int json_decode_list(struct arena *a, struct str text, const struct json_shape *shape,
	struct json_list *out, struct err *e)
{
	CLEANUP(json_node_freep) struct json_t *root = NULL;
	char where[JSON_PATH_SIZE] = "";
	struct decoder d = { .arena = a, .where = where, .e = e };
	int r;

	*out = (struct json_list){ 0 };
	r = json_node_parse(text, &root, e);
	if (r < 0)
		return r;
	return say_where(e, decode_objects(&d, NULL, NULL, root, shape, out), where);
}
