/* Removing trees that somebody else has made. A directory is reached from the one above it, so that
 * no path is ever too long, and only so many are open at once: what lies deeper is first brought up
 * to the top of the tree, where the next round finds it. So a removal that was left half-way can be
 * taken up again by anybody, without knowing how far it had come. */
#include "base/base.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	DESCEND = 64, /* directories open at once */
	ATTEMPTS = 8, /* to empty a directory that somebody else fills */
	PREFIX_SIZE = 17,
	BROUGHT_SIZE = 48,
};

struct removal {
	int top_fd;
	dev_t dev;
	char prefix[PREFIX_SIZE]; /* of what is brought up: prefix-0, prefix-1 ... */
	uint64_t n_brought;
	int64_t until_us; /* 0: to the end */
};

static int remove_one(struct removal *rm, int dir_fd, const char *name, int depth);

/* A directory without permissions is still its owner's to remove. fchmod does not take O_PATH, and
 * opening otherwise needs the very mode to be changed. */
static void unlock(int dir_fd, const char *name)
{
	cleanup_close int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char self[32];

	(void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	if (fd >= 0)
		(void)chmod(self, 0700);
}

static int open_dir(int dir_fd, const char *name)
{
	int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
	int fd = openat(dir_fd, name, flags);

	if (fd < 0 && errno == EACCES) {
		unlock(dir_fd, name);
		fd = openat(dir_fd, name, flags);
	}
	return fd < 0 ? -errno : fd;
}

/* Whoever is in it can move no further away than this. */
static int bring_up(struct removal *rm, int dir_fd, const char *name)
{
	char to[BROUGHT_SIZE];

	(void)snprintf(to, sizeof to, "%s-%" PRIu64, rm->prefix, rm->n_brought);
	unlock(dir_fd, name); /* to move a directory is to change it */
	if (renameat(dir_fd, name, rm->top_fd, to) < 0)
		return errno == ENOENT ? 0 : -errno;
	rm->n_brought++;
	return 0;
}

static int remove_entries(struct removal *rm, DIR *dir, int depth)
{
	struct dirent *entry;
	struct stat st;
	int r = 0;

	if (fstat(dirfd(dir), &st) < 0 || st.st_dev != rm->dev)
		return -EXDEV;
	/* Its owner may list it and still not change it. */
	if (!(st.st_mode & S_IWUSR))
		(void)fchmod(dirfd(dir), 0700);
	while (r >= 0 && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		r = rm->until_us && time_now_us() >= rm->until_us
			    ? -EAGAIN
			    : remove_one(rm, dirfd(dir), entry->d_name, depth);
	}
	return r;
}

static int remove_directory(struct removal *rm, int dir_fd, const char *name, int depth)
{
	int r = -ENOTEMPTY;

	for (int i = 0; r == -ENOTEMPTY && i < ATTEMPTS; i++) {
		uint64_t brought = rm->n_brought;
		int fd = open_dir(dir_fd, name);
		DIR *dir = fd < 0 ? NULL : fdopendir(fd);

		if (!dir) {
			close_fdp(&fd);
			return fd == -ENOENT ? 0 : fd < 0 ? fd : -ENOMEM;
		}
		r = remove_entries(rm, dir, depth + 1);
		(void)closedir(dir);
		if (r >= 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			r = -errno;
		if (depth == 0 && rm->n_brought > brought)
			i = -1; /* what was brought up is the next round's */
	}
	return r;
}

static int remove_one(struct removal *rm, int dir_fd, const char *name, int depth)
{
	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	return depth < DESCEND ? remove_directory(rm, dir_fd, name, depth)
			       : bring_up(rm, dir_fd, name);
}

int dir_remove_some(int dir_fd, const char *name, int64_t until_us)
{
	struct removal rm = { .until_us = until_us };
	cleanup_close int top = open_dir(dir_fd, name);
	struct stat st;

	if (top < 0 && top != -ENOTDIR && top != -ELOOP)
		return top == -ENOENT ? 0 : top;
	if (top >= 0 && fstat(top, &st) < 0)
		return -errno;
	rm.top_fd = top;
	rm.dev = top < 0 ? 0 : st.st_dev;
	random_id(rm.prefix, PREFIX_SIZE - 1);
	return remove_one(&rm, dir_fd, name, 0);
}

int dir_remove_tree(int dir_fd, const char *name, struct err *e)
{
	int r = dir_remove_some(dir_fd, name, 0);

	return r < 0 ? err_sys(e, r, "remove %s", name) : 0;
}
