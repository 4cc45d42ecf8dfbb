/* The warden knows what the kernel allows: it is asked with the rights we have. */
#include "cli/doctor.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

enum {
	PROBE_MS = 20 * 1000,
	SWEEP_MS = 600 * 1000, /* many sandboxes may have to end */
	PROBE_MAX = 64 << 10,
};

static int status_of(struct str verdict, enum check_status *ret)
{
	if (str_is(verdict, "ok"))
		*ret = CHECK_OK;
	else if (str_is(verdict, "warn"))
		*ret = CHECK_WARN;
	else if (str_is(verdict, "fail"))
		*ret = CHECK_FAIL;
	else
		return -EPROTO;
	return 0;
}

int doctor_probe_line(struct doctor *d, struct str line)
{
	struct str id, verdict, text, fix = STR_NONE;
	char id_text[DOCTOR_ID], fix_text[DOCTOR_TEXT], shown[DOCTOR_TEXT];
	enum check_status status;
	struct check *c;

	if (!str_split(&line, '\t', &id) || !str_split(&line, '\t', &verdict) ||
		!str_split(&line, '\t', &text) || id.n == 0 || d->n >= DOCTOR_MAX - 8 ||
		status_of(verdict, &status) < 0)
		return -EPROTO;
	(void)str_split(&line, '\t', &fix);
	out_clean(id, id_text, sizeof id_text);
	out_clean(fix, fix_text, sizeof fix_text);
	out_clean(text, shown, sizeof shown);
	c = doctor_add(d, id_text, status, fix_text, "%s", shown);
	/* Without root most of what it tries is refused, whatever the machine can do. */
	if (geteuid() != 0 && status != CHECK_OK && strcmp(id_text, "root") != 0) {
		c->status = CHECK_SKIPPED;
		(void)snprintf(c->fix, sizeof c->fix, "sudo atoll doctor");
		(void)snprintf(c->text, sizeof c->text, "only root can tell (%.200s)", shown);
	}
	return 0;
}

static int warden_path(char *path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (n < 0)
		return -errno;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + sizeof "/atoll-warden" > size)
		return -ENAMETOOLONG;
	(void)snprintf(slash, size - (size_t)(slash - path), "/atoll-warden");
	return access(path, X_OK) < 0 ? -errno : 0;
}

static int spawn_warden(char *path, char *what, pid_t *ret_pid)
{
	char *const argv[] = { path, what, NULL };
	posix_spawn_file_actions_t files;
	int pipe_fds[2], r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	(void)posix_spawn_file_actions_init(&files);
	(void)posix_spawn_file_actions_adddup2(&files, pipe_fds[1], STDOUT_FILENO);
	r = posix_spawn(ret_pid, path, &files, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&files);
	(void)close(pipe_fds[1]);
	if (r == 0)
		return pipe_fds[0];
	(void)close(pipe_fds[0]);
	return -r;
}

/* To the end of its output, but not for ever. */
static int read_all(int fd, int64_t timeout_ms, struct buf *out)
{
	int64_t until_ms = time_now_ms() + timeout_ms;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left_ms = until_ms - time_now_ms();
		char *at = buf_reserve(out, 4096);
		ssize_t n;

		if (left_ms <= 0 || poll(&p, 1, (int)left_ms) == 0)
			return -ETIMEDOUT;
		if (!at)
			return -ENOBUFS;
		n = read(fd, at, 4096);
		if (n <= 0)
			return n < 0 ? -errno : 0;
		out->n += (size_t)n;
	}
}

static int ask_warden(char *what, int64_t timeout_ms, struct buf *out)
{
	cleanup_close int fd = -EBADF;
	char path[4096];
	pid_t pid = 0;
	int r = warden_path(path, sizeof path);

	if (r < 0)
		return r;
	fd = spawn_warden(path, what, &pid);
	if (fd < 0)
		return fd;
	r = read_all(fd, timeout_ms, out);
	if (r < 0 && pid > 0)
		(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r;
}

void doctor_probe(struct doctor *d)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(PROBE_MAX);
	struct str rest, line;
	char probe[] = "--probe";
	size_t before = d->n;
	int r = ask_warden(probe, PROBE_MS, &out);

	rest = buf_str(&out);
	while (r == 0 && str_split(&rest, '\n', &line))
		if (line.n)
			(void)doctor_probe_line(d, line);
	d->probe_ran = d->n > before;
	if (r < 0)
		doctor_add(d, "warden", CHECK_FAIL,
			"install atoll, atoll-warden and atoll-guest into one directory",
			"atoll-warden beside this program: %s", strerrordesc_np(-r));
	else if (!d->probe_ran)
		doctor_add(d, "warden", CHECK_FAIL, "install the three programs of one version",
			"atoll-warden does not say what it found");
}

/* ---- what is left of servers that are gone ---- */

static void tell_swept(struct cli *cli, struct str line, size_t *ret_n, size_t *ret_failed)
{
	struct str id, verdict, text;
	char shown[DOCTOR_TEXT];

	if (!str_split(&line, '\t', &id) || !str_split(&line, '\t', &verdict) ||
		!str_split(&line, '\t', &text))
		return;
	++*ret_n;
	*ret_failed += str_is(verdict, "fail");
	out_clean(text, shown, sizeof shown);
	if (!cli->out.json)
		out_line(&cli->out, "%s: %s",
			str_is(verdict, "ok")     ? "removed"
			: str_is(verdict, "fail") ? "still there"
						  : "left alone",
			shown);
}

int doctor_sweep(struct cli *cli)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(PROBE_MAX);
	size_t n = 0, failed = 0;
	struct str rest, line;
	char sweep[] = "--sweep";
	int r;

	if (geteuid() != 0) {
		(void)snprintf(cli->hint, sizeof cli->hint, "sudo atoll doctor --sweep");
		return err_set(&cli->e, -EPERM, "--sweep: only root may remove what servers left");
	}
	r = ask_warden(sweep, SWEEP_MS, &out);
	if (r < 0)
		return err_sys(&cli->e, r, "--sweep: atoll-warden beside this program");
	rest = buf_str(&out);
	while (str_split(&rest, '\n', &line))
		tell_swept(cli, line, &n, &failed);
	if (n == 0 && !cli->out.json)
		out_line(&cli->out, "Nothing is left of servers whose directory is gone.");
	return failed ? err_set(&cli->e, -EBUSY,
				"--sweep: some of it is still there: end what uses it, and sweep "
				"again")
		      : 0;
}
