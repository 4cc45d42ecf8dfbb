#include "store/dump.h"

/* ---- writing ---- */

static void write_row(struct jsonw *w, const struct dump_line *line)
{
	jsonw_str(w, "table", line->table);
	jsonw_object(w, "row");
	for (size_t i = 0; i < line->n_values; i++) {
		const struct dump_value *v = &line->values[i];
		char name[CATALOG_NAME];

		(void)snprintf(name, sizeof name, "%.*s", STR_ARG(v->column));
		switch (v->value.type) {
		case STORE_NULL:
			jsonw_null(w, name);
			break;
		case STORE_INT:
			jsonw_int(w, name, v->value.i);
			break;
		case STORE_TEXT:
			jsonw_str(w, name, v->value.s);
			break;
		}
	}
	jsonw_end_object(w);
}

void dump_write(const struct dump_line *line, struct buf *out)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	switch (line->kind) {
	case DUMP_HEADER:
		jsonw_strz(&w, "atoll", "database");
		jsonw_int(&w, "format", DUMP_FORMAT);
		jsonw_int(&w, "version", line->version);
		break;
	case DUMP_ROW:
		write_row(&w, line);
		break;
	case DUMP_END:
		jsonw_int(&w, "rows", line->rows);
		break;
	}
	jsonw_end_object(&w);
	(void)buf_addc(out, '\n');
}

/* ---- reading ---- */

struct line_in {
	struct str what, table;
	struct json_int format, version, rows;
	struct json_map row;
};
static const struct json_field line_fields[] = {
	JSON_FIELD(struct line_in, what, "atoll", JSON_STR),
	JSON_FIELD(struct line_in, format, "format", JSON_INT),
	JSON_FIELD(struct line_in, version, "version", JSON_INT),
	JSON_FIELD(struct line_in, table, "table", JSON_STR, .max = CATALOG_NAME - 1),
	JSON_FIELD(struct line_in, row, "row", JSON_RAW_MAP, .max = CATALOG_COLUMNS),
	JSON_FIELD(struct line_in, rows, "rows", JSON_INT),
};
static const struct json_shape line_shape = JSON_SHAPE(struct line_in, line_fields);

struct text_in {
	struct str v;
};

/* A string in its own JSON text. */
static int read_text(struct arena *arena, struct str raw, struct str *ret, struct err *e)
{
	static const struct json_field fields[] = { JSON_FIELD(struct text_in, v, "v", JSON_STR,
		.flags = JSON_REQUIRED) };
	static const struct json_shape shape = JSON_SHAPE(struct text_in, fields);
	CLEANUP(buf_done) struct buf wrapped = BUF_INIT((size_t)DUMP_LINE + 16);
	struct text_in in;
	int r;

	(void)buf_adds(&wrapped, "{\"v\":");
	(void)buf_add_str(&wrapped, raw);
	(void)buf_adds(&wrapped, "}");
	if (wrapped.failed)
		return err_set(e, -ENOBUFS, "a value is too long");
	r = json_decode(arena, buf_str(&wrapped), &shape, &in, e);
	*ret = in.v;
	return r;
}

static int read_value(struct arena *arena, const struct json_pair *pair, struct dump_value *ret,
	struct err *e)
{
	struct store_param *value = &ret->value;
	int r = 0;

	ret->column = pair->key;
	if (str_is(pair->value, "null")) {
		value->type = STORE_NULL;
	} else if (pair->value.n && pair->value.p[0] == '"') {
		value->type = STORE_TEXT;
		r = read_text(arena, pair->value, &value->s, e);
	} else {
		value->type = STORE_INT;
		r = str_to_int(pair->value, INT64_MIN, INT64_MAX, &value->i);
		if (r < 0)
			(void)err_set(e, r, "a value must be a text, a whole number or null");
	}
	return r < 0 ? err_wrap(e, r, "%.*s", STR_ARG(pair->key)) : 0;
}

static int read_row(struct arena *arena, const struct line_in *in, struct dump_line *ret,
	struct err *e)
{
	int r = 0;

	ret->kind = DUMP_ROW;
	ret->table = in->table;
	ret->values = arena_alloc(arena, (in->row.n + 1) * sizeof *ret->values);
	if (!ret->values)
		return err_set(e, -ENOBUFS, "the row is too large");
	for (size_t i = 0; r >= 0 && i < in->row.n; i++)
		r = read_value(arena, &in->row.v[i], &ret->values[i], e);
	ret->n_values = in->row.n;
	return r;
}

static int read_header(const struct line_in *in, struct dump_line *ret, struct err *e)
{
	if (!str_is(in->what, "database"))
		return err_set(e, -EBADMSG, "this is no file of atoll db export");
	if (in->format.value != DUMP_FORMAT || in->version.value < 1)
		return err_set(e, -ENOTSUP,
			"the file has format %" PRId64 " and this program knows %d",
			in->format.value, DUMP_FORMAT);
	ret->kind = DUMP_HEADER;
	ret->version = in->version.value;
	return 0;
}

int dump_parse(struct arena *arena, struct str text, struct dump_line *ret, struct err *e)
{
	struct line_in in;
	int r = json_decode(arena, text, &line_shape, &in, e);

	*ret = (struct dump_line){ 0 };
	if (r < 0)
		return r;
	if (in.what.p && !in.table.p && !in.row.is_set && !in.rows.is_set)
		return read_header(&in, ret, e);
	if (in.table.p && in.row.is_set && !in.rows.is_set && !in.what.p)
		return read_row(arena, &in, ret, e);
	if (!in.rows.is_set || in.rows.value < 0 || in.table.p || in.row.is_set || in.what.p)
		return err_set(e, -EBADMSG, "it is neither a header, nor a row, nor the end");
	ret->kind = DUMP_END;
	ret->rows = in.rows.value;
	return 0;
}

/* ---- lines ---- */

void dump_reader_init(struct dump_reader *reader, dump_fn fn, void *arg)
{
	*reader = (struct dump_reader){ .rest = BUF_INIT(DUMP_LINE), .fn = fn, .arg = arg };
}

void dump_reader_done(struct dump_reader *reader)
{
	buf_done(&reader->rest);
}

static int read_line(struct dump_reader *reader, struct str text, struct err *e)
{
	struct arena *arena = arena_new((size_t)4 * DUMP_LINE);
	struct dump_line line;
	int r;

	reader->n_lines++;
	r = dump_parse(arena, text, &line, e);
	if (r >= 0)
		r = reader->fn(reader->arg, &line, e);
	(void)arena_free(arena);
	return r < 0 ? err_wrap(e, r, "line %" PRId64, reader->n_lines) : 0;
}

int dump_reader_feed(struct dump_reader *reader, struct str bytes, struct err *e)
{
	ptrdiff_t end;

	while ((end = str_find(bytes, '\n')) >= 0) {
		struct str line = { bytes.p, (size_t)end };
		int r;

		if (reader->rest.n) {
			(void)buf_add_str(&reader->rest, line);
			line = buf_str(&reader->rest);
		}
		if (reader->rest.failed)
			return err_set(e, -E2BIG, "line %" PRId64 " is longer than %d MiB",
				reader->n_lines + 1, DUMP_LINE >> 20);
		r = read_line(reader, line, e);
		if (r < 0)
			return r;
		buf_clear(&reader->rest);
		bytes = str_from(bytes, (size_t)end + 1);
	}
	if (buf_add_str(&reader->rest, bytes) < 0)
		return err_set(e, -E2BIG, "line %" PRId64 " is longer than %d MiB",
			reader->n_lines + 1, DUMP_LINE >> 20);
	return 0;
}

int dump_reader_end(struct dump_reader *reader, struct err *e)
{
	if (!reader->rest.n)
		return 0;
	return err_set(e, -EBADMSG, "the file ends in the middle of line %" PRId64,
		reader->n_lines + 1);
}
