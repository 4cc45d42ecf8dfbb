/* Bytes both ways between two sockets. Each direction holds at most what one read brought and its
 * receiver did not take, and nothing is read for a receiver that has no room. An end is passed on
 * as an end; what breaks on one side breaks on the other. */
#include "egress/egress-internal.h"

enum {
	READS_A_TURN = 8, /* in each direction, then others have their turn */
	IDLE_MS = 60 * 60 * 1000,
	HALF_CLOSED_MS = 5 * 60 * 1000, /* one side has ended, the other says nothing */
	STALLED_MS = 5 * 60 * 1000,     /* bytes wait and are not taken */
};

struct side {
	int fd;
	struct loop_io io;
	struct buf held; /* read from here, not taken by the other side yet */
	bool ended;      /* nothing more comes from here, and the other side was told */
	bool hung_up;
};

struct tunnel {
	struct loop *loop;
	char *scratch;
	struct side sides[2];
	struct loop_timer timer;
	struct loop_task task;
	int64_t moved_ms;
	bool over;
	tunnel_fn fn;
	void *arg;
};

static void on_side(struct tunnel *t, struct side *side, uint32_t events);

void close_hard(int fd)
{
	const struct linger now = { .l_onoff = 1 };

	if (fd < 0)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	(void)close(fd);
}

static void on_over(void *arg)
{
	struct tunnel *t = arg;

	t->fn(t->arg);
}

/* `hard`: both peers see that it broke. */
static void end(struct tunnel *t, bool hard)
{
	if (t->over)
		return;
	t->over = true;
	loop_timer_cancel(&t->timer);
	for (int i = 0; i < 2; i++) {
		struct side *side = &t->sides[i];

		loop_io_remove(&side->io);
		if (hard)
			close_hard(side->fd);
		else
			close_fdp(&side->fd);
		side->fd = -EBADF;
	}
	loop_defer(t->loop, &t->task, on_over, t);
}

/* ---- moving ---- */

enum moved {
	MOVED_SOME,
	MOVED_WAIT,
	MOVED_LOST,
};

/* What does not fit into `to` is held by `from`. */
static enum moved give(struct side *from, struct side *to, struct str bytes)
{
	ssize_t n = send(to->fd, bytes.p, bytes.n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return MOVED_LOST;
	n = MAX(n, 0);
	if (from->held.n > 0)
		buf_consume(&from->held, (size_t)n);
	else if (buf_add(&from->held, bytes.p + n, bytes.n - (size_t)n) < 0)
		return MOVED_LOST;
	if (from->held.n > 0)
		return MOVED_WAIT;
	buf_done(&from->held);
	return MOVED_SOME;
}

static enum moved move_once(struct tunnel *t, struct side *from, struct side *to)
{
	enum moved moved;
	ssize_t n;

	if (from->held.n > 0) {
		moved = give(from, to, buf_str(&from->held));
		if (moved != MOVED_SOME)
			return moved;
	}
	if (from->ended)
		return MOVED_WAIT;
	n = recv(from->fd, t->scratch, SCRATCH_BYTES, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? MOVED_WAIT : MOVED_LOST;
	t->moved_ms = loop_now_ms(t->loop);
	if (n > 0)
		return give(from, to, str_make(t->scratch, (size_t)n));
	from->ended = true;
	(void)shutdown(to->fd, SHUT_WR);
	return MOVED_WAIT;
}

static enum moved move(struct tunnel *t, struct side *from, struct side *to)
{
	enum moved moved = MOVED_SOME;

	for (int i = 0; i < READS_A_TURN && moved == MOVED_SOME; i++)
		moved = move_once(t, from, to);
	return moved;
}

/* ---- waiting ---- */

static void on_first(void *arg, uint32_t events)
{
	struct tunnel *t = arg;

	on_side(t, &t->sides[0], events);
}

static void on_second(void *arg, uint32_t events)
{
	struct tunnel *t = arg;

	on_side(t, &t->sides[1], events);
}

/* A descriptor that has hung up is reported again and again, so while nothing is wanted from it, it
 * is not watched at all. */
static bool watch(struct tunnel *t, int i)
{
	struct side *side = &t->sides[i], *other = &t->sides[!i];
	uint32_t events = 0;

	if (!side->ended && side->held.n == 0)
		events |= EPOLLIN;
	if (other->held.n > 0)
		events |= EPOLLOUT;
	if (events == 0 && side->hung_up)
		loop_io_remove(&side->io);
	else if (side->io.loop)
		loop_io_set(&side->io, events);
	else
		return loop_io_add(t->loop, &side->io, side->fd, events,
			       i == 0 ? on_first : on_second, t, NULL) >= 0;
	return true;
}

static int64_t deadline(const struct tunnel *t)
{
	const struct side *a = &t->sides[0], *b = &t->sides[1];

	if (a->held.n > 0 || b->held.n > 0)
		return t->moved_ms + STALLED_MS;
	return t->moved_ms + (a->ended || b->ended ? HALF_CLOSED_MS : IDLE_MS);
}

static void on_timer(void *arg)
{
	struct tunnel *t = arg;

	if (deadline(t) > loop_now_ms(t->loop))
		loop_timer_set(&t->timer, deadline(t));
	else
		end(t, true);
}

static void run(struct tunnel *t)
{
	struct side *a = &t->sides[0], *b = &t->sides[1];
	enum moved up = move(t, a, b);
	enum moved down = up == MOVED_LOST ? MOVED_LOST : move(t, b, a);

	if (down == MOVED_LOST) {
		end(t, true);
		return;
	}
	if (a->ended && b->ended && a->held.n == 0 && b->held.n == 0) {
		end(t, false);
		return;
	}
	if (!watch(t, 0) || !watch(t, 1)) {
		end(t, true);
		return;
	}
	if (!loop_timer_is_set(&t->timer) || t->timer.at_ms > deadline(t))
		loop_timer_set(&t->timer, deadline(t));
}

static void on_side(struct tunnel *t, struct side *side, uint32_t events)
{
	side->hung_up |= (events & (EPOLLHUP | EPOLLERR)) != 0;
	run(t);
}

struct tunnel *tunnel_new(struct loop *loop, char *scratch, int a, int b, tunnel_fn fn, void *arg)
{
	struct tunnel *t = XNEW(struct tunnel);

	t->loop = loop;
	t->scratch = scratch;
	t->fn = fn;
	t->arg = arg;
	t->moved_ms = loop_now_ms(loop);
	t->sides[0] = (struct side){ .fd = a, .held = BUF_INIT(SCRATCH_BYTES) };
	t->sides[1] = (struct side){ .fd = b, .held = BUF_INIT(SCRATCH_BYTES) };
	loop_timer_init(&t->timer, loop, on_timer, t);
	run(t);
	return t;
}

struct tunnel *tunnel_free(struct tunnel *t)
{
	if (!t)
		return NULL;
	loop_timer_cancel(&t->timer);
	loop_task_cancel(&t->task);
	for (int i = 0; i < 2; i++) {
		loop_io_remove(&t->sides[i].io);
		close_hard(t->sides[i].fd);
		buf_done(&t->sides[i].held);
	}
	free(t);
	return NULL;
}
