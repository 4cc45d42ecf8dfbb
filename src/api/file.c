/* A file as a reply. A sandbox that has it on a volume may keep whoever reads it waiting for as
 * long as it likes: it punches holes into another part of it, and the kernel lets nobody read
 * meanwhile (measured: 17 s). To close one whose name is gone is to free it, which takes as long.
 * So jobs do both, on account of the team that asks. */
#include "api/api-internal.h"

enum {
	PIECE_BYTES = 64 << 10,
};

struct sending {
	struct api_call *call; /* NULL: the reply has ended */
	struct loop *loop;
	char team_id[ACCESS_ID_SIZE];
	int fd;
	int64_t offset, left;
	bool is_reading, is_full;
	size_t n;
	char piece[PIECE_BYTES];
};

static int close_it(void *arg, struct err *e)
{
	struct sending *s = arg;

	(void)e;
	(void)close(s->fd);
	return 0;
}

static void closed(void *arg, int r, const struct err *e)
{
	(void)r;
	(void)e;
	free(arg);
}

/* With the end of the reply; a read that is under way comes first. */
static void leave(struct sending *s)
{
	if (s->call)
		s->call->sending = NULL;
	s->call = NULL;
	if (!s->is_reading)
		loop_job_for(s->loop, s->team_id, close_it, closed, s);
}

static int read_piece(void *arg, struct err *e)
{
	struct sending *s = arg;
	ssize_t n;

	do
		n = pread(s->fd, s->piece, (size_t)MIN(s->left, (int64_t)PIECE_BYTES), s->offset);
	while (n < 0 && errno == EINTR);
	s->n = (size_t)MAX(n, 0);
	return n < 0 ? err_sys(e, -errno, "read a file") : 0;
}

static void step(struct sending *s);

static void piece_read(void *arg, int r, const struct err *e)
{
	struct sending *s = arg;

	(void)e;
	s->is_reading = false;
	if (!s->call) {
		leave(s);
		return;
	}
	if (r < 0 || s->n == 0) { /* unreadable, or it became shorter */
		http_abort(s->call->x);
		leave(s);
		return;
	}
	s->offset += (int64_t)s->n;
	s->left -= (int64_t)s->n;
	s->is_full = !http_write(s->call->x, str_make(s->piece, s->n));
	step(s);
}

static void step(struct sending *s)
{
	if (s->left == 0) {
		http_end(s->call->x);
		leave(s);
	} else if (!s->is_full) {
		s->is_reading = true;
		loop_job_for(s->loop, s->team_id, read_piece, piece_read, s);
	}
}

static void drained(void *arg)
{
	struct sending *s = arg;

	if (!s->is_full || s->is_reading)
		return;
	s->is_full = false;
	step(s);
}

static void gone(void *arg)
{
	struct sending *s = arg;

	http_abort(s->call->x);
	leave(s);
}

void api_file_over(struct api_call *call)
{
	if (call->sending)
		leave(call->sending);
}

void api_take_file(struct api_call *call, int fd, int64_t offset, int64_t length)
{
	struct sending *s = XNEW(struct sending);

	s->call = call;
	call->sending = s;
	api_holds(call);
	s->loop = call->api->config.loop;
	(void)snprintf(s->team_id, sizeof s->team_id, "%s", call->key.team_id);
	s->fd = fd;
	s->offset = offset;
	s->left = length;
	http_on_drain(call->x, drained, s);
	http_on_gone(call->x, gone, s);
	step(s);
}
