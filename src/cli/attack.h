/* attack - what the files of `atoll doctor --attack` share. doctor-attack.c runs the whole and
 * tells, attack-rig.c starts a server where there is none, attack-canary.c is what must not be
 * reached on the host, attack-inside.c runs atoll-probe in sandboxes, and the others each try one
 * side of the server from outside: files, edge, clones, templates, host. */
#pragma once

#include "cli/cli-internal.h"

#include <sys/types.h>

enum attack_verdict { /* by rising weight */
	ATTACK_REFUSED,
	ATTACK_CONTAINED,
	ATTACK_INCONCLUSIVE, /* it could not be tried: no pass */
	ATTACK_ESCAPED,
};

enum {
	ATTACK_NAME = 48,
	ATTACK_TEXT = 256,
	ATTACK_MARK = 20, /* characters of the mark; twelve of them name processes */
	ATTACK_MAX_HOSTS = 16,
	ATTACK_LIFE_S = 900,
	ATTACK_WAIT_MS = 5000, /* for an answer that should come at once */
	ATTACK_HEARD = 128,
};

struct attack_row {
	char name[ATTACK_NAME];
	const char *as; /* user, root, terminal: inside; client, host: outside */
	enum attack_verdict verdict;
	char title[ATTACK_TEXT], evidence[ATTACK_TEXT];
};

/* A process of the host that answers everybody with the mark, and remembers who called. */
struct canary {
	pid_t pid;
	uint16_t port;
	bool has_metadata; /* it also sits at the metadata address */
	struct canary_memory *memory;
};
struct canary_memory { /* shared with the process */
	int datagrams;
	char first[ATTACK_HEARD];
};

struct rig { /* a server of our own */
	pid_t pid;
	bool is_ours;
	bool has_base; /* the real base template is mounted in our directory */
	char log[CONFIG_VALUE];
};

struct attack {
	struct cli *cli;
	struct attack_row *rows;
	size_t n, cap;
	char mark[ATTACK_MARK + 1];
	char scratch[CONFIG_VALUE];   /* a directory of this machine, ours alone */
	char bait[CONFIG_VALUE];      /* a directory in it that links may lead to */
	char secret[CONFIG_VALUE];    /* all that is in the bait: a file that holds the mark */
	char templates[CONFIG_VALUE]; /* where the server has its templates; "": not known */
	char probe[CONFIG_VALUE];     /* atoll-probe */
	char hosts[ATTACK_MAX_HOSTS][64];
	size_t n_hosts;
	uint16_t api_port; /* 0: the server is not on this machine */
	struct target attacker, neighbour;
	char neighbour_address[64], attacker_address[64];
	struct canary canary;
	struct rig rig;
};

/* ---- doctor-attack.c ---- */
int cmd_attack(struct cli *cli);
/* A row of the table. The evidence is cleaned: it comes from a hostile place. */
void attack_say(struct attack *a, const char *name, const char *as, enum attack_verdict verdict,
	const char *title, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
struct attack_row *attack_row_add(struct attack *a);
/* Rows from this one on become one row: that of the attempt that came furthest. */
void attack_fold(struct attack *a, size_t from, const char *name, const char *as,
	const char *title);
bool attack_is_stopped(const struct attack *a); /* by a signal: finish and tidy up */

/* ---- attack-line.c ---- */
struct attack_line { /* one of atoll-probe's, borrowed from the text */
	struct str name, title, evidence;
	enum attack_verdict verdict;
	int64_t end; /* > 0: the last line, and how many came before it */
};
int attack_line_parse(struct str line, struct attack_line *ret); /* -EPROTO: it is none */

/* ---- attack-rig.c ---- */
int rig_start(struct attack *a, struct err *e);
bool rig_stop(struct attack *a); /* false: the directory must stay */

/* ---- attack-canary.c ---- */
int canary_start(struct attack *a, struct err *e);
void canary_stop(struct attack *a);

/* ---- attack-talk.c: ways to speak to a sandbox ---- */
struct attack_answer {
	int status; /* 0: no whole answer */
	struct str body;
};
struct attack_request {
	const char *method, *path;
	const char *const *headers; /* ends with NULL; or NULL: none */
	struct str body;            /* p NULL: none */
};
/* Over the client, with the target's name and token; target NULL: to the control plane. -errno when
 * there was no answer. */
int attack_fetch(struct attack *a, const struct target *target,
	const struct attack_request *request, struct attack_answer *ret, struct err *e);
/* Whether the guest still serves. */
bool attack_is_alive(struct attack *a, const struct target *target);
/* /files with this path, percent-encoded here. */
int attack_file(struct attack *a, const struct target *target, const char *method, const char *path,
	struct str body, struct attack_answer *ret, struct err *e);
/* A sandbox by the JSON of its request. */
int attack_create(struct attack *a, const char *json, struct target *ret, struct err *e);
/* Bytes as they are, to the server's port; what comes back until it closes or `wait_ms` pass. */
int attack_raw(struct attack *a, struct str bytes, int64_t wait_ms, struct buf *answer,
	struct err *e);
/* The same without waiting: the connection, open. */
int attack_dial(struct attack *a, struct str bytes, struct err *e);
/* A shell command to its end: its exit status, or -errno. */
int attack_shell(struct attack *a, const struct target *target, const char *user,
	const char *script, struct buf *out, struct err *e);
struct attack_command {
	const struct target *target;
	const char *user, *cwd;
	char *const *argv;
	bool tty;
};
int attack_exec(struct attack *a, const struct attack_command *command, struct buf *out,
	struct err *e);
/* The sandbox's main address; "" when it has none. */
int attack_address(struct attack *a, const struct target *target, char ret[64], struct err *e);

/* ---- each of these makes its attempts and adds their rows ---- */
int attack_inside_prepare(struct attack *a, const struct target *target, struct err *e);
/* The whole probe, or one family of it, as this user; row names begin with `prefix`. */
void attack_inside(struct attack *a, const struct target *target, const char *user, bool tty,
	const char *family, const char *prefix);
void attack_descriptors(struct attack *a);
void attack_files(struct attack *a);
void attack_archives(struct attack *a);
void attack_edge(struct attack *a);
void attack_framing(struct attack *a);
void attack_clones(struct attack *a);
void attack_templates(struct attack *a);
void attack_volumes(struct attack *a);
void attack_logs(struct attack *a);
void attack_addresses(struct attack *a);
/* ---- attack-hostile.c: templates that hold nothing but the probe and one trap ---- */
enum {
	HOSTILE_DISK_MB = 64,
	HOSTILE_PATH = CONFIG_VALUE + 128,
};
struct hostile {
	const char *name; /* of the row: "family.what" */
	const char *title;
	const char *link;   /* this path of the tree ... */
	const char *target; /* ... is a symbolic link; "%s" is the bait */
	const char *toml;   /* lines more, or NULL */
	void (*more)(const char *rootfs);
	bool has_no_users; /* so nothing can be run in it */
};
/* Templates can only be made by root, on the server's machine, who knows where they are. */
bool hostile_is_possible(const struct attack *a);
/* A sandbox of such a template; json_more: ",..." for its request, or "". The template stays until
 * hostile_remove, which also says what appeared in the bait meanwhile. */
int hostile_start(struct attack *a, const struct hostile *h, const char *json_more,
	struct target *ret, struct err *e);
void hostile_remove(struct attack *a, const struct hostile *h);
/* What the host looks like before; after, what changed is said. */
struct host_view;
struct host_view *attack_host_look(struct attack *a);
void attack_host_compare(struct attack *a, struct host_view *take_before);
