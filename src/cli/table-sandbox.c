/* The command table: sandboxes. */
#include "cli/table.h"

static const struct cli_option run_options[] = {
	AGENT_OPTION,
	ALLOW_OPTION,
	CPU_OPTION,
	{ "cwd", 'w', "DIR", "working directory in the sandbox" },
	DENY_OPTION,
	DISK_OPTION,
	{ "env", 'e', "K=V", "environment variable; may be repeated" },
	{ "interactive", 'i', NULL, "forward stdin even when it is a terminal" },
	{ "keep", 0, NULL, "leave the sandbox running, its id on stderr" },
	MEMORY_OPTION,
	{ "meta", 0, "K=V", "metadata of the sandbox; may be repeated" },
	NESTED_OPTION,
	NO_INTERNET_OPTION,
	{ "no-stdin", 'n', NULL, "do not forward stdin" },
	RUNTIME_OPTION,
	SECRET_OPTION,
	TASK_OPTION,
	{ "timeout", 0, "TIME", "end the command after this time, exit 124" },
	{ "tty", 't', NULL, "run it in a terminal" },
	{ "user", 'u', "NAME", "user in the sandbox" },
	VOLUME_OPTION,
};

static const struct cli_option exec_options[] = {
	{ "cwd", 'w', "DIR", "working directory in the sandbox" },
	{ "env", 'e', "K=V", "environment variable; may be repeated" },
	{ "interactive", 'i', NULL, "forward stdin even when it is a terminal" },
	{ "no-stdin", 'n', NULL, "do not forward stdin" },
	{ "timeout", 0, "TIME", "end the command after this time, exit 124" },
	{ "tty", 't', NULL, "run it in a terminal" },
	{ "user", 'u', "NAME", "user in the sandbox" },
};

static const struct cli_option create_options[] = {
	AGENT_OPTION,
	ALLOW_OPTION,
	CPU_OPTION,
	DENY_OPTION,
	DISK_OPTION,
	{ "env", 'e', "K=V", "environment variable of every command; may be repeated" },
	MEMORY_OPTION,
	{ "meta", 0, "K=V", "metadata; may be repeated" },
	NESTED_OPTION,
	NO_INTERNET_OPTION,
	RUNTIME_OPTION,
	SECRET_OPTION,
	TASK_OPTION,
	{ "timeout", 0, "TIME", "how long it lives (default: the server's, 5 minutes)" },
	VOLUME_OPTION,
};

static const struct cli_option ls_options[] = {
	{ "agent", 0, "NAME", "only of this agent" },
	{ "all", 'a', NULL, "those that have ended too, newest first" },
	{ "limit", 0, "N", "the most that are shown (with --all or --state: 1000)" },
	{ "meta", 0, "K=V", "only with this metadata; may be repeated" },
	{ "state", 0, "STATE,...", "only these: running, paused, ended" },
	{ "task", 0, "NAME", "only of this task" },
	{ "template", 0, "TEMPLATE", "only of this template" },
};

static const struct cli_option info_options[] = {
	{ "all", 'a', NULL, "also one that has ended, by its whole id" },
};

static const struct cli_option cp_options[] = {
	{ "links", 0, NULL, "also copy links that lead out of a directory of the sandbox" },
	{ "user", 'u', "NAME", "owner of what is made in the sandbox" },
};

static const struct cli_option kill_options[] = {
	{ "all", 0, NULL, "every sandbox of this key's team" },
};

static const struct cli_option connect_options[] = {
	{ "cwd", 'w', "DIR", "working directory in the sandbox" },
	{ "env", 'e', "K=V", "environment variable; may be repeated" },
	{ "user", 'u', "NAME", "user in the sandbox" },
};

static const struct cli_option pause_options[] = {
	{ "disk", 0, NULL, "keep the files only: processes and memory are given up" },
};

static const struct cli_option resume_options[] = {
	{ "cold", 0, NULL, "start from the files only, without the processes" },
	{ "timeout", 0, "TIME", "how long it lives then (default: the server's, 5 minutes)" },
};

static const struct cli_option snapshot_options[] = {
	{ "name", 0, "NAME", "a name to start others by, like work or work:v2" },
};

static const struct cli_option fork_options[] = {
	{ "count", 0, "N", "how many, 1 to 100 (default: 1)" },
	{ "timeout", 0, "TIME", "how long they live (default: 5 minutes)" },
};

static const struct cli_option logs_options[] = {
	{ "follow", 'f', NULL, "go on with what comes, until the sandbox ends" },
};

static const struct cli_option metrics_options[] = {
	{ "since", 0, "TIME", "only samples that are no older (default: all)" },
};

static const struct cli_option port_options[] = {
	{ "forward", 0, "LOCAL", "listen on this port of 127.0.0.1; 0 takes a free one" },
};

#define EXIT_NOTE                                                                                \
	"The exit code is the command's own; 128+N when signal N ended it, 124 when --timeout\n" \
	"did, 126 or 127 when it cannot be started, and 125 when atoll itself failed."

#define MAKE_NOTE                                                                               \
	"Names in --allow\nneed --no-internet or --deny 0.0.0.0/0. SECRET is a secret's name, " \
	"VAR the variable\nthat holds it, named as the secret unless given."

/* `atoll ls` is short for it. */
#define LS(in_group, other)                                                                       \
	{                                                                                         \
		.group = (in_group), .name = "ls", .guess = (other), .words = "",                 \
		.summary = "list sandboxes", .detail = "ENDS is when it ended, of one that has.", \
		.examples = "atoll ls\natoll sandbox ls -q | xargs -r atoll sandbox kill\n"       \
			    "atoll sandbox ls --all --agent reviewer --json | jq "                \
			    "'.[].endedWhy'",                                                     \
		.see_also = "sandbox info", OPTIONS(ls_options), .run = cmd_sandbox_ls,           \
	}

static const struct cli_command commands[] = {
	LS(NULL, NULL),
	{
		.name = "run",
		.words = "TEMPLATE [-- CMD [ARG...]]",
		.summary = "make a sandbox, run a command in it, end it",
		.detail = "Without CMD a login shell runs: in a terminal if there is one, else it "
			  "reads stdin.\nTIME is seconds, or like 90s, 5m, 2h. What the sandbox is "
			  "like: see 'sandbox create'.\n" EXIT_NOTE,
		.examples = "atoll run base -- python3 -c 'print(6*7)'\natoll run base\n"
			    "tar c src | atoll run base -- tar x",
		.see_also = "sandbox create, sandbox exec",
		OPTIONS(run_options),
		.min_words = 1,
		.max_words = 1,
		.takes_command = true,
		.passes_exit = true,
		.run = cmd_run,
	},
	{
		.group = "sandbox",
		.name = "create",
		.words = "[TEMPLATE]",
		.summary = "make a sandbox and print its id",
		.detail =
			"TEMPLATE is 'base' unless given; a snapshot is one too. TIME is seconds, "
			"or like 90s,\n5m, 2h. " MAKE_NOTE,
		.examples =
			"id=$(atoll sandbox create)\n"
			"atoll sandbox create --memory 4GiB --cpu 2 --volume data:/data\n"
			"atoll sandbox create --no-internet --allow pypi.org,*.pythonhosted.org",
		.see_also = "sandbox exec, sandbox kill, network set, run",
		OPTIONS(create_options),
		.max_words = 1,
		.run = cmd_sandbox_create,
	},
	LS("sandbox", "list"),
	{
		.group = "sandbox",
		.name = "info",
		.guess = "get",
		.words = "SANDBOX",
		.summary = "show one sandbox: its runtime, limits, network and address",
		.detail = "SANDBOX is an id or a prefix of it that only one sandbox has.",
		.examples =
			"atoll sandbox info i3k9\natoll sandbox info --all ID_OF_ONE_THAT_ENDED",
		.see_also = "sandbox ls, network show",
		OPTIONS(info_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_info,
	},
	{
		.group = "sandbox",
		.name = "exec",
		.words = "SANDBOX [--] CMD [ARG...]",
		.summary = "run a command in a sandbox",
		.detail = "CMD and its arguments are passed on exactly, without a shell. A stdin "
			  "that is "
			  "not a\nterminal is forwarded; -it gives a real terminal. Ctrl+C and "
			  "SIGTERM reach the\ncommand. TIME is seconds, or like 90s, 5m, "
			  "2h.\n" EXIT_NOTE,
		.examples = "atoll sandbox exec i3k9 -- ls -l /\natoll sandbox exec -it i3k9 bash\n"
			    "echo hello | atoll sandbox exec i3k9 -- wc -c",
		.see_also = "run, sandbox cp",
		OPTIONS(exec_options),
		.min_words = 1,
		.max_words = 1,
		.takes_command = true,
		.passes_exit = true,
		.run = cmd_sandbox_exec,
	},
	{
		.group = "sandbox",
		.name = "cp",
		.words = "SRC DST",
		.summary = "copy files and directories in and out",
		.detail =
			"One of SRC and DST is SANDBOX:PATH. '-' is stdin or stdout: a file's "
			"bytes, or "
			"a tar\narchive for a directory. A relative PATH starts in the user's "
			"home.\n"
			"What comes out of a sandbox is written below DST alone: not through links "
			"in it, and\nlinks that lead out of the copied directory are left out.",
		.examples =
			"atoll sandbox cp notes.txt i3k9:notes.txt\n"
			"atoll sandbox cp i3k9:/var/log ./log\natoll sandbox cp i3k9:/etc/passwd -",
		.see_also = "sandbox exec",
		OPTIONS(cp_options),
		.min_words = 2,
		.max_words = 2,
		.run = cmd_sandbox_cp,
	},
	{
		.group = "sandbox",
		.name = "kill",
		.guess = "rm",
		.words = "SANDBOX...",
		.summary = "end sandboxes",
		.detail = "All of them are tried; the exit code is the first failure's.",
		.examples = "atoll sandbox kill i3k9\natoll sandbox kill --all",
		.see_also = "sandbox ls",
		OPTIONS(kill_options),
		.max_words = -1,
		.run = cmd_sandbox_kill,
	},
	{
		.group = "sandbox",
		.name = "connect",
		.guess = "shell",
		.words = "SANDBOX",
		.summary = "open a shell in a sandbox",
		.detail = "A login shell: in a terminal if there is one, else it reads stdin. A "
			  "paused sandbox is\nresumed first. The sandbox does not end while the "
			  "shell is open, and never earlier than\nit would have.\n" EXIT_NOTE,
		.examples = "atoll sandbox connect i3k9\natoll sandbox connect -u root i3k9",
		.see_also = "sandbox exec, sandbox resume, run",
		OPTIONS(connect_options),
		.min_words = 1,
		.max_words = 1,
		.passes_exit = true,
		.run = cmd_sandbox_connect,
	},
	{
		.group = "sandbox",
		.name = "pause",
		.words = "SANDBOX",
		.summary = "stop a sandbox without losing it",
		.detail = "Its processes stand still, and its time too. Fine to repeat.",
		.examples = "atoll sandbox pause i3k9\natoll sandbox pause --disk i3k9",
		.see_also = "sandbox resume, sandbox snapshot",
		OPTIONS(pause_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_pause,
	},
	{
		.group = "sandbox",
		.name = "resume",
		.words = "SANDBOX",
		.summary = "let a paused sandbox go on",
		.detail = "Fine to repeat. TIME is seconds, or like 90s, 5m, 2h.",
		.examples = "atoll sandbox resume i3k9\natoll sandbox resume i3k9 --timeout 1h",
		.see_also = "sandbox pause, sandbox connect",
		OPTIONS(resume_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_resume,
	},
	{
		.group = "sandbox",
		.name = "snapshot",
		.words = "SANDBOX",
		.summary = "keep what a sandbox is now, and print the snapshot's id",
		.detail = "The sandbox runs on. 'sandbox create' takes the id as a template.",
		.examples = "atoll sandbox snapshot i3k9 --name work\natoll sandbox create work",
		.see_also = "snapshot ls, snapshot rm, sandbox fork",
		OPTIONS(snapshot_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_snapshot,
	},
	{
		.group = "sandbox",
		.name = "fork",
		.words = "SANDBOX",
		.summary = "make sandboxes that begin with another's files",
		.detail = "The sandbox runs on. Prints an id a line; those that fail are named on "
			  "stderr, and the\nexit code is the first failure's.",
		.examples = "atoll sandbox fork i3k9\natoll sandbox fork i3k9 --count 5 -q",
		.see_also = "sandbox snapshot",
		OPTIONS(fork_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_fork,
	},
	{
		.group = "sandbox",
		.name = "extend",
		.words = "SANDBOX TIME",
		.summary = "let a sandbox live at least this long from now",
		.detail = "Never shortens its life. Prints when it ends. TIME is seconds, or like "
			  "90s, 5m, 2h.",
		.examples = "atoll sandbox extend i3k9 1h",
		.see_also = "sandbox info",
		.min_words = 2,
		.max_words = 2,
		.run = cmd_sandbox_extend,
	},
	{
		.group = "sandbox",
		.name = "port",
		.words = "SANDBOX PORT",
		.summary = "print the address of a port of a sandbox, or bring the port here",
		.detail = "With --forward, connections to this machine's loopback reach the port "
			  "until Ctrl+C: of any\nprotocol, any number at once. The address is "
			  "printed "
			  "once it listens. The sandbox\nlives no longer by it.",
		.examples = "curl \"$(atoll sandbox port i3k9 8080)\"\n"
			    "atoll sandbox port i3k9 5432 --forward 5432\n"
			    "atoll sandbox port i3k9 8080 --forward 0",
		.see_also = "sandbox info, sandbox extend",
		OPTIONS(port_options),
		.min_words = 2,
		.max_words = 2,
		.run = cmd_sandbox_port,
	},
	{
		.group = "sandbox",
		.name = "logs",
		.words = "SANDBOX",
		.summary = "show what happened to a sandbox, oldest first",
		.detail = "With -f and --json every entry is a document on a line of its own.",
		.examples = "atoll sandbox logs i3k9\natoll sandbox logs -f i3k9",
		.see_also = "sandbox metrics, sandbox info",
		OPTIONS(logs_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_logs,
	},
	{
		.group = "sandbox",
		.name = "metrics",
		.words = "SANDBOX",
		.summary = "show what a sandbox used over time",
		.detail = "A sample is taken every few seconds. TIME is seconds, or like 90s, 5m.",
		.examples = "atoll sandbox metrics i3k9 --since 1m",
		.see_also = "sandbox logs",
		OPTIONS(metrics_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_sandbox_metrics,
	},
};
TABLE(cli_sandbox_commands, commands);
