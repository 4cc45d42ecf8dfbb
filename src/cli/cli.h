/* cli - the command line: words in, an API call or a stream, for people and for scripts alike.
 * Owns:   the command table and everything made of it, output habits, exit codes, the local
 * terminal while a command runs in it. Uses:   base, loop, json, connect, client. Never:  opens
 * more of a data directory than its `env` file, asks a question, prints anything but data on
 * stdout, prints a secret that was not asked for. */
#pragma once

#include <stdint.h>

struct err;
struct server_db_request;
struct server_backup_report;
struct server_backup_request;
struct server_base;
struct server_upgrade_report;
struct store_report;

/* What the program has beside the command line: rooms that this one does not know. */
struct cli_parts {
	int (*db)(const struct server_db_request *request, struct store_report *ret, struct err *e);
	int (*upgrade)(const char *data, int64_t timeout_ms, struct server_upgrade_report *ret,
		struct err *e);
	int (*backup)(const struct server_backup_request *request, struct server_backup_report *ret,
		struct err *e);
	int (*restore)(const struct server_backup_request *request,
		struct server_backup_report *ret, struct err *e);
	int (*base_look)(const char *templates_dir, struct server_base *ret, struct err *e);
};

/* argv as main() got it; returns the exit code. `serve` is not run here: see main.c. */
int cli_main(int argc, char **argv, const struct cli_parts *parts);
