/* Whatever the bytes, the same parts with the same content come out however they are cut. The first
 * byte of the input chooses the size of the pieces. */
#include "guest/multipart.h"

struct record {
	struct buf text;
};

static int on_begin(void *arg, const struct multipart_part *part, struct err *e)
{
	struct record *r = arg;

	(void)e;
	buf_printf(&r->text, "\nbegin %d %zu '%.*s' %d %zu '%.*s'\n", part->name.p != NULL,
		part->name.n, STR_ARG(part->name), part->filename.p != NULL, part->filename.n,
		STR_ARG(part->filename));
	return 0;
}

static int on_data(void *arg, struct str bytes, struct err *e)
{
	struct record *r = arg;

	(void)e;
	assert(bytes.n > 0);
	buf_add_str(&r->text, bytes);
	return 0;
}

static int on_end(void *arg, struct err *e)
{
	struct record *r = arg;

	(void)e;
	buf_adds(&r->text, "\nend\n");
	return 0;
}

static const struct multipart_ops ops = { on_begin, on_data, on_end };

static int parse(struct str bytes, size_t piece, struct record *record)
{
	struct multipart m;
	int r = 0;

	multipart_init(&m, "b", &ops, record);
	while (bytes.n && r == 0) {
		size_t n = MIN(piece, bytes.n);

		r = multipart_feed(&m, str_make(bytes.p, n), NULL);
		bytes = str_from(bytes, n);
	}
	if (r == 0)
		r = multipart_finish(&m, NULL);
	multipart_done(&m);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record whole = { BUF_INIT(1 << 20) }, cut = { BUF_INIT(1 << 20) };
	struct str bytes = str_make(data, size);
	int r_whole, r_cut;

	if (size == 0)
		return 0;
	bytes = str_from(bytes, 1);
	r_whole = parse(bytes, SIZE_MAX, &whole);
	r_cut = parse(bytes, (size_t)data[0] % 16 + 1, &cut);
	assert(r_whole == r_cut);
	assert(str_eq(buf_str(&whole.text), buf_str(&cut.text)));
	buf_done(&whole.text);
	buf_done(&cut.text);
	return 0;
}
