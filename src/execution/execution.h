/* execution - commands in sandboxes: run, recorded, followed, stopped; and what they leave behind.
 * Owns:   the executions, output, command_rules, runs and artifacts tables; the artifacts' files.
 * Uses:   base, loop, json, limit, http, connect, store, observe, secret, sandbox.
 * Never:  answers HTTP, or lets a secret's value out: output is masked before it is kept or told.
 *
 * A command runs in the sandbox's guest under a tag of ours, and the guest keeps its newest output
 * by number. What was stored says how far we came, so that the next server asks for the rest: no
 * byte is lost or doubled by a crash. */
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "limit/limit.h"
#include "loop/loop.h"
#include "sandbox/sandbox.h"
#include "secret/secret.h"
#include "store/store.h"

enum {
	EXECUTION_TIMEOUT_MS = 300 * 1000, /* unless asked otherwise */
	EXECUTION_MAX_TIMEOUT_MS = 24 * 3600 * 1000,
	EXECUTION_ANSWER_BYTES = 10 << 20,   /* of each stream, unless asked otherwise */
	EXECUTION_MAX_KEEP_BYTES = 64 << 20, /* of each stream, in the database */
	EXECUTION_MAX_AT_ONCE = 64,          /* in one sandbox */
	EXECUTION_MAX_SECRETS = 64,
	EXECUTION_MIN_SECRET_BYTES = 4, /* shorter ones could not be masked */
	EXECUTION_MAX_INPUT_BYTES = 8 << 20,
	EXECUTION_GRACE_MS = 5000, /* between SIGTERM and SIGKILL, unless asked otherwise */
	EXECUTION_TRACE_SIZE = 64,
	EXECUTION_NAME_SIZE = 129, /* a user, an agent, a task, an actor */
	EXECUTION_MAX_RULES = 512,
};

enum execution_state {
	EXECUTION_STARTING,
	EXECUTION_RUNNING,
	EXECUTION_ENDED,
};

/* Who ended it. Only the last is our own failure. */
enum execution_end {
	EXECUTION_END_PROCESS, /* by itself, whatever its exit code */
	EXECUTION_END_USER,    /* cancelled */
	EXECUTION_END_TIMEOUT,
	EXECUTION_END_MEMORY,
	EXECUTION_END_SANDBOX, /* the sandbox ended under it */
	EXECUTION_END_INFRASTRUCTURE,
};
const char *execution_state_name(enum execution_state state);
const char *execution_end_name(enum execution_end end);

struct execution { /* a view: read it, keep nothing of it beyond the callback */
	char sandbox_id[SANDBOX_ID_SIZE];
	int64_t n; /* counted from 1 in each sandbox */
	char agent_id[EXECUTION_NAME_SIZE], task_id[EXECUTION_NAME_SIZE];
	char actor[ACTOR_SIZE], user[EXECUTION_NAME_SIZE];
	struct str command, cwd; /* command is a JSON object; secrets masked */
	enum execution_state state;
	int64_t started_us, deadline_us, ended_us; /* ended_us 0: not yet */
	bool has_exit_code;
	int64_t exit_code;
	char signal[16]; /* "SIGKILL"; empty: none */
	enum execution_end ended_by;
	char ended_why[252];
	int64_t stdout_bytes, stderr_bytes; /* all it wrote, as masked */
	int64_t last_seq;                   /* of what is kept */
	bool truncated;                     /* more was written than is kept */
	char traceparent[EXECUTION_TRACE_SIZE];
};

struct execution_config { /* all borrowed, but for the descriptor, which is taken */
	struct loop *loop;
	struct store *store;
	struct sandbox_book *sandboxes;
	struct secret_book *secrets;
	uint8_t seed[SHA256_SIZE];
	int artifacts_fd;       /* the directory of artifacts' files */
	int64_t retention_s;    /* of artifacts */
	int64_t output_s;       /* what commands printed is kept so long after they ended */
	int64_t history_s;      /* and that they ran; 0: for ever */
	int64_t artifact_bytes; /* the most of one; of one run, four times that */
	int64_t keep_bytes;     /* of each stream of a command that asks for no other */
	struct limit_teams
		teams; /* what a team may keep: LIMIT_ARTIFACT_STORAGE, LIMIT_COMMANDS ... */
};

struct execution_book;
struct execution_book *execution_book_new(const struct execution_config *config);
/* Commands run on: only the memory of them goes. */
struct execution_book *execution_book_free(struct execution_book *book);
DEFINE_CLEANUP(struct execution_book, execution_book_free)
/* Once, when sandboxes are reconciled: takes up what runs, finishes what was half done. */
void execution_recover(struct execution_book *book, done_fn done, void *arg);
/* The server stops: who follows, waits or runs something hears -EAGAIN now, while there is somebody
 * to hear. Commands run on. */
void execution_hang_up(struct execution_book *book);
/* Then, when nothing is under way: the book may be freed. -ETIMEDOUT: it takes too long. */
void execution_settle(struct execution_book *book, done_fn done, void *arg);
size_t execution_count(const struct execution_book *book); /* that run now */
/* Whether one runs in this sandbox: a sandbox_busy_fn. */
bool execution_is_busy(void *book, const char *sandbox_id);
/* All that ran in it and what it printed: a sandbox_forget_fn. */
int execution_forget(struct store_tx *tx, const char *sandbox_id, struct err *e);

/* ---- one command ---- */
struct execution_spec {
	const struct sandbox_owner *who; /* whose the sandbox must be */
	const char *actor;
	const char *agent_id, *task_id; /* in whose name it runs; NULL: as the sandbox's */
	struct str sandbox_id;
	struct str shell;      /* a line for bash; or */
	struct json_strs argv; /* a program and its arguments */
	struct str cwd, user;  /* empty: the sandbox's own */
	struct json_map envs;
	struct json_map secrets; /* environment variable -> the secret's name */
	struct str input;        /* its stdin; p NULL: /dev/null */
	int64_t timeout_ms;      /* 0: the usual, as the next */
	int64_t keep_bytes;
	/* Become variables of its environment, TRACEPARENT ...; empty: none. */
	struct str traceparent, tracestate, baggage;
};
typedef void (*execution_fn)(void *arg, int r, const struct execution *ex, const struct err *e);
/* fn when the process runs and its row says so. -ENOENT: no such sandbox. -EINVAL: the request.
 * -EPERM: the rules of commands do not allow it, and why. -EDQUOT: too many at once. -EBUSY: the
 * sandbox is paused. Everything is copied. */
void execution_start(struct execution_book *book, const struct execution_spec *spec,
	execution_fn fn, void *arg);

struct execution_ref {
	const struct sandbox_owner *who;
	struct str sandbox_id;
	int64_t n;
};
/* -ENOENT. */
void execution_get(struct execution_book *book, const struct execution_ref *ref, execution_fn fn,
	void *arg);
/* Newest first, below `before` (0: from the newest); more says that others follow. */
typedef void (*execution_page_fn)(void *arg, int r, const struct execution *v, size_t n, bool more,
	const struct err *e);
void execution_list(struct execution_book *book, const struct execution_ref *ref, int64_t before,
	size_t limit, execution_page_fn fn, void *arg);
/* signal 0: SIGTERM, and SIGKILL after grace_ms; to all of its process group. -ENOENT; -ESRCH: it
 * has ended. -EBUSY: the sandbox is paused. Done when the signal was sent. */
void execution_cancel(struct execution_book *book, const struct execution_ref *ref,
	const char *signal, int64_t grace_ms, const char *actor, done_fn done, void *arg);

/* ---- output ---- */
enum execution_stream {
	EXECUTION_STDOUT = 1,
	EXECUTION_STDERR = 2,
};
struct execution_chunk {
	int64_t seq, at_us;
	enum execution_stream stream;
	struct str bytes;
};
/* What is kept from number `from` on, at most `limit` of them, then done. */
typedef void (*execution_chunks_fn)(void *arg, int r, const struct execution *ex,
	const struct execution_chunk *v, size_t n, const struct err *e);
void execution_logs(struct execution_book *book, const struct execution_ref *ref, int64_t from,
	size_t limit, execution_chunks_fn fn, void *arg);

/* Every chunk from a number on, the old ones from the store, new ones as they come. */
struct execution_follower;
struct execution_follow_ops {
	/* False: no more until execution_follow_resume. */
	bool (*chunk)(void *arg, const struct execution_chunk *chunk);
	/* Exactly once, last: it has ended and all was told, or r < 0. The follower is no more. */
	void (*end)(void *arg, int r, const struct execution *ex, const struct err *e);
};
struct execution_follower *execution_follow(struct execution_book *book,
	const struct execution_ref *ref, int64_t from, const struct execution_follow_ops *ops,
	void *arg);
void execution_follow_resume(struct execution_follower *f);
void execution_follow_stop(struct execution_follower *f); /* no callback comes any more */

/* Its end and its output, collected up to limit_bytes of each stream. */
struct execution_result {
	const struct execution *execution;
	struct str out, err;
	bool out_cut, err_cut; /* there is more than is collected */
};
typedef void (*execution_result_fn)(void *arg, int r, const struct execution_result *result,
	const struct err *e);
struct execution_wait;
struct execution_wait *execution_wait(struct execution_book *book, const struct execution_ref *ref,
	size_t limit_bytes, execution_result_fn fn, void *arg);
void execution_wait_stop(struct execution_wait *wait);

/* ---- which commands may be run ---- */
/* No rules: everything. agent_id empty: of the whole team. */
typedef void (*execution_rules_fn)(void *arg, int r, bool is_set, const struct json_strs *programs,
	const struct err *e);
void execution_get_rules(struct execution_book *book, const char *team_id, const char *agent_id,
	execution_rules_fn fn, void *arg);
/* programs NULL: removes the rules. */
void execution_set_rules(struct execution_book *book, const char *team_id, const char *agent_id,
	const struct json_strs *programs, const char *actor, done_fn done, void *arg);

/* ---- a whole run: a command in a sandbox of its own, what it made, the end of the sandbox ---- */
/* The sandbox was made for it and carries the run's id as metadata: so whatever happens, a crash at
 * any moment included, it is found and ended. */
#define EXECUTION_RUN_KEY "atoll.run"
struct execution_run_spec {
	const char *id;                /* a UUID, the metadata's */
	struct execution_spec command; /* sandbox_id: the sandbox */
	struct json_strs artifacts;    /* paths, or patterns with * and ? in the last part */
	size_t limit_bytes;            /* of each collected stream */
};
struct execution_artifact { /* a view */
	char id[UUID_SIZE], sandbox_id[SANDBOX_ID_SIZE], sha256[2 * SHA256_SIZE + 1];
	char agent_id[EXECUTION_NAME_SIZE], task_id[EXECUTION_NAME_SIZE];
	struct str path;
	int64_t bytes, created_us, expires_us;
};
struct execution_run_result {
	char id[UUID_SIZE], sandbox_id[SANDBOX_ID_SIZE];
	const struct execution_result *result; /* NULL: it did not come to that */
	const struct execution_artifact *artifacts;
	size_t n_artifacts;
	const char *artifacts_missing; /* what was asked for and could not be had; NULL: nothing */
};
struct execution_run_ops {
	/* The command runs. With `chunk` its output is told and not collected. Both may be NULL. */
	void (*started)(void *arg, const struct execution *ex);
	bool (*chunk)(void *arg, const struct execution_chunk *chunk);
	/* Exactly once, last, when the sandbox is gone: the command has ended, or r < 0. */
	void (*end)(void *arg, int r, const struct execution_run_result *result,
		const struct err *e);
};
struct execution_run;
struct execution_run *execution_run(struct execution_book *book,
	const struct execution_run_spec *spec, const struct execution_run_ops *ops, void *arg);
void execution_run_resume(struct execution_run *run); /* after chunk said false */
/* Its client has gone: the sandbox is ended all the same, and no callback comes any more. */
void execution_run_leave(struct execution_run *run);

/* ---- artifacts ---- */
typedef void (*execution_artifacts_fn)(void *arg, int r, const struct execution_artifact *v,
	size_t n, bool more, const struct err *e);
struct execution_artifact_query {
	const struct sandbox_owner *who;
	struct str sandbox_id, task_id; /* empty: any */
	int64_t before_us; /* and, at the same time, a smaller id; 0: from the newest */
	struct str before_id;
	size_t limit;
};
void execution_list_artifacts(struct execution_book *book,
	const struct execution_artifact_query *query, execution_artifacts_fn fn, void *arg);
/* Its file, opened for reading: the caller's. -ENOENT: none, or its time is over. */
typedef void (*execution_artifact_fn)(void *arg, int fd, const struct execution_artifact *artifact,
	const struct err *e);
void execution_open_artifact(struct execution_book *book, const struct sandbox_owner *who,
	struct str id, execution_artifact_fn fn, void *arg);
/* What a team has of them; -ENOSPC: so much that not even an empty one fits. */
int64_t execution_artifact_bytes(const struct execution_book *book, const char *team_id);
int execution_artifact_room(const struct execution_book *book, const char *team_id, struct err *e);
void execution_delete_artifact(struct execution_book *book, const struct sandbox_owner *who,
	struct str id, const char *actor, done_fn done, void *arg);
