/* `sandbox cp`: what is copied where. As with cp -r, what goes to an existing directory goes into
 * it under its own name. */
#include "cli/cp.h"

#include <sys/stat.h>

struct place {
	const char *path;
	bool is_remote, is_stdio;
	char sandbox[CLI_ID];
};

struct copy {
	struct cli *cli;
	struct place from, to;
	struct target target;
	struct cp_entry entry; /* the remote end, as it is before */
	struct cp_sum sum;
};

/* SANDBOX:PATH, "-", or a local path: "./a:b" is one, like everything with a slash before the
 * colon. */
static int parse_place(const char *typed, struct place *ret, struct err *e)
{
	const char *colon = strchr(typed, ':');
	size_t n = colon ? (size_t)(colon - typed) : 0;

	*ret = (struct place){ .path = typed, .is_stdio = strcmp(typed, "-") == 0 };
	if (!colon || n == 0 || memchr(typed, '/', n))
		return 0;
	if (n >= CLI_ID)
		return err_set(e, -EINVAL, "'%s': the sandbox id is too long", typed);
	ret->is_remote = true;
	ret->path = colon + 1;
	memcpy(ret->sandbox, typed, n);
	return 0;
}

/* The last part of a path; NULL when it names the directory it stands in. */
static const char *base_of(struct cli *cli, const char *path)
{
	size_t n = strlen(path), start;

	while (n > 1 && path[n - 1] == '/')
		n--;
	start = n;
	while (start > 0 && path[start - 1] != '/')
		start--;
	if (n == start || (n - start == 1 && path[start] == '.') ||
		(n - start == 2 && memcmp(path + start, "..", 2) == 0))
		return NULL;
	return arena_dup(cli->arena, str_make(path + start, n - start));
}

static const char *join(struct cli *cli, const char *directory, const char *name)
{
	const char *slash = directory[0] && directory[strlen(directory) - 1] != '/' ? "/" : "";

	return name ? arena_printf(cli->arena, "%s%s%s", directory, slash, name) : directory;
}

static bool ends_in_slash(const char *path)
{
	size_t n = strlen(path);

	return n > 0 && path[n - 1] == '/';
}

/* ---- into the sandbox ---- */

static int tree_up(struct copy *c, struct err *e)
{
	const char *path = c->to.path;
	struct cp_entry made;
	int r;

	if (c->entry.exists && !c->entry.is_directory)
		return err_set(e, -EEXIST, "%s is a file in the sandbox", path);
	if (c->entry.exists)
		path = join(c->cli, path, base_of(c->cli, c->from.path));
	r = cp_make_directory(c->cli, &c->target, path, &made, e);
	if (r < 0)
		return r;
	return cp_tree_up(c->cli, &c->target, c->from.path, arena_dup(c->cli->arena, made.path),
		&c->sum, e);
}

static int file_up(struct copy *c, int fd, const struct stat *st, struct err *e)
{
	int64_t size_bytes = S_ISREG(st->st_mode) ? st->st_size : -1;
	const char *path = c->to.path;
	int r;

	if (c->entry.is_directory || ends_in_slash(path))
		path = join(c->cli, path, base_of(c->cli, c->from.path));
	r = cp_upload(c->cli, &c->target, fd, size_bytes, path, &c->sum, e);
	if (r == 0 && S_ISREG(st->st_mode) && (st->st_mode & 0111)) {
		r = cp_stat(c->cli, &c->target, path, &c->entry, e);
		if (r == 0)
			r = cp_make_executable(c->cli, &c->target,
				arena_dup(c->cli->arena, c->entry.path), e);
	}
	return r;
}

static int stdin_up(struct copy *c, struct err *e)
{
	if (!c->entry.is_directory)
		return cp_upload(c->cli, &c->target, STDIN_FILENO, -1, c->to.path, &c->sum, e);
	return cp_archive_up(c->cli, &c->target, arena_dup(c->cli->arena, c->entry.path), &c->sum,
		e);
}

static int copy_up(struct copy *c, struct err *e)
{
	cleanup_close int fd = -EBADF;
	struct stat st;
	int r = cp_stat(c->cli, &c->target, c->to.path, &c->entry, e);

	if (r < 0)
		return r;
	if (c->from.is_stdio)
		return stdin_up(c, e);
	fd = open(c->from.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "%s", c->from.path);
	return S_ISDIR(st.st_mode) ? tree_up(c, e) : file_up(c, fd, &st, e);
}

/* ---- out of the sandbox ---- */

static mode_t current_umask(void)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	return mask;
}

/* The directory that the user named, wherever links lead to it, and the name in it of what is
 * copied. What has that name may come from the sandbox, by an earlier copy: links are not followed
 * from here on. */
struct landing {
	int dir_fd;
	const char *name; /* NULL: the directory itself */
	bool is_named;    /* the user has written the name out */
};

static void landing_done(struct landing *at)
{
	close_fdp(&at->dir_fd);
}

static int open_dir(const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* As cp does: into a directory that is there, else by the name that was given. */
static int find_landing(struct copy *c, struct landing *ret, struct err *e)
{
	const char *path = c->to.path, *name = base_of(c->cli, path), *parent;
	size_t n = strlen(path);
	int fd = open_dir(path);

	if (fd >= 0) {
		*ret = (struct landing){ fd, base_of(c->cli, c->from.path), false };
		return 0;
	}
	if ((fd != -ENOENT && fd != -ENOTDIR) || !name)
		return err_sys(e, fd, "%s", path);
	while (path[n - 1] == '/')
		n--;
	parent = arena_dup(c->cli->arena, str_make(path, n - strlen(name)));
	fd = open_dir(parent[0] ? parent : ".");
	if (fd < 0)
		return err_sys(e, fd, "open the directory of %s", path);
	*ret = (struct landing){ fd, name, true };
	return 0;
}

/* Written beside and renamed over: a copy that breaks off leaves what was there, and a link is
 * replaced. */
static int file_beside(struct copy *c, const struct landing *at, struct err *e)
{
	cleanup_close int fd = -EBADF;
	char beside[32] = ".atoll-";
	int r;

	random_id(beside + strlen(beside), 16);
	fd = openat(at->dir_fd, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "make a file beside %s", c->to.path);
	r = cp_download(c->cli, &c->target, &c->entry, fd, &c->sum, e);
	if (r == 0 && fchmod(fd, c->entry.mode & 0777 & ~current_umask()) < 0)
		r = err_sys(e, -errno, "set the mode of %s", beside);
	if (r == 0 && renameat(at->dir_fd, beside, at->dir_fd, at->name) < 0)
		r = err_sys(e, -errno, "make %s", at->name);
	if (r < 0)
		(void)unlinkat(at->dir_fd, beside, 0);
	return r;
}

/* A device, say, which is written to as it is: /dev/stdout is a link, and the user's. */
static int open_stream(const struct landing *at)
{
	struct stat st;

	if (fstatat(at->dir_fd, at->name, &st, at->is_named ? 0 : AT_SYMLINK_NOFOLLOW) < 0 ||
		S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode))
		return -ENOENT;
	return openat(at->dir_fd, at->name,
		O_WRONLY | O_NOCTTY | O_CLOEXEC | (at->is_named ? 0 : O_NOFOLLOW));
}

static int file_down(struct copy *c, struct err *e)
{
	CLEANUP(landing_done) struct landing at = { .dir_fd = -EBADF };
	cleanup_close int fd = -EBADF;
	int r;

	if (c->to.is_stdio)
		return cp_download(c->cli, &c->target, &c->entry, STDOUT_FILENO, &c->sum, e);
	r = find_landing(c, &at, e);
	if (r < 0)
		return r;
	if (!at.name || (at.is_named && ends_in_slash(c->to.path)))
		return err_set(e, -ENOENT, "%s: there is no such directory", c->to.path);
	fd = open_stream(&at);
	return fd < 0 ? file_beside(c, &at, e)
		      : cp_download(c->cli, &c->target, &c->entry, fd, &c->sum, e);
}

static int open_root(const struct copy *c, const struct landing *at, struct err *e)
{
	const char *name = at->name ? at->name : ".";
	struct stat st;
	int fd, r = at->name ? dir_make(at->dir_fd, name, 0777, e) : 0;

	if (r < 0)
		return r;
	fd = openat(at->dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	r = -errno;
	if (fstatat(at->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
		return err_set(e, -EPERM,
			"'%s' in %s is a link, maybe the sandbox's own, and is not followed: "
			"remove "
			"it, or name the directory that it leads to",
			name, c->to.path);
	return err_sys(e, r, "open %s", name);
}

static int tree_down(struct copy *c, struct err *e)
{
	const char *from = arena_dup(c->cli->arena, c->entry.path);
	CLEANUP(landing_done) struct landing at = { .dir_fd = -EBADF };
	cleanup_close int root_fd = -EBADF;
	int r;

	if (c->to.is_stdio)
		return cp_archive_down(c->cli, &c->target, from, e);
	r = find_landing(c, &at, e);
	if (r < 0)
		return r;
	root_fd = open_root(c, &at, e);
	if (root_fd < 0)
		return root_fd;
	return cp_tree_down(c->cli, &c->target, from, root_fd, args_has(&c->cli->args, "links"),
		&c->sum, e);
}

static int copy_down(struct copy *c, struct err *e)
{
	int r = cp_stat(c->cli, &c->target, c->from.path, &c->entry, e);

	if (r < 0)
		return r;
	if (!c->entry.exists)
		return err_set(e, -ENOENT, "there is no '%s' in the sandbox", c->from.path);
	return c->entry.is_directory ? tree_down(c, e) : file_down(c, e);
}

/* ---- the command ---- */

static int check(const struct copy *c, struct err *e)
{
	if (c->from.is_remote == c->to.is_remote)
		return err_set(e, -EINVAL,
			"one of SRC and DST must be SANDBOX:PATH, the other not");
	if (c->to.is_stdio && c->cli->out.json)
		return err_set(e, -EINVAL, "--json and '-' both want stdout");
	if (c->to.is_remote && !c->to.path[0])
		return err_set(e, -EINVAL, "which path? SANDBOX:PATH");
	return 0;
}

static void report(struct copy *c)
{
	struct jsonw *w = &c->cli->out.json_writer;

	if (!c->cli->out.json)
		return;
	jsonw_object(w, NULL);
	jsonw_strz(w, "sandboxID", c->target.id);
	jsonw_strz(w, "source", c->cli->args.words[0]);
	jsonw_strz(w, "destination", c->cli->args.words[1]);
	jsonw_int(w, "bytes", (int64_t)c->sum.bytes);
	jsonw_int(w, "leftOut", (int64_t)c->sum.left_out);
	jsonw_end_object(w);
	(void)buf_addc(&c->cli->out.text, '\n');
}

int cmd_sandbox_cp(struct cli *cli)
{
	struct copy c = { .cli = cli };
	struct err *e = &cli->e;
	int r = parse_place(cli->args.words[0], &c.from, e);

	if (r == 0)
		r = parse_place(cli->args.words[1], &c.to, e);
	if (r == 0)
		r = check(&c, e);
	if (r == 0)
		r = cli_sandbox_open(cli, c.from.is_remote ? c.from.sandbox : c.to.sandbox,
			&c.target, e);
	if (r == 0)
		r = c.from.is_remote ? copy_down(&c, e) : copy_up(&c, e);
	if (r == -EINTR && cli->signal_seen)
		return EXIT_SIGNAL + cli->signal_seen;
	if (r < 0)
		return r;
	report(&c);
	return EXIT_OK;
}
