/* Bulk between two sockets without copying it to user space. A pipe is borrowed only while bytes
 * are in it, so a few serve many relays. */
#include "http/http-internal.h"

enum {
	PIPE_BYTES = 512 * 1024,
	PIPE_TURN_BYTES = 4 * 1024 * 1024, /* then others have their turn */
};

void pipe_pool_init(struct pipe_pool *pool)
{
	*pool = (struct pipe_pool){ 0 };
	list_init(&pool->kept);
}

static void destroy(struct pipe_pool *pool, struct pipe *p)
{
	list_remove(&p->node);
	(void)close(p->read_fd);
	(void)close(p->write_fd);
	free(p);
	pool->n_all--;
}

void pipe_pool_done(struct pipe_pool *pool)
{
	LIST_EACH(&pool->kept, node)
	destroy(pool, container_of(node, struct pipe, node));
}

struct pipe *pipe_get(struct pipe_pool *pool)
{
	struct pipe *p;
	int fds[2];

	if (!list_empty(&pool->kept)) {
		p = container_of(pool->kept.next, struct pipe, node);
		list_remove(&p->node);
		pool->n_kept--;
		return p;
	}
	if (pool->n_all >= PIPES_MAX || pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return NULL;
	(void)fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES); /* smaller works too, only slower */
	p = XNEW(struct pipe);
	p->read_fd = fds[0];
	p->write_fd = fds[1];
	list_init(&p->node);
	pool->n_all++;
	return p;
}

struct pipe *pipe_put(struct pipe_pool *pool, struct pipe *p)
{
	if (!p)
		return NULL;
	if (p->fill > 0 || pool->n_kept >= PIPES_KEPT) {
		destroy(pool, p);
	} else {
		list_append(&pool->kept, &p->node);
		pool->n_kept++;
	}
	return NULL;
}

/* Into the pipe: > 0, 0 at the end of file, -EAGAIN when the source is dry or the pipe is full. */
static ssize_t draw(struct pipe *p, int src, uint64_t *left)
{
	size_t n = (size_t)MIN(*left, (uint64_t)PIPE_BYTES);
	ssize_t got;

	do
		got = splice(src, NULL, p->write_fd, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	p->fill += (size_t)got;
	*left -= (uint64_t)got;
	return got;
}

static ssize_t pour(struct pipe *p, int dst, bool more)
{
	unsigned flags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0);
	ssize_t put;

	do
		put = splice(p->read_fd, NULL, dst, NULL, p->fill, flags);
	while (put < 0 && errno == EINTR);
	if (put < 0)
		return -errno;
	p->fill -= (size_t)put;
	return put;
}

enum pipe_result pipe_move(struct pipe *p, int src, int dst, uint64_t *left, bool *moved)
{
	for (int64_t budget = PIPE_TURN_BYTES; budget > 0;) {
		ssize_t got = -EAGAIN, put;

		if (*left > 0)
			got = draw(p, src, left);
		if (got == -EINVAL && p->fill == 0)
			return PIPE_UNFIT;
		if (got < 0 && got != -EAGAIN)
			return PIPE_SRC_LOST;
		*moved |= got > 0;
		if (p->fill == 0) {
			if (*left == 0)
				return PIPE_DONE;
			return got == 0 ? PIPE_END : PIPE_WAIT_SRC;
		}
		put = pour(p, dst, false);
		if (put == -EAGAIN || put == 0)
			return PIPE_WAIT_DST;
		if (put < 0)
			return PIPE_DST_LOST;
		*moved = true;
		budget -= put;
	}
	return PIPE_AGAIN;
}
