/* How it works: each watched directory has a kernel number (wd) and the path it has below the root
 * of the watch. Events name a wd and a file in it. A directory that appears is watched first and
 * read second, so that nothing is missed between the two; a file born in that moment may be told
 * twice. */
#include "guest/watch.h"

#include "guest/entry.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <sys/stat.h>

enum {
	WATCH_READ_BYTES = 64 << 10,
	WATCH_MAX_DIRS = 1 << 20,
	WATCH_MAX_DEPTH = 256, /* each level of a walk holds a descriptor */
	WATCH_EVENT_BYTES = 256 << 10,
	WATCH_MASK = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MODIFY | IN_ATTRIB | IN_DELETE |
		     IN_DELETE_SELF | IN_MOVE_SELF,
};

struct watched_dir {
	int wd;
	char *below; /* relative to the root; "" is the root itself */
};

struct watch {
	struct list node;
	struct watch_set *set;
	struct watch_options options;
	const struct watch_ops *ops;
	void *arg;
	int fd;
	struct loop_io io;
	bool is_paused, is_over;
	bool is_reading, is_starting; /* freed only behind it */
	bool is_freed;
	done_fn started;
	void *started_arg;
	struct loop_task start_task;
	struct map dirs; /* by the bytes of wd */
	char root[PATH_MAX];
};

/* In the order in which one kernel event is told. */
static const struct {
	const char *name;
	uint32_t bits;
	bool has_entry; /* what the event names should still be there */
} kinds[] = {
	{ "EVENT_TYPE_CREATE", IN_CREATE | IN_MOVED_TO, true },
	{ "EVENT_TYPE_RENAME", IN_MOVED_FROM | IN_MOVE_SELF, false },
	{ "EVENT_TYPE_CHMOD", IN_ATTRIB, true },
	{ "EVENT_TYPE_WRITE", IN_MODIFY, true },
	{ "EVENT_TYPE_REMOVE", IN_DELETE | IN_DELETE_SELF, false },
};

static struct str wd_key(const int *wd)
{
	return str_make(wd, sizeof *wd);
}

/* ---- paths ---- */

/* below/name, or whichever of the two there is; false when it is too long. */
static bool join_below(const char *below, const char *name, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s%s%s", below, *below && *name ? "/" : "", name);

	return n >= 0 && n < PATH_MAX;
}

static bool join_root(const struct watch *w, const char *below, char out[PATH_MAX])
{
	int n = snprintf(out, PATH_MAX, "%s%s%s", w->root, *below ? "/" : "", below);

	return n >= 0 && n < PATH_MAX;
}

/* ---- telling ---- */

static void fail(struct watch *w, const struct err *e)
{
	if (w->is_over)
		return;
	w->is_over = true;
	loop_io_remove(&w->io);
	w->ops->failed(w->arg, e);
}

static void tell(struct watch *w, const char *below, uint32_t bits)
{
	struct buf *out = &w->set->event;
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(kinds) && !w->is_freed; i++) {
		struct jsonw j;

		if (!(bits & kinds[i].bits))
			continue;
		buf_clear(out);
		jsonw_init(&j, out);
		jsonw_object(&j, NULL);
		jsonw_strz(&j, "name", *below ? below : ".");
		jsonw_strz(&j, "type", kinds[i].name);
		if (w->options.with_entry && kinds[i].has_entry && join_root(w, below, path))
			(void)entry_write(&j, "entry", path, path, w->set->users);
		jsonw_end_object(&j);
		if (!out->failed)
			w->ops->event(w->arg, buf_str(out));
	}
}

/* ---- directories ---- */

static void dir_free(struct watch *w, struct watched_dir *dir)
{
	(void)map_remove(&w->dirs, wd_key(&dir->wd));
	free(dir->below);
	free(dir);
}

static int dir_add(struct watch *w, const char *below, struct err *e)
{
	struct watched_dir *dir;
	char path[PATH_MAX];
	int wd;

	if (!join_root(w, below, path))
		return -ENAMETOOLONG;
	if (w->dirs.n >= WATCH_MAX_DIRS)
		return err_set(e, -ENOSPC, "error adding path %s to watcher: too many directories",
			path);
	wd = inotify_add_watch(w->fd, path, WATCH_MASK | IN_ONLYDIR);
	if (wd < 0)
		return err_sys(e, -errno, "error adding path %s to watcher", path);
	dir = map_get(&w->dirs, wd_key(&wd)); /* the same directory under a new name */
	if (!dir) {
		dir = XNEW(struct watched_dir);
		dir->wd = wd;
		(void)map_put(&w->dirs, wd_key(&dir->wd), dir);
	}
	free(dir->below);
	dir->below = xstrdup(below);
	return 0;
}

static DIR *open_below(const struct watch *w, const char *below)
{
	char path[PATH_MAX];

	return join_root(w, below, path) ? opendir(path) : NULL;
}

/* Appends "/name" to below; its old length, or -ENAMETOOLONG. */
static ssize_t push(char below[PATH_MAX], const char *name)
{
	size_t n = strlen(below), more = strlen(name);

	if (n + more + 2 > PATH_MAX)
		return -ENAMETOOLONG;
	if (n > 0)
		below[n] = '/';
	memcpy(below + n + (n > 0), name, more + 1);
	return (ssize_t)n;
}

/* Watches `below` and everything under it, telling of what is found when it is new. A directory
 * that went away, or that may not be read, is passed over. `below` is the walk's one buffer. */
static int tree_add(struct watch *w, char below[PATH_MAX], bool is_new, int depth, struct err *e)
{
	struct dirent *d;
	int r = dir_add(w, below, e);
	DIR *dir;

	if (r == -ENOENT || r == -ENOTDIR || r == -EACCES || r == -ENAMETOOLONG)
		return 0;
	dir = r == 0 && depth < WATCH_MAX_DEPTH ? open_below(w, below) : NULL;
	while (r == 0 && dir && (d = readdir(dir))) {
		ssize_t n;

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		n = push(below, d->d_name);
		if (n < 0)
			continue;
		if (is_new)
			tell(w, below, IN_CREATE);
		if (d->d_type == DT_DIR)
			r = tree_add(w, below, is_new, depth + 1, e);
		below[n] = '\0';
	}
	if (dir)
		(void)closedir(dir);
	return r;
}

static bool is_at_or_under(const char *path, struct str top)
{
	return str_has_prefix(str_of(path), top) && (path[top.n] == '\0' || path[top.n] == '/');
}

/* A sub-directory that was moved out of the tree takes its watches with it. What the kernel has
 * queued for them already finds no directory any more. */
static void tree_drop_if_gone(struct watch *w, const struct watched_dir *moved)
{
	CLEANUP(buf_done) struct buf found = BUF_INIT(WATCH_MAX_DIRS * sizeof(int));
	struct str top = str_of(moved->below);
	struct watched_dir *dir;
	char path[PATH_MAX];
	struct stat st;
	size_t at = 0;
	int wd;

	if (!top.n || !join_root(w, moved->below, path) || lstat(path, &st) == 0)
		return;
	while ((dir = map_next(&w->dirs, &at)))
		if (is_at_or_under(dir->below, top))
			buf_add(&found, &dir->wd, sizeof dir->wd);
	for (at = 0; at < found.n; at += sizeof wd) {
		memcpy(&wd, found.p + at, sizeof wd);
		(void)inotify_rm_watch(w->fd, wd);
		dir_free(w, map_get(&w->dirs, wd_key(&wd)));
	}
}

/* ---- events ---- */

static void handle_self(struct watch *w, struct watched_dir *dir, uint32_t mask)
{
	/* A sub-directory's own events reach us through its parent as well. */
	if (*dir->below == '\0')
		tell(w, "", mask);
	else if (mask & IN_MOVE_SELF)
		tree_drop_if_gone(w, dir);
}

static void handle_child(struct watch *w, const struct watched_dir *dir, const char *name,
	uint32_t mask)
{
	bool is_new_dir = (mask & IN_ISDIR) && (mask & (IN_CREATE | IN_MOVED_TO));
	char below[PATH_MAX];
	struct err e = { 0 };

	if (!join_below(dir->below, name, below))
		return;
	tell(w, below, mask);
	if (is_new_dir && w->options.recursive && !w->is_freed &&
		tree_add(w, below, true, 0, &e) < 0)
		fail(w, &e);
}

static void handle(struct watch *w, const struct inotify_event *ev)
{
	struct watched_dir *dir = map_get(&w->dirs, wd_key(&ev->wd));
	struct err e = { 0 };

	if (ev->mask & IN_Q_OVERFLOW) {
		err_set(&e, -EOVERFLOW, "watcher error: fsnotify: queue or buffer overflow");
		fail(w, &e);
	} else if (!dir) {
		return; /* of a watch that was just dropped */
	} else if (ev->mask & IN_IGNORED) {
		dir_free(w, dir);
	} else if (ev->len == 0) {
		handle_self(w, dir, ev->mask);
	} else {
		handle_child(w, dir, ev->name, ev->mask);
	}
}

static void watch_delete(struct watch *w)
{
	struct watched_dir *dir;
	size_t at = 0;

	loop_io_remove(&w->io);
	while ((dir = map_next(&w->dirs, &at))) {
		free(dir->below);
		free(dir);
	}
	map_done(&w->dirs);
	close_fdp(&w->fd);
	list_remove(&w->node);
	free(w);
}

void watch_drain(struct watch *w)
{
	_Alignas(struct inotify_event) char bytes[WATCH_READ_BYTES];
	ssize_t n;

	if (w->is_reading || w->is_starting || w->is_paused || w->is_over)
		return;
	w->is_reading = true;
	if (w->options.with_entry)
		users_refresh(w->set->users);
	while (!w->is_freed && !w->is_over && !w->is_paused &&
		(n = read(w->fd, bytes, sizeof bytes)) > 0) {
		for (ssize_t at = 0; at < n && !w->is_freed && !w->is_over;) {
			const struct inotify_event *ev = (const void *)(bytes + at);

			handle(w, ev);
			at += (ssize_t)(sizeof *ev + ev->len);
		}
	}
	w->is_reading = false;
	if (w->is_freed)
		watch_delete(w);
}

static void on_ready(void *arg, uint32_t events)
{
	(void)events;
	watch_drain(arg);
}

void watch_pause(struct watch *w, bool paused)
{
	w->is_paused = paused;
	loop_io_set(&w->io, paused ? 0 : EPOLLIN);
}

/* ---- starting ---- */

static void start_done(void *arg, int r, const struct err *e)
{
	struct err refused = { 0 };
	struct watch *w = arg;

	if (w->is_freed)
		r = err_set(&refused, -ECANCELED, "the watch is no longer wanted");
	else if (r == 0)
		r = loop_io_add(w->set->loop, &w->io, w->fd, EPOLLIN, on_ready, w, &refused);
	w->started(w->started_arg, r, refused.code < 0 ? &refused : e);
	w->is_starting = false;
	if (w->is_freed)
		watch_delete(w);
}

static void start_now(void *arg)
{
	start_done(arg, 0, NULL);
}

/* The job: until it is done nobody else looks at the watch's directories. */
static int walk(void *arg, struct err *e)
{
	char below[PATH_MAX] = "";

	return tree_add(arg, below, false, 0, e);
}

void watch_start(struct watch *w, done_fn done, void *arg)
{
	w->started = done;
	w->started_arg = arg;
	w->is_starting = true;
	if (w->options.recursive)
		loop_job(w->set->loop, LOOP_ANY, walk, start_done, w);
	else
		loop_defer(w->set->loop, &w->start_task, start_now, w);
}

int watch_new(struct watch_set *set, const char *path, const struct watch_options *o,
	const struct watch_ops *ops, void *arg, struct watch **ret, struct err *e)
{
	struct watch *w = XNEW(struct watch);
	int r;

	w->set = set;
	w->options = *o;
	w->ops = ops;
	w->arg = arg;
	(void)snprintf(w->root, sizeof w->root, "%s", path);
	list_append(&set->watches, &w->node);
	w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	/* The root first and by itself: of all directories only its absence is an error. */
	r = w->fd < 0 ? err_sys(e, -errno, "error creating watcher") : dir_add(w, "", e);
	if (r < 0) {
		watch_delete(w);
		return r;
	}
	*ret = w;
	return 0;
}

struct watch *watch_free(struct watch *w)
{
	if (w && (w->is_reading || w->is_starting))
		w->is_freed = true;
	else if (w)
		watch_delete(w);
	return NULL;
}

void watch_set_init(struct watch_set *set, struct loop *loop, struct users *users)
{
	*set = (struct watch_set){ .loop = loop,
		.users = users,
		.event = BUF_INIT(WATCH_EVENT_BYTES) };
	list_init(&set->watches);
}

void watch_set_done(struct watch_set *set)
{
	struct err e = { 0 };

	err_set(&e, -ECANCELED, "watcher error: the sandbox stops");
	LIST_EACH(&set->watches, node)
	{
		struct watch *w = container_of(node, struct watch, node);

		if (w->is_starting)
			w->is_freed = true;
		else
			fail(w, &e);
	}
	buf_done(&set->event);
}

void watch_set_drain(struct watch_set *set)
{
	LIST_EACH(&set->watches, node)
	watch_drain(container_of(node, struct watch, node));
}
