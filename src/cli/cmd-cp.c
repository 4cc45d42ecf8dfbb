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

/* Written beside and renamed over: a copy that breaks off leaves what was there. */
static int file_beside(struct copy *c, const char *path, struct err *e)
{
	cleanup_close int fd = -EBADF;
	char *beside = arena_printf(c->cli->arena, "%s.XXXXXX", path);
	int r;

	fd = mkostemp(beside, O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "make a file beside %s", path);
	r = cp_download(c->cli, &c->target, &c->entry, fd, &c->sum, e);
	if (r == 0 && fchmod(fd, c->entry.mode & 0777 & ~current_umask()) < 0)
		r = err_sys(e, -errno, "set the mode of %s", beside);
	if (r == 0 && rename(beside, path) < 0)
		r = err_sys(e, -errno, "rename %s", beside);
	if (r < 0)
		(void)unlink(beside);
	return r;
}

static int file_down(struct copy *c, struct err *e)
{
	cleanup_close int fd = -EBADF;
	const char *path = c->to.path;
	struct stat st = { 0 };
	bool exists = stat(path, &st) == 0;

	if (c->to.is_stdio)
		return cp_download(c->cli, &c->target, &c->entry, STDOUT_FILENO, &c->sum, e);
	if (exists && S_ISDIR(st.st_mode)) {
		path = join(c->cli, path, base_of(c->cli, c->from.path));
		exists = stat(path, &st) == 0;
	}
	if (!exists || S_ISREG(st.st_mode))
		return file_beside(c, path, e);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "%s", path);
	return cp_download(c->cli, &c->target, &c->entry, fd, &c->sum, e);
}

static int copy_down(struct copy *c, struct err *e)
{
	const char *path = c->to.path, *from;
	struct stat st;
	int r = cp_stat(c->cli, &c->target, c->from.path, &c->entry, e);

	if (r < 0)
		return r;
	if (!c->entry.exists)
		return err_set(e, -ENOENT, "there is no '%s' in the sandbox", c->from.path);
	if (!c->entry.is_directory)
		return file_down(c, e);
	from = arena_dup(c->cli->arena, c->entry.path);
	if (c->to.is_stdio)
		return cp_archive_down(c->cli, &c->target, from, e);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		path = join(c->cli, path, base_of(c->cli, c->from.path));
	return cp_tree_down(c->cli, &c->target, from, path, &c->sum, e);
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
