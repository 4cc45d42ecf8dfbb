/* What the commands share: one run of the program, and its way to the API. */
#pragma once

#include "cli/args.h"
#include "cli/config.h"
#include "cli/out.h"

#include "client/client.h"
#include "json/json.h"
#include "loop/loop.h"

enum cli_exit {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_FOUND = 3,
	EXIT_AUTH = 4,
	EXIT_STATE = 5,
	EXIT_LIMIT = 6,
	EXIT_UNREACHABLE = 7,
	EXIT_TIMEOUT = 124,
	EXIT_OURS = 125, /* exec and run: atoll failed, not the command */
	EXIT_SIGNAL = 128,
};

enum {
	CLI_HINT = 512,
	CLI_ARENA = 64 << 20,
	CLI_ID = 64,       /* of a sandbox or key, with its NUL */
	CLI_ID_WHOLE = 20, /* a sandbox id of at least this length is not searched for */
	CLI_CALL_TIMEOUT_MS = 60 * 1000,
	CLI_TOKEN = 256,
};

struct cli_parts;

struct cli {
	const struct cli_parts *parts;
	struct args args;
	struct config config;
	struct out out;
	struct loop *loop; /* made by api_open, like config */
	struct client *client;
	struct arena *arena; /* of the whole run */
	struct err e;
	char hint[CLI_HINT];          /* "": the error's usual one */
	const char *term;             /* TERM of the environment, or NULL */
	const char *env_data;         /* ATOLL_DATA of the environment, or NULL */
	const char *admin_token_file; /* ATOLL_ADMIN_TOKEN_FILE of it, or NULL */
	loop_signal_fn
		on_signal; /* who hears of SIGINT and its like; NULL: nobody, they are noted */
	void *signal_arg;
	int signal_seen; /* the last one nobody heard of; 0: none */
};

int cli_load_config(struct cli *cli, struct err *e);
/* From here on SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH do not end the program but come to
 * cli->on_signal. */
int cli_catch_signals(struct cli *cli, struct err *e);

/* ---- failures ---- */
struct cli_failure {
	int code; /* -errno */
	enum cli_exit exit;
	const char *name; /* as in {"code": ...} */
	const char *hint; /* NULL: none */
};
const struct cli_failure *cli_failure_of(int code);
/* Tells it as the command's habits want, and gives the exit code. */
int cli_report(struct cli *cli);
/* The document {"code","message","hint"}, into an open object of the writer. */
void cli_failure_members(struct cli *cli, struct jsonw *w);

/* ---- the API ---- */
struct api_request {
	const char *method;
	const char *path;                /* from the base on, encoded */
	struct str body;                 /* JSON; p NULL: none */
	int64_t timeout_ms;              /* 0: CLI_CALL_TIMEOUT_MS */
	const char *admin_token;         /* the operator's, in the key's place; NULL: the key */
	const char *const *more_headers; /* "Name: value", NULL-terminated; NULL: none */
};
struct api_reply {
	int status;
	struct str body; /* in the run's arena */
	struct str next; /* X-Next-Token; n 0: no more pages */
};
/* Configuration, loop and client; any number of times. */
int cli_api_open(struct cli *cli, struct err *e);
/* Waits for the answer. Statuses from 400 on become errors with the server's own words. */
int cli_api_call(struct cli *cli, const struct api_request *request, struct api_reply *ret,
	struct err *e);
/* A list, page by page. `path` has a query already. */
typedef int (*cli_page_fn)(void *arg, const struct json_list *rows, struct err *e);
int cli_api_each_page(struct cli *cli, const char *path, const struct json_shape *shape,
	cli_page_fn fn, void *arg, struct err *e);
/* The same of a list of /api/v1: its path has a query too, and its pages {"items", "next_cursor"}.
 */
int cli_api_each_item(struct cli *cli, const char *path, const struct json_shape *shape,
	cli_page_fn fn, void *arg, struct err *e);
/* -errno for a status from 400 on. */
int cli_api_code_of(int status);
/* The message of {"code","message"}, or a word about the status. */
void cli_api_message(struct cli *cli, int status, struct str body, struct err *e);

/* ---- listing.c ---- */
/* How a list of /api/v1 is shown. */
struct cli_listing {
	const char *path; /* with a query */
	const struct json_shape *shape;
	const char *const *titles;
	size_t n_titles;
	void (*row)(struct cli *cli, const void *item, struct out_table *t, size_t row);
	struct str (*id)(const void *item);              /* for -q */
	void (*json)(struct jsonw *w, const void *item); /* NULL: as the API says it */
	const char *none;                                /* what is said when there is nothing */
	int64_t most;                                    /* 0: all */
};
/* An exit code, or -errno with cli->e. */
int cli_show_listing(struct cli *cli, const struct cli_listing *listing);
/* An answer as the document it is, with a line's end; EXIT_OK. */
int cli_show_body(struct cli *cli, struct str body);
/* What was removed: its id, or {key: id, "removed": true}; EXIT_OK. */
int cli_show_gone(struct cli *cli, const char *key, struct str id);
/* "K=V,K=V". */
void cli_map_cell(const struct json_map *map, char cell[OUT_CELL]);
/* A line about a thing, unless there is nothing to say. */
void cli_pair(struct cli *cli, const char *name, struct str value);
/* A line for each limit, by the names of /api/v1. */
void cli_pair_limits(struct cli *cli, const struct json_map *limits);
/* before, the id encoded, after; NULL: too long. */
const char *cli_path(struct cli *cli, const char *before, struct str id, const char *after);
/* Behind '?' or '&'; value NULL: nothing. */
void cli_add_query(struct buf *path, const char *name, const char *value);
/* A call answered with one object. ret_body may be NULL. The failure is in cli->e. */
int cli_get(struct cli *cli, const char *path, const struct json_shape *shape, void *ret,
	struct str *ret_body);

/* ---- sandboxes ---- */
struct sandbox_access {
	struct str token, domain, traffic_token;
};
struct sandbox_info { /* as /api/v1 shows it */
	struct str id, template_id, template_name, runtime, state, agent_id, task_id;
	struct str started_at, end_at, ended_at, ended_by, ended_why, on_timeout;
	struct sandbox_access access; /* empty: the key may not have it */
	struct json_map limits;       /* by the names of /api/v1, each a number's text */
	struct json_map metadata;
	struct json_bool internet;
	struct str network, volumes; /* JSON; p NULL: none */
};
struct target { /* a sandbox that can be reached */
	char id[CLI_ID];
	char token[CLI_TOKEN];
};
/* Those that run or are paused. */
int cli_sandbox_list(struct cli *cli, struct sandbox_info **ret, size_t *ret_n, struct err *e);
extern const struct json_shape cli_sandbox_shape; /* of struct sandbox_info */
/* One of its limits; 0: not told. */
int64_t cli_sandbox_limit(const struct sandbox_info *info, const char *name);
/* By id or unique prefix of it. */
int cli_sandbox_resolve(struct cli *cli, const char *typed, char id[CLI_ID], struct err *e);
/* -ENOENT also for one that has ended, and says so. */
int sandbox_look_up(struct cli *cli, const char *typed, struct sandbox_info *ret, struct err *e);
/* The same, but ended ones are found too, by their whole id. */
int sandbox_look_up_any(struct cli *cli, const char *typed, struct sandbox_info *ret,
	struct err *e);
/* -EBUSY: it is there, but does not run. */
int sandbox_look_up_running(struct cli *cli, const char *typed, struct sandbox_info *ret,
	struct err *e);
int cli_sandbox_target(const struct sandbox_info *info, struct target *ret, struct err *e);
int cli_sandbox_open(struct cli *cli, const char *typed, struct target *ret, struct err *e);
/* The same, but one that is paused goes on. The end of one that runs never comes closer by it. */
struct cli_wake {
	int64_t timeout_s; /* 0: what it was made with */
	bool cold;         /* booted afresh from its files */
};
int cli_sandbox_wake(struct cli *cli, const char *typed, const struct cli_wake *how,
	struct target *ret, struct err *e);
/* sandbox-make.c. timeout_s 0: the server's default. What the sandbox is to be like stands in the
 * options of the command line. */
int cli_sandbox_make(struct cli *cli, const char *template_id, int64_t timeout_s,
	struct target *ret, struct err *e);
int cli_sandbox_remove(struct cli *cli, const char *id, struct err *e);
/* cmd-port.c: where one of its ports is reached; NULL: the key is not told. */
const char *cli_port_url(struct cli *cli, const struct sandbox_info *info, const char *port);
/* Header lines for a request to the sandbox's guest: a NULL-terminated array in the arena. `user`
 * and each of `more` (NULL-terminated) may be NULL. */
const char *const *cli_sandbox_headers(struct cli *cli, const struct target *target,
	const char *user, const char *const *more);
/* The same for one of its other ports. */
const char *const *cli_port_headers(struct cli *cli, const struct target *target, int port,
	const char *user, const char *const *more);
/* --env and --meta: K=V of each as an object of the writer. */
int cli_pairs(struct cli *cli, const char *option, const char *key, struct jsonw *w, struct err *e);
/* Every value of an option, and those between its commas, as an array; absent: nothing. */
void cli_write_list(struct cli *cli, const char *option, const char *member, struct jsonw *w);
/* What to do about a name that --allow gives to a sandbox that reaches everything. */
void cli_hint_network(struct cli *cli);

/* ---- commands ---- */
int cmd_run(struct cli *cli);
int cmd_sandbox_create(struct cli *cli);
int cmd_sandbox_ls(struct cli *cli);
int cmd_sandbox_info(struct cli *cli);
int cmd_sandbox_exec(struct cli *cli);
int cmd_sandbox_cp(struct cli *cli);
int cmd_sandbox_kill(struct cli *cli);
int cmd_sandbox_connect(struct cli *cli);
int cmd_sandbox_pause(struct cli *cli);
int cmd_sandbox_resume(struct cli *cli);
int cmd_sandbox_extend(struct cli *cli);
int cmd_sandbox_fork(struct cli *cli);
int cmd_sandbox_port(struct cli *cli);
int cmd_sandbox_logs(struct cli *cli);
int cmd_sandbox_metrics(struct cli *cli);
int cmd_sandbox_snapshot(struct cli *cli);
int cmd_snapshot_info(struct cli *cli);
int cmd_snapshot_ls(struct cli *cli);
int cmd_snapshot_name(struct cli *cli);
int cmd_snapshot_rm(struct cli *cli);
int cmd_key_create(struct cli *cli);
int cmd_key_ls(struct cli *cli);
int cmd_key_revoke(struct cli *cli);
int cmd_key_rotate(struct cli *cli);
int cmd_api(struct cli *cli);
int cmd_config_path(struct cli *cli);
int cmd_config_show(struct cli *cli);
int cmd_team_activity(struct cli *cli);
int cmd_team_limits(struct cli *cli);
int cmd_team_env(struct cli *cli);
int cmd_team_ls(struct cli *cli);
int cmd_events(struct cli *cli);
int cmd_audit(struct cli *cli);
int cmd_usage(struct cli *cli);
int cmd_template_info(struct cli *cli);
int cmd_template_ls(struct cli *cli);
int cmd_template_rm(struct cli *cli);
int cmd_secret_ls(struct cli *cli);
int cmd_secret_rm(struct cli *cli);
int cmd_secret_set(struct cli *cli);
int cmd_network_set(struct cli *cli);
int cmd_network_show(struct cli *cli);
int cmd_execution_artifacts(struct cli *cli);
int cmd_execution_cancel(struct cli *cli);
int cmd_execution_fetch(struct cli *cli);
int cmd_execution_info(struct cli *cli);
int cmd_execution_logs(struct cli *cli);
int cmd_execution_ls(struct cli *cli);
int cmd_volume_create(struct cli *cli);
int cmd_volume_info(struct cli *cli);
int cmd_volume_ls(struct cli *cli);
int cmd_volume_rm(struct cli *cli);
int cmd_volume_rotate_token(struct cli *cli);
int cmd_status(struct cli *cli);
int cmd_backup(struct cli *cli);
int cmd_restore(struct cli *cli);
int cmd_db_check(struct cli *cli);
int cmd_db_copy(struct cli *cli);
int cmd_db_export(struct cli *cli);
int cmd_db_import(struct cli *cli);
int cmd_db_migrate(struct cli *cli);
int cmd_doctor(struct cli *cli);
int cmd_upgrade(struct cli *cli);
int cmd_completion(struct cli *cli);
int cmd_version(struct cli *cli);
int cmd_help(struct cli *cli);
int cmd_serve(struct cli *cli);

/* forward.c: connections to a local port of loopback (0: any that is free) go to this port of the
 * sandbox, until a signal or the sandbox's end; an exit code, or -errno with cli->e. */
int forward_run(struct cli *cli, const struct target *target, int port, int local_port);
/* man.c: the troff page of the whole program, one group, or one command; an exit code. */
int man_print(struct cli *cli, const struct cli_group *group, const struct cli_command *command);
/* help.c: of what the words named; an exit code. */
int help_print(struct cli *cli, const struct cli_group *group, const struct cli_command *command);
