/* The command table. What is not here does not exist for the parser, the help, the completions or
 * the man pages. */
#include "cli/table.h"
#include "server/server.h"

const struct cli_option cli_common_options[] = {
	{ "api-url", 0, "URL", "the server's address, instead of E2B_API_URL" },
	{ "ca-file", 0, "FILE", "trust these authorities (PEM) instead of the system's" },
	{ "color", 0, "WHEN", "auto, always or never; NO_COLOR is honoured" },
	{ "data", 0, "DIR", "take address and key from DIR/env" },
	{ "help", 'h', NULL, "show this help" },
	{ "json", 0, NULL, "one JSON document on stdout, errors too" },
	{ "quiet", 'q', NULL, "ids only, no hints" },
};
const size_t cli_n_common_options = ARRAY_SIZE(cli_common_options);

const struct cli_group cli_groups[] = {
	{ "sandbox", "sbx", "make, use and end sandboxes" },
	{ "network", NULL, "what a sandbox may reach" },
	{ "execution", NULL, "commands that were run through /api/v1" },
	{ "template", "tpl", "what sandboxes start from" },
	{ "snapshot", NULL, "what sandboxes were, to start others from" },
	{ "volume", NULL, "directories that outlive sandboxes" },
	{ "secret", NULL, "values that are given to sandboxes and never shown" },
	{ "key", NULL, "API keys" },
	{ "config", NULL, "what this command line works with" },
	{ "db", NULL, "the server's database, while no server runs" },
	{ "team", NULL, "teams and what they may have" },
};
const size_t cli_n_groups = ARRAY_SIZE(cli_groups);

/* Read by the server room; here for the help and what is made of it. */
#define SERVE_OPTION(field, flag, kind, least, most, value, help) { flag, 0, value, help },
#define SERVE_FLAG(flag, value, help) { flag, 0, value, help },
static const struct cli_option serve_options[] = { SERVER_OPTIONS(SERVE_OPTION, SERVE_FLAG) };

#define EVENT_AGENT                                      \
	{                                                \
		"agent", 0, "NAME", "only of this agent" \
	}
#define EVENT_OPTIONS                                                                  \
	{ "kind", 0, "KIND,...", "only these, or what begins so: sandbox." },          \
		{ "limit", 0, "N", "the most that are shown, to 1000 (default: 50)" }, \
		{ "subject", 0, "ID", "only of this sandbox, key ..." },               \
	{                                                                              \
		"task", 0, "NAME", "only of this task"                                 \
	}

static const struct cli_option events_options[] = {
	{ "after", 0, "SEQ", "what comes behind this number, oldest first" },
	EVENT_AGENT,
	{ "follow", 'f', NULL, "go on with what comes, also after the server restarts" },
	EVENT_OPTIONS,
};

static const struct cli_option audit_options[] = {
	{ "actor", 0, "ID", "only what this key did; system and timeout are others" },
	EVENT_AGENT,
	{ "export", 0, "FORMAT", "all of it, as csv or ndjson" },
	{ "from", 0, "TIME", "no earlier: a time, or so long ago, like 2h" },
	EVENT_OPTIONS,
	{ "to", 0, "TIME", "before that" },
};

static const struct cli_option usage_options[] = {
	{ "agent", 0, "NAME", "only of this agent" },
	{ "by", 0, "WHAT,...", "a line each: team, agent, task, template, sandbox" },
	{ "sandbox", 0, "ID", "only of this sandbox" },
	{ "since", 0, "TIME", "of this time until now (default: 30d)" },
	{ "task", 0, "NAME", "only of this task" },
	{ "template", 0, "NAME", "only of this template" },
};

static const struct cli_option help_options[] = {
	{ "man", 0, NULL, "as a manual page (troff)" },
};

static const struct cli_option api_options[] = {
	{ "body", 'd', "JSON", "what is sent; @FILE reads it from a file, - from stdin" },
	{ "header", 'H', "LINE", "a header more, 'Name: value'; may be repeated" },
};

#define ADMIN_TOKEN_OPTION                                            \
	{                                                             \
		"admin-token-file", 0, "FILE", "the operator's token" \
	}

static const struct cli_option team_options[] = {
	ADMIN_TOKEN_OPTION,
};

static const struct cli_option team_env_options[] = {
	ADMIN_TOKEN_OPTION,
	{ "unset", 0, "NAME", "take this variable away; may be repeated" },
};

static const struct cli_option team_limits_options[] = {
	ADMIN_TOKEN_OPTION,
	{ "max-api-keys", 0, "N", "of the team" },
	{ "max-artifact-storage", 0, "SIZE", "of the team: all its artifacts together" },
	{ "max-command-rules", 0, "N", "of the team: lists of programs, its agents' too" },
	{ "max-commands", 0, "SIZE", "of the team: rows of commands, then the oldest go" },
	{ "max-connections", 0, "N", "of a sandbox: through the edge at once" },
	{ "max-cpu", 0, "N", "of a sandbox: processors" },
	{ "max-disk", 0, "SIZE", "of a sandbox: its disk" },
	{ "max-events", 0, "SIZE", "of the team: its events, then the oldest go" },
	{ "max-history", 0, "SIZE", "of the team: rows of sandboxes, then the oldest go" },
	{ "max-inodes", 0, "N", "of a sandbox: files on its disk" },
	{ "max-log-lines", 0, "N", "of a sandbox: lines of its log" },
	{ "max-log-rate", 0, "N", "of a sandbox: lines a minute" },
	{ "max-memory", 0, "SIZE", "of a sandbox: its memory" },
	{ "max-open-files", 0, "N", "of a process in a sandbox" },
	{ "max-output", 0, "SIZE", "of the team: what commands printed, then the oldest goes" },
	{ "max-processes", 0, "N", "of a sandbox: processes and threads" },
	{ "max-secrets", 0, "N", "of the team" },
	{ "max-shm", 0, "SIZE", "of a sandbox: /dev/shm" },
	{ "max-snapshot-storage", 0, "SIZE", "of the team: all its snapshots together" },
	{ "max-snapshots", 0, "N", "of the team: snapshots" },
	{ "max-volume", 0, "SIZE", "of the team: each of its volumes" },
	{ "max-volume-storage", 0, "SIZE", "of the team: all its volumes together" },
	{ "max-volumes", 0, "N", "of the team: volumes" },
	{ "reset", 0, NULL, "all that is not named is as usual again" },
};

static const struct cli_option doctor_options[] = {
	{ "attack", 0, NULL, "try to get out of real sandboxes, and say how it went" },
	{ "explain", 0, "ID", "all that is known about one check" },
	{ "fix", 0, NULL, "as root: raise the kernel's settings that are warned of" },
	{ "nested", 0, NULL, "with --attack: sandboxes that may make namespaces inside" },
	{ "only", 0, "WAY", "with --attack: this part of it alone" },
	{ "own-server", 0, NULL, "with --attack: a server of its own, though another answers" },
	{ "runtime", 0, "NAME", "with --attack: what runs those sandboxes" },
	{ "sweep", 0, NULL, "as root: remove what is left of servers whose directory is gone" },
	{ "template-cache", 0, "DIR", "where the server's templates are" },
};

static const struct cli_option upgrade_options[] = {
	{ "timeout", 0, "TIME", "how long it is waited for (default: 2m)" },
};

#define DB_OPTIONS                                                                                \
	{ "config", 0, "FILE", "the server's configuration" },                                    \
		{ "database", 0, "URL", "sqlite:PATH or postgresql://... (default: in --data)" }, \
	{                                                                                         \
		"database-password-file", 0, "FILE", "PostgreSQL's password"                      \
	}

static const struct cli_option db_options[] = { DB_OPTIONS };

static const struct cli_option restore_options[] = { DB_OPTIONS,
	{ "force", 0, NULL, "take away what the database of --database holds" },
	{ "new-seed", 0, NULL, "without the old one: sealed secrets and all tokens are lost" },
	{ "seed", 0, "FILE", "the file 'seed' of the data directory that was backed up" } };

static const struct cli_option db_import_options[] = { DB_OPTIONS,
	{ "force", 0, NULL, "take away what the database holds" } };

static const struct cli_option db_copy_options[] = { DB_OPTIONS,
	{ "force", 0, NULL, "take away what the other database holds" },
	{ "to", 0, "URL", "the database to copy to" } };

#define DB_NOTE                                                                                \
	"It is the database that 'atoll serve' would use with the same --data, --config and\n" \
	"--database, and run by root or by who owns it. "

static const struct cli_command commands[] = {
	{
		.name = "serve",
		.words = "[--data DIR] [--listen HOST:PORT]",
		.summary = "run the server",
		.detail =
			"The first start makes the data directory, the base template and one API "
			"key, "
			"and\nwrites DIR/env with the variables that the E2B SDKs read. Started by "
			"root, it gives\nup root before it listens. SIGTERM stops it; sandboxes "
			"live "
			"on and are found again.\nEach option is also ATOLL_<NAME> in the "
			"environment "
			"or a line of the --config file.",
		.runs_alone = true,
		.examples = "atoll serve\natoll serve --data /srv/atoll --listen 0.0.0.0:3000",
		.see_also = "doctor, run",
		OPTIONS(serve_options),
		.run = cmd_serve,
	},
	{
		.name = "api",
		.words = "METHOD PATH",
		.summary = "ask the API anything, and print what it answers",
		.detail = "PATH without a '/' before it is below /api/v1; /api/v1/openapi.json "
			  "describes it.",
		.examples = "atoll api GET sandboxes\n"
			    "atoll api POST sandboxes -d '{\"task_id\": \"t-1\"}'\n"
			    "atoll api GET 'sandboxes?state=ended&limit=5'",
		.see_also = "sandbox ls, key ls",
		OPTIONS(api_options),
		.min_words = 2,
		.max_words = 2,
		.run = cmd_api,
	},
	{
		.group = "config",
		.name = "show",
		.guess = "ls",
		.words = "",
		.summary = "show each setting, and where it comes from",
		.detail = "The key is shown in part only. The server's own settings are flags, "
			  "ATOLL_ variables\n"
			  "or lines of its --config file: see 'atoll help serve'.",
		.examples = "atoll config show\natoll config show --json",
		.see_also = "config path, status",
		.run = cmd_config_show,
	},
	{
		.group = "config",
		.name = "path",
		.words = "",
		.summary = "print the env file that address and key are read from",
		.examples = "atoll config path\nset -a; . \"$(atoll config path)\"; set +a",
		.see_also = "config show",
		.run = cmd_config_path,
	},
	{
		.group = "team",
		.name = "activity",
		.words = "TEAM [all|processes|none|usual]",
		.summary = "show how much is told of what is done in a team's sandboxes, or set it",
		.detail = "For the operator: needs the token that 'atoll serve' was given. TEAM is "
			  "an id, a prefix\nof one, or a name. 'processes' leaves out files and "
			  "ports; 'usual' is what the server\nwas started with.",
		.examples = "atoll team activity default\n"
			    "atoll team activity default processes",
		.see_also = "team limits, events",
		OPTIONS(team_options),
		.min_words = 1,
		.max_words = 2,
		.run = cmd_team_activity,
	},
	{
		.group = "team",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list teams, what they keep, and how many ceilings are their own",
		.detail = "For the operator: needs the token that 'atoll serve' was given.",
		.examples = "atoll team ls --admin-token-file /etc/atoll/token",
		.see_also = "team limits",
		OPTIONS(team_options),
		.run = cmd_team_ls,
	},
	{
		.group = "team",
		.name = "limits",
		.words = "[TEAM]",
		.summary = "show what a team and its sandboxes may have at most, or change it",
		.detail = "TEAM is an id, a prefix of one, or a name; without it, the key's own "
			  "team is "
			  "shown.\nSIZE is like 512MiB or 4GiB. 'usual' in the place of N or SIZE "
			  "takes "
			  "the team's own\nceiling away. A change holds for what is made from then "
			  "on.",
		.examples = "atoll team limits\n"
			    "atoll team limits default --max-memory 4GiB --max-snapshots 50\n"
			    "atoll team limits default --max-memory usual",
		.see_also = "team ls, serve",
		OPTIONS(team_limits_options),
		.max_words = 1,
		.run = cmd_team_limits,
	},
	{
		.group = "team",
		.name = "env",
		.words = "TEAM [NAME=VALUE...]",
		.summary =
			"show what all sandboxes of a team have in their environment, or change it",
		.detail = "For the operator. What is named is set, the rest stays. A sandbox's own "
			  "variables go\nbefore its team's, and these before those of 'atoll serve "
			  "--sandbox-env'. A change\nholds for what is made from then on.",
		.examples =
			"atoll team env default\n"
			"atoll team env default PIP_INDEX_URL=https://mirror.corp.example/simple\n"
			"atoll team env default --unset PIP_INDEX_URL",
		.see_also = "team limits, serve",
		OPTIONS(team_env_options),
		.min_words = 1,
		.max_words = -1,
		.run = cmd_team_env,
	},
	{
		.group = "db",
		.name = "check",
		.words = "",
		.summary = "say what is in the database and whether it is sound",
		.detail = DB_NOTE
		"PostgreSQL may be looked at\nwhile a server runs, SQLite not. Exit 1 "
		"when something is wrong.",
		.examples =
			"atoll db check --data /srv/atoll\natoll db check --json | jq .problems",
		.see_also = "db migrate, db export",
		OPTIONS(db_options),
		.run = cmd_db_check,
	},
	{
		.group = "db",
		.name = "copy",
		.words = "--to URL",
		.summary = "copy the database to another one",
		.detail =
			DB_NOTE "The other\none must be empty, or --force given; both stay as they "
				"are if anything fails.",
		.examples =
			"atoll db copy --data /srv/atoll --to postgresql://atoll@db.internal/atoll",
		.see_also = "db export, db import",
		OPTIONS(db_copy_options),
		.run = cmd_db_copy,
	},
	{
		.group = "db",
		.name = "export",
		.words = "FILE",
		.summary = "write all rows of the database into a file",
		.detail = DB_NOTE
		"FILE must not\nexist; only its owner may read it. It holds JSON "
		"lines and is the same for SQLite and\nPostgreSQL. Secrets in it are "
		"sealed: they open only with this data directory's seed.",
		.examples = "atoll db export --data /srv/atoll atoll.jsonl",
		.see_also = "db import, db copy",
		OPTIONS(db_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_db_export,
	},
	{
		.group = "db",
		.name = "import",
		.words = "FILE",
		.summary = "read a file of 'db export' into an empty database",
		.detail = DB_NOTE "All of\nthe file is read in, or nothing.",
		.examples =
			"atoll db import --database postgresql:///atoll?user=atoll atoll.jsonl\n"
			"atoll db import --data /srv/atoll --force atoll.jsonl",
		.see_also = "db export, db check",
		OPTIONS(db_import_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_db_import,
	},
	{
		.group = "db",
		.name = "migrate",
		.words = "",
		.summary = "bring the database to this program's version",
		.detail = DB_NOTE "'atoll\nserve' does the same when it starts.",
		.examples = "atoll db migrate --data /srv/atoll",
		.see_also = "db check, serve",
		OPTIONS(db_options),
		.run = cmd_db_migrate,
	},
	{
		.name = "events",
		.words = "",
		.summary = "show what happened last, or what happens as it does",
		.detail =
			"With --follow and --json every event is a document on a line of its own. "
			"A server that\nrestarts is waited for, and nothing is missed or shown "
			"twice.",
		.examples = "atoll events\natoll events -f --kind sandbox.,execution.\n"
			    "atoll events --after 1200 --limit 1000 --json",
		.see_also = "audit, sandbox logs",
		OPTIONS(events_options),
		.run = cmd_events,
	},
	{
		.name = "audit",
		.words = "",
		.summary = "say who did what, newest first",
		.detail = "TIME is like 2026-01-31T12:00:00Z, or how long ago: 90s, 5m, 2h, 1d.",
		.examples = "atoll audit --kind key. --from 1d\n"
			    "atoll audit --export csv --from 30d > audit.csv",
		.see_also = "events, usage",
		OPTIONS(audit_options),
		.run = cmd_audit,
	},
	{
		.name = "usage",
		.words = "",
		.summary = "say what sandboxes used, and what it costs",
		.detail = "The server's prices are its options --price-vcpu-hour and its like; "
			  "without "
			  "them there is\nno cost.",
		.examples = "atoll usage --since 1d\natoll usage --by agent,template",
		.see_also = "audit",
		OPTIONS(usage_options),
		.run = cmd_usage,
	},
	{
		.name = "status",
		.words = "",
		.summary = "say which server is spoken to, how it is, and what it runs",
		.examples = "atoll status\natoll status --json | jq .sandboxes.running",
		.see_also = "doctor, sandbox ls",
		.run = cmd_status,
	},
	{
		.name = "backup",
		.words = "FILE|DIR",
		.summary = "write all that a server knows and keeps into a file or a directory",
		.detail =
			"For root; the server may run. Rows, snapshots, what is paused to disk, "
			"volumes and artifacts,\nas they are at one moment; files in volumes that "
			"change meanwhile, as they are when they are\nread. FILE is a tar archive "
			"and must not exist; DIR is a directory that is empty, or made if\nits "
			"name ends in '/'. Sparse files stay sparse. Single files of volumes that "
			"cannot be restored,\nsuch as those with a path of more than 4095 "
			"bytes, are told. Secrets stay sealed: the data\ndirectory's 'seed', "
			"which opens them, is no part of it. Keep it somewhere else.",
		.examples = "atoll backup --data /var/lib/atoll /backup/atoll.tar\n"
			    "cp /var/lib/atoll/seed /safe/atoll-seed",
		.see_also = "restore, db export",
		OPTIONS(db_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_backup,
	},
	{
		.name = "restore",
		.words = "FILE|DIR",
		.summary = "make a data directory from a backup",
		.detail = "For root. The data directory must be empty, or hold its seed alone. All "
			  "of the backup comes\nto its place, or nothing is left of it. With "
			  "--database the rows go to PostgreSQL. Sandboxes\nthat ran when the "
			  "backup was made are then marked as gone; those paused to disk can be "
			  "resumed.",
		.examples = "atoll restore --data /var/lib/atoll --seed /safe/atoll-seed "
			    "/backup/atoll.tar",
		.see_also = "backup, db import",
		OPTIONS(restore_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_restore,
	},
	{
		.name = "upgrade",
		.words = "",
		.summary = "swap the running server for the programs on disk, under live sandboxes",
		.detail =
			"For root, with the new programs in place. They are looked at first: what "
			"would not start\nis refused, and the old server serves on. Then the old "
			"one leaves, within --upgrade-grace of\n'atoll serve', and the new one "
			"takes over. Clients that come meanwhile wait and are served;\nstreams "
			"end, and their readers come again. Sandboxes do not notice.",
		.examples = "atoll upgrade\n"
			    "sudo atoll upgrade --data /var/lib/atoll --json | jq .away_ms",
		.see_also = "serve, status",
		OPTIONS(upgrade_options),
		.run = cmd_upgrade,
	},
	{
		.name = "doctor",
		.words = "",
		.summary = "say whether sandboxes can run here, and what to do if not",
		.detail =
			"Needs no server and no root; says what only root can see. Exit 0 when "
			"sandboxes "
			"can\nbe run on this machine, else 1.\nWith --fix, numbers that all of the "
			"machine share and that are too small for many sandboxes\nare raised, and "
			"kept in /etc/sysctl.d/60-atoll.conf.\nWith --sweep, sandboxes, "
			"interfaces, "
			"loop devices and tables of the firewall are removed\nwhose server's data "
			"directory does not exist any more; others never are.\nWith --attack two "
			"sandboxes of the "
			"server are attacked from inside and outside: every\nattempt is refused, "
			"contained or ESCAPED, with the evidence; absent is what this machine has\n"
			"nothing of. Where no server answers, root starts one of its own for it. "
			"Exit 0 when\nall attempts could be made and none escaped. WAY is inside, "
			"files, "
			"archives, edge, framing,\nclones, templates, volumes, races, logs or "
			"addresses.",
		.examples = "atoll doctor\nsudo atoll doctor\natoll doctor --explain disk\n"
			    "sudo atoll doctor --fix\n"
			    "sudo atoll doctor --attack",
		.see_also = "serve",
		OPTIONS(doctor_options),
		.run = cmd_doctor,
	},
	{
		.name = "completion",
		.words = "bash|zsh|fish [-- WORD...]",
		.summary = "print what makes a shell complete atoll's words",
		.detail =
			"With WORDs: what the last of them can become, one a line. The scripts ask "
			"that way, so\nids of sandboxes, snapshots and keys are those of now; a "
			"server that does not answer\nwithin 300 ms is not waited for.",
		.examples = "source <(atoll completion bash)\n"
			    "atoll completion zsh > ~/.zfunc/_atoll\n"
			    "atoll completion fish > ~/.config/fish/completions/atoll.fish",
		.see_also = "help",
		.min_words = 1,
		.max_words = 1,
		.takes_command = true,
		.run = cmd_completion,
	},
	{
		.name = "version",
		.words = "",
		.summary = "print the version",
		.detail = "'atoll --version' is the same.",
		.examples = "atoll version",
		.run = cmd_version,
	},
	{
		.name = "help",
		.words = "[COMMAND]",
		.summary = "explain atoll or one of its commands",
		.examples = "atoll help\natoll help sandbox exec\n"
			    "atoll help --man sandbox > atoll-sandbox.1",
		OPTIONS(help_options),
		.max_words = 2,
		.run = cmd_help,
	},
};
TABLE(cli_main_commands, commands);

const struct cli_command *cli_command(size_t i)
{
	static const struct cli_table *const parts[] = { &cli_sandbox_commands,
		&cli_resource_commands, &cli_main_commands };

	for (size_t part = 0; part < ARRAY_SIZE(parts); part++) {
		if (i < parts[part]->n)
			return &parts[part]->v[i];
		i -= parts[part]->n;
	}
	return NULL;
}
