/* POST /files/compose: several files become one, beside its place and renamed into it, and go away.
 * The copying is a job: it owns resolved paths and the user, and touches nothing else. */
#include "guest/guest.h"

#include "guest/path.h"

#include <sys/stat.h>

enum {
	COMPOSE_MAX_BODY = 4 << 20,
	COMPOSE_MAX_SOURCES = 10000,
	COMPOSE_ARENA_BYTES = 64 << 20,
	COPY_STEP = 64 << 20,
	COPY_PIECE = 64 << 10,
	TEMP_ID = 16,
};

struct compose_in {
	struct json_strs sources;
	struct str destination, username;
};
static const struct json_field compose_fields[] = {
	JSON_FIELD(struct compose_in, sources, "source_paths", JSON_STRS, .flags = JSON_LAX,
		.max = COMPOSE_MAX_SOURCES),
	JSON_FIELD(struct compose_in, destination, "destination", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct compose_in, username, "username", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape compose_shape =
	JSON_SHAPE(struct compose_in, compose_fields, .ignore_unknown = true);

struct compose {
	struct transfer transfer;
	struct guest *guest;
	struct http_exchange *x; /* NULL: nobody is left to answer */
	bool is_busy;
	struct arena *arena;
	struct user user;
	char **sources;
	size_t n_sources;
	char destination[PATH_MAX];
	char temp[PATH_MAX];
	int status; /* of the answer when it failed */
	struct activity_asker asker;
};

static void compose_free(struct compose *c)
{
	list_remove(&c->transfer.node);
	(void)arena_free(c->arena);
	free(c);
}

static void compose_cancel(struct transfer *t)
{
	struct compose *c = container_of(t, struct compose, transfer);

	c->x = NULL;
	if (!c->is_busy)
		compose_free(c);
}

static int refuse(struct compose *c, int status, struct err *e, const char *text, struct str what)
{
	c->status = status;
	return err_set(e, -EINVAL, "%s%.*s", text, STR_ARG(what));
}

/* ---- on the loop: who and where ---- */

static int add_source(struct compose *c, struct str source, struct err *e)
{
	char path[PATH_MAX];
	struct stat st;
	char *kept;

	if (guest_resolve(c->guest, &c->user, source, path, e) < 0)
		return refuse(c, 400, e, "error resolving source path ", source);
	if (strcmp(path, c->destination) == 0)
		return refuse(c, 400, e, "source path cannot be the same as destination: ", source);
	if (stat(path, &st) < 0)
		return refuse(c, 404, e, "source file not found: ", source);
	if (!S_ISREG(st.st_mode))
		return refuse(c, 400, e, "source path is not a regular file: ", source);
	kept = arena_dup(c->arena, str_of(path));
	if (!kept)
		return refuse(c, 400, e, "too many source paths", STR_NONE);
	c->sources[c->n_sources++] = kept;
	return 0;
}

static int prepare(struct compose *c, struct str body, struct err *e)
{
	struct compose_in in;
	char id[TEMP_ID + 1];
	int r;

	c->status = 400;
	if (json_decode(c->arena, body, &compose_shape, &in, e) < 0)
		return err_wrap(e, -EINVAL, "invalid request body");
	if (!in.sources.n)
		return err_set(e, -EINVAL, "source_paths must not be empty");
	if (!in.destination.n)
		return err_set(e, -EINVAL, "destination is required");
	if (guest_find_user(c->guest, in.username, &c->user, e) < 0)
		return refuse(c, 401, e, "error looking up user: unknown user ", in.username);
	if (guest_resolve(c->guest, &c->user, in.destination, c->destination, e) < 0)
		return err_wrap(e, -EINVAL, "error resolving destination path");
	random_id(id, TEMP_ID);
	r = snprintf(c->temp, sizeof c->temp, "%s.e2b-compose.%s.tmp", c->destination, id);
	if (r < 0 || (size_t)r >= sizeof c->temp)
		return err_set(e, -EINVAL, "destination is too long");
	c->sources = arena_alloc(c->arena, in.sources.n * sizeof *c->sources);
	if (!c->sources)
		return err_set(e, -EINVAL, "too many source paths");
	for (size_t i = 0; i < in.sources.n; i++) {
		r = add_source(c, in.sources.v[i], e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- in the job ---- */

/* By hand: from another file system, and what the kernel left because a size says nothing (/proc).
 */
static int copy_rest(int to, int from)
{
	char piece[COPY_PIECE];
	ssize_t n;
	int r = 0;

	while (r >= 0 && (n = read(from, piece, sizeof piece)) != 0) {
		if (n > 0)
			r = fd_write_all(to, piece, (size_t)n);
		else if (errno != EINTR)
			return errno == EAGAIN ? 0 : -errno;
	}
	return r;
}

static bool is_regular(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int copy(int to, const char *path, struct err *e)
{
	cleanup_close int from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t n;
	int r = 0;

	if (from < 0)
		return err_sys(e, -errno, "error opening source file %s", path);
	if (!is_regular(from)) /* another one meanwhile */
		return err_sys(e, -EINVAL, "error composing source %s", path);
	do {
		n = copy_file_range(from, NULL, to, NULL, COPY_STEP, 0);
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS)
		r = -errno;
	if (r == 0)
		r = copy_rest(to, from);
	return r < 0 ? err_sys(e, r, "error composing source %s", path) : 0;
}

static int assemble(const struct compose *c, struct err *e)
{
	cleanup_close int to = open(c->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	int r = 0;

	if (to < 0)
		return err_sys(e, -errno, "error creating destination file");
	if (fchown(to, c->user.uid, c->user.gid) < 0)
		r = err_sys(e, -errno, "error changing file ownership");
	for (size_t i = 0; r == 0 && i < c->n_sources; i++)
		r = copy(to, c->sources[i], e);
	if (r == 0 && rename(c->temp, c->destination) < 0)
		r = err_sys(e, -errno, "error finalizing compose");
	if (r < 0)
		(void)unlink(c->temp);
	return r;
}

static int compose_work(void *arg, struct err *e)
{
	struct compose *c = arg;
	char parent[PATH_MAX];
	int r;

	path_parent(c->destination, parent);
	r = path_make_dirs(parent, c->user.uid, c->user.gid, e);
	if (r < 0)
		return err_wrap(e, r, "error ensuring directories");
	r = assemble(c, e);
	for (size_t i = 0; r == 0 && i < c->n_sources; i++)
		(void)unlink(c->sources[i]);
	return r;
}

static void compose_done(void *arg, int r, const struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(64 << 10);
	struct compose *c = arg;
	struct jsonw w;

	if (r >= 0)
		activity_file(&c->guest->activity, &(struct activity_file){ .asker = c->asker,
							   .kind = "file.written",
							   .user = c->user.name,
							   .path = c->destination,
							   .bytes = -1 });
	if (!c->x) {
		compose_free(c);
		return;
	}
	watch_set_drain(&c->guest->watches);
	if (r == -ENOSPC || r == -EDQUOT) {
		reply_fail(c->x, 507, "not enough disk space available");
	} else if (r < 0) {
		reply_fail(c->x, 500, "%s", e->msg);
	} else {
		jsonw_init(&w, &out);
		jsonw_object(&w, NULL);
		jsonw_strz(&w, "path", c->destination);
		jsonw_str(&w, "name", path_base(c->destination));
		jsonw_strz(&w, "type", "file");
		jsonw_end_object(&w);
		http_reply(c->x, 200, "application/json", buf_str(&out));
	}
	compose_free(c);
}

static void on_body(void *arg, int r, struct str body)
{
	struct compose *c = arg;
	struct err e = { 0 };

	if (r == -E2BIG) {
		reply_fail(c->x, 400, "request body is larger than %d bytes", COMPOSE_MAX_BODY);
		compose_free(c);
	} else if (r < 0) {
		http_abort(c->x);
		compose_free(c);
	} else if (prepare(c, body, &e) < 0) {
		reply_fail(c->x, c->status, "%s", e.msg);
		compose_free(c);
	} else {
		c->is_busy = true;
		loop_job(c->guest->loop, LOOP_ANY, compose_work, compose_done, c);
	}
}

void files_compose(struct guest *g, struct http_exchange *x)
{
	struct compose *c = XNEW(struct compose);

	c->guest = g;
	c->x = x;
	c->arena = arena_new(COMPOSE_ARENA_BYTES);
	c->asker = guest_asker_keep(x, c->arena);
	transfer_add(g, &c->transfer, compose_cancel);
	http_read_body(x, COMPOSE_MAX_BODY, on_body, c);
}
