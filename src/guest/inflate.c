#include "guest/inflate.h"

#include <zlib.h>

enum {
	PIECE_BYTES = 64 << 10,
	GZIP_ONLY = 16 + MAX_WBITS,
};

struct inflate {
	z_stream z;
	inflate_fn fn;
	void *arg;
	bool at_member_end; /* true as well before the first byte of a further member */
	unsigned char piece[PIECE_BYTES];
};

int inflate_new(inflate_fn fn, void *arg, struct inflate **ret, struct err *e)
{
	struct inflate *z = XNEW(struct inflate);

	z->fn = fn;
	z->arg = arg;
	if (inflateInit2(&z->z, GZIP_ONLY) != Z_OK) {
		free(z);
		return err_set(e, -ENOMEM, "no memory to decompress");
	}
	*ret = z;
	return 0;
}

struct inflate *inflate_free(struct inflate *z)
{
	if (!z)
		return NULL;
	(void)inflateEnd(&z->z);
	free(z);
	return NULL;
}

/* One piece of output. */
static int step(struct inflate *z, struct err *e)
{
	int zr, r = 0;
	size_t n;

	if (z->at_member_end) { /* files may be several gzip members in a row */
		(void)inflateReset(&z->z);
		z->at_member_end = false;
	}
	z->z.next_out = z->piece;
	z->z.avail_out = PIECE_BYTES;
	zr = inflate(&z->z, Z_NO_FLUSH);
	n = PIECE_BYTES - z->z.avail_out;
	if (n)
		r = z->fn(z->arg, str_make(z->piece, n), e);
	if (r < 0)
		return r;
	z->at_member_end = zr == Z_STREAM_END;
	if (zr != Z_OK && zr != Z_STREAM_END && zr != Z_BUF_ERROR)
		return err_set(e, -EPROTO, "error decompressing request body: %s",
			z->z.msg ? z->z.msg : "invalid gzip");
	return 0;
}

int inflate_feed(struct inflate *z, struct str bytes, struct err *e)
{
	union {
		const char *in;
		unsigned char *out;
	} from = { .in = bytes.p };

	assert(bytes.n <= UINT32_MAX);
	z->z.next_in = from.out;
	z->z.avail_in = (unsigned)bytes.n;
	/* Also while the last piece was full: more output may wait without more input. */
	do {
		int r = step(z, e);

		if (r < 0)
			return r;
	} while (z->z.avail_in > 0 || z->z.avail_out == 0);
	return 0;
}

int inflate_finish(const struct inflate *z, struct err *e)
{
	if (z->at_member_end)
		return 0;
	return err_set(e, -EPROTO, "error decompressing request body: unexpected end of gzip data");
}
