/* args - from argv to a command, its options and its words, by one table.
 * The table is the only place that knows a command: parsing, --help, "did you mean" and what is
 * generated from it cannot disagree. */
#pragma once

#include "base/base.h"

struct cli;

struct cli_option {
	const char *name;
	char letter;       /* 0: none */
	const char *value; /* what the value is called; NULL: a switch */
	const char *help;
};

struct cli_command {
	const char *group; /* NULL: stands alone */
	const char *name;
	const char *guess; /* another word people try for it, or NULL */
	const char *words; /* as in the usage line */
	const char *summary;
	const char *detail; /* NULL: nothing to add */
	const char *examples;
	const char *see_also;
	const struct cli_option *options;
	size_t n_options;
	int min_words, max_words; /* -1: any number */
	/* After the first word everything from "--", or from the next word, belongs to a command
	 * line that is passed on as it is. */
	bool takes_command;
	bool passes_exit; /* on from the sandbox: all own failures exit with 125 */
	bool runs_alone;  /* a program of its own: the options of every command are not its */
	int (*run)(struct cli *cli); /* exit code, or -errno with cli->e */
};

struct cli_group {
	const char *name, *alias, *summary;
};

/* The whole table: its i-th command, NULL behind the last. It is kept by subject. */
const struct cli_command *cli_command(size_t i);
struct cli_table {
	const struct cli_command *v;
	size_t n;
};
extern const struct cli_table cli_main_commands, cli_sandbox_commands, cli_resource_commands;
extern const struct cli_group cli_groups[];
extern const size_t cli_n_groups;
extern const struct cli_option cli_common_options[];
extern const size_t cli_n_common_options;

struct arg_option {
	const struct cli_option *option;
	const char *value; /* NULL for a switch */
};

struct args {
	const struct cli_command *command; /* NULL: only a group, or nothing, was named */
	const struct cli_group *group;
	bool wants_help;
	struct arg_option *options;
	size_t n_options;
	char **words;
	size_t n_words;
	char **command_line; /* after takes_command's border; NULL-terminated like argv */
	size_t n_command_line;
};

void args_done(struct args *args);
/* -EINVAL: what is wrong in *e, what to do in hint. The options seen so far stay in *ret, so that
 * the failure itself can honour --json. */
int args_parse(int argc, char **argv, struct args *ret, char *hint, size_t hint_size,
	struct err *e);
bool args_has(const struct args *args, const char *option);
const char *args_value(const struct args *args, const char *option); /* the last; NULL: not given */
/* Every value of a repeated option: start with *at = 0; NULL at the end. */
const char *args_next(const struct args *args, const char *option, size_t *at);

/* Edits between two words, counting a swap of neighbours as one. */
size_t args_distance(const char *a, const char *b);
/* -EINVAL with words, and the nearest command there is in the hint. */
int args_unknown(const char *group, const char *typed, char *hint, size_t hint_size, struct err *e);
/* The command of this group (NULL: alone) with this name or guess. */
const struct cli_command *args_find(const char *group, const char *name);
const struct cli_group *args_find_group(const char *name);

/* A whole number from min to max; `what` names it for people: "PORT", "--count". */
int args_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *ret,
	struct err *e);
/* "90", "90s", "5m", "2h", "1d" to seconds, at least 1. */
int args_seconds(const char *option, const char *text, int64_t *ret, struct err *e);
/* "4GiB", "512MiB" or plain MiB. */
int args_mib(const char *text, int64_t *ret);
