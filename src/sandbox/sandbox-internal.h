/* The sandbox room's own objects, shared by its files. */
#pragma once

#include "policy/policy.h"
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
	bool is_heard; /* the guest's counts are known */
	int64_t cpu_periods, cpu_held;
	double cpu_pressure;
	int64_t connections;           /* from outside, now */
	bool is_alive, is_frozen;      /* while reconciling: what the runtime says */
	bool has_exited;               /* by itself, during a change */
	bool was_booted;               /* when it was last resumed: its memory was not kept */
	int64_t resumed_ms, paused_ms; /* when it last was; 0: never since the server started */
	uint64_t told[8];              /* who was told that it is paused; 0: nobody */
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
	size_t in_flight;
	sandbox_network_fn network_changed; /* may be NULL */
	void *network_arg;
	struct loop_timer sampler;
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
struct live *live_find(const struct sandbox_book *book, const char *team_id, struct str id);
void live_arm(struct live *live); /* sets the timer by end_us */
/* Running, or paused for good: nothing is under way. */
bool live_is_settled(const struct live *live);
/* What `saving` counted is done (r of the runtime); ends it if it is gone by now. */
void live_saved(struct live *live, int r);
/* Ends what was under way and lets those who waited for it go on. */
void live_settle(struct live *live, enum sandbox_state state);
/* Marks it as ended and removes it; done when nothing is left and the row says why. */
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
	char team_id[SANDBOX_TEAM_SIZE], id[SANDBOX_ID_SIZE];
	enum sandbox_state waited_for; /* the change it last waited for; RUNNING: none */
	void (*run)(struct op *op, struct live *live);
};
void op_start(struct op *op, struct sandbox_book *book, const char *team_id, struct str id,
	void (*run)(struct op *op, struct live *live));
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
/* -EDQUOT: the team has as many at once as it may. */
int quota_check(const struct sandbox_book *book, const char *team_id, struct err *e);
/* Boots this sandbox anew, from an image, as its row says. */
void live_boot(struct live *live, const char *image, done_fn done, void *arg);
void make_image_name(char out[SANDBOX_ID_SIZE], char kind);

/* rows.c: each copies what it needs and runs as one transaction. */
void rows_insert(struct store *store, const struct live *live, const char *actor, done_fn done,
	void *arg);
void rows_set_end(struct store *store, const char *id, int64_t end_us, done_fn done, void *arg);
/* Paused (image empty: memory kept), or running again. */
void rows_paused(struct store *store, const struct sandbox *sb, const char *image, done_fn done,
	void *arg);
void rows_resumed(struct store *store, const struct sandbox *sb, done_fn done, void *arg);
void rows_set_options(struct store *store, const struct sandbox *sb, done_fn done, void *arg);
void rows_ended(struct store *store, const char *id, enum sandbox_end by, const char *actor,
	const char *why, done_fn done, void *arg);
/* Reads all that are not ended, and the snapshots, into the book, on the loop. */
void rows_load(struct sandbox_book *book, done_fn done, void *arg);

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

/* snapshot-rows.c */
void snap_rows_insert(struct store *store, const struct sandbox_snapshot *snap,
	const char *replaced, const char *actor, done_fn done, void *arg);
void snap_rows_delete(struct store *store, const char *image, const char *actor, done_fn done,
	void *arg);
int snap_load(struct store_tx *tx, struct list *snaps, struct err *e);
void snap_list_free(struct list *snaps);

/* trust.c */
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
};
void crossings_hear(struct live *live, const struct guest_word *word);
/* Its guest is a new one, which counts from zero. */
void crossings_reborn(struct live *live);
void on_crossed(void *book, const char *id, enum runtime_limit limit, uint64_t times);

/* metrics.c */
void metrics_start(struct sandbox_book *book);
void samples_free(struct live *live);
