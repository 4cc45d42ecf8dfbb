#include "guest/remove.h"

#include "guest/path.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	TRAIL_MAX_BYTES = 1 << 20 /* 65,536 levels */
};

/* Trees are as deep as whoever makes them likes, so this descends by changing one directory
 * descriptor and comes back by "..": no recursion, no second descriptor, no path to grow. The trail
 * remembers each directory on the way down: one that was moved meanwhile must not lead us astray.
 */
struct place {
	uint64_t dev, ino;
};

struct walk {
	DIR *dir;
	struct buf trail;  /* of struct place, the current directory's parents */
	struct place left; /* the directory that was emptied last */
};

static int enter(struct walk *w, int parent_fd, const char *name, struct err *e)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		int r = -errno;

		if (fd >= 0)
			(void)close(fd);
		return err_sys(e, r, "open %s", name);
	}
	if (w->dir)
		(void)closedir(w->dir);
	w->dir = dir;
	return 0;
}

/* Removes the files of the current directory. 1: `name` is a directory in it to go down into. */
static int clear_files(struct walk *w, char name[NAME_MAX + 1], struct err *e)
{
	struct dirent *d;

	assert(w->dir);
	while ((d = readdir(w->dir))) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(w->dir), d->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != EPERM)
			return err_sys(e, -errno, "remove %s", d->d_name);
		if (unlinkat(dirfd(w->dir), d->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			continue;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return err_sys(e, -errno, "remove %s", d->d_name);
		(void)snprintf(name, NAME_MAX + 1, "%s", d->d_name);
		return 1;
	}
	return 0;
}

static int place_of(int fd, struct place *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct place){ st.st_dev, st.st_ino };
	return 0;
}

static bool is_same(const struct place *a, const struct place *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

static int go_down(struct walk *w, const char *name, struct err *e)
{
	struct place here = { 0 };
	int r = place_of(dirfd(w->dir), &here);

	if (r == 0)
		r = buf_add(&w->trail, &here, sizeof here);
	if (r == 0)
		r = enter(w, dirfd(w->dir), name, e);
	if (r == 0)
		r = place_of(dirfd(w->dir), &here);
	if (r < 0)
		return err_sys(e, r, "enter %s", name);
	/* Somebody fills it as fast as we empty it, or it cannot be read. */
	return is_same(&here, &w->left) ? err_sys(e, -ENOTEMPTY, "remove %s", name) : 0;
}

static int go_up(struct walk *w, struct err *e)
{
	struct place here = { 0 }, want;
	int r = place_of(dirfd(w->dir), &w->left);

	if (r == 0)
		r = enter(w, dirfd(w->dir), "..", e);
	if (r == 0)
		r = place_of(dirfd(w->dir), &here);
	if (r < 0)
		return err_sys(e, r, "leave a directory");
	w->trail.n -= sizeof want;
	memcpy(&want, w->trail.p + w->trail.n, sizeof want);
	if (!is_same(&here, &want))
		return err_set(e, -EAGAIN, "a directory was moved while it was being removed");
	return 0;
}

static int clear_tree(struct walk *w, struct err *e)
{
	char name[NAME_MAX + 1];

	for (;;) {
		int r = clear_files(w, name, e);

		if (r > 0)
			r = go_down(w, name, e);
		else if (r == 0 && w->trail.n == 0)
			return 0;
		else if (r == 0) /* empty now: its parent removes it */
			r = go_up(w, e);
		if (r < 0)
			return r;
	}
}

int remove_all(const char *path, struct err *e)
{
	struct walk w = { .trail = BUF_INIT(TRAIL_MAX_BYTES) };
	struct str base = path_base(path);
	int r;

	if (str_is(base, ".") || str_is(base, ".."))
		return err_set(e, -EINVAL, "remove %s: invalid argument", path);
	if (unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_sys(e, -errno, "remove %s", path);
	r = enter(&w, AT_FDCWD, path, e);
	if (r == 0)
		r = clear_tree(&w, e);
	if (w.dir)
		(void)closedir(w.dir);
	buf_done(&w.trail);
	if (r == 0 && rmdir(path) < 0 && errno != ENOENT)
		r = err_sys(e, -errno, "remove %s", path);
	return r;
}
