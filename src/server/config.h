/* What `atoll serve` was told, read and checked whole before anything is done. Flags win over
 * ATOLL_* variables, these over the file given with --config, that over the defaults. */
#pragma once

#include "base/base.h"
#include "base/private.h"
#include "limit/limit.h"
#include "observe/observe.h"

enum {
	CONFIG_MAX_HEADERS = 16,
	CONFIG_MAX_LIST = 64,
};

enum config_source {
	CONFIG_FILE = 1,
	CONFIG_ENV,
	CONFIG_FLAGS,
};

/* Of an option that may be repeated. What one source says takes the place of the one before. */
struct config_list {
	const char *v[CONFIG_MAX_LIST];
	size_t n;
	enum config_source source;
};

struct config {
	struct arena *arena;       /* holds the strings */
	enum config_source source; /* that is being read */
	const char *data, *listen, *template_cache, *network, *domain, *log_level;
	const char *tls_cert, *tls_key;     /* both or neither */
	const char *dns_server;             /* NULL: the host's own */
	const char *database;               /* NULL: SQLite in the data directory */
	const char *database_password_file; /* NULL: none, or it is in the URL */
	const char *admin_token_file;       /* NULL: /nodes and /admin are closed */
	int64_t max_connections, max_team_connections, max_queued_mb; /* see front.h */
	int64_t pool, max_sandboxes, max_timeout_s, disk_mb;
	int64_t disk_hold_s, disk_overcommit;
	int64_t artifact_retention_s, artifact_mb;       /* of what runs leave behind */
	int64_t output_retention_s, output_mb;           /* of what commands printed */
	int64_t history_retention_s;                     /* of what is over; 0: for ever */
	const char *ceilings_text, *default_limits_text; /* NULL: none; read into the next two */
	const char *quota_text;                          /* NULL: none; read into the next */
	enum limit_activity activity;                    /* the same; from the next */
	const char *activity_text;                       /* NULL: not said */
	struct limit_quota quota;         /* of every team that has none of its own */
	struct limit_ceilings ceilings;   /* of every team that has no other of its own */
	struct limit_set default_limits;  /* of templates that say nothing */
	struct config_list allow_private; /* as given; read into: */
	struct private_list opened;
	struct config_list sandbox_ca, sandbox_env;   /* see given.h */
	const char *sandbox_proxy, *sandbox_no_proxy; /* NULL: none */
	const char *log_format;
	const char *trace_endpoint, *trace_header, *trace_header_file; /* as given; read into: */
	const char *trace_url; /* the whole one; NULL: no traces are sent */
	const char *trace_headers[CONFIG_MAX_HEADERS + 1]; /* "Name: value"; NULL at the end */
	const char *price_currency, *price_disk_gib_hour, *price_egress_gib, *price_memory_gib_hour,
		*price_vcpu_hour; /* as given; read into: */
	struct observe_prices prices;
	int64_t max_age_s, unresponsive_after_s;
	const char *unresponsive; /* "end" or "keep" */
	int64_t upgrade_grace_s;  /* that requests have to finish when the next build takes over */
	bool stop_sandboxes, no_nested, no_restart, metrics_open;
	bool check; /* only say whether it would start */
};

/* `env` is a NULL-terminated environment. -EINVAL with what is wrong and what is allowed. */
int config_read(int argc, char **argv, char **env, struct config *ret, struct err *e);
void config_done(struct config *config);
/* Whoever may look at a process sees its environment: what was secret there is gone from now on. */
void config_hide_env(char **env);
/* watch-config.c: where traces go and what things cost, by the options and by what OpenTelemetry's
 * and Langfuse's own programs read from the environment. Reads files: while still root. */
int config_read_watch(struct config *config, char **env, struct err *e);
/* --database-password-file's one line. */
int config_read_password(const char *path, char *to, size_t size, struct err *e);
/* Whether a database's URL has one in it. */
bool config_has_password(struct str url);
/* The file's part alone, for the parser's fuzz target. */
int config_parse_file(struct str text, struct config *config, struct err *e);
