/* exec and run: one command in a sandbox, shown as a stream or as one JSON document. */
#include "cli/exec.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	CAPTURE_MAX = 32 << 20, /* of each stream, for --json */
	RUN_LIFE_S = 300,       /* what a sandbox of `run` outlives us by, if we are killed */
};

static bool is_dev_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

static int stdin_of(struct cli *cli)
{
	bool wanted = args_has(&cli->args, "interactive");

	if (args_has(&cli->args, "no-stdin") || fcntl(STDIN_FILENO, F_GETFD) < 0)
		return -EBADF;
	if (is_dev_null(STDIN_FILENO) || (isatty(STDIN_FILENO) && !wanted))
		return -EBADF;
	return STDIN_FILENO;
}

static int check_pairs(struct cli *cli, struct err *e)
{
	CLEANUP(buf_done) struct buf scratch = BUF_INIT(4 << 20);
	struct jsonw w;

	jsonw_init(&w, &scratch);
	return cli_pairs(cli, "env", NULL, &w, e);
}

int cli_exec_options(struct cli *cli, struct exec_request *ret, struct err *e)
{
	const char *timeout = args_value(&cli->args, "timeout");
	int64_t seconds = 0;
	int r = check_pairs(cli, e);

	if (r == 0 && timeout)
		r = args_seconds("timeout", timeout, &seconds, e);
	if (r == 0 && args_has(&cli->args, "tty") && cli->out.json)
		r = err_set(e, -EINVAL, "--tty and --json do not go together");
	if (r < 0)
		return r;
	ret->user = args_value(&cli->args, "user");
	ret->cwd = args_value(&cli->args, "cwd");
	ret->timeout_ms = seconds * 1000;
	ret->tty = args_has(&cli->args, "tty");
	ret->stdin_fd = stdin_of(cli);
	ret->argv = cli->args.command_line;
	ret->argc = cli->args.n_command_line;
	return 0;
}

/* ---- as a document ---- */

struct capture {
	struct buf out, err;
};

static void capture_done(struct capture *c)
{
	buf_done(&c->out);
	buf_done(&c->err);
}

static int capture_output(void *arg, bool is_stderr, struct str bytes, struct err *e)
{
	struct capture *c = arg;

	if (buf_add_str(is_stderr ? &c->err : &c->out, bytes) < 0)
		return err_set(e, -ENOBUFS, "the output is longer than %d MiB: leave out --json",
			CAPTURE_MAX >> 20);
	return 0;
}

static void write_bytes(struct jsonw *w, const char *key, const char *encoding_key,
	const struct buf *bytes)
{
	if (str_is_utf8(buf_str(bytes))) {
		jsonw_str(w, key, buf_str(bytes));
		return;
	}
	jsonw_base64(w, key, buf_str(bytes));
	jsonw_strz(w, encoding_key, "base64");
}

static void write_result(struct cli *cli, const struct exec_result *result, const struct capture *c,
	const char *sandbox_id)
{
	struct jsonw *w = &cli->out.json_writer;
	const char *name = result->signo ? sigabbrev_np(result->signo) : NULL;
	char signal_name[16];

	(void)snprintf(signal_name, sizeof signal_name, "SIG%s", name ? name : "");
	jsonw_object(w, NULL);
	jsonw_strz(w, "source", "command");
	jsonw_int(w, "exit_code", result->exit_code);
	jsonw_strz(w, "signal", name ? signal_name : NULL);
	if (result->timed_out)
		jsonw_bool(w, "timed_out", true);
	if (result->cause[0])
		jsonw_strz(w, "reason", result->cause);
	write_bytes(w, "stdout", "stdout_encoding", &c->out);
	write_bytes(w, "stderr", "stderr_encoding", &c->err);
	jsonw_int(w, "duration_ms", result->duration_ms);
	if (sandbox_id)
		jsonw_strz(w, "sandbox_id", sandbox_id);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

int cli_exec_show(struct cli *cli, const struct exec_request *request, const char *sandbox_id)
{
	CLEANUP(capture_done) struct capture c = { BUF_INIT(CAPTURE_MAX), BUF_INIT(CAPTURE_MAX) };
	struct exec_request q = *request;
	struct exec_result result;
	int r;

	if (cli->out.json) {
		q.output = capture_output;
		q.output_arg = &c;
	}
	r = cli_exec_run(cli, &q, &result, &cli->e);
	if (r < 0)
		return r;
	if (cli->out.json)
		write_result(cli, &result, &c, sandbox_id);
	else if (result.timed_out)
		out_warn(&cli->out, "the command was ended after %" PRId64 " s: --timeout",
			request->timeout_ms / 1000);
	else if (result.cause[0])
		out_warn(&cli->out, "%s", result.cause);
	return result.exit_code;
}

/* ---- the commands ---- */

int cmd_sandbox_exec(struct cli *cli)
{
	struct exec_request q = { .use_env_options = true };
	struct target target = { 0 };
	int r;

	if (cli->args.n_command_line == 0)
		return err_set(&cli->e, -EINVAL,
			"which command? atoll sandbox exec SANDBOX -- CMD [ARG...]");
	r = cli_exec_options(cli, &q, &cli->e);
	if (r == 0)
		r = cli_sandbox_open(cli, cli->args.words[0], &target, &cli->e);
	if (r < 0)
		return r;
	q.target = &target;
	return cli_exec_show(cli, &q, NULL);
}

static void shell_unless_given(struct cli *cli, struct exec_request *q)
{
	static char bash[] = "/bin/bash", login[] = "-l";
	static char *const shell[] = { bash, login, NULL };

	if (q->argc > 0)
		return;
	q->argv = shell;
	q->argc = 2;
	if (isatty(STDIN_FILENO) && cli->out.stdout_tty && !cli->out.json &&
		!args_has(&cli->args, "no-stdin")) {
		q->tty = true;
		q->stdin_fd = STDIN_FILENO;
	}
}

int cmd_run(struct cli *cli)
{
	struct exec_request q = { .keep_alive_s = RUN_LIFE_S };
	struct err removal = { 0 };
	struct target target = { 0 };
	int r = cli_exec_options(cli, &q, &cli->e);

	if (r == 0)
		r = cli_catch_signals(cli, &cli->e);
	if (r == 0)
		r = cli_sandbox_make(cli, cli->args.words[0], RUN_LIFE_S, &target, &cli->e);
	if (r < 0)
		return r;
	shell_unless_given(cli, &q);
	q.target = &target;
	r = cli_exec_show(cli, &q, target.id);
	if (args_has(&cli->args, "keep")) {
		if (!cli->out.json)
			out_aside(&cli->out, "%s", target.id);
	} else if (cli_sandbox_remove(cli, target.id, &removal) < 0 && removal.code != -ENOENT) {
		out_warn(&cli->out, "sandbox %s could not be ended: %s", target.id, removal.msg);
	}
	return r;
}

/* A shell in a sandbox that was there before: it is woken if need be, and outlives the shell. */
int cmd_sandbox_connect(struct cli *cli)
{
	struct exec_request q = { .use_env_options = true, .keep_alive_s = RUN_LIFE_S };
	struct target target = { 0 };
	int r = cli_exec_options(cli, &q, &cli->e);

	if (r == 0)
		r = cli_sandbox_wake(cli, cli->args.words[0], &(struct cli_wake){ 0 }, &target,
			&cli->e);
	if (r < 0)
		return r;
	shell_unless_given(cli, &q);
	q.target = &target;
	return cli_exec_show(cli, &q, NULL);
}
