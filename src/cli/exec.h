/* exec - one command in a sandbox: its stream, its input, its signals, its end. */
#pragma once

#include "cli/cli-internal.h"

/* Output for a program instead of our stdout and stderr; is_stderr tells which. */
typedef int (*exec_output_fn)(void *arg, bool is_stderr, struct str bytes, struct err *e);

struct exec_request {
	const struct target *target;
	char *const *argv;
	size_t argc;
	const char *user, *cwd; /* NULL: the sandbox's own */
	bool use_env_options;   /* --env of the command line */
	int64_t timeout_ms;     /* of the command; 0: none */
	int64_t keep_alive_s;   /* > 0: meanwhile the sandbox's end stays this far away */
	bool tty;
	int stdin_fd;          /* -EBADF: none. Borrowed, and never made non-blocking */
	exec_output_fn output; /* NULL: our stdout and stderr */
	void *output_arg;
};

enum {
	EXEC_CAUSE_SIZE = 160,
};

struct exec_result {
	int exit_code; /* as a shell would say it */
	int signo;     /* 0: it exited by itself */
	bool timed_out;
	char cause[EXEC_CAUSE_SIZE]; /* of its end, in the guest's words; empty: its own affair */
	int64_t duration_ms;
	uint64_t input_bytes; /* that went to its stdin */
};

/* Runs the loop until the command has ended and its output is written. Negative is a failure of
 * ours: -EPIPE when nobody reads stdout any more (the command is ended then), otherwise with words.
 * Signals that come to us go to the command. */
int cli_exec_run(struct cli *cli, const struct exec_request *request, struct exec_result *ret,
	struct err *e);

/* The options of exec and run: --user, --cwd, --timeout, --tty, --interactive, --no-stdin. */
int cli_exec_options(struct cli *cli, struct exec_request *ret, struct err *e);
/* Runs it as those two commands do: streams, or one JSON document. sandbox_id NULL: not shown. */
int cli_exec_show(struct cli *cli, const struct exec_request *request, const char *sandbox_id);
