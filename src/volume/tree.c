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

enum {
	DESCEND = 64, /* directories open at once; what is deeper is first brought up */
	ATTEMPTS = 8, /* to empty a directory that somebody else fills */
	PREFIX_SIZE = 17,
};

struct removal {
	int top_fd;
	dev_t dev;
	char prefix[PREFIX_SIZE]; /* of what is brought up: prefix-0, prefix-1 ... */
	uint64_t n_brought;
};

static int remove_one(struct removal *rm, int dir_fd, const char *name, int depth);

static void name_brought(const struct removal *rm, uint64_t i, char out[48])
{
	(void)snprintf(out, 48, "%s-%" PRIu64, rm->prefix, i);
}

/* Whoever is in it can move no further away than this. */
static int bring_up(struct removal *rm, int dir_fd, const char *name)
{
	char to[48];

	name_brought(rm, rm->n_brought, to);
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
	while (r >= 0 && (entry = readdir(dir)))
		if (!is_dots(entry->d_name))
			r = remove_one(rm, dirfd(dir), entry->d_name, depth);
	return r;
}

static int remove_directory(struct removal *rm, int dir_fd, const char *name, int depth)
{
	int r = -ENOTEMPTY;

	for (int i = 0; r == -ENOTEMPTY && i < ATTEMPTS; i++) {
		DIR *dir;

		unlock(dir_fd, name);
		dir = open_dir(dir_fd, name);
		if (!dir)
			return errno == ENOENT ? 0 : -errno;
		r = remove_entries(rm, dir, depth + 1);
		(void)closedir(dir);
		if (r >= 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			r = -errno;
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

int tree_remove(int dir_fd, const char *name)
{
	struct removal rm = { .top_fd = dir_fd };
	struct stat st;
	int r;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	rm.dev = st.st_dev;
	random_id(rm.prefix, PREFIX_SIZE - 1);
	r = remove_one(&rm, dir_fd, name, 0);
	for (uint64_t i = 0; r >= 0 && i < rm.n_brought; i++) {
		char brought[48];

		name_brought(&rm, i, brought);
		r = remove_one(&rm, dir_fd, brought, 0);
	}
	return r;
}

/* ---- listing ---- */

static int64_t to_us(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
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
		.uid = st->st_uid,
		.gid = st->st_gid,
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

/* The names in a directory: how many there are is up to the sandboxes that fill it. */
struct names {
	char **v;
	size_t n, cap;
};

static void names_done(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->v[i]);
	free(names->v);
}

static int names_add(struct names *names, const char *name)
{
	size_t cap = names->cap ? 2 * names->cap : 64;
	char **more;

	if (names->n == names->cap) {
		more = realloc(names->v, cap * sizeof *more);
		if (!more)
			return -ENOMEM;
		names->v = more;
		names->cap = cap;
	}
	names->v[names->n++] = xstrdup(name);
	return 0;
}

static int names_read(struct names *names, int dir_fd, size_t most)
{
	DIR *dir = open_dir(dir_fd, ".");
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return -errno;
	while (r >= 0 && (entry = readdir(dir)))
		if (!is_dots(entry->d_name))
			r = names->n < most ? names_add(names, entry->d_name) : -E2BIG;
	(void)closedir(dir);
	return r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
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
	struct names names = { 0 };
	int r = names_read(&names, dir_fd, VOLUME_MAX_LISTED - l->n);

	if (r >= 0 && names.n)
		qsort(names.v, names.n, sizeof *names.v, by_name);
	for (size_t i = 0; r >= 0 && i < names.n; i++)
		r = add_one(l, dir_fd, path, names.v[i], depth);
	names_done(&names);
	return r;
}
