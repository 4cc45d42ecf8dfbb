/* The execution room's own objects, shared by its files.
 *
 *   execution.c   the book; asking for a command: checked, its secrets opened
 *   cancel.c      ending one by a signal
 *   command.c     one that runs: output in, masked, kept, told; its end
 *   line.c        speaking with the guest: starting it, following it, signals; talk.c how much of
 *                 one team's output is read in a turn
 *   rows.c        the tables           follow.c    followers, waiting
 *   flight.c      what is under way    read.c      what is known of commands
 *   recover.c     after a restart      rules.c     which programs may be run
 *   shell.c       what a line of shell would run; words.c its words; wrappers.c programs that run
 *                 others
 *   run.c         a sandbox for one command; collect.c its files
 *   artifacts.c   what runs left behind; kept.c how much of it a team has */
#pragma once

#include "connect/connect.h"
#include "execution/execution.h"
#include "execution/talk.h"
#include "http/http.h"
#include "secret/mask.h"

enum {
	TAG_SIZE = 26,
	COMMAND_MAX_BYTES = 256 << 10, /* the request's, as JSON; one word of it has at most 128 KiB
					  in Linux */
	FLUSH_BYTES = 64 << 10,        /* of output: written at once; less of it soon: */
	FLUSH_MS = 100,
	UNSAVED_HIGH_BYTES = 256 << 10, /* above it the guest is not read */
	UNSAVED_LOW_BYTES = 128 << 10,
	/* With what is on its way in sockets this must stay below what a guest keeps (1 MiB). */
	CHUNK_COST = 64,
	FORGET_BYTES = 4 << 10,      /* a guest is told to let go of an output this long */
	MASKS_MAX_BYTES = 256 << 20, /* of all commands of a team that run */
};

struct chunk { /* never changed once it is made: a job may read it meanwhile */
	struct list node;
	int64_t seq, at_us;
	enum execution_stream stream;
	bool is_kept; /* else it is told to those who follow and not written */
	size_t n;
	char bytes[];
};

struct execution_book {
	struct execution_config config;
	uint8_t key[SHA256_SIZE]; /* seals what the next server needs */
	struct map commands;      /* that run, by "SANDBOX N" */
	struct list starting;     /* of struct command: they have no number yet */
	struct list followers;    /* of those that do not run */
	struct map rules;         /* of struct rules, by "TEAM AGENT" */
	struct map talks;         /* of struct team_talk, by team */
	struct map kept;          /* bytes of artifacts, by team */
	struct list runs;
	struct loop_timer sweep;
	bool is_sweeping, is_stopping;
	struct time_past past;
	int64_t orphans_at_ms;  /* when files without a row are looked for again */
	int64_t output_from_us; /* the output of those that ended before has been swept */
	struct list cancels;    /* of those that wait to see whether a signal was enough */
	size_t in_flight;
	struct loop_timer patience;
	struct loop_task settling;
	done_fn settled; /* NULL: nobody waits for that */
	void *settled_arg;
};

/* ---- one that runs ---- */
struct stream_half {
	struct mask_stream *mask;
	int64_t kept_bytes;
};

struct command {
	int n_refs;
	struct list node; /* in book->starting, until it has a number */
	struct execution_book *book;
	struct execution view; /* command and cwd point into the buffers below */
	struct buf text, cwd;
	char key[SANDBOX_ID_SIZE + 24];
	char team_id[SANDBOX_TEAM_SIZE];
	char owner_agent[EXECUTION_NAME_SIZE]; /* the sandbox's */
	char tag[TAG_SIZE];
	int64_t keep_bytes, began_ms;
	struct buf message;   /* the Start message, until it is sent */
	struct buf secrets;   /* sealed */
	execution_fn started; /* NULL: told, or nobody asked */
	void *started_arg;

	struct mask_needles *needles;
	struct stream_half halves[2];
	int64_t guest_seq;
	struct list fresh, saving; /* of struct chunk: oldest in the second */
	int64_t last_seq;          /* of these; the view's is that of the newest that is kept */
	size_t unsaved_bytes;
	bool is_saving;
	bool is_told_started, is_telling, must_tell_started; /* the event of its start */
	bool is_ending, is_over; /* the end is known; it is written down */
	struct loop_timer flush, deadline, retry;
	struct list followers;
	struct loop_task free_task;

	/* The guest. */
	struct http_stream *stream;
	struct talk *talk; /* its team's; set with the stream */
	struct talker talker;
	struct connect_reader reader;
	int guest_status, tries;
	bool is_dialling, is_row_written;
	bool is_asked;   /* the guest was asked to start it: it may run */
	bool has_failed; /* the guest said no, and why: */
	struct err failure;
	bool is_cancelled, is_timed_out;
	int deadline_step;
	int dial_fd;
};

struct command *command_new(struct execution_book *book);
struct command *command_ref(struct command *c);
void command_unref(struct command *c);
struct command *command_find(const struct execution_book *book, const struct execution_ref *ref);
bool command_is_of(const struct command *c, const struct sandbox_owner *who);
int command_needles(struct command *c, const struct json_map *secrets, struct err *e);
size_t command_mask_bytes(const struct command *c, const char *team_id); /* 0: another's */
/* Its row was written, or could not be. */
void command_recorded(struct command *c, int r, const struct err *e);
void command_enter(struct command *c); /* it has its number */
void command_output(struct command *c, enum execution_stream stream, struct str bytes);
/* Says that it has ended: what is left is written, then everybody is told. */
struct command_end {
	enum execution_end by;
	bool has_exit_code;
	int64_t exit_code;
	int signo; /* 0: none */
	const char *why;
};
void command_end(struct command *c, const struct command_end *end);
void command_hang_up(struct command *c);
void command_begun(struct command *c); /* the guest says that it runs */
/* It never began: its row goes, who asked hears why. */
void command_fail_start(struct command *c, const struct err *e);
void command_arm(struct command *c); /* the deadline */
void command_save_soon(struct command *c);
const char *signal_name(int signo);

/* ---- flight.c ---- */
void flight_begin(struct execution_book *book);
void flight_end(struct execution_book *book);
/* store_run_for and its like. */
void flight_run(struct execution_book *book, const char *team_id, store_work_fn work, done_fn done,
	void *arg);
void flight_record(struct execution_book *book, const char *team_id, store_work_fn work,
	done_fn done, void *arg);
void flight_read(struct execution_book *book, store_work_fn work, done_fn done, void *arg);

/* ---- line.c ---- */
void line_start(struct command *c);
void line_follow(struct command *c); /* from guest_seq on */
void line_drop(struct command *c);   /* no more callbacks */
void line_resume(struct command *c);
/* One call; done may be NULL. */
void line_call(struct execution_book *book, const char *sandbox_id, const char *path,
	struct str json, done_fn done, void *arg);
void line_signal(struct command *c, const char *name, done_fn done, void *arg);
void line_forget(struct command *c);
void line_talks_done(struct execution_book *book);

/* ---- rows.c ---- */
void command_row_insert(struct command *c, done_fn done, void *arg); /* sets view.n */
void command_row_save(struct command *c, done_fn done, void *arg);
void command_row_remove(struct command *c, done_fn done, void *arg);
void command_row_cancel(struct command *c, done_fn done, void *arg);
int execution_read_row(const struct store_row *row, struct execution *ret, struct arena *arena);
#define EXECUTION_COLUMNS                                                                       \
	"e.sandbox_id, e.n, e.agent_id, e.task_id, e.actor, e.username, e.command, e.cwd, "     \
	"e.state, e.started_us, e.deadline_us, e.ended_us, e.exit_code, e.signal, e.ended_by, " \
	"e.ended_why, e.stdout_bytes, e.stderr_bytes, e.last_seq, e.truncated, e.traceparent"
enum {
	EXECUTION_N_COLUMNS = 21
};

/* ---- cancel.c ---- */
void cancels_done(struct execution_book *book);

/* ---- follow.c ---- */
void followers_wake(struct command *c);
/* Gives what is in memory to those who can take it, now. */
void followers_catch_up(struct command *c);
void followers_end(struct command *c); /* it has ended, and its row says so */
void followers_hang_up(struct execution_book *book);
void followers_done(struct execution_book *book);

/* ---- rules.c ---- */
struct rules {
	struct arena *arena;
	char *key;
	struct json_strs programs;
};
int command_rules_load(struct store_tx *tx, void *book, struct err *e);
void command_rules_done(struct execution_book *book);
/* -EPERM and what is not allowed, and why; 1: there are rules, and they allow it. */
int command_rules_check(const struct execution_book *book, const struct sandbox *sb,
	const struct execution_spec *spec, struct err *e);

/* ---- shell.c ---- */
/* Calls fn for every program that a line would run. -EPERM: it cannot be said for certain which
 * ones, and why not; fn's own negative result stops and is returned. */
typedef int (*shell_program_fn)(void *arg, struct str program, struct err *e);
int shell_programs(struct str line, shell_program_fn fn, void *arg, struct err *e);
/* The same for a program and its arguments. */
int argv_programs(const struct str *argv, size_t n, shell_program_fn fn, void *arg, struct err *e);

/* ---- run.c, artifacts.c ---- */
void runs_recover(struct execution_book *book, done_fn done, void *arg);
void runs_hang_up(struct execution_book *book);
void runs_done(struct execution_book *book);
void artifacts_sweep_start(struct execution_book *book);
void artifacts_sweep_soon(struct execution_book *book);

/* ---- history.c ---- */
/* Commands and runs that ended before go, the newest of each sandbox but for it: the next counts on
 * its number. 1: there were many, and more are left. */
int history_trim(struct store_tx *tx, int64_t before_us, struct err *e);
/* The same for the output of those that ended between the two. */
int history_trim_output(struct store_tx *tx, int64_t from_us, int64_t before_us, struct err *e);
/* One that never began, with all of it. */
int history_drop(struct store_tx *tx, const char *sandbox_id, int64_t n, struct err *e);
struct history_over { /* a team that has too much */
	char team_id[SANDBOX_TEAM_SIZE];
	int64_t output, commands; /* so many bytes have to go */
};
/* Takes away the oldest. 1: that was not enough. */
int history_make_room(struct store_tx *tx, const struct history_over *over, struct err *e);

/* ---- kept.c ---- */
enum {
	KEPT_FILE_BYTES = 4096, /* each counts besides what it holds, so that empty ones do */
	/* The same of rows: of a command, of a run, of a chunk of output. */
	KEPT_COMMAND_BYTES = 1024,
	KEPT_RUN_BYTES = 512,
	KEPT_CHUNK_BYTES = 128,
	KEPT_MAX_OVER = 16, /* teams that are looked after in one sweep */
};
int kept_load(struct store_tx *tx, struct execution_book *book, struct err *e);
void kept_done(struct execution_book *book);
/* Counted in any case. -EDQUOT: that is more than the team may have. */
int kept_add(struct execution_book *book, const char *team_id, int64_t bytes, struct err *e);
/* What a chunk of output counts; it is stored as base64. */
int64_t kept_chunk_bytes(size_t n);
/* How many bytes of output more the team may have kept, all in one chunk. */
size_t kept_output_room(struct execution_book *book, const char *team_id);
/* Output that is to be written, or is now and counts there. */
void kept_pending(struct execution_book *book, const char *team_id, int64_t bytes);
/* -EDQUOT: the team has as many rows of commands as it may, and none of them can go. */
int kept_check(const struct execution_book *book, const char *team_id, struct err *e);
/* The team has one more: where that is too much, the sweep comes at once. */
void kept_grown(struct execution_book *book, const char *team_id);
size_t kept_over(const struct execution_book *book, struct history_over over[KEPT_MAX_OVER]);

static inline const char *or_empty(const char *text)
{
	return text ? text : "";
}
DEFINE_CLEANUP(struct arena, arena_free)
