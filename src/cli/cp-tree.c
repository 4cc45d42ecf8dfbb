/* Directories, as a tar archive between a command in the sandbox and this machine. */
#include "cli/cp.h"
#include "cli/exec.h"
#include "cli/untar.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

/* ---- in the sandbox ---- */

struct remote {
	struct cli *cli;
	const struct target *target;
	int stdin_fd;        /* -EBADF: none */
	struct untar *untar; /* takes its stdout; NULL: nobody does ... */
	bool to_stdout;      /* ... or it is ours */
	struct buf words;    /* beginning of its stderr */
	struct exec_result result;
};

static int on_output(void *arg, bool is_stderr, struct str bytes, struct err *e)
{
	struct remote *remote = arg;

	if (!is_stderr)
		return remote->untar ? untar_feed(remote->untar, bytes, e) : 0;
	bytes.n = MIN(bytes.n, remote->words.max - remote->words.n);
	(void)buf_add_str(&remote->words, bytes);
	return 0;
}

static int outcome(const struct remote *remote, struct err *e)
{
	struct str line, rest = buf_str(&remote->words);
	int signo = remote->result.signo;

	if (remote->result.exit_code == 0)
		return 0;
	if (signo == SIGINT || signo == SIGTERM || signo == SIGHUP) {
		remote->cli->signal_seen = signo;
		return err_set(e, -EINTR, "interrupted");
	}
	(void)str_split(&rest, '\n', &line);
	return err_set(e, -EIO, "in the sandbox: %.*s",
		STR_ARG(line.n ? line : STR("the command failed")));
}

static int run_remote(struct remote *remote, char *const *argv, struct err *e)
{
	struct exec_request q = { .target = remote->target,
		.argv = argv,
		.stdin_fd = remote->stdin_fd,
		.user = args_value(&remote->cli->args, "user") };
	int r;

	for (; argv[q.argc]; q.argc++)
		;
	remote->words = BUF_INIT(512);
	if (!remote->to_stdout) {
		q.output = on_output;
		q.output_arg = remote;
	}
	r = cli_exec_run(remote->cli, &q, &remote->result, e);
	if (r == 0)
		r = outcome(remote, e);
	buf_done(&remote->words);
	return r;
}

/* argv of other interfaces is not const, although nobody writes to it. */
static char *word(struct cli *cli, const char *text)
{
	char *copy = arena_dup(cli->arena, str_of(text));

	if (!copy)
		abort();
	return copy;
}

static int remote_tar(struct remote *remote, const char *path, struct err *e)
{
	struct cli *cli = remote->cli;
	bool creates = remote->stdin_fd < 0;
	char *argv[] = { word(cli, "tar"), word(cli, creates ? "-cf" : "-xf"), word(cli, "-"),
		word(cli, "-C"), word(cli, path), creates ? word(cli, ".") : NULL, NULL };

	return run_remote(remote, argv, e);
}

int cp_archive_up(struct cli *cli, const struct target *target, const char *path,
	struct cp_sum *sum, struct err *e)
{
	struct remote remote = { .cli = cli, .target = target, .stdin_fd = STDIN_FILENO };
	int r = remote_tar(&remote, path, e);

	sum->bytes += remote.result.input_bytes;
	return r;
}

int cp_archive_down(struct cli *cli, const struct target *target, const char *path, struct err *e)
{
	struct remote remote = { .cli = cli,
		.target = target,
		.stdin_fd = -EBADF,
		.to_stdout = true };

	return remote_tar(&remote, path, e);
}

int cp_make_executable(struct cli *cli, const struct target *target, const char *path,
	struct err *e)
{
	struct remote remote = { .cli = cli, .target = target, .stdin_fd = -EBADF };
	char *argv[] = { word(cli, "chmod"), word(cli, "+x"), word(cli, "--"), word(cli, path),
		NULL };

	return run_remote(&remote, argv, e);
}

/* ---- here ---- */

/* Our own files are read by the system's tar; children must not inherit our blocked signals. */
static int spawn_tar(const char *directory, pid_t *ret_pid, struct err *e)
{
	char tar[] = "tar", create[] = "-cf", out[] = "-", change[] = "-C", dot[] = ".";
	cleanup_free char *path = xstrdup(directory);
	char *const argv[] = { tar, create, out, change, path, dot, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none, defaults;
	int pipe_fds[2], r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "pipe");
	(void)sigemptyset(&none);
	(void)sigemptyset(&defaults);
	(void)sigaddset(&defaults, SIGPIPE);
	(void)posix_spawnattr_init(&attributes);
	(void)posix_spawnattr_setsigmask(&attributes, &none);
	(void)posix_spawnattr_setsigdefault(&attributes, &defaults);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	(void)posix_spawn_file_actions_init(&files);
	(void)posix_spawn_file_actions_adddup2(&files, pipe_fds[1], STDOUT_FILENO);
	r = posix_spawnp(ret_pid, tar, &files, &attributes, argv, environ);
	(void)posix_spawn_file_actions_destroy(&files);
	(void)posix_spawnattr_destroy(&attributes);
	(void)close(pipe_fds[1]);
	if (r != 0) {
		(void)close(pipe_fds[0]);
		return err_sys(e, -r, "start tar");
	}
	return pipe_fds[0];
}

int cp_tree_up(struct cli *cli, const struct target *target, const char *local, const char *path,
	struct cp_sum *sum, struct err *e)
{
	struct remote remote = { .cli = cli, .target = target };
	pid_t pid = 0;
	int status = 0, r, fd = spawn_tar(local, &pid, e);

	if (fd < 0)
		return fd;
	remote.stdin_fd = fd;
	r = remote_tar(&remote, path, e);
	sum->bytes += remote.result.input_bytes;
	(void)close(fd); /* a tar that still writes ends by SIGPIPE */
	if (waitpid(pid, &status, 0) < 0 && r == 0)
		r = err_sys(e, -errno, "wait for tar");
	if (r == 0 && status != 0)
		r = err_set(e, -EIO, "tar could not read all of '%s'", local);
	return r;
}

/* What the archive had and this machine does not get. */
static void tell_left_out(const struct out *out, const struct untar *u)
{
	char more[48] = "";

	if (u->skipped > 0)
		out_warn(out, "%" PRIu64 " devices or pipes were left out", u->skipped);
	if (u->links == 0)
		return;
	if (u->links > 1)
		(void)snprintf(more, sizeof more, " and %" PRIu64 " more", u->links - 1);
	out_warn(out,
		"links that lead out of the directory were left out: '%s' -> '%s'%s; --links "
		"copies them as they are",
		u->link, u->link_target, more);
}

int cp_tree_down(struct cli *cli, const struct target *target, const char *path, int root_fd,
	bool all_links, struct cp_sum *sum, struct err *e)
{
	struct untar untar = { 0 };
	struct remote remote = { .cli = cli,
		.target = target,
		.stdin_fd = -EBADF,
		.untar = &untar };
	int r;

	untar_init(&untar, root_fd, all_links);
	r = remote_tar(&remote, path, e);
	if (r == 0)
		r = untar_finish(&untar, e);
	sum->bytes += untar.bytes;
	sum->left_out += untar.skipped + untar.links;
	if (r == 0)
		tell_left_out(&cli->out, &untar);
	untar_done(&untar);
	return r;
}
