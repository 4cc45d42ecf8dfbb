#include "volume/volume-internal.h"

#include <dirent.h>

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *open_dir(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (fd >= 0 && !dir)
		(void)close(fd);
	return dir;
}

/* ---- removing ---- */

/* A directory without permissions is still its owner's to remove. */
static void unlock(int dir_fd, const char *name)
{
	cleanup_close int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		(void)place_chmod(fd, 0700);
}

static int remove_one(int dir_fd, const char *name, dev_t dev, int depth);

static int remove_entries(DIR *dir, dev_t dev, int depth)
{
	struct dirent *entry;
	struct stat st;
	int r = 0;

	if (depth > 1000 || fstat(dirfd(dir), &st) < 0 || st.st_dev != dev)
		return -EXDEV;
	while (r >= 0 && (entry = readdir(dir)))
		if (!is_dots(entry->d_name))
			r = remove_one(dirfd(dir), entry->d_name, dev, depth);
	return r;
}

static int remove_one(int dir_fd, const char *name, dev_t dev, int depth)
{
	DIR *dir;
	int r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	unlock(dir_fd, name);
	dir = open_dir(dir_fd, name);
	if (!dir)
		return -errno;
	r = remove_entries(dir, dev, depth + 1);
	(void)closedir(dir);
	if (r >= 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

int tree_remove(int dir_fd, const char *name)
{
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	return remove_one(dir_fd, name, st.st_dev, 0);
}

/* ---- listing ---- */

static int64_t to_us(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The server's own user is the volume's root. */
static int64_t shown_id(unsigned on_disk, unsigned own)
{
	return on_disk >= own ? on_disk - own : on_disk;
}

static enum volume_type type_of(mode_t mode)
{
	return S_ISREG(mode)   ? VOLUME_FILE
	       : S_ISDIR(mode) ? VOLUME_DIRECTORY
	       : S_ISLNK(mode) ? VOLUME_SYMLINK
			       : VOLUME_UNKNOWN;
}

static int make_room(struct listing *l)
{
	size_t cap = l->cap ? 2 * l->cap : 16;
	struct volume_entry *more;

	if (l->n < l->cap)
		return 0;
	if (l->n >= VOLUME_MAX_LISTED)
		return -E2BIG;
	more = realloc(l->v, cap * sizeof *more);
	if (!more)
		return -ENOMEM;
	l->v = more;
	l->cap = cap;
	return 0;
}

int listing_add(struct listing *l, const char *path, int fd, const struct stat *st)
{
	char *kept = arena_dup(l->arena, str_of(path)), target[PATH_MAX];
	struct volume_entry *entry;
	int r = kept ? make_room(l) : -E2BIG;

	if (r < 0)
		return r;
	entry = &l->v[l->n];
	*entry = (struct volume_entry){
		.path = str_of(kept),
		.name = place_base(kept),
		.type = type_of(st->st_mode),
		.size_bytes = st->st_size,
		.mode = st->st_mode & 07777,
		.uid = shown_id(st->st_uid, geteuid()),
		.gid = shown_id(st->st_gid, getegid()),
		.atime_us = to_us(st->st_atim),
		.mtime_us = to_us(st->st_mtim),
		.ctime_us = to_us(st->st_ctim),
	};
	if (entry->type == VOLUME_SYMLINK) {
		ssize_t n = readlinkat(fd, "", target, sizeof target);

		kept = arena_dup(l->arena, str_make(target, (size_t)MAX(n, 0)));
		entry->target = str_of(kept ? kept : "");
	}
	l->n++;
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_one(struct listing *l, int dir_fd, const char *dir, const char *name, int depth)
{
	cleanup_close int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char path[PATH_MAX];
	struct stat st;
	int n, r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0; /* gone between reading its name and looking at it */
	n = snprintf(path, sizeof path, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);
	if (n < 0 || (size_t)n >= sizeof path)
		return 0;
	r = listing_add(l, path, fd, &st);
	if (r >= 0 && depth > 1 && S_ISDIR(st.st_mode)) {
		r = tree_list(l, fd, path, depth - 1);
		r = r == -EACCES ? 0 : r; /* shown, but not what is in it */
	}
	return r;
}

int tree_list(struct listing *l, int dir_fd, const char *path, int depth)
{
	struct dirent **names = NULL;
	int n = scandirat(dir_fd, ".", &names, NULL, by_name), r = 0;

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		if (r >= 0 && !is_dots(names[i]->d_name))
			r = add_one(l, dir_fd, path, names[i]->d_name, depth);
		free(names[i]);
	}
	free(names);
	return r;
}
