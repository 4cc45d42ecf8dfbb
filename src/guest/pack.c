#include "guest/pack.h"

#include <zlib.h>

enum {
	PIECE_BYTES = 64 << 10,
	JOB_MAX_READS = 16, /* then what there is is sent, however well it packs */
	GZIP_FORM = 16 + MAX_WBITS,
	LEVEL = 3, /* half of the default's time for nearly all of its gain */
	MEMORY_LEVEL = 8,
};

struct pack {
	struct transfer transfer;
	struct guest *guest;
	struct http_exchange *x; /* NULL: nobody is left to send to */
	const char *type;
	bool is_busy, is_begun;

	/* The job's, while there is one. */
	int fd;
	z_stream z;
	bool at_end, is_whole;
	unsigned char in[PIECE_BYTES], out[PIECE_BYTES];
};

static void pack_free(struct pack *p)
{
	list_remove(&p->transfer.node);
	(void)deflateEnd(&p->z);
	(void)close(p->fd);
	free(p);
}

static void pack_cancel(struct transfer *t)
{
	struct pack *p = container_of(t, struct pack, transfer);

	p->x = NULL;
	if (!p->is_busy)
		pack_free(p);
}

/* ---- the job ---- */

static int read_more(struct pack *p, struct err *e)
{
	ssize_t n;

	do {
		n = read(p->fd, p->in, sizeof p->in);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) /* which in /proc means that there is nothing (more) */
		return err_sys(e, -errno, "error reading file");
	p->at_end = n <= 0;
	p->z.next_in = p->in;
	p->z.avail_in = (unsigned)MAX(n, 0);
	return 0;
}

static int pack_work(void *arg, struct err *e)
{
	struct pack *p = arg;
	int n_reads = 0, r;

	p->z.next_out = p->out;
	p->z.avail_out = sizeof p->out;
	while (p->z.avail_out > 0 && !p->is_whole) {
		if (p->z.avail_in == 0 && !p->at_end) {
			if (n_reads++ == JOB_MAX_READS)
				break;
			r = read_more(p, e);
			if (r < 0)
				return r;
		}
		p->is_whole = deflate(&p->z, p->at_end ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_END;
	}
	return 0;
}

/* ---- the loop ---- */

static void pack_done(void *arg, int r, const struct err *e);

static void pack_next(struct pack *p)
{
	p->is_busy = true;
	loop_job(p->guest->loop, LOOP_ANY, pack_work, pack_done, p);
}

static void pack_drained(void *arg)
{
	struct pack *p = arg;

	if (!p->is_busy)
		pack_next(p);
}

static void pack_gone(void *arg)
{
	struct pack *p = arg;

	http_abort(p->x);
	pack_cancel(&p->transfer);
}

static void pack_begin(struct pack *p)
{
	p->is_begun = true;
	http_add_header(p->x, "Content-Encoding", STR("gzip"));
	http_begin(p->x, 200, p->type, -1);
	http_on_gone(p->x, pack_gone, p);
	http_on_drain(p->x, pack_drained, p);
}

/* The first piece decides whether it can be read at all; later only a cut tells that it cannot. */
static void pack_fail(struct pack *p, const struct err *e)
{
	if (p->is_begun)
		http_abort(p->x);
	else
		reply_fail(p->x, 500, "%s", e->msg);
	pack_free(p);
}

static void pack_done(void *arg, int r, const struct err *e)
{
	struct pack *p = arg;
	size_t n = sizeof p->out - p->z.avail_out;
	bool more = true;

	p->is_busy = false;
	if (!p->x) {
		pack_free(p);
		return;
	}
	if (r < 0) {
		pack_fail(p, e);
		return;
	}
	if (!p->is_begun)
		pack_begin(p);
	if (n > 0)
		more = http_write(p->x, str_make(p->out, n));
	if (p->is_whole) {
		http_end(p->x);
		pack_free(p);
	} else if (more) {
		pack_next(p);
	}
}

void pack_send(struct guest *g, struct http_exchange *take_x, int take_fd, const char *type)
{
	struct pack *p = XNEW(struct pack);

	p->guest = g;
	p->x = take_x;
	p->fd = take_fd;
	p->type = type;
	transfer_add(g, &p->transfer, pack_cancel);
	if (deflateInit2(&p->z, LEVEL, Z_DEFLATED, GZIP_FORM, MEMORY_LEVEL, Z_DEFAULT_STRATEGY) !=
		Z_OK) {
		reply_fail(take_x, 500, "no memory to compress");
		pack_free(p);
		return;
	}
	pack_next(p);
}
