/* Operations on what is in a volume. Each is a job that has a part in the volume's descriptors and
 * a copy of everything else, so that the book may change meanwhile. */
#include "volume/volume-internal.h"

struct op {
	struct volume_book *book;
	char volume_id[UUID_SIZE];
	struct reach *reach;
	int fd;
	char path[PATH_MAX];
	struct volume_attr attr;
	int depth;
	bool parents;
	char swept_name[24]; /* where a removed tree goes, as the next two */
	struct sweep *sweep;
	bool may_sweep, is_swept;
	struct listing out;
	char team_id[UUID_SIZE];
	struct buf text; /* what render made of the listing */
	volume_render_fn render;
	struct err e; /* found before the job began */
	loop_work_fn work;
	struct loop_task task;
	volume_entries_fn fn;
	volume_text_fn text_fn;
	volume_open_fn open_fn;
	done_fn done;
	void *arg;
};

static struct op *op_new(struct volume_book *book, const struct volume_at *at)
{
	struct op *op = XNEW(struct op);

	op->book = book;
	(void)snprintf(op->team_id, sizeof op->team_id, "%s", at->volume->team_id);
	(void)snprintf(op->volume_id, sizeof op->volume_id, "%s", at->volume->id);
	op->fd = -EBADF;
	(void)place_clean(at->path, op->path, &op->e);
	op->out.arena = arena_new(64 << 20);
	return op;
}

static void op_end(void *arg, int r, const struct err *e)
{
	struct op *op = arg;

	r = MIN(r, 0);
	if (op->fn) {
		op->fn(op->arg, r, op->out.v, op->out.n, e);
	} else if (op->text_fn) {
		op->text_fn(op->arg, r, buf_str(&op->text), e);
	} else if (op->open_fn) {
		int64_t size = op->out.n ? op->out.v[0].size_bytes : 0;

		op->open_fn(op->arg, r < 0 ? r : TAKE_FD(op->fd), size, e);
	} else {
		op->done(op->arg, r, e);
	}
	if (op->is_swept)
		sweep_begin(op->sweep);
	else
		sweep_drop(op->sweep);
	close_fdp(&op->fd);
	(void)reach_unref(op->reach);
	buf_done(&op->text);
	op->out.arena = arena_free(op->out.arena);
	free(op->out.v);
	free(op);
}

static void fail_now(void *arg)
{
	struct op *op = arg;

	op_end(op, op->e.code, &op->e);
}

static void begin(void *arg, struct reach *take_reach, const struct err *e)
{
	struct op *op = arg;

	op->reach = take_reach;
	if (!op->reach) {
		op->e = *e;
		loop_defer(op->book->config.loop, &op->task, fail_now, op);
		return;
	}
	if (op->may_sweep)
		op->sweep = sweep_new_at(op->book, op->reach, op->swept_name);
	loop_job_for(op->book->config.loop, op->team_id, op->work, op_end, op);
}

static void op_run(struct op *op, loop_work_fn work)
{
	op->work = work;
	if (op->e.code < 0)
		loop_defer(op->book->config.loop, &op->task, fail_now, op);
	else
		reach_get(op->book, op->volume_id, begin, op);
}

/* Makes the answer: what is at the path now. */
static int show(struct op *op, struct err *e)
{
	cleanup_close int fd = place_open(op->reach->root_fd, op->path, O_PATH | O_NOFOLLOW);
	struct stat st;
	int r;

	if (fd < 0)
		return place_fail(e, fd, op->path);
	if (fstat(fd, &st) < 0)
		return place_fail(e, -errno, op->path);
	r = listing_add(&op->out, op->path, fd, &st);
	return r < 0 ? place_fail(e, r, op->path) : 0;
}

/* ---- looking ---- */

static int do_stat(void *arg, struct err *e)
{
	return show(arg, e);
}

void volume_stat(struct volume_book *book, const struct volume_at *at, volume_entries_fn fn,
	void *arg)
{
	struct op *op = op_new(book, at);

	op->fn = fn;
	op->arg = arg;
	op_run(op, do_stat);
}

static int do_list(void *arg, struct err *e)
{
	struct op *op = arg;
	int r;

	op->fd = place_open(op->reach->root_fd, op->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (op->fd < 0)
		return place_fail(e, op->fd, op->path);
	r = tree_list(&op->out, op->fd, op->path, op->depth);
	if (r == -E2BIG)
		return err_set(e, -E2BIG, "more than %d entries: list less deep",
			VOLUME_MAX_LISTED);
	if (r < 0)
		return place_fail(e, r, op->path);
	op->render(&op->text, op->out.v, op->out.n);
	return op->text.failed ? err_set(e, -E2BIG, "more than %d MiB: list less deep",
					 VOLUME_MAX_TEXT >> 20)
			       : 0;
}

void volume_list(struct volume_book *book, const struct volume_at *at, int depth,
	volume_render_fn render, volume_text_fn fn, void *arg)
{
	struct op *op = op_new(book, at);

	assert(depth >= 1 && depth <= VOLUME_MAX_DEPTH);
	op->depth = depth;
	op->text = BUF_INIT(VOLUME_MAX_TEXT);
	op->render = render;
	op->text_fn = fn;
	op->arg = arg;
	op_run(op, do_list);
}

static int do_open(void *arg, struct err *e)
{
	struct op *op = arg;
	struct stat st;

	/* Non-blocking: a pipe or a device that a sandbox put there must not hold us. */
	op->fd = place_open(op->reach->root_fd, op->path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (op->fd < 0)
		return place_fail(e, op->fd, op->path);
	if (fstat(op->fd, &st) < 0)
		return place_fail(e, -errno, op->path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, S_ISDIR(st.st_mode) ? -ENOENT : -EINVAL, "Path %s is not a file",
			op->path);
	return listing_add(&op->out, op->path, op->fd, &st);
}

void volume_open(struct volume_book *book, const struct volume_at *at, volume_open_fn fn, void *arg)
{
	struct op *op = op_new(book, at);

	op->open_fn = fn;
	op->arg = arg;
	op_run(op, do_open);
}

/* ---- changing ---- */

static int do_change(void *arg, struct err *e)
{
	struct op *op = arg;
	int r;

	op->fd = place_open(op->reach->root_fd, op->path, O_PATH | O_NOFOLLOW);
	r = op->fd < 0 ? op->fd : place_change(op->fd, &op->attr);
	if (r == -EOPNOTSUPP)
		return err_set(e, -EINVAL, "Path %s is a link: links have no mode", op->path);
	return r < 0 ? place_fail(e, r, op->path) : show(op, e);
}

void volume_change(struct volume_book *book, const struct volume_at *at,
	const struct volume_attr *attr, volume_entries_fn fn, void *arg)
{
	struct op *op = op_new(book, at);

	op->attr = *attr;
	op->fn = fn;
	op->arg = arg;
	op_run(op, do_change);
}

/* One directory; the mode is set afterwards, since the umask has a part in mkdir's. */
static int make_one(struct op *op, const char *path)
{
	cleanup_close int parent = place_open_parent(op->reach->root_fd, path), fd = -EBADF;
	const char *base = place_base(path).p;
	struct volume_attr attr = op->attr;

	if (parent < 0)
		return parent;
	if (mkdirat(parent, base, 0777) < 0)
		return -errno;
	if (attr.mode < 0)
		attr.mode = 0777;
	fd = openat(parent, base, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : place_change(fd, &attr);
}

static bool is_directory(const struct op *op, const char *path)
{
	cleanup_close int fd = place_open(op->reach->root_fd, path, O_PATH | O_DIRECTORY);

	return fd >= 0;
}

/* Down the path, so that each directory finds the one above it. */
static int make_all(struct op *op)
{
	int r = 0;

	for (char *at = op->path + 1; r == 0; at++) {
		char saved = *at;

		if (saved != '/' && saved != '\0')
			continue;
		*at = '\0';
		r = make_one(op, op->path);
		if (r == -EEXIST && is_directory(op, op->path))
			r = 0;
		*at = saved;
		if (saved == '\0')
			break;
	}
	return r;
}

static int do_mkdir(void *arg, struct err *e)
{
	struct op *op = arg;
	int r = op->parents ? make_all(op) : make_one(op, op->path);

	return r < 0 ? place_fail(e, r, op->path) : show(op, e);
}

void volume_mkdir(struct volume_book *book, const struct volume_at *at,
	const struct volume_attr *attr, bool parents, volume_entries_fn fn, void *arg)
{
	struct op *op = op_new(book, at);

	op->attr = *attr;
	op->parents = parents;
	op->fn = fn;
	op->arg = arg;
	if (op->e.code >= 0)
		(void)volume_check_room(book, at->volume, 0, &op->e);
	op_run(op, do_mkdir);
}

/* A tree leaves the volume as one, and is taken apart where nobody else reaches it: that may take
 * minutes, and who asked need not wait for it. */
static int do_delete(void *arg, struct err *e)
{
	struct op *op = arg;
	cleanup_close int parent = place_open_parent(op->reach->root_fd, op->path);
	const char *base = place_base(op->path).p;

	if (parent == -EEXIST)
		return err_set(e, -EINVAL,
			"the volume's root cannot be removed: remove the volume");
	if (parent < 0)
		return place_fail(e, parent, op->path);
	if (unlinkat(parent, base, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return place_fail(e, -errno, op->path);
	if (renameat(parent, base, op->reach->incoming_fd, op->swept_name) < 0)
		return place_fail(e, -errno, op->path);
	op->is_swept = true;
	return 0;
}

void volume_delete(struct volume_book *book, const struct volume_at *at, done_fn done, void *arg)
{
	struct op *op = op_new(book, at);

	random_id(op->swept_name, sizeof op->swept_name - 1);
	op->may_sweep = true;
	op->done = done;
	op->arg = arg;
	op_run(op, do_delete);
}
