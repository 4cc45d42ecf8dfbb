/* Uploads. The bytes go to a file beside the volumes, on the same file system, and are renamed into
 * place when all are there: a client that leaves half-way changes nothing. */
#include "volume/volume-internal.h"

struct volume_upload {
	struct volume_book *book; /* only while somebody calls one of the doors */
	struct volume volume;
	int64_t counted; /* bytes, as the volume's */
	struct loop *loop;
	struct reach *reach;
	int parent_fd, fd;
	char path[PATH_MAX], temp[24];
	struct volume_attr attr;
	bool replace;
	struct str bytes; /* being written */
	struct listing out;
	struct err e;
	struct loop_task task;
	volume_upload_fn begun;
	volume_entries_fn finished;
	done_fn written;
	void *arg;
};

/* The bytes that came in vain. To free many takes long, so this is no work for the loop. */
static int discard(void *arg, struct err *e)
{
	struct volume_upload *up = arg;

	(void)e;
	if (up->fd >= 0)
		(void)unlinkat(up->reach->incoming_fd, up->temp, 0);
	close_fdp(&up->fd);
	up->fd = -EBADF;
	return 0;
}

static void upload_free(struct volume_upload *up)
{
	close_fdp(&up->parent_fd);
	(void)reach_unref(up->reach);
	up->out.arena = arena_free(up->out.arena);
	free(up->out.v);
	free(up);
}

/* What is at the path must be a file that may go, or nothing; its mode and owner are kept. */
static int check_target(struct volume_upload *up, struct err *e)
{
	struct stat st;

	if (fstatat(up->parent_fd, place_base(up->path).p, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : place_fail(e, -errno, up->path);
	if (S_ISDIR(st.st_mode))
		return err_set(e, -EEXIST, "Path %s is a directory", up->path);
	if (!up->replace)
		return place_fail(e, -EEXIST, up->path);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (up->attr.mode < 0)
		up->attr.mode = (int)(st.st_mode & VOLUME_MODE_MAX);
	if (up->attr.uid < 0)
		up->attr.uid = (int)st.st_uid;
	if (up->attr.gid < 0)
		up->attr.gid = (int)st.st_gid;
	return 0;
}

static int begin(void *arg, struct err *e)
{
	struct volume_upload *up = arg;
	int r;

	up->parent_fd = place_open_parent(up->reach->root_fd, up->path);
	if (up->parent_fd < 0)
		return place_fail(e, up->parent_fd, up->path);
	r = check_target(up, e);
	if (r < 0)
		return r;
	random_id(up->temp, sizeof up->temp - 1);
	up->fd = openat(up->reach->incoming_fd, up->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		0600);
	return up->fd < 0 ? place_fail(e, -errno, up->path) : 0;
}

static void begin_done(void *arg, int r, const struct err *e)
{
	struct volume_upload *up = arg;

	up->begun(up->arg, MIN(r, 0), r < 0 ? NULL : up, e);
	if (r < 0)
		upload_free(up);
}

static void fail_now(void *arg)
{
	struct volume_upload *up = arg;

	begin_done(up, up->e.code, &up->e);
}

static void reached(void *arg, struct reach *take_reach, const struct err *e)
{
	struct volume_upload *up = arg;

	up->reach = take_reach;
	if (up->reach) {
		loop_job_for(up->loop, up->volume.team_id, begin, begin_done, up);
		return;
	}
	up->e = *e;
	loop_defer(up->loop, &up->task, fail_now, up);
}

void volume_upload(struct volume_book *book, const struct volume_at *at,
	const struct volume_attr *attr, bool replace, volume_upload_fn fn, void *arg)
{
	struct volume_upload *up = XNEW(struct volume_upload);

	*up = (struct volume_upload){ .book = book,
		.volume = *at->volume,
		.loop = book->config.loop,
		.parent_fd = -EBADF,
		.fd = -EBADF,
		.attr = *attr,
		.replace = replace,
		.begun = fn,
		.arg = arg };
	if (place_clean(at->path, up->path, &up->e) >= 0)
		(void)volume_check_room(book, at->volume, 0, &up->e);
	up->out.arena = arena_new(64 << 10);
	if (up->e.code < 0)
		loop_defer(up->loop, &up->task, fail_now, up);
	else
		reach_get(book, up->volume.id, reached, up);
}

static int write_bytes(void *arg, struct err *e)
{
	struct volume_upload *up = arg;
	int r = reach_check_room(up->reach);

	if (r >= 0)
		r = fd_write_all(up->fd, up->bytes.p, up->bytes.n);
	return r < 0 ? place_fail(e, r, up->path) : 0;
}

static void write_done(void *arg, int r, const struct err *e)
{
	struct volume_upload *up = arg;

	up->written(up->arg, MIN(r, 0), e);
}

static void write_refused(void *arg)
{
	struct volume_upload *up = arg;

	write_done(up, up->e.code, &up->e);
}

void volume_upload_write(struct volume_upload *up, struct str bytes, done_fn done, void *arg)
{
	up->bytes = bytes;
	up->written = done;
	up->arg = arg;
	if (volume_check_room(up->book, &up->volume, (int64_t)bytes.n, &up->e) < 0) {
		loop_defer(up->loop, &up->task, write_refused, up);
		return;
	}
	up->counted += (int64_t)bytes.n;
	measure_add(up->book, up->volume.id, (int64_t)bytes.n);
	loop_job_for(up->loop, up->volume.team_id, write_bytes, write_done, up);
}

static int finish(void *arg, struct err *e)
{
	struct volume_upload *up = arg;
	const char *base = place_base(up->path).p;
	struct stat st;
	int r;

	if (up->attr.mode < 0)
		up->attr.mode = 0666;
	r = place_change(up->fd, &up->attr);
	if (r >= 0 && renameat2(up->reach->incoming_fd, up->temp, up->parent_fd, base,
			      up->replace ? 0 : RENAME_NOREPLACE) < 0)
		r = -errno;
	if (r < 0) {
		(void)discard(up, NULL);
		return place_fail(e, r, up->path);
	}
	r = fstat(up->fd, &st) < 0 ? -errno : listing_add(&up->out, up->path, up->fd, &st);
	close_fdp(&up->fd);
	up->fd = -EBADF; /* its name is no longer ours to remove */
	return r < 0 ? place_fail(e, r, up->path) : 0;
}

static void finish_done(void *arg, int r, const struct err *e)
{
	struct volume_upload *up = arg;

	up->finished(up->arg, MIN(r, 0), up->out.v, up->out.n, e);
	upload_free(up);
}

void volume_upload_finish(struct volume_upload *up, volume_entries_fn fn, void *arg)
{
	up->finished = fn;
	up->arg = arg;
	measure_land(up->book, up->volume.id, up->counted);
	loop_job_for(up->loop, up->volume.team_id, finish, finish_done, up);
}

static void discarded(void *arg, int r, const struct err *e)
{
	(void)r;
	(void)e;
	upload_free(arg);
}

void volume_upload_abort(struct volume_upload *up)
{
	measure_add(up->book, up->volume.id, -up->counted);
	loop_job_for(up->loop, up->volume.team_id, discard, discarded, up);
}
