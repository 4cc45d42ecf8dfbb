/* sandbox - the life of a sandbox: made, running until its time is up or somebody ends it, gone.
 * Owns:   the state machine, the sandboxes table, time-outs, ids and tokens, reconciling at start.
 * Uses:   base, loop, json, store, runtime, template.
 * Never:  speaks HTTP, mounts or kills: the runtime acts, this room decides and records. */
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "runtime/runtime.h"
#include "store/store.h"
#include "template/template.h"

enum {
	SANDBOX_ID_SIZE = 22, /* 'i', 20 of [a-z0-9], NUL */
	SANDBOX_TEAM_SIZE = 37,
	SANDBOX_TOKEN_SIZE = 65,
};

enum sandbox_state {
	SANDBOX_STARTING,
	SANDBOX_RUNNING,
	SANDBOX_ENDING,
};

/* Who ended it, as the row, the event and the log say it. */
enum sandbox_end {
	SANDBOX_END_USER,
	SANDBOX_END_TIMEOUT,
	SANDBOX_END_AGENT, /* its own PID 1 stopped */
	SANDBOX_END_INFRASTRUCTURE,
};

struct sandbox { /* a view: read it, keep nothing of it beyond the callback */
	char id[SANDBOX_ID_SIZE], team_id[SANDBOX_TEAM_SIZE];
	char template_id[TEMPLATE_ID_SIZE], template_name[TEMPLATE_NAME_SIZE];
	enum sandbox_state state;
	bool secure;
	int64_t cpu_count, memory_mb, disk_mb, timeout_s;
	int64_t started_us, end_us; /* wall clock */
	struct json_map metadata;
};

struct sandbox_spec {
	const char *team_id, *actor;
	struct str template_name;
	int64_t timeout_s;
	bool secure;
	struct json_map metadata, env_vars; /* borrowed for the call */
};

struct sandbox_limits {
	int64_t max_timeout_s;
	int64_t max_running; /* of one team at once */
};

struct sandbox_book;
struct sandbox_book_config {
	struct loop *loop;
	struct store *store;
	struct runtime *runtime;
	struct template_book *templates;
	struct sandbox_limits limits;
	uint8_t seed[SHA256_SIZE]; /* tokens are derived from it, so none is stored */
};
struct sandbox_book *sandbox_book_new(const struct sandbox_book_config *config);
/* Sandboxes live on: only the memory of them goes. Nothing may be in flight. */
struct sandbox_book *sandbox_book_free(struct sandbox_book *book);
DEFINE_CLEANUP(struct sandbox_book, sandbox_book_free)
/* Once, before anything else: makes rows and kernel agree (design: reconcile). */
void sandbox_reconcile(struct sandbox_book *book, done_fn done, void *arg);

/* 0: can create. */
int sandbox_ready(const struct sandbox_book *book, struct err *e);
/* -ENOENT template, -EINVAL, -ERANGE time-out, -EDQUOT too many at once, else infrastructure. */
typedef void (*sandbox_created_fn)(void *arg, int r, const struct sandbox *sb, const struct err *e);
void sandbox_create(struct sandbox_book *book, const struct sandbox_spec *spec,
	sandbox_created_fn fn, void *arg);
/* Running ones only; NULL otherwise. team_id NULL: of any team (the edge asks so). */
const struct sandbox *sandbox_find(const struct sandbox_book *book, const char *team_id,
	struct str id);
void sandbox_each(const struct sandbox_book *book, const char *team_id,
	void (*fn)(void *arg, const struct sandbox *sb), void *arg);
size_t sandbox_count(const struct sandbox_book *book);
/* Done when nothing of it is left. -ENOENT: not running. */
void sandbox_kill(struct sandbox_book *book, const char *team_id, struct str id, const char *actor,
	done_fn done, void *arg);
/* Ends it that many seconds from now; 0 ends it at once. */
void sandbox_set_timeout(struct sandbox_book *book, const char *team_id, struct str id,
	int64_t timeout_s, done_fn done, void *arg);
/* Ends them all (serve --stop-sandboxes). */
void sandbox_kill_all(struct sandbox_book *book, done_fn done, void *arg);

/* The data door to a port of a running one; see runtime_dial. */
void sandbox_dial(struct sandbox_book *book, const struct sandbox *sb, int port, runtime_dial_fn fn,
	void *arg);
/* What a client must send as X-Access-Token; the same for an id as long as the data directory
 * lives. */
void sandbox_token(const struct sandbox_book *book, const char *id, char token[SANDBOX_TOKEN_SIZE]);
