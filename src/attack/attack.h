/* attack - what a hostile program would try in a sandbox, as one static program: atoll-probe.
 * Owns:   the table of attempts that are made from inside, and what each outcome means.
 * Uses:   base.
 * Never:  does harm where an attempt succeeds. It stops at the proof (an open descriptor, the
 *         kernel's answer, a byte that should not have come), so that it can also be run outside of
 *         any sandbox, where many attempts must succeed: that shows that they can.
 *
 * An attempt is refused (not even the first step worked), contained (steps worked and led nowhere,
 * the evidence says why), or has ESCAPED. One that could not be made at all is inconclusive, and
 * that is no pass. */
#pragma once

#include "base/base.h"

enum {
	EVIDENCE_SIZE = 240,
	SCENE_MAX_HOSTS = 32,
	SCENE_MAX_PATHS = 8,
	MARK_SIZE = 33,
	MARK_COMM = 12, /* of the mark's characters name the processes of host and neighbour */
	NEIGHBOUR_PORT = 47321, /* where the neighbour of --serve answers, TCP and UDP */
	GUEST_PORT = 49983,     /* the guest's own, as E2B's SDKs know it */
};

enum power { /* how a copy of the program that was given power exits: see files.c */
	HAS_POWER = 1,
	HAS_NONE = 2,
};

/* By rising weight: an attempt of many tries is what its worst try is. */
enum verdict {
	INCONCLUSIVE,
	REFUSED,
	CONTAINED,
	ESCAPED,
};

struct finding {
	enum verdict verdict;
	int tries;
	bool own_kernel; /* as in the scene */
	char evidence[EVIDENCE_SIZE];
};

/* What the one who attacks was told about the world outside. Everything may be missing. */
struct scene {
	char mark[MARK_SIZE]; /* random; whoever reads it where it should not be has escaped */
	struct str hosts[SCENE_MAX_HOSTS]; /* addresses of the host */
	size_t n_hosts;
	const char *neighbour;   /* address of another sandbox */
	const char *secret_path; /* a file of the host that holds the mark */
	const char
		*paths[SCENE_MAX_PATHS]; /* directories of the host that nobody inside need know */
	size_t n_paths;
	uint16_t canary_port; /* where the host answers with the mark, TCP and UDP */
	uint16_t api_port;
	bool changes_files; /* inside a sandbox: its files may be written */
	/* The kernel that answers is not the host's (gVisor): what it lets a program do to itself
	 * is done to the sandbox. What comes from the host or a neighbour is an escape all the
	 * same. */
	bool own_kernel;
};

struct attempt {
	const char *name, *title;
	void (*run)(const struct attempt *attempt, const struct scene *scene, struct finding *f);
	const void *detail; /* for `run`, where several attempts share one */
};

struct family {
	const char *name;
	const struct attempt *attempts;
	size_t n;
};
#define FAMILY(id, table)                                \
	const struct family id##_family = { .name = #id, \
		.attempts = (table),                     \
		.n = ARRAY_SIZE(table) }

extern const struct family fds_family, proc_family, kernel_family, foreign_family,
	namespaces_family, mounts_family, devices_family, network_family, frames_family,
	neighbours_family, layers_family, terminal_family, files_family;

/* ---- findings: a later, heavier verdict replaces a lighter one with its evidence ---- */
#define FINDING(n) __attribute__((format(printf, n, n + 1)))
void refused(struct finding *f, const char *fmt, ...) FINDING(2);
void contained(struct finding *f, const char *fmt, ...) FINDING(2);
void escaped(struct finding *f, const char *fmt, ...) FINDING(2);
/* A kernel gave something of its own away: an escape where it is the host's, contained where it is
 * the sandbox's. */
void given_by_kernel(struct finding *f, const char *fmt, ...) FINDING(2);
/* Something failed with `error`, as it should. */
void refused_with(struct finding *f, int error, const char *fmt, ...) FINDING(3);
/* A system call's result: errno says whether the kernel (or the filter) refused it outright. Any
 * other error means that the kernel looked into its arguments, which it never should have. */
void judge_call(struct finding *f, int64_t result, const char *what);
/* Opens and closes again: that it can be opened at all is the escape. */
void judge_open(struct finding *f, const char *path, int flags);

/* The next word of a table of the kernel's; false: there is none. */
bool next_word(struct str *rest, struct str *ret);
/* Runs work(arg) in a process of its own: its exit status, or -signal. */
int in_child(int (*work)(void *arg), void *arg);

/* walk.c: every file that is no directory and no symbolic link, up to WALK_MAX of them. */
enum {
	WALK_MAX = 200000,
};
struct stat;
struct walk {
	const char *root;
	const char *const *skip; /* directories, ends with NULL; or NULL */
	bool stay;               /* on the root's file system */
	bool (*look)(const char *path, const struct stat *st, void *arg); /* false: stop */
};
int walk(const struct walk *w, void *arg); /* how many were seen, or -errno */

#define HEARD_PATH "/tmp/atoll-probe-heard" /* the datagrams that came to the neighbour */
/* serve.c: becomes the neighbour that others must not reach. Returns when it can be reached. */
int serve_start(const struct scene *scene);
/* The names under which host and neighbour can be asked for; fits into a sockaddr_un. */
int32_t mark_key(const struct scene *scene); /* of System V memory */
void mark_name(const struct scene *scene, const char *who, char name[64]);
