/* The file of `atoll db import`: the same lines however it is split, and what was read and is
 * written again reads the same. */
#include "store/dump.h"

struct digest {
	uint64_t hash;
	int64_t n;
};

static void mix(struct digest *d, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++)
		d->hash = (d->hash ^ p[i]) * 0x100000001b3;
}

static void mix_line(struct digest *d, const struct dump_line *line)
{
	d->n++;
	mix(d, &line->kind, sizeof line->kind);
	mix(d, &line->version, sizeof line->version);
	mix(d, &line->rows, sizeof line->rows);
	mix(d, line->table.p, line->table.n);
	for (size_t i = 0; i < line->n_values; i++) {
		const struct dump_value *v = &line->values[i];

		mix(d, v->column.p, v->column.n);
		mix(d, &v->value.type, sizeof v->value.type);
		mix(d, &v->value.i, sizeof v->value.i);
		mix(d, v->value.s.p, v->value.s.n);
	}
}

static bool has_odd_names(const struct dump_line *line)
{
	for (size_t i = 0; i < line->n_values; i++)
		if (line->values[i].column.n >= CATALOG_NAME)
			return true;
	return false;
}

static void check_written(const struct dump_line *line)
{
	struct buf out = BUF_INIT(DUMP_LINE);
	struct arena *arena = arena_new((size_t)4 * DUMP_LINE);
	struct digest before = { 0 }, after = { 0 };
	struct dump_line again;
	struct err e;

	dump_write(line, &out);
	assert(!out.failed && out.n && out.p[out.n - 1] == '\n');
	assert(dump_parse(arena, str_make(out.p, out.n - 1), &again, &e) >= 0);
	mix_line(&before, line);
	mix_line(&after, &again);
	assert(before.hash == after.hash);
	arena = arena_free(arena);
	buf_done(&out);
}

static int on_line(void *arg, const struct dump_line *line, struct err *e)
{
	(void)e;
	mix_line(arg, line);
	if (!has_odd_names(line))
		check_written(line);
	return 0;
}

static struct digest read_all(const uint8_t *data, size_t size, size_t step)
{
	struct digest d = { 0 };
	struct dump_reader reader;
	struct err e;
	int r = 0;

	dump_reader_init(&reader, on_line, &d);
	for (size_t at = 0; r >= 0 && at < size; at += step)
		r = dump_reader_feed(&reader, str_make(data + at, MIN(step, size - at)), &e);
	if (r >= 0)
		r = dump_reader_end(&reader, &e);
	mix(&d, &r, sizeof r);
	dump_reader_done(&reader);
	return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct digest whole = read_all(data, size, size ? size : 1);

	for (size_t step = 1; step <= 7; step += 3) {
		struct digest split = read_all(data, size, step);

		assert(split.n == whole.n && split.hash == whole.hash);
	}
	return 0;
}
