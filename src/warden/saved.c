#include "warden/saved.h"

#include <dirent.h>
#include <linux/fs.h>

#define SAVED_DIR "saved"
#define SUFFIX ".ext4"

enum {
	NAME_SIZE = 80,
	PLACES = 2, /* where images are made now, and where they were before there was a pool */
};

static int place(const struct disk *disk, int i)
{
	int fd = i == 0 ? disk->dir_fd : disk->host_fd;

	if (i > 0 && disk->dir_fd == disk->host_fd)
		return -EBADF;
	fd = openat(fd, SAVED_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -EBADF : fd;
}

static void file_name(const char *prefix, const char *name, char ret[NAME_SIZE])
{
	(void)snprintf(ret, NAME_SIZE, "%s%s" SUFFIX, prefix, name);
}

int saved_open(const struct disk *disk, const char *name, struct err *e)
{
	char file[NAME_SIZE];

	file_name("", name, file);
	for (int i = 0; i < PLACES; i++) {
		cleanup_close int dir = place(disk, i);
		int fd = dir < 0 ? -EBADF : openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0)
			return fd;
		if (dir >= 0 && errno != ENOENT)
			return err_sys(e, -errno, "open image '%s'", name);
	}
	return err_set(e, -ENOENT, "there is no image '%s'", name);
}

static int check_free(const struct disk *disk, const char *name, struct err *e)
{
	cleanup_close int fd = saved_open(disk, name, NULL);

	return fd >= 0 ? err_set(e, -EEXIST, "there is an image '%s' already", name) : 0;
}

int saved_begin(const struct disk *disk, const char *name, int *ret_dir_fd, struct err *e)
{
	cleanup_close int dir = -EBADF;
	char file[NAME_SIZE];
	int r = check_free(disk, name, e), fd;

	if (r >= 0)
		r = disk_check_room(disk, e);
	if (r >= 0)
		r = dir_make(disk->dir_fd, SAVED_DIR, 0700, e);
	if (r < 0)
		return r;
	dir = place(disk, 0);
	file_name(".", name, file);
	fd = openat(dir, file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "make image '%s'", name);
	*ret_dir_fd = TAKE_FD(dir);
	return fd;
}

int saved_finish(int dir_fd, const char *name, struct err *e)
{
	char from[NAME_SIZE], to[NAME_SIZE];

	file_name(".", name, from);
	file_name("", name, to);
	if (renameat2(dir_fd, from, dir_fd, to, RENAME_NOREPLACE) < 0)
		return err_sys(e, -errno, "name image '%s'", name);
	return fsync(dir_fd) < 0 ? err_sys(e, -errno, "write image '%s' out", name) : 0;
}

void saved_cancel(const struct disk *disk, const char *name)
{
	cleanup_close int dir = place(disk, 0);
	char file[NAME_SIZE];

	/* In this order: somebody may still be about to give it its name. */
	file_name(".", name, file);
	(void)unlinkat(dir, file, 0);
	file_name("", name, file);
	(void)unlinkat(dir, file, 0);
}

int saved_discard(const struct disk *disk, const char *name, struct err *e)
{
	bool found = false;
	char half[NAME_SIZE], file[NAME_SIZE];

	file_name(".", name, half);
	file_name("", name, file);
	for (int i = 0; i < PLACES; i++) {
		cleanup_close int dir = place(disk, i);

		/* In this order: somebody may still be about to give it its name. */
		(void)unlinkat(dir, half, 0);
		if (dir >= 0 && unlinkat(dir, file, 0) == 0)
			found = true;
		else if (dir >= 0 && errno != ENOENT)
			return err_sys(e, -errno, "remove image '%s'", name);
	}
	return found ? 0 : err_set(e, -ENOENT, "there is no image '%s'", name);
}

static void each_file(const struct disk *disk, int i,
	void (*fn)(void *arg, int dir_fd, const char *file), void *arg)
{
	int fd = place(disk, i);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN)
			fn(arg, dirfd(dir), entry->d_name);
	if (dir)
		(void)closedir(dir);
}

struct visitor {
	void (*fn)(void *arg, const char *name);
	void *arg;
};

static void visit(void *arg, int dir_fd, const char *file)
{
	const struct visitor *v = arg;
	size_t n = strlen(file), suffix = strlen(SUFFIX);
	char name[NAME_SIZE];

	(void)dir_fd;
	if (file[0] == '.' || n <= suffix || n >= sizeof name ||
		strcmp(file + n - suffix, SUFFIX) != 0)
		return;
	(void)snprintf(name, sizeof name, "%.*s", (int)(n - suffix), file);
	v->fn(v->arg, name);
}

void saved_each(const struct disk *disk, void (*fn)(void *arg, const char *name), void *arg)
{
	struct visitor v = { fn, arg };

	for (int i = 0; i < PLACES; i++)
		each_file(disk, i, visit, &v);
}

static void remove_unfinished(void *arg, int dir_fd, const char *file)
{
	(void)arg;
	if (file[0] == '.')
		(void)unlinkat(dir_fd, file, 0);
}

void saved_tidy(const struct disk *disk)
{
	for (int i = 0; i < PLACES; i++)
		each_file(disk, i, remove_unfinished, NULL);
}
