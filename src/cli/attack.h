/* attack - what the files of `atoll doctor --attack` share. doctor-attack.c runs the whole and
 * tells, attack-rig.c starts a server where there is none, attack-canary.c is what must not be
 * reached on the host, attack-inside.c runs atoll-probe in sandboxes, and the others each try one
 * side of the server from outside: files, edge, framing, clones, templates, volumes, races,
 * addresses, host. */
#pragma once

#include "cli/cli-internal.h"

#include <sys/types.h>

enum attack_verdict {  /* by rising weight */
	ATTACK_ABSENT, /* this host plainly has nothing of the kind */
	ATTACK_REFUSED,
	ATTACK_CONTAINED,
	ATTACK_INCONCLUSIVE, /* it could not be tried, or failed for another reason: no pass */
	ATTACK_ESCAPED,
};

enum {
	ATTACK_NAME = 48,
	ATTACK_TEXT = 256,
	ATTACK_MARK = 20, /* characters of the mark; twelve of them name processes */
	ATTACK_MAX_HOSTS = 16,
	ATTACK_LIFE_S = 900,
	ATTACK_WAIT_MS = 5000,       /* for an answer that should come at once */
	ATTACK_HANGS_MS = 20 * 1000, /* who has not answered by then never will: none is so busy */
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
	const char *lacks; /* what it looks for and this machine lacks, between colons; or NULL */
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
/* What an answer means: a 2xx is an escape; a refusal is one of `right` (ends with 0), for nothing
 * else would be a refusal for the right reason. r < 0: there was no answer. */
enum attack_verdict attack_judge_status(int r, int status, const int *right);
/* The same for the guest's routes for files, whose 500 is a refusal when it speaks of rights, of a
 * file system that is read-only, or of something that is no file. */
struct attack_answer;
enum attack_verdict attack_judge_file(int r, const struct attack_answer *answer);
/* The same for a request of the control plane: only its own word (400) is a refusal. */
enum attack_verdict attack_judge_code(int r);

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

/* ---- attack-edge.c: heads with the names and tokens of both sandboxes in them ---- */
/* %A %B are ids, %a %b tokens (of attacker and neighbour), %m the mark, %k the length of the JSON
 * that renews the attacker's own token, %j that JSON, %0 a NUL, %% itself. */
void edge_expand(const struct attack *a, const char *pattern, struct buf *out);
int edge_status(struct str answer); /* of "HTTP/1.1 NNN"; 0: it is nothing of the kind */

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
/* This very program, or another of ours, run to its end: both its streams. `words` ends with NULL.
 */
int attack_run(struct attack *a, const char *program, const char *const *words, struct buf *out);
/* A sandbox by the JSON of its request. */
int attack_create(struct attack *a, const char *json, struct target *ret, struct err *e);
/* The same on the host's own kernel, whatever the run is about: for what a sandbox does to others.
 */
int attack_create_local(struct attack *a, const char *json, struct target *ret, struct err *e);
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
/* The whole probe, or some families of it (between spaces), as this user; row names begin with
 * `prefix`. */
void attack_inside(struct attack *a, const struct target *target, const char *user, bool tty,
	const char *families, const char *prefix);
/* Rows from the probe's lines; that there are less than it says is one, too. */
void attack_take_lines(struct attack *a, struct str text, const char *as, const char *prefix);
void attack_survey(struct attack *a); /* what this machine lacks, for the probe */
void attack_descriptors(struct attack *a);
void attack_files(struct attack *a);
void attack_archives(struct attack *a);
void attack_edge(struct attack *a);
void attack_framing(struct attack *a);
void attack_clones(struct attack *a);
void attack_templates(struct attack *a);
void attack_volumes(struct attack *a);
void attack_races(struct attack *a);
void attack_disk(struct attack *a);
void attack_logs(struct attack *a);
void attack_addresses(struct attack *a);
/* ---- attack-volumes.c: what others need of volumes ---- */
enum {
	VOLUME_ID = 128,
	VOLUME_TOKEN = 2048,
};
struct attack_volume {
	char id[VOLUME_ID], name[VOLUME_ID], authorization[VOLUME_TOKEN];
};
/* suffix: of its name, so that several can be told apart. */
int attack_volume_make(struct attack *a, const char *suffix, struct attack_volume *ret,
	struct err *e);
void attack_volume_remove(struct attack *a, const struct attack_volume *v);

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
