/* sandbox - the life of a sandbox: made, running or paused until its time is up or somebody ends
 * it. Owns:   the state machine, the sandboxes and snapshots tables, time-outs, ids and tokens,
 * metrics' samples, reconciling at start. Uses:   base, loop, json, http (to ask a guest), store,
 * runtime, template, limit, observe. Never:  answers HTTP, mounts or kills: the runtime acts, this
 * room decides and records. */
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "limit/limit.h"
#include "observe/observe.h"
#include "runtime/runtime.h"
#include "store/store.h"
#include "template/template.h"

enum {
	SANDBOX_ID_SIZE = 22, /* 'i', 20 of [a-z0-9], NUL */
	SANDBOX_TEAM_SIZE = 37,
	SANDBOX_OWNER_SIZE = 129, /* an agent's or a task's name */
	SANDBOX_TRACE_SIZE = 56,  /* a W3C traceparent */
	SANDBOX_TOKEN_SIZE = 65,
	SANDBOX_MAX_FORKS = 100,
	SANDBOX_METADATA_BYTES = 16 << 10, /* of all names and values, as the next */
	SANDBOX_ENV_BYTES = 256 << 10,
	SANDBOX_NETWORK_BYTES = 512 << 10, /* of options.network */
	SANDBOX_MAX_MOUNTS = RUNTIME_MAX_MOUNTS,
	SANDBOX_SNAPSHOT_ID_SIZE = 2 * TEMPLATE_NAME_SIZE,
};

/* Whose sandboxes are meant: a team's, or only those of one of its agents. Doors take a pointer to
 * it; NULL is no filter: every team's, for those who act for the whole server (the edge, the
 * operator); a caller that has a team must never pass NULL. */
struct sandbox_owner {
	const char *team_id;
	const char *agent_id; /* NULL or empty: all of the team's */
};

/* A volume of the same team, seen at a path; who asks for it has checked both. */
struct sandbox_mount {
	char volume_id[UUID_SIZE], name[129], path[256];
};

enum sandbox_state {
	SANDBOX_STARTING,
	SANDBOX_RUNNING,
	SANDBOX_PAUSING,
	SANDBOX_PAUSED,
	SANDBOX_RESUMING,
	SANDBOX_ENDING,
};

/* What happens when its time is up. */
enum sandbox_timeout {
	SANDBOX_TIMEOUT_KILL,
	SANDBOX_TIMEOUT_PAUSE,   /* memory kept */
	SANDBOX_TIMEOUT_TO_DISK, /* files kept, a fresh boot later */
};

/* Who ended it, as the row, the event and the log say it. */
enum sandbox_end {
	SANDBOX_END_USER,
	SANDBOX_END_TIMEOUT,
	SANDBOX_END_AGENT,  /* its own PID 1 stopped */
	SANDBOX_END_MEMORY, /* its own limit */
	SANDBOX_END_INFRASTRUCTURE,
};
/* Whose doing that was: "user", "agent" or "infrastructure", by the word of a row. */
const char *sandbox_origin(const char *ended_by);

/* How it is: whether its guest answers. */
enum sandbox_health {
	SANDBOX_HEALTH_UNKNOWN, /* not asked yet, or it does not run */
	SANDBOX_HEALTHY,
	SANDBOX_UNRESPONSIVE,
	SANDBOX_DEAD, /* nobody is there to answer */
};
const char *sandbox_health_name(enum sandbox_health health);

enum {                        /* of options.max_age_s */
	SANDBOX_AGE_NONE = 0, /* only its time-outs end it */
	SANDBOX_AGE_USUAL = -1,
};

/* What the request asked for beyond the template; kept as one JSON column. */
struct sandbox_options {
	enum sandbox_timeout on_timeout;
	bool auto_resume;
	struct json_bool nested; /* namespaces may be made inside; not set: as the template says */
	bool is_private;         /* other ports than the guest's need the traffic token */
	struct json_bool internet; /* as asked; unset: not asked */
	struct str network;        /* the request's object, compact JSON; empty: none */
	struct str mask_host;      /* Host for services inside, ${PORT} expands; empty: as sent */
	struct str https_ports; /* where they speak TLS: "[8443,9443]", compact JSON; empty: none */
	const struct sandbox_mount *mounts;
	size_t n_mounts;
	/* Secrets in its environment: the variable and the secret's name, as a JSON object; empty:
	 * none. Their values are in the environment, and nowhere else. */
	struct str secrets;
	struct str request; /* what its maker tells the request for it by; empty: nothing */
	/* Ended, or paused, as on_timeout says, when nobody has used it for so long; 0: never. */
	int64_t idle_timeout_s;
	int64_t max_age_s; /* ended, paused or not, when it is so old; as the enum above */
};

/* The time since it was made or resumed. It is measured by a clock that nobody sets. */
struct sandbox_run {
	int64_t clock_us;                 /* when it began; 0: it does not run */
	int64_t seen_us, ended_us;        /* wall clock; ended_us 0: it runs still */
	int64_t cpu_us, egress_bytes;     /* as of a few seconds ago */
	int64_t cpu_base_us, egress_base; /* what the kernel had counted before */
};

struct sandbox { /* a view: read it, keep nothing of it beyond the callback */
	char id[SANDBOX_ID_SIZE], team_id[SANDBOX_TEAM_SIZE];
	char template_id[TEMPLATE_ID_SIZE], template_name[TEMPLATE_NAME_SIZE];
	char base_template[TEMPLATE_NAME_SIZE]; /* the tree it runs on */
	char image[SANDBOX_ID_SIZE];            /* paused to disk: where its files are */
	char runtime[RUNTIME_NAME_SIZE];
	char agent_id[SANDBOX_OWNER_SIZE], task_id[SANDBOX_OWNER_SIZE]; /* empty: nobody's */
	char traceparent[SANDBOX_TRACE_SIZE]; /* of the request that made it; empty: none */
	enum sandbox_state state;
	bool secure;
	struct limit_set limits;
	int64_t timeout_s;
	int64_t started_us, run_started_us, end_us, paused_us; /* wall clock */
	struct observe_amounts used_before;                    /* in the runs before this one */
	struct sandbox_run run;
	enum sandbox_health health;
	int64_t health_us;       /* since when, wall clock; 0: unknown */
	char health_why[192];    /* empty: it is well, or not known */
	int64_t change_clock_us; /* when the change that is under way began, as in run */
	uint64_t denied_packets; /* that the kernel refused it, as of a few seconds ago */
	struct json_map metadata;
	struct sandbox_options options;
};

struct sandbox_spec {
	const char *team_id, *actor;
	const char *agent_id, *task_id, *traceparent; /* NULL: none */
	/* The one agent that the caller acts for: it sees that agent's snapshots and the team's
	 * own; NULL: it sees all of the team's. */
	const char *bound_agent;
	struct str template_name; /* or a snapshot's id or name */
	struct str runtime;       /* empty: as the template says, or the default */
	int64_t timeout_s;
	bool secure;
	struct json_map metadata, env_vars; /* borrowed for the call, as the options' strings are */
	struct sandbox_options options;
	int64_t wait_ms;         /* in a queue when over the quota: then the spec, and all
				  * that it borrows, must live until the callback */
	struct limit_set limits; /* asked for; 0: as the template says */
	const struct limit_ceilings *ceilings; /* of the team; NULL: the usual ones */
	bool limits_by_key; /* how errors name a limit, as in struct limit_choice */
};

struct sandbox_limits {
	int64_t max_timeout_s;
	int64_t max_running; /* of one team at once */
	bool no_nested;      /* none may make namespaces inside */
};

/* What happens to those that nobody looks after. */
struct sandbox_care {
	int64_t max_age_s;      /* of those that are asked for with the usual one; 0: any */
	int64_t unresponsive_s; /* those that are so for that long are ended, */
	bool keep_unresponsive; /* unless this is set */
	int64_t history_s;      /* so long after their end they are forgotten; 0: never */
};

struct sandbox_book;
struct sandbox_book_config {
	struct loop *loop;
	struct store *store;
	struct runtime_set runtimes; /* borrowed; they share saved images */
	struct template_book *templates;
	struct sandbox_limits limits;
	struct sandbox_care care;
	struct limit_teams teams; /* what a team may keep */
	/* A file for what samples of sandboxes the next server shall know; NULL: none. Borrowed. */
	const char *samples_path;
	/* What a team may have at once; NULL: limits.max_running, and nothing else. */
	void (*quota)(void *arg, const char *team_id, struct limit_quota *ret);
	void *quota_arg;
	/* How much is told of what is done in its sandboxes; NULL: all. */
	enum limit_activity (*activity)(void *arg, const char *team_id);
	void *activity_arg;
	uint8_t seed[SHA256_SIZE]; /* tokens are derived from it, so none is stored */
	struct observe_log *events;
	/* PEM: what sandboxes with header rules shall trust; empty: nothing. Borrowed, as the next.
	 */
	struct str authority;
	struct str authorities; /* the same for all sandboxes: the operator's */
	/* What all sandboxes have in their environment but for what their creators say, and what
	 * those of a team have before that; NULL: nothing. Borrowed. */
	struct json_map env;
	void (*team_env)(void *arg, const char *team_id, struct json_map *ret);
	void *team_env_arg;
};
struct sandbox_book *sandbox_book_new(const struct sandbox_book_config *config);
/* Sandboxes live on: only the memory of them goes. Nothing may be in flight. */
struct sandbox_book *sandbox_book_free(struct sandbox_book *book);
DEFINE_CLEANUP(struct sandbox_book, sandbox_book_free)
/* Once, before anything else: makes rows and kernel agree (design: reconcile). */
void sandbox_reconcile(struct sandbox_book *book, done_fn done, void *arg);

/* One as it stands or stood: for what asks about ended ones too. A view. */
struct sandbox_record {
	struct sandbox sb; /* without its options; of an ended one the state says nothing */
	bool is_ended;
	int64_t ended_us;
	char ended_by[16], ended_why[256]; /* user, timeout, agent, memory, infrastructure */
};
typedef void (*sandbox_record_fn)(void *arg, int r, const struct sandbox_record *record,
	const struct err *e);
/* From the store: one that lives is found sooner by sandbox_find_any. -ENOENT: there never was such
 * a one of these. */
void sandbox_look(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	sandbox_record_fn fn, void *arg);

struct sandbox_query {
	bool running, paused, ended;  /* which of them */
	struct str agent_id, task_id; /* empty: any, as the next two */
	struct str template_name;     /* or its id */
	struct json_map metadata;     /* all of these */
	int64_t before_us;            /* only those that started earlier, or at once */
	struct str before_id;         /* with a greater id; 0: all */
	size_t limit;
};
struct sandbox_page {
	const struct sandbox_record *v; /* newest first, of the same microsecond by id */
	size_t n;
	bool more; /* and they begin behind these: */
	int64_t last_us;
	const char *last_id;
};
typedef void (*sandbox_records_fn)(void *arg, int r, const struct sandbox_page *page,
	const struct err *e);
/* From the store, also those that have ended. A page may hold less than the limit and still have
 * more behind it. Everything of the query is copied. */
void sandbox_list_records(struct sandbox_book *book, const struct sandbox_owner *who,
	const struct sandbox_query *query, sandbox_records_fn fn, void *arg);
/* But for the states and where it begins. */
bool sandbox_matches(const struct sandbox *sb, const struct sandbox_query *query);

/* 0: can create. */
int sandbox_ready(const struct sandbox_book *book, struct err *e);
/* -ENOENT template, -EINVAL (no such runtime, among others), -ERANGE time-out or limits, -EDQUOT
 * over the team's quota (and its time in the queue was up), -EOPNOTSUPP this host cannot run that
 * runtime, else infrastructure. */
typedef void (*sandbox_created_fn)(void *arg, int r, const struct sandbox *sb, const struct err *e);
void sandbox_create(struct sandbox_book *book, const struct sandbox_spec *spec,
	sandbox_created_fn fn, void *arg);
/* Who asked with this arg does not wait any more: in the queue fn is called with -ECANCELED, and
 * what the runtime fails at is not tried again. */
void sandbox_stop_waiting(struct sandbox_book *book, const void *arg);

/* ---- quota ---- */
struct sandbox_use { /* of one team, now */
	int64_t running, paused, waiting;
	int64_t memory_mb, disk_mb; /* as LIMIT_QUOTA_ counts them */
	int64_t starts;             /* in the last minute */
};
void sandbox_use(const struct sandbox_book *book, const char *team_id, struct sandbox_use *ret);
/* What holds for it; 0: no limit. */
int64_t sandbox_max(const struct sandbox_book *book, const char *team_id,
	enum limit_quota_kind kind);
/* In how many seconds it may be worth trying again after -EDQUOT. */
int64_t sandbox_retry_s(const struct sandbox_book *book, const char *team_id);

/* That was made by this request (struct sandbox_options) or one that begins so; NULL: none. */
const struct sandbox *sandbox_find_request(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str request);
/* Running ones only; NULL otherwise. */
const struct sandbox *sandbox_find(const struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id);
/* Running or paused, and on the way between the two. */
const struct sandbox *sandbox_find_any(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str id);
/* In whatever state it is, starting and ending too: for those who serve its processes, which may
 * speak before the client knows of them. */
const struct sandbox *sandbox_find_tenant(const struct sandbox_book *book, const char *id);
/* What clients may see of these. */
void sandbox_each(const struct sandbox_book *book, const struct sandbox_owner *who,
	void (*fn)(void *arg, const struct sandbox *sb), void *arg);
size_t sandbox_count(const struct sandbox_book *book);
/* Shown as paused: paused, or about to be. */
static inline bool sandbox_is_paused(const struct sandbox *sb)
{
	return sb->state == SANDBOX_PAUSED || sb->state == SANDBOX_PAUSING;
}

/* Done when nothing of it is left, paused or running. -ENOENT: not there. */
void sandbox_kill(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const char *actor, done_fn done, void *arg);
/* Ends it (or pauses it, as its options say) that many seconds from now; 0: at once. -ENOENT: not
 * running. -EBUSY: on its way to another state. */
void sandbox_set_timeout(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	int64_t timeout_s, done_fn done, void *arg);
/* Ends them all (serve --stop-sandboxes). */
void sandbox_kill_all(struct sandbox_book *book, done_fn done, void *arg);
/* Whether something is done with it that the edge does not see. */
typedef bool (*sandbox_busy_fn)(void *arg, const char *id);
void sandbox_touch(struct sandbox_book *book, const char *id); /* it is in use now */
void sandbox_on_busy(struct sandbox_book *book, sandbox_busy_fn fn, void *arg);
/* Whoever keeps rows about a sandbox takes them away with it, in the same transaction, on its
 * thread. 0: all are gone; 1: there were many, and more are left for the next time. */
typedef int (*sandbox_forget_fn)(struct store_tx *tx, const char *id, struct err *e);
void sandbox_on_forget(struct sandbox_book *book, sandbox_forget_fn fn);
/* What the kernel has counted of it. */
void sandbox_note_denied(struct sandbox_book *book, const char *id, uint64_t packets);
/* Done when no change of any sandbox is under way: then the book may be freed. A change that takes
 * seconds is not waited for. */
void sandbox_settle(struct sandbox_book *book, done_fn done, void *arg);

struct sandbox_pause {
	bool keep_memory;  /* else its files stay and its processes go */
	bool or_files;     /* no more memory may be kept: its files, then, rather than a failure */
	struct str asker;  /* whom the answer reaches, such as a connection; empty: nobody */
	const char *actor; /* as in events; NULL: the system */
	const char *cause; /* for the event; copied; NULL: somebody asked for it */
};
/* Who asks while it is being paused so, or right after and was not told yet, shares in that.
 * -EEXIST: it was paused already. -EDQUOT: as many are paused with their memory as may run. */
void sandbox_pause(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_pause *how, done_fn done, void *arg);
/* Brings a paused one back for timeout_s; a running one only gets its end moved later. Waits for a
 * change that is under way, and shares in it if that brings it back. `resumed` says that it was
 * paused when this was asked. -EDQUOT: too many would run at once. */
struct sandbox_resume {
	int64_t timeout_s;
	bool cold; /* a fresh boot from its files, also where memory was kept; -EBUSY: another
		      one is bringing its memory back */
	bool only_paused;            /* -EEXIST when it runs */
	const char *actor;           /* as in events; NULL: the system */
	struct json_bool auto_pause; /* set: from now on paused, or ended, when its time is up */
};
typedef void (*sandbox_resumed_fn)(void *arg, int r, bool resumed, const struct sandbox *sb,
	const struct err *e);
void sandbox_connect(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_resume *how, sandbox_resumed_fn fn, void *arg);

/* The data door to a port of a running one; see runtime_dial. */
void sandbox_dial(struct sandbox_book *book, const struct sandbox *sb, int port, runtime_dial_fn fn,
	void *arg);
/* What a client must send as X-Access-Token; the same for an id as long as the data directory
 * lives. */
void sandbox_token(const struct sandbox_book *book, const char *id, char token[SANDBOX_TOKEN_SIZE]);
/* A variable of its environment, for those who mask what it holds; p NULL: it has none. */
struct str sandbox_env(const struct sandbox_book *book, const char *id, struct str name);
/* The name of the first of its variables that `is` says yes to; p NULL: of none. */
struct str sandbox_env_name(const struct sandbox_book *book, const char *id,
	bool (*is)(struct str name));
/* What it must send to other ports of a private one. */
void sandbox_traffic_token(const struct sandbox_book *book, const char *id,
	char token[SANDBOX_TOKEN_SIZE]);
/* The latest that its end can be moved to: so long after it was made or resumed, and as old as it
 * may become. 0: it does not run. */
int64_t sandbox_latest_us(struct sandbox_book *book, struct str id);
/* Replaces what its options say of the network. Done when the kernel follows it and the row says
 * so; on failure both stay as they were. Waits for a change under way. -ENOENT: not running. */
struct sandbox_reach {
	struct json_bool internet;
	struct str network;
	const char *actor; /* as in events */
	/* What both were made of: when it is the sandbox's turn they must be that still. NULL: they
	 * stand for themselves. -ESTALE: somebody else has changed it. */
	const struct sandbox_options *made_of;
};
void sandbox_set_network(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_reach *reach, done_fn done, void *arg);
/* Called when what a sandbox may reach has changed, before the one who asked for it hears of it. */
typedef void (*sandbox_network_fn)(void *arg, const char *id);
void sandbox_on_network(struct sandbox_book *book, sandbox_network_fn fn, void *arg);

/* ---- snapshots and forks ---- */
struct sandbox_snapshot { /* a view */
	char image[SANDBOX_ID_SIZE], team_id[SANDBOX_TEAM_SIZE], template_id[TEMPLATE_ID_SIZE];
	char alias[TEMPLATE_NAME_SIZE]; /* empty: unnamed */
	char tag[TEMPLATE_NAME_SIZE], base_template[TEMPLATE_NAME_SIZE],
		sandbox_id[SANDBOX_ID_SIZE];
	char runtime[RUNTIME_NAME_SIZE]; /* what starts from it runs on, unless another is asked for
					  */
	char agent_id[SANDBOX_OWNER_SIZE]; /* whose alone it is; empty: all of the team's */
	char named_by[SANDBOX_OWNER_SIZE]; /* the agent whose alone the name is; empty: the team's
					    */
	int64_t cpu_count, memory_mb, disk_mb, created_us;
	int64_t size_mb; /* that its image takes, shared with others or not; 0: not known */
	bool is_nested;  /* as what it was taken of */
};
typedef void (*sandbox_snapshot_fn)(void *arg, int r, const struct sandbox_snapshot *snap,
	const struct err *e);
/* name: `alias` or `alias:tag`, or empty; never of the shape of an id. The same name again replaces
 * what it points at; of two at once the one that is made last has it. -EDQUOT: the team keeps as
 * many, or as much, as it may. */
void sandbox_snapshot(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	struct str name, const char *actor, sandbox_snapshot_fn fn, void *arg);
/* Gives one that is there another name, as above and never empty; without a tag `wanted` means its
 * newest. Its id changes with the name, of which all tags share one. -ENOENT. -EEXIST: there is one
 * of that name and tag. -EBUSY: one is being made. */
void sandbox_name_snapshot(struct sandbox_book *book, const struct sandbox_owner *who,
	struct str wanted, struct str name, const char *actor, sandbox_snapshot_fn fn, void *arg);
struct sandbox_snapshot_use {
	int64_t count, size_mb;
};
void sandbox_snapshot_use(const struct sandbox_book *book, const char *team_id,
	struct sandbox_snapshot_use *ret);
/* Newest first. */
void sandbox_each_snapshot(const struct sandbox_book *book, const struct sandbox_owner *who,
	void (*fn)(void *arg, const struct sandbox_snapshot *snap), void *arg);
/* By id, or by a name of the asker's own or the team's, with a tag or that tagged `default`; NULL:
 * none. What an agent has named the team finds by its id alone. */
const struct sandbox_snapshot *sandbox_find_snapshot(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str wanted);
/* The same, but without a tag the newest, whatever its tag. */
const struct sandbox_snapshot *sandbox_newest_snapshot(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str wanted);
/* How this asker finds it again: "alias:tag", or "templateID:tag" where it has no name, or one that
 * is another's. */
void sandbox_snapshot_id(const struct sandbox_snapshot *snap, const struct sandbox_owner *who,
	char out[SANDBOX_SNAPSHOT_ID_SIZE]);
/* The tag that is named, or all tags of the name. -ENOENT. */
void sandbox_delete_snapshot(struct sandbox_book *book, const struct sandbox_owner *who,
	struct str wanted, const char *actor, done_fn done, void *arg);

/* count new sandboxes with the files of this one, which runs on. One result each, then done. */
struct sandbox_fork {
	int64_t timeout_s;
	int count;
	const char *actor;
};
typedef void (*sandbox_forked_fn)(void *arg, int r, const struct sandbox *sb, const struct err *e);
void sandbox_fork(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_fork *how, sandbox_forked_fn each, done_fn done, void *arg);

/* ---- limits ---- */
/* One connection more from outside, until sandbox_leave. -EDQUOT: it has as many as it may; a
 * quarter of them is the guest's port's alone. */
int sandbox_enter(struct sandbox_book *book, const struct sandbox *sb, int port, struct err *e);
void sandbox_leave(struct sandbox_book *book, const char *id); /* it may be gone */
/* How often it came up against each of its limits, since it or the server started. -ENOENT. */
struct sandbox_crossings {
	int64_t times[LIMIT_KINDS];
	int64_t connections; /* now */
	int64_t lines_dropped;
};
int sandbox_crossings(const struct sandbox_book *book, const char *id,
	struct sandbox_crossings *ret);

/* Somebody came to this port from this address: told once in a while, with how often. */
void sandbox_visited(struct sandbox_book *book, const char *id, int port, struct str source);
enum limit_activity sandbox_activity(const struct sandbox_book *book, const char *team_id);

/* ---- usage ---- */
/* All it has used so far; from memory. Of ended ones observe_usage tells. */
void sandbox_used(const struct sandbox *sb, struct observe_amounts *ret);

/* ---- metrics ---- */
struct sandbox_sample {
	int64_t at_us;
	double cpu_pct;
	double cpu_held_pct; /* of its periods, in which it was held back */
	int64_t mem_used, mem_total, mem_cache, disk_used, disk_total;
	int64_t inodes_used, inodes_total, shm_used, shm_total, processes, connections;
	int64_t oom_kills, processes_refused; /* since it was booted */
};
/* Oldest first, of a running or paused one. */
void sandbox_each_sample(const struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id, void (*fn)(void *arg, const struct sandbox_sample *sample), void *arg);

/* The newest; false: there is none yet. */
/* What the sandboxes of this machine share, as it was a moment ago; all zero: not known yet. */
const struct runtime_host *sandbox_host(const struct sandbox_book *book);
bool sandbox_last_sample(const struct sandbox_book *book, const char *id,
	struct sandbox_sample *ret);

/* ---- log ---- */
struct sandbox_log_line {
	int64_t seq, at_us;
	struct str actor, kind, data; /* data is a JSON object */
	struct str cause;             /* empty: none */
};
struct sandbox_log_query {
	int64_t from_us, to_us, limit;
	int64_t skip; /* so many of them first */
	bool newest_first;
	struct str search; /* terminated text that kind or data must hold; empty: all */
};
/* Its events, read from the store, also when it has ended: fn for each, on the loop, then done.
 * -ENOENT: this team never had it. */
void sandbox_read_log(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_log_query *query,
	void (*fn)(void *arg, const struct sandbox_log_line *line), done_fn done, void *arg);
