/* limit - how much a sandbox may use, as data.
 * Owns:   the kinds of limits: their names, units, ranges, defaults and usual ceilings; reading and
 *         writing a set of them; what a request gets, given its template's and its team's.
 * Uses:   base, json.
 * Never:  enforces one: the runtime, the guest, the edge, the sandbox and the volume room do. */
#pragma once

#include "base/base.h"
#include "json/json.h"

enum limit_kind {
	LIMIT_CPU,    /* cores */
	LIMIT_MEMORY, /* MiB */
	LIMIT_DISK,   /* MiB */
	LIMIT_INODES, /* files and directories on that disk */
	LIMIT_PROCESSES,
	LIMIT_FILES, /* open at once in one process */
	LIMIT_SHM,   /* MiB of /dev/shm, part of the memory */
	LIMIT_LOG_LINES,
	LIMIT_LOG_RATE,    /* lines a minute */
	LIMIT_CONNECTIONS, /* through the edge, at once */
	LIMIT_KINDS,       /* up to here: of each sandbox */

	/* Of what a team keeps; these have a ceiling and nothing else. */
	LIMIT_SNAPSHOTS = LIMIT_KINDS,
	LIMIT_SNAPSHOT_STORAGE, /* MiB of all of them */
	LIMIT_VOLUMES,
	LIMIT_VOLUME_SIZE,      /* MiB of each */
	LIMIT_VOLUME_STORAGE,   /* MiB of all of them */
	LIMIT_ARTIFACT_STORAGE, /* MiB of what runs left behind */
	LIMIT_HISTORY,          /* MiB of rows of sandboxes, those that ended too */
	LIMIT_COMMANDS,         /* MiB of rows of commands and runs */
	LIMIT_OUTPUT,           /* MiB of what commands printed */
	LIMIT_EVENTS,           /* MiB of events */
	LIMIT_SECRETS,
	LIMIT_API_KEYS,
	LIMIT_RULES, /* lists of programs, the team's and its agents' */
	LIMIT_ALL_KINDS,
};

struct limit_set {
	int64_t v[LIMIT_KINDS]; /* 0: not said */
};
struct limit_ceilings {
	int64_t v[LIMIT_ALL_KINDS]; /* 0: not said */
};

/* kind, name in E2B's API, in /api/v1, events and a template.toml, unit, least, most, default,
 * usual ceiling. The least are what a shell and a few tools need, so that a sandbox can always say
 * what it lacks. Default 0: follows another one, see limit_set_default. */
#define LIMIT_TABLE(X)                                                                           \
	X(LIMIT_CPU, "cpuCount", "cpu", " cores", 1, 256, 2, 8)                                  \
	X(LIMIT_MEMORY, "memoryMB", "memory_mb", " MiB", 128, 1 << 22, 1024, 8192)               \
	X(LIMIT_DISK, "diskSizeMB", "disk_mb", " MiB", 64, 1 << 24, 10240, 20480)                \
	X(LIMIT_INODES, "inodes", "max_inodes", " files", 1024, 1 << 28, 0, 1310720)             \
	X(LIMIT_PROCESSES, "processes", "max_pids", " processes", 16, 1 << 22, 4096, 16384)      \
	X(LIMIT_FILES, "openFiles", "max_files", " open files", 64, 1 << 20, 65536, 1 << 20)     \
	X(LIMIT_SHM, "shmSizeMB", "shm_mb", " MiB", 1, 1 << 22, 0, 4096)                         \
	X(LIMIT_LOG_LINES, "logLines", "log_lines", " lines", 1, 1 << 20, 10000, 100000)         \
	X(LIMIT_LOG_RATE, "logLinesPerMinute", "log_rate", " lines a minute", 1, 60000, 60, 600) \
	X(LIMIT_CONNECTIONS, "connections", "max_connections", " connections", 1, 1 << 16, 1024, \
		4096)

/* kind, name in the API, in /api/v1 and events, unit, most, usual ceiling. */
#define LIMIT_TEAM_TABLE(X)                                                                        \
	X(LIMIT_SNAPSHOTS, "snapshots", "snapshots", " snapshots", 1 << 20, 1000)                  \
	X(LIMIT_SNAPSHOT_STORAGE, "snapshotStorageMB", "snapshot_storage_mb", " MiB of snapshots", \
		1 << 30, 204800)                                                                   \
	X(LIMIT_VOLUMES, "volumes", "volumes", " volumes", 1 << 20, 1000)                          \
	X(LIMIT_VOLUME_SIZE, "volumeSizeMB", "volume_size_mb", " MiB of one volume", 1 << 30,      \
		20480)                                                                             \
	X(LIMIT_VOLUME_STORAGE, "volumeStorageMB", "volume_storage_mb", " MiB of volumes",         \
		1 << 30, 204800)                                                                   \
	X(LIMIT_ARTIFACT_STORAGE, "artifactStorageMB", "artifact_storage_mb", " MiB of artifacts", \
		1 << 30, 20480)                                                                    \
	X(LIMIT_HISTORY, "historyMB", "history_mb", " MiB of rows of sandboxes", 1 << 30, 1024)    \
	X(LIMIT_COMMANDS, "commandsMB", "commands_mb", " MiB of rows of commands", 1 << 30, 1024)  \
	X(LIMIT_OUTPUT, "outputMB", "output_mb", " MiB of commands' output", 1 << 30, 4096)        \
	X(LIMIT_EVENTS, "eventsMB", "events_mb", " MiB of events", 1 << 30, 2048)                  \
	X(LIMIT_SECRETS, "secrets", "secrets", " secrets", 1 << 20, 1000)                          \
	X(LIMIT_API_KEYS, "apiKeys", "api_keys", " API keys", 1 << 20, 1000)                       \
	X(LIMIT_RULES, "commandRules", "command_rules", " lists of programs", 1 << 20, 1000)

/* As E2B's surface spells it: "memoryMB". */
const char *limit_name(enum limit_kind kind);
/* As /api/v1, events and a template.toml do: "memory_mb". */
const char *limit_key(enum limit_kind kind);
/* What follows a number of it in a sentence: " MiB", " processes" ... */
const char *limit_unit(enum limit_kind kind);

/* What struct limit_in is decoded by: a field for each kind, in API spelling. */
struct limit_in {
	struct json_int v[LIMIT_KINDS];
};
extern const struct json_shape limit_shape;

/* The same for all kinds, as ceilings. */
struct limit_ceilings_in {
	struct json_int v[LIMIT_ALL_KINDS];
};
extern const struct json_shape limit_ceilings_shape;

/* The same once more, to tell what is not said (stays) from null (as usual again). */
struct limit_ceilings_change {
	struct str v[LIMIT_ALL_KINDS]; /* JSON */
};
extern const struct json_shape limit_change_shape;
/* All of it, or -EINVAL and nothing. */
int limit_ceilings_change(struct limit_ceilings *c, const struct limit_ceilings_change *change,
	struct err *e);

void limit_set_read(const struct limit_in *in, struct limit_set *ret);
/* An object in API spelling; what is not said is left out. key as in jsonw_object. */
void limit_set_write(struct jsonw *w, const char *key, const struct limit_set *set);
/* From what limit_set_write wrote; what cannot be read leaves *ret empty. */
void limit_set_parse(struct str json, struct limit_set *ret);

void limit_ceilings_read(const struct limit_ceilings_in *in, struct limit_ceilings *ret);
void limit_ceilings_write(struct jsonw *w, const char *key, const struct limit_ceilings *c);
void limit_ceilings_parse(struct str json, struct limit_ceilings *ret);
/* An operator's list, "memory_mb=4096,cpu=4", by either name; -EINVAL says what is wrong with it.
 */
int limit_set_parse_list(struct str text, struct limit_set *ret, struct err *e);
int limit_ceilings_parse_list(struct str text, struct limit_ceilings *ret, struct err *e);
/* Where `c` says nothing, what `other` says. */
void limit_ceilings_add(struct limit_ceilings *c, const struct limit_ceilings *other);
/* Of one kind; where nothing is said, the usual one. */
int64_t limit_ceiling(const struct limit_ceilings *c, enum limit_kind kind);

/* How rooms below those that know teams ask what a team may have: all that is said about it. */
struct limit_teams {
	void (*find)(void *arg, const char *team_id, struct limit_ceilings *ret);
	void *arg;
};
/* The ceiling of a team. find NULL: the usual ones. */
int64_t limit_team_ceiling(const struct limit_teams *teams, const char *team_id,
	enum limit_kind kind);

/* Where `set` says nothing, what a template that says nothing gets; the number of files follows the
 * size of the disk, and shared memory that of the memory. */
void limit_set_default(struct limit_set *set);

struct limit_choice {
	const struct limit_set *template; /* all said */
	const struct limit_set *asked;    /* by the request; NULL: nothing */
	/* Of the team; NULL or 0: the usual, or the template's. */
	const struct limit_ceilings *ceilings;
	bool by_key; /* errors name a limit as limit_key does; else as E2B's object has it */
};
/* How its errors name one: "limits.memoryMB", or "memory_mb". */
struct limit_word {
	char text[40];
};
struct limit_word limit_word(const struct limit_choice *choice, enum limit_kind kind);
/* What was asked for must be below the ceiling, and what was not follows it. -ERANGE names the
 * ceiling that is in the way. */
int limit_choose(const struct limit_choice *choice, struct limit_set *ret, struct err *e);

/* ---- activity.c: how much is told of what is done in a team's sandboxes ---- */
enum limit_activity {
	LIMIT_ACTIVITY_UNSAID, /* as the server's setting is, or else all */
	LIMIT_ACTIVITY_ALL,
	LIMIT_ACTIVITY_PROCESSES, /* and terminals: no files, no ports */
	LIMIT_ACTIVITY_NONE,
};
const char *limit_activity_name(enum limit_activity activity); /* UNSAID: NULL */
int limit_activity_parse(struct str name, enum limit_activity *ret, struct err *e);

/* ---- quota.c: what a team may have at once, all its sandboxes together ---- */
enum limit_quota_kind {
	LIMIT_QUOTA_SANDBOXES,  /* running */
	LIMIT_QUOTA_PER_MINUTE, /* new ones in any minute */
	LIMIT_QUOTA_MEMORY,     /* MiB, of all that run or are paused with their memory */
	LIMIT_QUOTA_DISK,       /* MiB, of all that run or are paused */
	LIMIT_QUOTAS,
};
/* kind, name, unit, most. */
#define LIMIT_QUOTA_TABLE(X)                                                      \
	X(LIMIT_QUOTA_SANDBOXES, "sandboxes", " sandboxes at once", 4000)         \
	X(LIMIT_QUOTA_PER_MINUTE, "per_minute", " new sandboxes a minute", 60000) \
	X(LIMIT_QUOTA_MEMORY, "memory_mb", " MiB of memory in all", 1 << 30)      \
	X(LIMIT_QUOTA_DISK, "disk_mb", " MiB of disk in all", 1 << 30)
struct limit_quota {
	int64_t v[LIMIT_QUOTAS]; /* 0: not said */
};
const char *limit_quota_name(enum limit_quota_kind kind);
const char *limit_quota_unit(enum limit_quota_kind kind);
/* An object by these names; what is not said, or null, is 0. */
int limit_quota_parse(struct str json, struct limit_quota *ret, struct err *e);
void limit_quota_write(struct jsonw *w, const char *key, const struct limit_quota *quota);
/* An operator's list, "sandboxes=50,memory_mb=65536". */
int limit_quota_parse_list(struct str text, struct limit_quota *ret, struct err *e);
