/* JSON to protobuf, in one pass over the text. The length of a message stands in front of it and is
 * known behind it: one byte is kept free, and what was written moves on when it needs more. */
#include "connect/connect-internal.h"

enum {
	VARINT_SIZE = 10
};

struct encoder {
	struct scan scan;
	struct buf *out;
	struct err *e;
};

static int encode_message(struct encoder *c, const struct proto_message *m, unsigned depth);

/* ---- the wire ---- */

static size_t put_varint(char out[VARINT_SIZE], uint64_t value)
{
	size_t n = 0;

	for (; value >= 128; value >>= 7)
		out[n++] = (char)(value | 128);
	out[n++] = (char)value;
	return n;
}

static void add_varint(struct buf *out, uint64_t value)
{
	char bytes[VARINT_SIZE];

	(void)buf_add(out, bytes, put_varint(bytes, value));
}

static void add_tag(struct buf *out, uint32_t number, enum proto_wire wire)
{
	add_varint(out, (uint64_t)number << 3 | wire);
}

size_t proto_begin(struct buf *out, uint32_t number)
{
	add_tag(out, number, WIRE_LENGTH);
	(void)buf_addc(out, 0);
	return out->n;
}

void proto_end(struct buf *out, size_t mark)
{
	char bytes[VARINT_SIZE];
	size_t length = out->n - mark, n = put_varint(bytes, length);

	if (out->failed || !buf_reserve(out, n - 1))
		return;
	if (n > 1)
		memmove(out->p + mark + n - 1, out->p + mark, length);
	memcpy(out->p + mark - 1, bytes, n);
	out->n += n - 1;
	out->p[out->n] = '\0';
}

void proto_add_bytes(struct buf *out, uint32_t number, struct str bytes)
{
	add_tag(out, number, WIRE_LENGTH);
	add_varint(out, bytes.n);
	(void)buf_add_str(out, bytes);
}

void proto_add_number(struct buf *out, uint32_t number, uint64_t value)
{
	add_tag(out, number, WIRE_VARINT);
	add_varint(out, value);
}

/* ---- values ---- */

static int wrong(struct encoder *c, const struct proto_field *f, const char *what)
{
	return err_set(c->e, -EINVAL, "%s: must be %s", f->name, what);
}

/* A number, or one in a string. */
static int scan_number(struct encoder *c, const struct proto_field *f, int64_t min, int64_t max,
	int64_t *ret)
{
	struct str text;
	int r = scan_peek(&c->scan) == '"' ? scan_string(&c->scan, &text)
					   : scan_word(&c->scan, &text);

	if (r < 0 || str_to_int(text, min, max, ret) < 0)
		return wrong(c, f, "an integer in its range");
	return 0;
}

static int scan_enum(struct encoder *c, const struct proto_field *f, int64_t *ret)
{
	struct str name;

	if (scan_peek(&c->scan) != '"')
		return scan_number(c, f, INT32_MIN, INT32_MAX, ret);
	if (scan_string(&c->scan, &name) < 0)
		return wrong(c, f, "a name");
	for (size_t i = 0; i < f->values->n_names; i++) {
		if (str_is(name, f->values->names[i].name)) {
			*ret = f->values->names[i].number;
			return 0;
		}
	}
	return wrong(c, f, "one of its enum's names");
}

static int scan_bool(struct encoder *c, const struct proto_field *f, int64_t *ret)
{
	struct str word;

	if (scan_word(&c->scan, &word) < 0 || (!str_is(word, "true") && !str_is(word, "false")))
		return wrong(c, f, "true or false");
	*ret = str_is(word, "true");
	return 0;
}

static int add_number(struct encoder *c, const struct proto_field *f)
{
	int64_t n = 0;
	int r;

	if (f->kind == PROTO_BOOL)
		r = scan_bool(c, f, &n);
	else if (f->kind == PROTO_ENUM)
		r = scan_enum(c, f, &n);
	else if (f->kind == PROTO_UINT32)
		r = scan_number(c, f, 0, UINT32_MAX, &n);
	else if (f->kind == PROTO_SINT32)
		r = scan_number(c, f, INT32_MIN, INT32_MAX, &n);
	else
		r = scan_number(c, f, INT64_MIN, INT64_MAX, &n);
	if (f->kind == PROTO_SINT32) /* the sign goes last, so that -1 is as short as 1 */
		n = n < 0 ? -2 * n - 1 : 2 * n;
	add_varint(c->out, (uint64_t)n);
	return r;
}

static int add_string(struct encoder *c, uint32_t number, struct str escaped)
{
	size_t mark = proto_begin(c->out, number);
	int r = scan_unescape(escaped, c->out);

	proto_end(c->out, mark);
	return r == -EINVAL ? err_set(c->e, r, "a string with a malformed escape") : 0;
}

static int add_bytes(struct encoder *c, const struct proto_field *f, struct str base64)
{
	size_t mark = proto_begin(c->out, f->number);

	if (base64_decode(base64, c->out) == -EINVAL)
		return wrong(c, f, "base64");
	proto_end(c->out, mark);
	return 0;
}

static int add_timestamp(struct encoder *c, const struct proto_field *f, struct str text)
{
	size_t mark = proto_begin(c->out, f->number);
	struct timestamp t;

	if (timestamp_read(text, &t) < 0)
		return wrong(c, f, "a time as 2006-01-02T15:04:05Z");
	proto_add_number(c->out, TIMESTAMP_SECONDS, (uint64_t)t.seconds);
	proto_add_number(c->out, TIMESTAMP_NANOS, (uint64_t)t.nanos);
	proto_end(c->out, mark);
	return 0;
}

static int add_text(struct encoder *c, const struct proto_field *f)
{
	struct str text;

	if (scan_string(&c->scan, &text) < 0)
		return wrong(c, f, "a string");
	if (f->kind == PROTO_BYTES)
		return add_bytes(c, f, text);
	if (f->kind == PROTO_TIMESTAMP)
		return add_timestamp(c, f, text);
	return add_string(c, f->number, text);
}

/* With its tag, unless it is part of a packed list. */
static int add_value(struct encoder *c, const struct proto_field *f, bool is_packed, unsigned depth)
{
	size_t mark;
	int r;

	if (proto_is_number(f->kind)) {
		if (!is_packed)
			add_tag(c->out, f->number, WIRE_VARINT);
		return add_number(c, f);
	}
	if (f->kind != PROTO_MESSAGE)
		return add_text(c, f);
	mark = proto_begin(c->out, f->number);
	r = encode_message(c, f->message, depth + 1);
	proto_end(c->out, mark);
	return r;
}

static int add_list(struct encoder *c, const struct proto_field *f, unsigned depth)
{
	bool first = true, is_packed = proto_is_number(f->kind);
	size_t mark = is_packed ? proto_begin(c->out, f->number) : 0;
	int r;

	if (!scan_eat(&c->scan, '['))
		return wrong(c, f, "an array");
	while ((r = scan_next(&c->scan, ']', &first)) > 0) {
		r = add_value(c, f, is_packed, depth);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return wrong(c, f, "an array");
	if (is_packed)
		proto_end(c->out, mark);
	return 0;
}

static int add_entry(struct encoder *c, const struct proto_field *f)
{
	size_t mark = proto_begin(c->out, f->number);
	struct str key, value;
	int r;

	if (scan_string(&c->scan, &key) < 0 || !scan_eat(&c->scan, ':') ||
		scan_string(&c->scan, &value) < 0)
		return wrong(c, f, "an object of strings");
	r = add_string(c, MAP_KEY, key);
	if (r == 0)
		r = add_string(c, MAP_VALUE, value);
	proto_end(c->out, mark);
	return r;
}

static int add_map(struct encoder *c, const struct proto_field *f)
{
	bool first = true;
	int r;

	if (!scan_eat(&c->scan, '{'))
		return wrong(c, f, "an object");
	while ((r = scan_next(&c->scan, '}', &first)) > 0) {
		r = add_entry(c, f);
		if (r < 0)
			return r;
	}
	return r < 0 ? wrong(c, f, "an object") : 0;
}

/* ---- messages ---- */

static const struct proto_field *find_field(const struct proto_message *m, struct str name)
{
	for (size_t i = 0; i < m->n_fields; i++)
		if (str_is(name, m->fields[i].name))
			return &m->fields[i];
	return NULL;
}

static int add_member(struct encoder *c, const struct proto_message *m, unsigned depth)
{
	const struct proto_field *f;
	struct str name;

	if (scan_string(&c->scan, &name) < 0 || !scan_eat(&c->scan, ':'))
		return err_set(c->e, -EINVAL, "not a JSON object");
	f = find_field(m, name);
	if (!f || scan_peek(&c->scan) == 'n')
		return scan_skip(&c->scan) < 0 ? err_set(c->e, -EINVAL, "not JSON") : 0;
	if (f->is_repeated)
		return add_list(c, f, depth);
	if (f->kind == PROTO_STRING_MAP)
		return add_map(c, f);
	return add_value(c, f, false, depth);
}

static int encode_message(struct encoder *c, const struct proto_message *m, unsigned depth)
{
	bool first = true;
	int r;

	if (depth > PROTO_MAX_DEPTH)
		return err_set(c->e, -EINVAL, "nested deeper than %d", PROTO_MAX_DEPTH);
	if (!scan_eat(&c->scan, '{'))
		return err_set(c->e, -EINVAL, "not a JSON object");
	while ((r = scan_next(&c->scan, '}', &first)) > 0) {
		r = add_member(c, m, depth);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(c->e, r, "not a JSON object") : 0;
}

int proto_from_json(const struct proto_message *m, struct str json, struct buf *out, struct err *e)
{
	struct encoder c = { .scan = { json }, .out = out, .e = e };
	int r = encode_message(&c, m, 1);

	(void)scan_peek(&c.scan);
	if (r == 0 && c.scan.rest.n > 0)
		r = err_set(e, -EINVAL, "something behind the JSON object");
	if (r == 0 && out->failed)
		r = err_set(e, -ENOBUFS, "message is too large");
	return r;
}
