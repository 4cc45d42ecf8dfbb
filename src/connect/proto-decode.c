/* Protobuf to JSON. A message is looked through once, to see which of its fields are there and
 * which occurrence counts; then each is written in its turn, since JSON wants together what
 * protobuf may spread: the elements of a list, the parts of a message that comes in several. */
#include "connect/connect-internal.h"

#include "json/json.h"

/* One field as it is on the wire. */
struct value {
	uint32_t number;
	enum proto_wire wire;
	uint64_t varint;
	struct str bytes;
};

/* What of a message's bytes is a field's. */
struct seen {
	size_t count;
	size_t from; /* where its first occurrence is */
	struct value last;
};

struct decoder {
	struct jsonw w;
	struct err *e;
};

/* ---- the wire ---- */

static int read_varint(struct str *rest, uint64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 0; i < 10 && i < rest->n; i++) {
		uint64_t byte = (unsigned char)rest->p[i];

		if (i == 9 && byte > 1)
			return -EINVAL;
		value |= (byte & 127) << 7 * i;
		if (byte < 128) {
			*rest = str_from(*rest, i + 1);
			*ret = value;
			return 0;
		}
	}
	return -EINVAL;
}

static int read_bytes(struct str *rest, uint64_t n, struct str *ret)
{
	if (n > rest->n)
		return -EINVAL;
	*ret = str_make(rest->p, n);
	*rest = str_from(*rest, n);
	return 0;
}

static int read_payload(struct str *rest, unsigned wire, struct value *v)
{
	switch (wire) {
	case WIRE_VARINT:
		return read_varint(rest, &v->varint);
	case WIRE_FIXED64:
		return read_bytes(rest, 8, &v->bytes);
	case WIRE_FIXED32:
		return read_bytes(rest, 4, &v->bytes);
	case WIRE_LENGTH:
		if (read_varint(rest, &v->varint) < 0)
			return -EINVAL;
		return read_bytes(rest, v->varint, &v->bytes);
	default: /* groups, which proto3 does not have, and what nobody has */
		return -EINVAL;
	}
}

static int read_value(struct str *rest, struct value *v, struct err *e)
{
	uint64_t tag;

	*v = (struct value){ 0 };
	if (read_varint(rest, &tag) < 0 || tag > UINT32_MAX || tag >> 3 == 0)
		return err_set(e, -EINVAL, "not protobuf: no field where one should be");
	v->number = (uint32_t)(tag >> 3);
	v->wire = (enum proto_wire)(tag & 7);
	if (read_payload(rest, tag & 7, v) < 0)
		return err_set(e, -EINVAL, "not protobuf: field %" PRIu32 " is cut or malformed",
			v->number);
	return 0;
}

/* ---- what is there ---- */

/* A value of another wire type than its field's is as good as an unknown field. Numbers in a list
 * come one by one, or packed into one value; a packed list may be empty. */
static bool fits(const struct proto_field *f, const struct value *v)
{
	if (!proto_is_number(f->kind))
		return v->wire == WIRE_LENGTH;
	if (v->wire == WIRE_LENGTH)
		return f->is_repeated && v->bytes.n > 0;
	return v->wire == WIRE_VARINT;
}

static const struct proto_field *find_field(const struct proto_message *m, const struct value *v)
{
	for (size_t i = 0; i < m->n_fields; i++)
		if (m->fields[i].number == v->number)
			return fits(&m->fields[i], v) ? &m->fields[i] : NULL;
	return NULL;
}

static void note(const struct proto_message *m, const struct proto_field *f, size_t at,
	const struct value *v, struct seen seen[PROTO_MAX_FIELDS])
{
	struct seen *mine = &seen[f - m->fields];

	for (size_t i = 0; f->oneof && i < m->n_fields; i++)
		if (m->fields[i].oneof == f->oneof && &m->fields[i] != f)
			seen[i].count = 0;
	if (mine->count++ == 0)
		mine->from = at;
	mine->last = *v;
}

static int look_through(const struct proto_message *m, struct str bytes,
	struct seen seen[PROTO_MAX_FIELDS], struct err *e)
{
	struct str rest = bytes;
	struct value v;

	assert(m->n_fields <= PROTO_MAX_FIELDS);
	while (rest.n) {
		size_t at = bytes.n - rest.n;
		const struct proto_field *f;
		int r = read_value(&rest, &v, e);

		if (r < 0)
			return r;
		f = find_field(m, &v);
		if (f)
			note(m, f, at, &v, seen);
	}
	return 0;
}

/* The next occurrence of one field in bytes that were looked through. */
static bool next_of(const struct proto_field *f, struct str *rest, struct value *v)
{
	while (rest->n && read_value(rest, v, NULL) == 0)
		if (v->number == f->number && fits(f, v))
			return true;
	return false;
}

/* ---- values ---- */

static int decode_message(struct decoder *d, const struct proto_message *m, const char *key,
	struct str bytes, unsigned depth);

static void write_enum(struct jsonw *w, const char *key, const struct proto_enum *values,
	int32_t number)
{
	for (size_t i = 0; i < values->n_names; i++) {
		if (values->names[i].number == number) {
			jsonw_strz(w, key, values->names[i].name);
			return;
		}
	}
	jsonw_int(w, key, number);
}

/* Numbers of 32 bits are what the low half says, as protobuf's own readers have it. */
static void write_number(struct jsonw *w, const char *key, const struct proto_field *f, uint64_t n)
{
	uint32_t low = (uint32_t)n;

	if (f->kind == PROTO_BOOL)
		jsonw_bool(w, key, n != 0);
	else if (f->kind == PROTO_ENUM)
		write_enum(w, key, f->values, (int32_t)low);
	else if (f->kind == PROTO_INT64)
		jsonw_int64_str(w, key, (int64_t)n);
	else if (f->kind == PROTO_SINT32)
		jsonw_int(w, key, (int32_t)(low >> 1 ^ -(low & 1)));
	else
		jsonw_int(w, key, low);
}

static int check_string(struct str s, const char *name, struct err *e)
{
	return str_is_utf8(s) ? 0 : err_set(e, -EINVAL, "%s: must be UTF-8 without NUL", name);
}

static int write_timestamp(struct decoder *d, const char *key, struct str bytes)
{
	struct timestamp t = { 0 };
	char text[TIMESTAMP_SIZE];
	struct value v;

	while (bytes.n) {
		int r = read_value(&bytes, &v, d->e);

		if (r < 0)
			return r;
		if (v.wire == WIRE_VARINT && v.number == TIMESTAMP_SECONDS)
			t.seconds = (int64_t)v.varint;
		else if (v.wire == WIRE_VARINT && v.number == TIMESTAMP_NANOS)
			t.nanos = (int32_t)v.varint;
	}
	if (timestamp_write(&t, text) < 0)
		return err_set(d->e, -EINVAL, "no such time: %" PRId64 ".%09" PRId32, t.seconds,
			t.nanos);
	jsonw_strz(&d->w, key, text);
	return 0;
}

static int write_value(struct decoder *d, const struct proto_field *f, const char *key,
	const struct value *v, unsigned depth)
{
	int r = 0;

	if (proto_is_number(f->kind)) {
		write_number(&d->w, key, f, v->varint);
	} else if (f->kind == PROTO_STRING) {
		r = check_string(v->bytes, f->name, d->e);
		jsonw_str(&d->w, key, v->bytes);
	} else if (f->kind == PROTO_BYTES) {
		jsonw_base64(&d->w, key, v->bytes);
	} else if (f->kind == PROTO_TIMESTAMP) {
		r = write_timestamp(d, key, v->bytes);
	} else {
		r = decode_message(d, f->message, key, v->bytes, depth + 1);
	}
	return r;
}

static int write_packed(struct decoder *d, const struct proto_field *f, struct str bytes)
{
	uint64_t n;

	while (bytes.n) {
		if (read_varint(&bytes, &n) < 0)
			return err_set(d->e, -EINVAL, "%s: not a packed list", f->name);
		write_number(&d->w, NULL, f, n);
	}
	return 0;
}

static int write_list(struct decoder *d, const struct proto_field *f, struct str rest,
	unsigned depth)
{
	struct value v;
	int r = 0;

	jsonw_array(&d->w, f->name);
	while (r == 0 && !d->w.out->failed && next_of(f, &rest, &v)) {
		if (proto_is_number(f->kind) && v.wire == WIRE_LENGTH)
			r = write_packed(d, f, v.bytes);
		else
			r = write_value(d, f, NULL, &v, depth);
	}
	jsonw_end_array(&d->w);
	return r;
}

static int write_entry(struct decoder *d, const struct proto_field *f, struct str bytes)
{
	struct str pair[2] = { STR(""), STR("") };
	struct value v;
	int r = 0;

	while (r == 0 && bytes.n) {
		r = read_value(&bytes, &v, d->e);
		if (r == 0 && v.wire == WIRE_LENGTH &&
			(v.number == MAP_KEY || v.number == MAP_VALUE)) {
			pair[v.number - MAP_KEY] = v.bytes;
			r = check_string(v.bytes, f->name, d->e);
		}
	}
	if (r == 0)
		jsonw_pair(&d->w, pair[0], pair[1]);
	return r;
}

static int write_map(struct decoder *d, const struct proto_field *f, struct str rest)
{
	struct value v;
	int r = 0;

	jsonw_object(&d->w, f->name);
	while (r == 0 && !d->w.out->failed && next_of(f, &rest, &v))
		r = write_entry(d, f, v.bytes);
	jsonw_end_object(&d->w);
	return r;
}

/* A message that comes in several parts is what they are, one behind the other. */
static int write_parts(struct decoder *d, const struct proto_field *f, struct str rest,
	unsigned depth)
{
	CLEANUP(buf_done) struct buf whole = BUF_INIT(rest.n);
	struct value v;

	while (next_of(f, &rest, &v))
		(void)buf_add_str(&whole, v.bytes);
	if (whole.failed)
		return err_set(d->e, -ENOBUFS, "no memory for a message");
	v = (struct value){ .wire = WIRE_LENGTH, .bytes = buf_str(&whole) };
	return write_value(d, f, f->name, &v, depth);
}

static int write_field(struct decoder *d, const struct proto_field *f, const struct seen *seen,
	struct str bytes, unsigned depth)
{
	struct str from = str_from(bytes, seen->from);

	if (f->is_repeated)
		return write_list(d, f, from, depth);
	if (f->kind == PROTO_STRING_MAP)
		return write_map(d, f, from);
	if (seen->count > 1 && (f->kind == PROTO_MESSAGE || f->kind == PROTO_TIMESTAMP))
		return write_parts(d, f, from, depth);
	return write_value(d, f, f->name, &seen->last, depth);
}

static int decode_message(struct decoder *d, const struct proto_message *m, const char *key,
	struct str bytes, unsigned depth)
{
	struct seen seen[PROTO_MAX_FIELDS] = { 0 };
	int r;

	if (depth > PROTO_MAX_DEPTH)
		return err_set(d->e, -EINVAL, "nested deeper than %d", PROTO_MAX_DEPTH);
	r = look_through(m, bytes, seen, d->e);
	jsonw_object(&d->w, key);
	for (size_t i = 0; r == 0 && i < m->n_fields; i++)
		if (seen[i].count > 0)
			r = write_field(d, &m->fields[i], &seen[i], bytes, depth);
	jsonw_end_object(&d->w);
	return r;
}

int proto_to_json(const struct proto_message *m, struct str bytes, struct buf *out, struct err *e)
{
	struct decoder d = { .e = e };
	int r;

	jsonw_init(&d.w, out);
	r = decode_message(&d, m, NULL, bytes, 1);
	if (r == 0 && out->failed)
		r = err_set(e, -ENOBUFS, "message is too large");
	return r;
}
