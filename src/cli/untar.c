#include "cli/untar.h"

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Never through a symbolic link: an archive could have made it a moment ago. */
static int open_below(int root_fd, const char *path, int flags, mode_t mode)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC),
		.mode = mode,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	int fd = -1;

	/* The kernel says EAGAIN when a rename anywhere raced with a "..": then it looks again. */
	for (int i = 0; i < 64 && fd < 0; i++) {
		fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof how);
		if (fd < 0 && errno != EAGAIN)
			break;
	}
	return fd < 0 ? -errno : fd;
}

/* The path without its leading "/" and "./"; "" is the root itself. */
static const char *relative(const char *path)
{
	for (;;) {
		if (path[0] == '/')
			path++;
		else if (path[0] == '.' && (path[1] == '/' || !path[1]))
			path += path[1] ? 2 : 1;
		else
			return path;
	}
}

static int make_parents(int root_fd, const char *path)
{
	char part[TAR_PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		cleanup_close int fd = -EBADF;
		char *last;

		(void)snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
		fd = open_below(root_fd, part, O_PATH | O_DIRECTORY, 0);
		if (fd >= 0)
			continue;
		if (fd != -ENOENT)
			return fd;
		last = strrchr(part, '/');
		if (last)
			*last = '\0';
		fd = open_below(root_fd, last ? part : ".", O_PATH | O_DIRECTORY, 0);
		if (fd < 0)
			return fd;
		if (mkdirat(fd, last ? last + 1 : part, 0777) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* Opens the directory that is to hold `path`, and gives the last name. */
static int open_parent(int root_fd, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char parent[TAR_PATH_MAX];
	int r;

	if (!slash) {
		*ret_name = path;
		return open_below(root_fd, ".", O_PATH | O_DIRECTORY, 0);
	}
	r = make_parents(root_fd, path);
	if (r < 0)
		return r;
	(void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
	*ret_name = slash + 1;
	return open_below(root_fd, parent, O_PATH | O_DIRECTORY, 0);
}

/* A name that can be made, removed or linked in its parent. */
static bool is_plain_name(const char *name)
{
	return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int make_directory(int parent_fd, const char *name, uint32_t mode)
{
	struct stat st;

	if (mkdirat(parent_fd, name, (mode | 0700) & 0777) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
}

static int make_file(struct untar *u, int parent_fd, const char *name,
	const struct tar_entry *entry)
{
	if (unlinkat(parent_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	u->file_fd = openat(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		entry->mode & 0777);
	u->mtime_s = entry->mtime_s;
	return u->file_fd < 0 ? -errno : 0;
}

/* The next part of a path, without the empty ones and ".". */
static bool next_part(struct str *rest, struct str *ret)
{
	while (str_split(rest, '/', ret))
		if (ret->n && !str_is(*ret, "."))
			return true;
	return false;
}

/* How many directories below the root what has this path lies. None on the way is a link. */
static size_t depth_of(const char *path)
{
	struct str rest = str_of(path), part;
	size_t parts = 0;

	while (next_part(&rest, &part))
		parts += str_is(part, "..") ? (size_t)-1 : 1;
	return parts - 1;
}

/* Up no further than to the root, and then only down: a ".." behind a name might go up from where a
 * link of that name leads. */
static bool leads_out(const char *path, const char *target)
{
	struct str rest = str_of(target), part;
	size_t up = 0;
	bool is_down = false;

	if (target[0] == '/')
		return true;
	while (next_part(&rest, &part)) {
		if (str_is(part, "..") && (is_down || ++up > depth_of(path)))
			return true;
		is_down = !str_is(part, "..");
	}
	return false;
}

static int make_symlink(struct untar *u, int parent_fd, const char *path, const char *target)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (!u->all_links && leads_out(path, target)) {
		if (u->links++ == 0) {
			(void)snprintf(u->link, sizeof u->link, "%s", path);
			(void)snprintf(u->link_target, sizeof u->link_target, "%s", target);
		}
		return 0;
	}
	if (unlinkat(parent_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return symlinkat(target, parent_fd, name) < 0 ? -errno : 0;
}

/* A link of that kind may be to a symbolic one, which means something else in another directory. */
static int make_hardlink(struct untar *u, int parent_fd, const char *path, const char *target)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	cleanup_close int target_fd = -EBADF;
	char symbolic[TAR_PATH_MAX] = "";
	const char *target_name;

	target_fd = open_parent(u->root_fd, relative(target), &target_name);
	if (target_fd < 0)
		return target_fd;
	if (!is_plain_name(target_name))
		return -EINVAL;
	if (readlinkat(target_fd, target_name, symbolic, sizeof symbolic - 1) >= 0)
		return make_symlink(u, parent_fd, path, symbolic);
	if (unlinkat(parent_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return linkat(target_fd, target_name, parent_fd, name, 0) < 0 ? -errno : 0;
}

static int make_entry(struct untar *u, int parent_fd, const char *path,
	const struct tar_entry *entry)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	switch (entry->kind) {
	case TAR_FILE:
		return make_file(u, parent_fd, name, entry);
	case TAR_DIRECTORY:
		return make_directory(parent_fd, name, entry->mode);
	case TAR_SYMLINK:
		return make_symlink(u, parent_fd, path, entry->target);
	case TAR_HARDLINK:
		return make_hardlink(u, parent_fd, path, entry->target);
	case TAR_SPECIAL:
		u->skipped++;
		return 0;
	}
	return -EINVAL;
}

static int on_entry(void *arg, const struct tar_entry *entry, struct err *e)
{
	struct untar *u = arg;
	cleanup_close int parent_fd = -EBADF;
	char path[TAR_PATH_MAX];
	const char *name;
	size_t n;
	int r;

	(void)snprintf(path, sizeof path, "%s", relative(entry->path));
	n = strlen(path);
	while (n > 0 && path[n - 1] == '/')
		path[--n] = '\0';
	if (n == 0) /* the root itself: it is there already */
		return entry->kind == TAR_DIRECTORY
			       ? 0
			       : err_set(e, -EPROTO, "the archive holds an entry without a name");
	parent_fd = open_parent(u->root_fd, path, &name);
	if (parent_fd >= 0 && !is_plain_name(name))
		r = -EXDEV;
	else
		r = parent_fd < 0 ? parent_fd : make_entry(u, parent_fd, path, entry);
	if (r == -EXDEV)
		return err_set(e, -EPERM, "'%s' would lead out of the directory", path);
	if (r == -ELOOP)
		return err_set(e, -EPERM,
			"'%s' would be written through a link that is there already: remove it, or "
			"copy to another directory",
			path);
	return r < 0 ? err_sys(e, r, "make '%s'", path) : 0;
}

static int on_data(void *arg, struct str bytes, struct err *e)
{
	struct untar *u = arg;
	int r;

	if (u->file_fd < 0)
		return 0;
	r = fd_write_all(u->file_fd, bytes.p, bytes.n);
	u->bytes += bytes.n;
	return r < 0 ? err_sys(e, r, "write a file") : 0;
}

static int on_entry_end(void *arg, struct err *e)
{
	struct untar *u = arg;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = u->mtime_s } };
	int fd = TAKE_FD(u->file_fd);

	if (fd < 0)
		return 0;
	(void)futimens(fd, times); /* a time that cannot be kept spoils nothing */
	return close(fd) < 0 ? err_sys(e, -errno, "close a file") : 0;
}

void untar_init(struct untar *u, int root_fd, bool all_links)
{
	const struct tar_handlers handlers = { on_entry, on_data, on_entry_end, u };

	*u = (struct untar){ .root_fd = root_fd, .file_fd = -EBADF, .all_links = all_links };
	tar_reader_init(&u->reader, &handlers);
}

void untar_done(struct untar *u)
{
	close_fdp(&u->file_fd);
	u->file_fd = -EBADF;
	tar_reader_done(&u->reader);
}

int untar_feed(struct untar *u, struct str bytes, struct err *e)
{
	return tar_reader_feed(&u->reader, bytes, e);
}

int untar_finish(struct untar *u, struct err *e)
{
	return tar_reader_finish(&u->reader, e);
}
