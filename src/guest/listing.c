/* Depth first, by name within a directory, a directory before what is in it. The names of a
 * directory are read whole and sorted before the first is shown; while a sub-directory is listed,
 * only the names above it are kept, no descriptor. */
#include "guest/listing.h"

#include "guest/entry.h"
#include "guest/path.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	NAMES_MAX_BYTES = 64 << 20, /* of the directories open at a time */
};

struct names {
	struct buf text; /* terminated names, one after the other */
	struct buf at;   /* const char * of each, sorted */
};

struct walk {
	const struct users *users;
	struct jsonw w;
	char real[PATH_MAX];  /* where we are */
	char shown[PATH_MAX]; /* what the client calls it */
	size_t names_bytes;
	struct err *e;
};

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int names_read(struct names *n, const char *path, struct err *e)
{
	DIR *dir = opendir(path);
	struct dirent *d;

	if (!dir)
		return -errno;
	while ((d = readdir(dir)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			(void)buf_add(&n->text, d->d_name, strlen(d->d_name) + 1);
	(void)closedir(dir);
	for (const char *p = n->text.p; p && p < n->text.p + n->text.n; p += strlen(p) + 1)
		(void)buf_add(&n->at, &p, sizeof p);
	if (n->text.failed || n->at.failed)
		return err_set(e, -ENOBUFS, "directory %s has too many entries to list", path);
	if (n->at.n)
		qsort(n->at.p, n->at.n / sizeof(char *), sizeof(char *), compare);
	return 0;
}

static void names_done(struct names *n)
{
	buf_done(&n->text);
	buf_done(&n->at);
}

/* Appends "/name"; the old length, or -ENAMETOOLONG. */
static ssize_t push(char path[PATH_MAX], const char *name)
{
	size_t n = strlen(path), more = strlen(name);
	bool has_slash = n > 0 && path[n - 1] == '/';

	if (n + more + 2 > PATH_MAX)
		return -ENAMETOOLONG;
	if (!has_slash)
		path[n] = '/';
	memcpy(path + n + !has_slash, name, more + 1);
	return (ssize_t)n;
}

static int list_dir(struct walk *walk, uint32_t depth);

/* An entry that went away meanwhile is no failure. */
static int list_entry(struct walk *walk, uint32_t depth)
{
	struct stat st;

	if (lstat(walk->real, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	entry_write_stat(&walk->w, NULL, walk->real, walk->shown, walk->users, &st);
	if (walk->w.out->failed)
		return err_set(walk->e, -ENOBUFS,
			"the listing is larger than %d MiB: list fewer levels, or a sub-directory",
			LISTING_MAX_BYTES >> 20);
	return depth > 1 && S_ISDIR(st.st_mode) ? list_dir(walk, depth - 1) : 0;
}

static int list_names(struct walk *walk, uint32_t depth, const struct names *names)
{
	const char *const *v = (const char *const *)(const void *)names->at.p;
	size_t count = names->at.n / sizeof *v;
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++) {
		ssize_t real_n = push(walk->real, v[i]), shown_n = push(walk->shown, v[i]);

		if (real_n >= 0 &&
			shown_n >= 0) /* deeper than a path can say: not reachable anyway */
			r = list_entry(walk, depth);
		if (real_n >= 0)
			walk->real[real_n] = '\0';
		if (shown_n >= 0)
			walk->shown[shown_n] = '\0';
	}
	return r;
}

static int list_dir(struct walk *walk, uint32_t depth)
{
	size_t room = NAMES_MAX_BYTES - walk->names_bytes;
	struct names names = { BUF_INIT(room), BUF_INIT(room) };
	size_t held;
	int r = names_read(&names, walk->real, walk->e);

	held = MIN(names.text.n + names.at.n, room);
	walk->names_bytes += held;
	if (r == 0)
		r = list_names(walk, depth, &names);
	else if (r != -ENOBUFS)
		r = r == -ENOENT ? 0
				 : err_sys(walk->e, r, "error reading directory %s", walk->real);
	walk->names_bytes -= held;
	names_done(&names);
	return r;
}

void listing_init(struct listing *l, const char *path, uint32_t depth)
{
	(void)snprintf(l->path, sizeof l->path, "%s", path);
	l->depth = depth;
	users_init(&l->users);
	l->out = BUF_INIT(LISTING_MAX_BYTES);
}

void listing_done(struct listing *l)
{
	users_done(&l->users);
	buf_done(&l->out);
}

/* A symbolic link may be asked for: it is followed, but the client keeps its own name for it. */
static int open_root(const struct listing *l, char real[PATH_MAX], struct err *e)
{
	struct stat st;

	if (!realpath(l->path, real)) {
		if (errno == ELOOP)
			return err_set(e, -ELOOP, "cyclic symlink or chain >255 links at \"%s\"",
				l->path);
		if (errno == ENOENT)
			return err_set(e, -ENOENT,
				"path not found: lstat %s: no such file or directory", l->path);
		return err_sys(e, -errno, "error resolving symlink: %s", l->path);
	}
	if (stat(real, &st) < 0)
		return err_sys(e, -errno, "error getting file info: %s", real);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, -ENOTDIR, "path is not a directory: %s", real);
	return 0;
}

int listing_run(struct listing *l, struct err *e)
{
	struct walk walk = { .users = &l->users, .e = e };
	int r = open_root(l, walk.real, e);

	if (r < 0)
		return r;
	users_refresh(&l->users);
	(void)snprintf(walk.shown, sizeof walk.shown, "%s", l->path);
	path_clean(walk.shown);
	jsonw_init(&walk.w, &l->out);
	jsonw_object(&walk.w, NULL);
	jsonw_array(&walk.w, "entries");
	r = list_dir(&walk, l->depth);
	jsonw_end_array(&walk.w);
	jsonw_end_object(&walk.w);
	return r;
}
