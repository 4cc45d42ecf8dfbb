/* How much is in a volume. One that is a file system of its own is asked. In a plain directory
 * sandboxes write directly, and the kernel counts for nobody: so each tree is walked from time to
 * time, a little at once, more often when it changes and less often the longer it takes. What is
 * uploaded in between is added as it comes. A volume that has more than it may takes no more
 * through us; a sandbox that has it mounted is only told on. */
#include "observe/observe.h"
#include "volume/volume-internal.h"

#include <dirent.h>
#include <sys/statvfs.h>

enum {
	MEASURE_LANE = 2,
	CHUNK_US = 20000,
	REST_MS = 40,       /* between two chunks: never more than a third of a processor */
	WALK_MS = 120000,   /* of work on one volume: some millions of files */
	WALK_DEPTH = 256,   /* directories open at once */
	ENTRY_BYTES = 4096, /* what a file counts besides what it holds: inodes run out as well */
	BLOCK_BYTES = 512,  /* of st_blocks */
	FIRST_MS = 500,
	LEAST_MS = 5000,   /* between two looks at the same volume, if somebody asks */
	USUAL_MS = 60000,  /* and if nobody does */
	MOST_MS = 3600000, /* and if nothing changes */
	SHARE_ASKED = 10,  /* times as long as it took are left in between, if somebody asks */
	SHARE_USUAL = 50,
	MIB = 1 << 20,
};

struct measuring {
	struct volume_book *book; /* NULL: gone meanwhile */
	char id[UUID_SIZE];
	int64_t began_ms;
	int dir_fd; /* the volumes' */
	DIR *dirs[WALK_DEPTH];
	int depth;
	dev_t dev;
	int64_t bytes;
	int64_t left_us; /* of the time for it */
	bool is_image;
	struct reach *reach; /* of an image */
};

static void measuring_free(struct measuring *m)
{
	while (m->depth > 0)
		(void)closedir(m->dirs[--m->depth]);
	close_fdp(&m->dir_fd);
	(void)reach_unref(m->reach);
	free(m);
}

/* ---- the walk ---- */

static int enter(struct measuring *m, int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir) {
		close_fdp(&fd);
		return m->depth ? 0 : -ENOENT; /* gone meanwhile */
	}
	if (m->depth == WALK_DEPTH) {
		(void)closedir(dir);
		return -ELOOP;
	}
	m->dirs[m->depth++] = dir;
	return 0;
}

/* A file with several names is there several times, each for its part. */
static int count(struct measuring *m, int dir_fd, const char *name)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	m->bytes += ENTRY_BYTES;
	if (!S_ISDIR(st.st_mode)) {
		m->bytes += (int64_t)st.st_blocks * BLOCK_BYTES / (int64_t)MAX(st.st_nlink, 1U);
		return 0;
	}
	m->bytes += (int64_t)st.st_blocks * BLOCK_BYTES;
	return st.st_dev == m->dev ? enter(m, dir_fd, name) : 0;
}

static int begin(struct measuring *m)
{
	struct stat st;
	int r = enter(m, m->dir_fd, m->id);

	if (r >= 0 && fstat(dirfd(m->dirs[0]), &st) == 0)
		m->dev = st.st_dev;
	return r;
}

static int walk_some(void *arg, struct err *e)
{
	struct measuring *m = arg;
	int64_t now_us = time_now_us(), until_us = now_us + MIN((int64_t)CHUNK_US, m->left_us);
	int r = m->depth ? 0 : begin(m);

	(void)e;
	while (r >= 0 && m->depth > 0) {
		DIR *dir = m->dirs[m->depth - 1];
		struct dirent *entry = readdir(dir);

		if (!entry)
			(void)closedir(m->dirs[--m->depth]);
		else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = count(m, dirfd(dir), entry->d_name);
		if (r >= 0 && m->depth > 0 && time_now_us() >= until_us) {
			m->left_us -= time_now_us() - now_us;
			return m->left_us > 0 ? -EAGAIN : -ETIME;
		}
	}
	return r;
}

/* A file system of its own knows. */
static int ask_kernel(void *arg, struct err *e)
{
	struct measuring *m = arg;
	struct statvfs st;

	if (fstatvfs(m->reach->root_fd, &st) < 0)
		return err_sys(e, -errno, "measure volume %s", m->id);
	m->bytes = (int64_t)((st.f_blocks - st.f_bfree) * st.f_frsize);
	return 0;
}

/* ---- what follows from it ---- */

static int64_t team_used(const struct volume_book *book, const char *team_id, int64_t *ret_count)
{
	int64_t used = 0;

	for (struct list *node = book->holdings.next; node != &book->holdings; node = node->next) {
		const struct holding *h = container_of(node, struct holding, node);

		if (strcmp(h->view.team_id, team_id) != 0)
			continue;
		++*ret_count;
		used += MAX(h->used_bytes, INT64_C(0));
	}
	return used;
}

static int64_t walk_ms(const struct volume_book *book)
{
	return book->config.walk_ms ? book->config.walk_ms : WALK_MS;
}

/* -ENOSPC: that many more bytes would be too many. */
static int check(const struct volume_book *book, const struct holding *h, int64_t more,
	enum limit_kind *ret_kind, struct err *e)
{
	const struct limit_teams *teams = &book->config.teams;
	int64_t count = 0, used = MAX(h->used_bytes, INT64_C(0)),
		most = limit_team_ceiling(teams, h->view.team_id, LIMIT_VOLUME_SIZE);

	*ret_kind = LIMIT_VOLUME_SIZE;
	if (h->is_deep)
		return err_set(e, -ENOSPC,
			"the volume '%s' has directories more than %d deep and cannot be measured: "
			"it counts as full",
			h->view.name, WALK_DEPTH);
	if (h->is_endless)
		return err_set(e, -ENOSPC,
			"the volume '%s' has more files than could be looked at in %" PRId64
			" s, or they change too fast: it counts as full",
			h->view.name, (walk_ms(book) + 999) / 1000);
	if (used + more > most * MIB)
		return err_set(e, -ENOSPC,
			"the volume '%s' is full: its limit of %" PRId64 " MiB was reached",
			h->view.name, most);
	*ret_kind = LIMIT_VOLUME_STORAGE;
	most = limit_team_ceiling(teams, h->view.team_id, LIMIT_VOLUME_STORAGE);
	if (team_used(book, h->view.team_id, &count) + more > most * MIB)
		return err_set(e, -ENOSPC,
			"the volumes of your team are full: their limit of %" PRId64
			" MiB in all was reached",
			most);
	return 0;
}

static void tell(struct volume_book *book, const struct holding *h, enum limit_kind kind,
	const struct err *why)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	struct observe_event event = { .actor = "system",
		.kind = "volume.limit",
		.subject = h->view.id,
		.team_id = h->view.team_id,
		.cause = why->msg };
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "limit", limit_key(kind));
	jsonw_int(&w, "value", limit_team_ceiling(&book->config.teams, h->view.team_id, kind));
	jsonw_int(&w, "used_mb", MAX(h->used_bytes, INT64_C(0)) / MIB);
	jsonw_strz(&w, "cause", why->msg);
	jsonw_end_object(&w);
	event.data = buf_str(&data);
	log_info("volume.limit", "volume=%s limit=%s", h->view.id, limit_key(kind));
	if (book->config.events)
		observe_event(book->config.events, &event);
}

static void judge(struct volume_book *book, struct holding *h)
{
	enum limit_kind kind;
	struct err why = { 0 };
	bool is_full = check(book, h, 0, &kind, &why) < 0;

	if (is_full && !h->is_told)
		tell(book, h, kind, &why);
	h->is_told = is_full;
}

/* ---- when ---- */

static void arm(struct volume_book *book)
{
	int64_t due_ms = INT64_MAX;

	if (book->measuring)
		return;
	LIST_EACH(&book->holdings, node)
	{
		const struct holding *h = container_of(node, struct holding, node);

		due_ms = MIN(due_ms, h->due_ms);
	}
	if (due_ms != INT64_MAX)
		loop_timer_set(&book->measurer, MAX(due_ms, loop_now_ms(book->config.loop)));
}

static void note(struct volume_book *book, struct holding *h, const struct measuring *m, int r)
{
	int64_t now_ms = loop_now_ms(book->config.loop), before = h->used_bytes;

	h->took_ms = now_ms - m->began_ms;
	h->measured_ms = now_ms;
	h->is_deep = r == -ELOOP;
	h->is_endless = r == -ETIME;
	if (!m->is_image)
		h->used_bytes = m->bytes + h->pending + h->landed;
	else if (r >= 0)
		h->used_bytes = m->bytes;
	if (h->is_endless) /* what was counted is not all */
		h->used_bytes = MAX(h->used_bytes, before);
	h->pause_ms = h->used_bytes == before ? MIN(h->pause_ms * 2, MOST_MS) : USUAL_MS;
	h->due_ms = now_ms + MAX(h->pause_ms, h->took_ms * SHARE_USUAL);
	judge(book, h);
}

static void measured(void *arg, int r, const struct err *e)
{
	struct measuring *m = arg;
	struct volume_book *book = m->book;
	struct holding *h = book ? map_get(&book->by_id, str_of(m->id)) : NULL;

	(void)e;
	if (h && r == -EAGAIN) {
		loop_timer_set(&book->measurer, loop_now_ms(book->config.loop) + REST_MS);
		return;
	}
	if (h)
		note(book, h, m, r);
	measuring_free(m);
	if (book) {
		book->measuring = NULL;
		arm(book);
	}
}

static struct measuring *measuring_new(struct volume_book *book, struct holding *h)
{
	struct measuring *m = XNEW(struct measuring);

	m->book = book;
	m->began_ms = loop_now_ms(book->config.loop);
	m->left_us = walk_ms(book) * 1000;
	m->dir_fd = fcntl(book->config.dir_fd, F_DUPFD_CLOEXEC, 0);
	memcpy(m->id, h->view.id, sizeof m->id);
	m->is_image = h->is_image;
	h->landed = 0;
	return m;
}

static void reached(void *arg, struct reach *take_reach, const struct err *e)
{
	struct measuring *m = arg;

	m->reach = take_reach;
	if (m->reach && m->book)
		loop_job(m->book->config.loop, MEASURE_LANE, ask_kernel, measured, m);
	else
		measured(m, m->reach ? -ECANCELED : e->code, e);
}

static struct holding *find_due(const struct volume_book *book)
{
	struct holding *first = NULL;

	LIST_EACH(&book->holdings, node)
	{
		struct holding *h = container_of(node, struct holding, node);

		if (!first || h->due_ms < first->due_ms)
			first = h;
	}
	return first && first->due_ms <= loop_now_ms(book->config.loop) ? first : NULL;
}

/* The next chunk, or the next volume. */
static void on_timer(void *arg)
{
	struct volume_book *book = arg;
	struct holding *h = book->measuring ? NULL : find_due(book);

	if (h)
		book->measuring = measuring_new(book, h);
	if (book->measuring && book->measuring->is_image)
		reach_get(book, book->measuring->id, reached, book->measuring);
	else if (book->measuring)
		loop_job(book->config.loop, MEASURE_LANE, walk_some, measured, book->measuring);
	else
		arm(book);
}

void measure_init(struct volume_book *book)
{
	loop_timer_init(&book->measurer, book->config.loop, on_timer, book);
}

void measure_let_go(struct volume_book *book)
{
	/* Between two chunks nobody else has it. */
	if (book->measuring && loop_timer_is_set(&book->measurer))
		measuring_free(book->measuring);
	else if (book->measuring)
		book->measuring->book = NULL;
	book->measuring = NULL;
	loop_timer_cancel(&book->measurer);
}

void measure_soon(struct volume_book *book, struct holding *h)
{
	int64_t now_ms = loop_now_ms(book->config.loop), due_ms = now_ms + FIRST_MS;

	if (!h->pause_ms) { /* it is new */
		h->pause_ms = USUAL_MS;
		h->used_bytes = -1;
		h->due_ms = INT64_MAX;
	}
	if (h->measured_ms)
		due_ms = MAX(due_ms, h->measured_ms + MAX(LEAST_MS, h->took_ms * SHARE_ASKED));
	if (due_ms < h->due_ms) {
		h->due_ms = due_ms;
		arm(book);
	}
}

void measure_add(struct volume_book *book, const char *id, int64_t bytes)
{
	struct holding *h = map_get(&book->by_id, str_of(id));

	if (!h)
		return;
	h->used_bytes = MAX(h->used_bytes, INT64_C(0)) + bytes;
	h->pending += bytes;
	measure_soon(book, h);
}

void measure_land(struct volume_book *book, const char *id, int64_t bytes)
{
	struct holding *h = map_get(&book->by_id, str_of(id));

	if (!h)
		return;
	h->pending -= bytes;
	h->landed += bytes;
}

/* ---- doors ---- */

int volume_check_room(struct volume_book *book, const struct volume *volume, int64_t more_bytes,
	struct err *e)
{
	struct holding *h = map_get(&book->by_id, str_of(volume->id));
	enum limit_kind kind;
	struct err why = { 0 };

	if (!h || check(book, h, more_bytes, &kind, &why) >= 0)
		return 0;
	measure_soon(book, h); /* something may have been removed */
	if (!h->is_told)
		tell(book, h, kind, &why);
	h->is_told = true;
	if (e)
		*e = why;
	return why.code;
}

bool volume_is_hard(const struct volume_book *book, const struct volume *volume)
{
	const struct holding *h = map_get(&book->by_id, str_of(volume->id));

	return h && h->is_image;
}

void volume_use(struct volume_book *book, const struct volume *volume, struct volume_use *ret)
{
	struct holding *h = map_get(&book->by_id, str_of(volume->id));

	*ret = (struct volume_use){ .used_bytes = -1 };
	if (!h)
		return;
	measure_soon(book, h);
	ret->used_bytes = h->used_bytes;
	ret->is_hard = h->is_image;
	ret->most_bytes =
		limit_team_ceiling(&book->config.teams, volume->team_id, LIMIT_VOLUME_SIZE) * MIB;
}

void volume_team_use(const struct volume_book *book, const char *team_id,
	struct volume_team_use *ret)
{
	*ret = (struct volume_team_use){ 0 };
	ret->used_bytes = team_used(book, team_id, &ret->count);
}
