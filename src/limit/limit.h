/* limit - how much a sandbox may use, as data.
 * Owns:   the kinds of limits: their names, units, ranges, defaults and usual ceilings; reading and
 *         writing a set of them; what a request gets, given its template's and its team's.
 * Uses:   base, json.
 * Never:  enforces one: the runtime, the guest, the edge and the sandbox room do. */
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
	LIMIT_KINDS,
};

struct limit_set {
	int64_t v[LIMIT_KINDS]; /* 0: not said */
};

/* kind, name in the API, key of a template.toml, unit, least, most, default, usual ceiling. The
 * least are what a shell and a few tools need, so that a sandbox can always say what it lacks.
 * Default 0: follows another one, see limit_set_default. */
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

/* As the API spells it: "memoryMB". */
const char *limit_name(enum limit_kind kind);
/* What follows a number of it in a sentence: " MiB", " processes" ... */
const char *limit_unit(enum limit_kind kind);

/* What struct limit_in is decoded by: a field for each kind, in API spelling. */
struct limit_in {
	struct json_int v[LIMIT_KINDS];
};
extern const struct json_shape limit_shape;

void limit_set_read(const struct limit_in *in, struct limit_set *ret);
/* An object in API spelling; what is not said is left out. key as in jsonw_object. */
void limit_set_write(struct jsonw *w, const char *key, const struct limit_set *set);
/* From what limit_set_write wrote; what cannot be read leaves *ret empty. */
void limit_set_parse(struct str json, struct limit_set *ret);

/* Where `set` says nothing, what a template that says nothing gets; the number of files follows the
 * size of the disk, and shared memory that of the memory. */
void limit_set_default(struct limit_set *set);

struct limit_choice {
	const struct limit_set *template; /* all said */
	const struct limit_set *asked;    /* by the request; NULL: nothing */
	const struct limit_set *ceilings; /* of the team; NULL or 0: the usual, or the template's */
};
/* What was asked for must be below the ceiling, and what was not follows it. -ERANGE names the
 * ceiling that is in the way. */
int limit_choose(const struct limit_choice *choice, struct limit_set *ret, struct err *e);
