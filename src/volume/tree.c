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

	if (l->n >= VOLUME_MAX_LISTED)
		return -E2BIG;
	if (l->n < l->cap)
		return 0;
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
