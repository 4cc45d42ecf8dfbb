/* The same entries and the same result, however the archive is split; and no more data than stated.
 */
#include "cli/tar.h"

struct seen {
	struct buf text;
	int64_t left;
};

static int on_entry(void *arg, const struct tar_entry *entry, struct err *e)
{
	struct seen *seen = arg;

	(void)e;
	assert(entry->size_bytes >= 0 && entry->mode <= 0777);
	assert(strlen(entry->path) < TAR_PATH_MAX && strlen(entry->target) < TAR_PATH_MAX);
	seen->left = entry->size_bytes;
	return buf_printf(&seen->text, "%d %s>%s %o %d;", (int)entry->kind, entry->path,
		entry->target, entry->mode, (int)entry->mtime_s);
}

static int on_data(void *arg, struct str bytes, struct err *e)
{
	struct seen *seen = arg;

	(void)e;
	seen->left -= (int64_t)bytes.n;
	assert(bytes.n > 0 && seen->left >= 0);
	return buf_add_str(&seen->text, bytes);
}

static int on_entry_end(void *arg, struct err *e)
{
	struct seen *seen = arg;

	(void)e;
	assert(seen->left == 0);
	return buf_addc(&seen->text, '\n');
}

static int run(struct str bytes, size_t step, struct seen *seen)
{
	const struct tar_handlers handlers = { on_entry, on_data, on_entry_end, seen };
	struct tar_reader reader;
	int r = 0;

	tar_reader_init(&reader, &handlers);
	while (r == 0 && bytes.n > 0) {
		r = tar_reader_feed(&reader, str_make(bytes.p, MIN(bytes.n, step)), NULL);
		bytes = str_from(bytes, step);
	}
	if (r == 0)
		r = tar_reader_finish(&reader, NULL);
	tar_reader_done(&reader);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole = { .text = BUF_INIT(4 << 20) }, split = whole;
	int a, b;

	if (size < 1)
		return 0;
	a = run(str_make(data + 1, size - 1), size, &whole);
	b = run(str_make(data + 1, size - 1), data[0] + 1u, &split);
	assert(a == b);
	assert(str_eq(buf_str(&whole.text), buf_str(&split.text)));
	buf_done(&whole.text);
	buf_done(&split.text);
	return 0;
}
