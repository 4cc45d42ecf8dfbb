/* The sandbox room's own objects, shared by its files. */
#pragma once

#include "sandbox/activity-read.h"
#include "sandbox/gate.h"
#include "policy/policy.h"
#include "sandbox/health.h"
#include "sandbox/sandbox.h"

struct samples;

/* How often a limit was met. */
struct tally {
	int64_t times, untold;
	int64_t quiet_until_ms; /* until then nothing is written about it */
	int64_t heard;          /* of these, counted by others too: the most that was told */
};

/* What its log may still take. */
struct line_budget {
	int64_t lines; /* written so far */
	int64_t tokens, filled_ms;
	int64_t dropped, dropped_in_all; /* since the last mark, and before it */
	bool is_full_told;
};

struct activity_question;

/* How far its guest's records are known; activity.c. */
struct activity_state {
	char epoch[ACTIVITY_EPOCH_SIZE]; /* of the guest; empty: not known yet */
	int64_t born;                    /* changes with the guest */
	int64_t hinted, seen, written;   /* numbers: it has given, was read, is in the row */
	int n_writing;
	bool is_known; /* the epoch is the guest's, and not that of another before it */
	bool is_used;  /* somebody may have done something in it, since it was booted */
	bool is_fresh; /* or since it was last asked */
	struct activity_question *question; /* that is under way; NULL: none */
	int64_t tokens, filled_ms;          /* what may still be written */
	int64_t dropped;                    /* and what could not, since it was last told */
	int64_t last_us;                    /* the time of the newest event */
};

struct visits;

struct live { /* one sandbox that the book knows */
	struct sandbox view;
	struct sandbox_book *book;
	struct runtime *runtime; /* that the view names */
	struct arena *arena;     /* holds the view's metadata, options' texts and environment */
	struct json_map env;
	struct buf network; /* options.network once it was replaced: an arena would fill up */
	struct loop_timer timer;
	int saving;          /* copies of its disk, or a change of its policy, under way; it runs
			      * meanwhile */
	struct list waiters; /* ops that wait until it is running or paused */
	struct samples *samples;
	struct tally tallies[LIMIT_KINDS];
	struct line_budget log;
	struct activity_state activity;
	struct visits *visits; /* visits.c; NULL: none */
	bool is_heard;         /* the guest's counts are known */
	bool is_held;          /* there is no room for what it writes, so it stands still */
	int64_t cpu_periods, cpu_held;
	double cpu_pressure;
	int64_t connections;           /* from outside, now */
	int64_t snaps_quiet_to_ms;     /* until then no line about snapshots that are refused */
	bool is_alive, is_frozen;      /* while reconciling: what the runtime says */
	bool has_exited;               /* by itself, during a change */
	bool was_booted;               /* when it was last resumed: its memory was not kept */
	int64_t resumed_ms, paused_ms; /* when it last was; 0: never since the server started */
	struct vital vital;
	struct idle idle;
	int64_t born_ms;  /* monotonic; before the server started perhaps */
	unsigned phase;   /* which part of the sampler's step it is asked in */
	bool is_swept;    /* it is about to be ended */
	int late_pauses;  /* that failed since its time was up */
	uint64_t told[8]; /* who was told that it is paused; 0: nobody */
	size_t n_told;
};

struct snap {
	struct sandbox_snapshot view;
	struct list node; /* newest first */
};

struct sandbox_book {
	struct sandbox_book_config config;
	struct map by_id;
	struct list snaps;
	struct list taking;                  /* snapshots under way */
	struct runtime_host host;            /* what all share, as it was last told */
	struct host_question *host_question; /* NULL: nobody is asked */
	size_t in_flight;
	sandbox_network_fn network_changed; /* may be NULL */
	void *network_arg;
	struct loop_timer sampler;
	int64_t sampler_ms; /* when it is due */
	unsigned sampler_tick, sampler_part, n_phases;
	struct list asked; /* questions to guests, and how many: */
	size_t asking;
	bool samples_saving;
	struct list activity_asked, activity_batches;
	size_t activity_asking;
	bool is_stopping;
	size_t questions;       /* to runtimes, that nobody waits for */
	int64_t strays_ms;      /* when strays were last looked for */
	int64_t late_until_ms;  /* the host was short of time: no silence counts until then */
	int64_t wall_offset_us; /* of the wall clock from the monotonic one; 0: not looked yet */
	sandbox_busy_fn busy;   /* may be NULL */
	void *busy_arg;
	sandbox_forget_fn forget; /* may be NULL */
	int64_t forget_ms;        /* when it is due; time_now_ms */
	bool is_forgetting;
	size_t forget_turn; /* of the teams that are over their ceilings: whose it is */
	struct time_past past;
	size_t n_forgotten;             /* not told of yet */
	struct list creations;          /* under way */
	struct gate gates[RUNTIME_MAX]; /* of what each runtime is asked to create */
	int64_t runs_written_ms;        /* when usage was last written down */
	struct map starts;              /* by team: struct starts of quota.c */
	struct list waiting;
	size_t n_waiting;
	struct loop_timer queue_timer;
	struct loop_task queue_task;
	bool is_looking; /* the task is under way */
};

/* Where saved images are: all runtimes share them. */
static inline struct runtime *book_images(const struct sandbox_book *book)
{
	return book->config.runtimes.v[0];
}

/* On the default runtime, until it is given another. */
struct live *live_new(struct sandbox_book *book, const char *id);
int live_use(struct live *live, struct str runtime, struct err *e);
void live_forget(struct live *live); /* out of the book and freed */
/* In any state that clients may see. */
struct live *live_find(const struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id);
static inline bool owner_has(const struct sandbox_owner *who, const struct sandbox *sb)
{
	return !who || (strcmp(who->team_id, sb->team_id) == 0 &&
			       (!who->agent_id || !who->agent_id[0] ||
				       strcmp(who->agent_id, sb->agent_id) == 0));
}
/* Who it is, in the words of the log; use it at once. */
const char *live_name(const struct sandbox *sb);
void live_arm(struct live *live); /* sets the timer by end_us */
/* Running, or paused for good: nothing is under way. */
bool live_is_settled(const struct live *live);
/* What `saving` counted is done (r of the runtime); ends it if it is gone by now. */
void live_saved(struct live *live, int r);
/* Ends what was under way and lets those who waited for it go on. */
void live_settle(struct live *live, enum sandbox_state state);
/* Marks it as ended and removes it; done when nothing of it runs and the row says why. */
void live_end(struct live *live, enum sandbox_end by, const char *actor, const char *why,
	done_fn done, void *arg);
int live_keep_map(struct live *live, const struct json_map *from, struct json_map *to,
	struct err *e);
struct str live_keep_str(struct live *live, struct str s);

/* An operation on one sandbox: runs when nothing else is under way with it. run() gets NULL when
 * the sandbox is not there (any more), and owns the op from then on. */
struct op {
	struct list node;
	struct loop_task task;
	struct sandbox_book *book;
	char team_id[SANDBOX_TEAM_SIZE], agent_id[SANDBOX_OWNER_SIZE]; /* both empty: anybody's */
	char id[SANDBOX_ID_SIZE];
	enum sandbox_state waited_for; /* the change it last waited for; RUNNING: none */
	void (*run)(struct op *op, struct live *live);
};
void op_start(struct op *op, struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id, void (*run)(struct op *op, struct live *live));
int op_not_found(const struct op *op, struct err *e);

/* Joins several answers into one: calls done when all have come, with the first failure if any. */
struct join {
	int waiting, r;
	struct err e;
	done_fn done;
	void *arg;
};
struct join *join_new(int waiting, done_fn done, void *arg);
void join_one(void *join, int r, const struct err *e);    /* a done_fn */
void done_nothing(void *arg, int r, const struct err *e); /* for what may fail unheard */
/* Calls done with e on a later turn, as every done_fn is called. */
void tell_later(struct sandbox_book *book, const struct err *e, done_fn done, void *arg);

/* What a new sandbox is made of: a template as it is, or a saved disk on a template's tree. */
struct source {
	struct template t; /* id and name as clients see them */
	char base_template[TEMPLATE_NAME_SIZE];
	char image[SANDBOX_ID_SIZE];     /* empty: a fresh disk */
	char runtime[RUNTIME_NAME_SIZE]; /* empty: the default */
};
int source_find(const struct sandbox_book *book, const struct sandbox_spec *spec,
	struct source *ret, struct err *e);
void create_from(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, sandbox_created_fn fn, void *arg);
/* What a request adds to its team's use. */
struct quota_ask {
	const char *team_id;
	bool is_new; /* counts as a start */
	int64_t memory_mb, disk_mb;
};
/* -EDQUOT: the team has as much as it may. */
int quota_check(struct sandbox_book *book, const struct quota_ask *ask, struct err *e);
void quota_note_start(struct sandbox_book *book, const char *team_id);
/* Fills in what it would take. */
int create_ask(const struct sandbox_spec *spec, const struct source *source, struct quota_ask *ask,
	struct err *e);
/* Who asked with this arg has gone: what fails is not tried again for it. */
void creations_unwanted(struct sandbox_book *book, const void *arg);
void queue_init(struct sandbox_book *book);
void queue_done(struct sandbox_book *book);
/* Something ended or was paused: those who wait are looked at. */
void queue_kick(struct sandbox_book *book);
/* True: it is over the quota or others are before it, and it waits, or was refused. */
bool queue_takes(struct sandbox_book *book, const struct sandbox_spec *spec,
	const struct source *source, sandbox_created_fn fn, void *arg);
/* Boots this sandbox anew, from an image, as its row says. */
void live_boot(struct live *live, const char *image, done_fn done, void *arg);
void make_image_name(char out[SANDBOX_ID_SIZE], char kind);

/* rows.c: each copies what it needs and runs as one transaction. */
void rows_insert(struct store *store, const struct live *live, const char *actor, done_fn done,
	void *arg);
void rows_set_end(struct store *store, const struct sandbox *sb, int64_t end_us, done_fn done,
	void *arg);
/* Paused (its image is empty: memory kept), or running again. */
void rows_paused(struct store *store, const struct sandbox *sb, const char *actor, const char *why,
	done_fn done, void *arg);
void rows_resumed(struct store *store, const struct sandbox *sb, const char *actor, done_fn done,
	void *arg);
struct options_change { /* as the event log has it */
	const char *actor, *kind;
	struct str data; /* JSON object */
};
void rows_set_options(struct store *store, const struct sandbox *sb,
	const struct options_change *change, done_fn done, void *arg);
const char *end_name(enum sandbox_end by); /* as the row has it */
void rows_ended(struct store *store, const struct sandbox *sb, enum sandbox_end by,
	const char *actor, const char *why, done_fn done, void *arg);
/* Reads all that are not ended, and the snapshots, into the book, on the loop. */
void rows_load(struct sandbox_book *book, done_fn done, void *arg);

/* runs.c: the spans in which it runs. The view and the rows say the same; both are changed with
 * the sandbox's own row. */
void run_begin(struct sandbox *sb, bool is_boot);
void run_end(struct sandbox *sb);
int64_t run_end_us(const struct sandbox *sb); /* as it is written down */
void run_was_lost(struct sandbox *sb); /* nobody saw its end: it counts until it was last seen */
int run_row_open(struct store_tx *tx, const struct sandbox *sb, struct err *e);
int run_row_close(struct store_tx *tx, const struct sandbox *sb, int64_t end_us, struct err *e);
/* Of all that have not ended, by rising start; the job's part. */
typedef void (
	*run_row_fn)(void *arg, const char *id, const struct sandbox_run *run, int64_t started_us);
int run_rows_load(struct store_tx *tx, run_row_fn fn, void *arg, struct err *e);
void run_take(struct sandbox *sb, const struct sandbox_run *run, int64_t started_us);
/* Asks the kernel what it has used, then goes on; it is not freed meanwhile. */
typedef void (*live_fn)(struct live *live, void *arg);
void live_count(struct live *live, live_fn then, void *arg);
void runs_step(struct sandbox_book *book); /* every few seconds */

/* network.c: what it may reach, as its options say; all of it in the arena. */
int live_policy(const struct live *live, struct arena *arena, struct policy *ret, struct err *e);
enum {
	POLICY_BYTES = 4 << 20, /* a ceiling for that arena */
};
DEFINE_CLEANUP(struct arena, arena_free)

/* options.c */
/* The options, and the limits that have no column. */
void options_write(const struct sandbox *sb, struct buf *out);
int options_read(struct live *live, struct str json);
/* A copy; NULL: the arena is full. */
const struct sandbox_mount *mounts_keep(struct arena *arena, const struct sandbox_options *options);
void env_seal(const struct live *live, struct buf *out);
int env_unseal(struct live *live, struct str sealed);

/* snapshot-find.c */
/* [team/]name[:tag]; the tag is empty when none is given. */
int snap_name_split(struct str text, struct str *name, struct str *tag);
bool snap_may_see(const struct sandbox_owner *who, const struct sandbox_snapshot *s);

/* snapshot-rows.c */
struct snap_change {
	const char *replaced, *actor; /* replaced: the image of the same name; empty: none */
	int64_t began_us;             /* monotonic */
};
void snap_rows_insert(struct store *store, const struct sandbox_snapshot *snap,
	const struct snap_change *change, done_fn done, void *arg);
void snap_rows_name(struct store *store, const struct sandbox_snapshot *snap, const char *actor,
	done_fn done, void *arg);
void snap_rows_delete(struct store *store, const struct sandbox_snapshot *snap, const char *actor,
	done_fn done, void *arg);
int snap_load(struct store_tx *tx, struct list *snaps, struct err *e);
void snap_list_free(struct list *snaps);

/* trust.c */
/* trust.c: "caBundle" of a guest's settings: the operator's authorities, and the server's own. */
void trust_write(const struct sandbox_book *book, bool has_rules, struct jsonw *w);
/* Makes a running one trust the server's authority; done in any case, at the latest after seconds.
 */
void live_trust(struct live *live, done_fn done, void *arg);

/* crossing.c */
void live_crossed(struct live *live, enum limit_kind kind, int64_t times);
/* Every few seconds: what was held back. */
void crossings_step(struct live *live);
/* It ends: what was dropped and not yet told. */
void crossings_last(struct live *live);
struct guest_word { /* what a guest counts: how often, since it was booted */
	int64_t kills, refused, disk, inodes, shm, files, cpu_periods, cpu_held;
	double cpu_pct; /* of its processors, since it was asked last */
};
void crossings_hear(struct live *live, const struct guest_word *word);
/* Its guest is a new one, which counts from zero. */
void crossings_reborn(struct live *live);
void on_held(void *book, const char *id, bool is_held);
void on_crossed(void *book, const char *id, enum runtime_limit limit, uint64_t times);

/* clock.c: now by the wall clock. When that was set, the ends of all sandboxes move along first. */
int64_t book_wall_us(struct sandbox_book *book);

/* attempt.c */
const char *origin_of(int r); /* whose fault a runtime's failure is: "user", "infrastructure" */
struct attempt {
	const char *act;  /* "create", "resume" */
	int n;            /* from 1 */
	int64_t again_ms; /* until the next; negative: that was the last */
};
void attempt_failed(const struct live *live, const struct attempt *what, const struct err *e);
void on_breaker(void *book, const struct runtime *rt);
enum {
	TRY_MS = 30000, /* clients wait for a minute at most: no attempt begins later than this */
};

/* health.c */
void health_note(struct live *live, enum vital_word word, const struct err *e);
void health_reset(struct live *live); /* it runs anew */
/* The loop's timer was due then: was it called in time? */
void health_tick(struct sandbox_book *book, int64_t planned_ms);
void health_sweep(struct sandbox_book *book);

/* sweep.c */
void sweep_step(struct sandbox_book *book); /* every few seconds */

/* ---- history.c ---- */
void history_step(struct sandbox_book *book); /* every few seconds */
/* A row of the team's has come, or may go: where they are too much now, the oldest do. */
void history_grown(struct sandbox_book *book, const char *team_id);
/* -EDQUOT: those that live alone take more than the team may have. */
int history_check(const struct sandbox_book *book, const char *team_id, struct err *e);
/* Ends it as soon as nothing is under way with it. */
void sweep_end(struct live *live, enum sandbox_end by, const char *why);
void live_used(struct live *live);
int64_t live_latest_us(const struct live *live); /* when it must end at the latest */
/* -ERANGE: older than any may become. */
int sweep_check_age(const struct sandbox_book *book, const struct sandbox_options *options,
	struct err *e);
int64_t sweep_age(const struct sandbox_book *book, int64_t asked_s, int64_t timeout_s);

/* metrics.c */
void metrics_start(struct sandbox_book *book);
void metrics_stop(struct sandbox_book *book); /* asks nobody any more */
void samples_free(struct live *live);
