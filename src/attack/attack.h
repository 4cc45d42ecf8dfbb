/* attack - what a hostile program would try in a sandbox, as one static program: atoll-probe.
 * Owns:   the table of attempts that are made from inside, and what each outcome means.
 * Uses:   base.
 * Never:  does harm where an attempt succeeds. It stops at the proof (an open descriptor, the
 *         kernel's answer, a byte that should not have come), so that it can also be run outside of
 *         any sandbox, where many attempts must succeed: that shows that they can.
 *
 * An attempt is refused (not even the first step worked, and it failed with one of the errors that
 * its row names), contained (steps worked and led nowhere, the evidence says why), or has ESCAPED.
 * What could not be tried, or failed for another reason, is inconclusive, and that is no pass. What
 * this host plainly does not have is absent: it can be neither refused nor had. */
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

enum power { /* how a copy of the program that was given power exits: no errno is that large */
	HAS_POWER = 201,
	HAS_NONE = 202,
};

/* By rising weight: an attempt of many tries is what its worst try is. */
enum verdict {
	UNTRIED, /* told as inconclusive */
	ABSENT,
	REFUSED,
	CONTAINED,
	INCONCLUSIVE,
	ESCAPED,
};

struct scene;
struct finding {
	enum verdict verdict;
	int tries;
	const int *right; /* as in the attempt */
	const struct scene *scene;
	bool is_allowed; /* this sandbox may: what works is contained, as the attempt says why */
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
	int32_t host_pid;   /* of a process of the host whose name is the mark's; 0: not known */
	const char *lacks;  /* paths that the host does not have either, between colons; NULL: not
			       looked for */
	bool changes_files; /* inside a sandbox: its files may be written */
	/* The kernel that answers is not the host's (gVisor): what it lets a program do to itself
	 * is done to the sandbox. What comes from the host or a neighbour is an escape all the
	 * same. */
	bool own_kernel;
	/* Namespaces and mounts of its own may be made inside: that they can is no escape, what can
	 * be had by them may be one. */
	bool nested;
};

struct attempt {
	const char *name, *title;
	void (*run)(const struct attempt *attempt, const struct scene *scene, struct finding *f);
	/* The errors that are a refusal for the right reason, ends with 0. NULL: no error is one,
	 * what was seen decides. */
	const int *right;
	const char *const *paths; /* of the host, that it is about; ends with NULL */
	const void *detail;       /* for `run`, where several attempts share one */
	bool nests;               /* what it tries is allowed in nested sandboxes */
};
extern const int by_filter[], by_rights[], by_rights_or_read_only[];

struct family {
	const char *name;
	const struct attempt *attempts;
	size_t n;
	bool waits;  /* for answers, most of the time: its attempts are made all at once */
	bool hoards; /* what the others need, too: its attempts are made when those are over */
};
#define FAMILY(id, table)                                \
	const struct family id##_family = { .name = #id, \
		.attempts = (table),                     \
		.n = ARRAY_SIZE(table) }
#define WAITING_FAMILY(id, table)                        \
	const struct family id##_family = { .name = #id, \
		.attempts = (table),                     \
		.n = ARRAY_SIZE(table),                  \
		.waits = true }

#define HOARDING_FAMILY(id, table)                       \
	const struct family id##_family = { .name = #id, \
		.attempts = (table),                     \
		.n = ARRAY_SIZE(table),                  \
		.hoards = true }

extern const struct family fds_family, proc_family, kernel_family, foreign_family,
	namespaces_family, mounts_family, devices_family, network_family, frames_family,
	neighbours_family, layers_family, terminal_family, files_family, memory_family,
	nested_family;

/* ---- findings: a later, heavier verdict replaces a lighter one with its evidence ---- */
#define FINDING(n) __attribute__((format(printf, n, n + 1)))
void absent(struct finding *f, const char *fmt, ...) FINDING(2);
void refused(struct finding *f, const char *fmt, ...) FINDING(2);
void inconclusive(struct finding *f, const char *fmt, ...) FINDING(2);
void contained(struct finding *f, const char *fmt, ...) FINDING(2);
void escaped(struct finding *f, const char *fmt, ...) FINDING(2);
/* A kernel gave something of its own away: an escape where it is the host's, contained where it is
 * the sandbox's. */
void given_by_kernel(struct finding *f, const char *fmt, ...) FINDING(2);
bool is_own_kernel(const struct finding *f);
/* A nested sandbox lives in a user namespace below its own, whose map says nothing of the host, and
 * whose root may mount. That it is not the host's is seen by whose the host's own device is. */
bool is_inner(const struct scene *scene);
/* Something failed with `error`: refused, when that is one of the errors that the attempt names. */
void refused_with(struct finding *f, int error, const char *fmt, ...) FINDING(3);
/* A system call's result. An error that the attempt does not name is inconclusive where it speaks
 * of rights, absent where the kernel has nothing of the kind; any other means that the kernel
 * looked into the arguments, which it never should have. */
void judge_call(struct finding *f, int64_t result, const char *what);
/* Opens and closes again: that it can be opened at all is the escape. */
void judge_open(struct finding *f, const char *path, int flags);
/* A path could not be opened. That it is not there is a refusal when the host has it. */
void judge_path_error(struct finding *f, int error, const char *path);

/* The next word of a table of the kernel's; false: there is none. */
bool next_word(struct str *rest, struct str *ret);
/* Runs work(arg) in a process of its own: its exit status, or -signal, or NO_CHILD. */
enum {
	NO_CHILD = -1000, /* far from any signal */
};
int in_child(int (*work)(void *arg), void *arg);

/* namespaces.c: root of a nested user namespace, with mounts and network of its own, is whoever we
 * are now. 0, or how to exit: NOT_NESTED when that was refused. */
enum {
	NOT_NESTED = 200, /* exit statuses, where no errno is that large */
	NEST_FAILED = 201,
};
int nest(int more_flags);

/* walk.c: every file that is no directory and no symbolic link, up to WALK_MAX of them. */
enum {
	WALK_MAX = 200000,
};
struct stat;
struct walk {
	const char *root;
	const char *const *skip; /* directories, ends with NULL; or NULL */
	bool only_special;       /* plain files are counted, not looked at */
	bool (*look)(const char *path, const struct stat *st, void *arg); /* false: stop */
};
int walk(const struct walk *w, void *arg); /* how many were seen, or -errno */

/* orphans.c: so many files of the working directory that are open and have no name, kept for some
 * minutes by processes that stay behind. 0, -errno. */
int orphans_start(int64_t n);

/* swap.c: exchanges a directory and a symbolic link in `dir` as fast as it can, for so long. */
int swap_start(const char *dir, const char *link_target, int64_t seconds);

#define HEARD_PATH "/tmp/atoll-probe-heard" /* the datagrams that came to the neighbour */
#define START_PATH "/tmp/atoll-probe-start" /* what it says when it is a start command */
/* serve.c: becomes the neighbour that others must not reach. Returns when it can be reached, and
 * has left what it can be known by. */
int serve_start(const struct scene *scene);
/* The names under which host and neighbour can be asked for; fits into a sockaddr_un. */
int32_t mark_key(const struct scene *scene); /* of System V memory */
void mark_name(const struct scene *scene, const char *who, char name[64]);
