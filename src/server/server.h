/* server - `atoll serve`: configuration, start, wiring, stop.
 * Owns:   the process: its flags, its data directory, its privileges, its signals.
 * Uses:   every room below.
 * Never:  stays root: it prepares the data directory, executes the warden, then gives root up
 * before a byte from outside is read. */
#pragma once

#include "store/store.h"

/* argv[0] is "serve". Returns the exit code. */
int server_main(int argc, char **argv);

/* `atoll upgrade`: has the keeper of the server on this data directory become the programs that lie
 * on disk. -ENOENT, -ESRCH: no server with a keeper runs there. -ECANCELED: it was refused, the
 * old one serves on. -ETIMEDOUT: it is not over. */
struct server_build {
	char version[32], build[41];
};
struct server_upgrade_report {
	struct server_build before, after;
	int64_t away_ms;  /* for how long nobody served: who came then waited */
	int64_t had, has; /* sandboxes before and after; -1: not known */
};
int server_upgrade(const char *data, int64_t timeout_ms, struct server_upgrade_report *ret,
	struct err *e);

/* `atoll db`: on the database that `serve` would use with the same words, without a server. */
enum server_db {
	SERVER_DB_CHECK,
	SERVER_DB_COPY,
	SERVER_DB_EXPORT,
	SERVER_DB_IMPORT,
	SERVER_DB_MIGRATE,
};
struct server_db_request {
	enum server_db what;
	const char *data, *config, *database, *password_file; /* NULL: as `serve` has it */
	const char *file;                                     /* of export and import */
	const char *to;                                       /* of copy: a URL */
	bool replace;                                         /* what is in the way of rows */
	bool is_beside;                                       /* a server that may run there */
	bool is_locked; /* who asks has the data directory's lock */
};
int server_db(const struct server_db_request *request, struct store_report *ret, struct err *e);

/* `atoll backup` and `atoll restore`: rows, images, volumes and artifacts of a data directory, in
 * one file (a tar archive) or a directory. A backup may be made beside a server; the seed is no
 * part of it. For root. -EEXIST, -ENOTEMPTY: something is in the way. -ENOKEY: which seed?
 * -EKEYREJECTED: that seed is another's. -EBADMSG: it is no backup, or a damaged one. */
struct server_backup_request {
	const char *data, *config, *database, *password_file; /* as of server_db_request */
	const char *path;
	const char *seed; /* of restore: the file that it is in; NULL: in the data directory */
	bool new_seed;    /* none: what is sealed is lost */
	bool replace;     /* the rows that PostgreSQL holds */
	void (*fn)(void *arg, uint64_t bytes); /* how many were read so far; may be NULL */
	void *arg;
};
struct server_backup_report {
	int64_t version, rows;
	uint64_t bytes; /* of the file; 0: it is a directory */
	/* Files of volumes that cannot be restored, or were not: their paths are too long, or they
	 * became another kind of file while they were read. The first, and why. */
	uint64_t lost;
	char first_lost[200];
};
int server_backup(const struct server_backup_request *request, struct server_backup_report *ret,
	struct err *e);
int server_restore(const struct server_backup_request *request, struct server_backup_report *ret,
	struct err *e);

/* What the base template in a directory of templates is, by its made.toml: -ENOENT: there is no
 * base template; without that file it is of version 1, or somebody's own. */
enum {
	SERVER_BASE_VERSION = 2, /* that templates/base/build makes */
};
struct server_base {
	int64_t version;
	char node[32];   /* the version of its Node.js */
	char lacks[256]; /* why it is not all that it might be; empty: it is */
};
int server_base_look(const char *templates_dir, struct server_base *ret, struct err *e);

/* What `atoll serve` can be told, once for all who must know: flags, ATOLL_ variables and the
 * --config file are read by these rows, and help, completions and manual page are made of them.
 * ROW(name in the file, flag, kind as in json.h, least, most, what its value is called, help); of a
 * string, least and most are its length, of STRS (one or more) their number. FLAG(flag, value,
 * help) is on the command line alone. */
#define SERVER_OPTIONS(ROW, FLAG)                                                                \
	ROW(activity, "activity", STR, 0, 16, "all|processes|none",                              \
		"told of what is done in sandboxes (default: all)")                              \
	ROW(admin_token_file, "admin-token-file", STR, 0, 4096, "FILE",                          \
		"holds the operator's token: opens /nodes and /admin")                           \
	ROW(allow_private, "allow-private", STRS, 0, 64, "ADDRESS[:PORT]",                       \
		"private address or range that sandboxes may reach; repeatable")                 \
	ROW(artifact_mb, "artifact-mb", INT, 1, 1 << 20, "N",                                    \
		"the most of one artifact; of a run four times that (default: 100)")             \
	ROW(artifact_retention, "artifact-retention", INT, 1, 31536000, "SECONDS",               \
		"how long artifacts are kept (default: 86400)")                                  \
	ROW(ceilings, "ceilings", STR, 0, 1024, "NAME=N,...",                                    \
		"the most a sandbox or team may have: memoryMB=4096,snapshots=50")               \
	FLAG("check", NULL, "say whether it would start with these words, and end")              \
	FLAG("config", "FILE", "TOML with the same names, _ for -")                              \
	ROW(data, "data", STR, 0, 4096, "DIR", "where everything is kept (default: atoll-data)") \
	ROW(database, "database", STR, 0, 4096, "URL",                                           \
		"sqlite:PATH or postgresql://... (default: in --data)")                          \
	ROW(database_password_file, "database-password-file", STR, 0, 4096, "FILE",              \
		"PostgreSQL's password; only root need be able to read it")                      \
	ROW(default_limits, "default-limits", STR, 0, 1024, "NAME=N,...",                        \
		"of sandboxes whose template says nothing: memoryMB=2048")                       \
	ROW(disk_hold, "disk-hold", INT, 1, 1048576, "SECONDS",                                  \
		"of a nearly full disk, before the worst writer is ended (default: 60)")         \
	ROW(disk_mb, "disk-mb", INT, 64, 1 << 24, "N",                                           \
		"disk of sandboxes prepared ahead (default: 10240)")                             \
	ROW(disk_overcommit, "disk-overcommit", INT, 0, 1048576, "TIMES",                        \
		"sandboxes may be promised so many times the disk (default: 0: any)")            \
	ROW(dns_server, "dns-server", STR, 0, 256, "ADDRESS[:PORT],...",                         \
		"asked for sandboxes' names (default: as /etc/resolv.conf)")                     \
	ROW(domain, "domain", STR, 0, 253, "NAME",                                               \
		"behind PORT-ID. in sandbox addresses (default: localhost:PORT)")                \
	ROW(history_retention, "history-retention", INT, 0, 315360000, "SECONDS",                \
		"how long events and what has ended are kept (default: 31536000)")               \
	ROW(listen, "listen", STR, 0, 256, "HOST:PORT",                                          \
		"the one port; 0 picks one (default: 127.0.0.1:3000)")                           \
	ROW(log_format, "log-format", STR, 0, 16, "FORMAT",                                      \
		"logfmt, json or text (default: logfmt)")                                        \
	ROW(log_level, "log-level", STR, 0, 16, "LEVEL",                                         \
		"error, warn, info or debug (default: info)")                                    \
	ROW(max_age, "max-age", INT, 0, 31536000, "SECONDS",                                     \
		"older sandboxes of /api/v1 are ended (default: 86400; 0: never)")               \
	ROW(max_connections, "max-connections", INT, 16, 1 << 20, "N",                           \
		"clients at once, as far as open files allow (default: 16384)")                  \
	ROW(max_queued_mb, "max-queued-mb", INT, 1, 1 << 20, "N",                                \
		"replies that nobody reads, in memory at once (default: 256)")                   \
	ROW(max_sandboxes, "max-sandboxes", INT, 1, 4000, "N",                                   \
		"running at once (default: by memory, at most 4000)")                            \
	ROW(max_team_connections, "max-team-connections", INT, 0, 1 << 20, "N",                  \
		"of one team (default: 0, half of what others leave)")                           \
	ROW(max_timeout, "max-timeout", INT, 1, 31536000, "SECONDS",                             \
		"a sandbox may live (default: 86400)")                                           \
	ROW(metrics_open, "metrics-open", BOOL, 0, 0, NULL,                                      \
		"show /api/v1/metrics to everybody, without a key")                              \
	ROW(network, "network", STR, 0, 64, "CIDR|none",                                         \
		"addresses of sandboxes (default: 10.199.0.0/16)")                               \
	ROW(no_nested, "no-nested", BOOL, 0, 0, NULL,                                            \
		"refuse sandboxes that may make namespaces inside")                              \
	ROW(no_restart, "no-restart", BOOL, 0, 0, NULL,                                          \
		"after a crash stay down (default: start again; sandboxes live on)")             \
	ROW(output_mb, "output-mb", INT, 1, 64, "N",                                             \
		"kept of each stream of a command that asks for no other (default: 10)")         \
	ROW(output_retention, "output-retention", INT, 1, 31536000, "SECONDS",                   \
		"how long what commands printed is kept (default: 604800)")                      \
	ROW(pool, "pool", INT, 0, 1024, "N", "sandboxes prepared ahead (default: 16)")           \
	ROW(price_currency, "price-currency", STR, 0, 7, "NAME", "of the prices (default: USD)") \
	ROW(price_disk_gib_hour, "price-disk-gib-hour", STR, 0, 32, "AMOUNT",                    \
		"what a GiB of a sandbox's disk costs an hour")                                  \
	ROW(price_egress_gib, "price-egress-gib", STR, 0, 32, "AMOUNT",                          \
		"what a GiB that a sandbox sends costs")                                         \
	ROW(price_memory_gib_hour, "price-memory-gib-hour", STR, 0, 32, "AMOUNT",                \
		"what a GiB of a sandbox's memory costs an hour")                                \
	ROW(price_vcpu_hour, "price-vcpu-hour", STR, 0, 32, "AMOUNT",                            \
		"what a processor of a sandbox costs an hour")                                   \
	ROW(quota, "quota", STR, 0, 1024, "NAME=N,...",                                          \
		"a team at once: sandboxes, per_minute, memory_mb, disk_mb")                     \
	ROW(sandbox_ca, "sandbox-ca", STRS, 0, 16, "FILE",                                       \
		"authorities that sandboxes trust, PEM; repeatable")                             \
	ROW(sandbox_env, "sandbox-env", STRS, 0, 64, "NAME=VALUE",                               \
		"environment variable of all sandboxes; repeatable")                             \
	ROW(sandbox_no_proxy, "sandbox-no-proxy", STR, 0, 4096, "NAME,...",                      \
		"hosts that sandboxes reach without the proxy")                                  \
	ROW(sandbox_proxy, "sandbox-proxy", STR, 0, 4096, "URL",                                 \
		"HTTP proxy of the programs in all sandboxes")                                   \
	ROW(stop_sandboxes, "stop-sandboxes", BOOL, 0, 0, NULL,                                  \
		"end all sandboxes when the server stops")                                       \
	ROW(template_cache, "template-cache", STR, 0, 4096, "DIR",                               \
		"share templates between data directories")                                      \
	ROW(tls_cert, "tls-cert", STR, 0, 4096, "FILE",                                          \
		"serve https: certificate and chain, PEM; SIGHUP rereads")                       \
	ROW(tls_key, "tls-key", STR, 0, 4096, "FILE",                                            \
		"its private key, PEM; only root need be able to read it")                       \
	ROW(trace_endpoint, "trace-endpoint", STR, 0, 2048, "URL",                               \
		"send traces there, by OTLP over HTTP; /v1/traces is added")                     \
	ROW(trace_header, "trace-header", STR, 0, 4096, "NAME: VALUE",                           \
		"with this header; of secrets use the next")                                     \
	ROW(trace_header_file, "trace-header-file", STR, 0, 4096, "FILE",                        \
		"with these headers, one a line")                                                \
	ROW(unresponsive, "unresponsive", STR, 0, 8, "end|keep",                                 \
		"what becomes of sandboxes that do not answer (default: end)")                   \
	ROW(unresponsive_after, "unresponsive-after", INT, 1, 86400, "SECONDS",                  \
		"how long they have not (default: 300)")                                         \
	ROW(upgrade_grace, "upgrade-grace", INT, 0, 300, "SECONDS",                              \
		"requests have to finish at 'atoll upgrade' (default: 1)")
