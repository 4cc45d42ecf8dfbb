/* access - who may do what: teams and their API keys.
 * Owns:   the teams and api_keys tables, and the keys' hashes in memory.
 * Uses:   base, loop, store, limit.
 * Never:  keeps or logs a key: it is shown once, when it is made; only its SHA-256 stays. */
#pragma once

#include "base/base.h"
#include "base/notice.h"
#include "json/json.h"
#include "limit/limit.h"
#include "loop/loop.h"
#include "store/store.h"

enum {
	ACCESS_ID_SIZE = UUID_SIZE,
	ACCESS_KEY_SIZE = 45, /* "e2b_", 40 hex digits and a NUL */
	ACCESS_NAME_SIZE = 128,
	ACCESS_AGENT_SIZE = 129,
};

/* What a key may do. A route names what it needs. */
enum access_scope {
	ACCESS_SANDBOXES_READ = 1 << 0,
	ACCESS_SANDBOXES_WRITE = 1 << 1,
	ACCESS_EXECUTE = 1 << 2,
	ACCESS_FILES = 1 << 3,
	ACCESS_TEMPLATES = 1 << 4, /* name, tag and delete them */
	ACCESS_VOLUMES = 1 << 5,
	ACCESS_SECRETS_USE = 1 << 6, /* give them to sandboxes, by name */
	ACCESS_SECRETS = 1 << 7,     /* set, list and delete them */
	ACCESS_KEYS = 1 << 8,
	ACCESS_AUDIT = 1 << 9,
	ACCESS_USAGE = 1 << 10,
	ACCESS_ADMIN = 1 << 11, /* what holds for the whole team: quota, rules of commands */
	ACCESS_ALL = (1 << 12) - 1,
	ACCESS_NEVER_AGENTS = ACCESS_KEYS | ACCESS_ADMIN, /* with these it could free itself */
};
unsigned access_scope_find(struct str name); /* 0: no such one */
/* Their names, as the table has them: "sandboxes:read", "execute" ... */
void access_scopes_write(struct buf *out, unsigned scopes, const char *between);
/* From words with a space between; none: the usual ones. */
unsigned access_scopes_read(struct str words, bool is_agents);
/* What a key has for which nobody named any: all, but an agent's only what is about its own. */
unsigned access_scopes_usual(bool is_agents);
/* Is this a name for an agent or a task? 1 to 128 letters, digits and . _ : / @ - inside. */
bool access_is_agent(struct str name);

struct access_key { /* a plain value, without the key */
	char id[ACCESS_ID_SIZE], team_id[ACCESS_ID_SIZE];
	char created_by[ACCESS_ID_SIZE]; /* the key that made it; empty: the system or an admin */
	char name[ACCESS_NAME_SIZE];
	char mask_start[8], mask_end[8];  /* first 2 and last 4 of the 40 digits */
	int64_t created_us, last_used_us; /* 0: never used */
	char agent_id[ACCESS_AGENT_SIZE]; /* the one agent it acts for; empty: it is the team's */
	unsigned scopes;
	int64_t expires_us;               /* 0: never */
	char replaced_by[ACCESS_ID_SIZE]; /* the key that it was rotated to; empty: none */
};

struct access_team {
	char id[ACCESS_ID_SIZE];
	char name[ACCESS_NAME_SIZE];
	struct limit_ceilings ceilings; /* its own; 0: the server's, or the usual one */
	struct limit_quota quota;       /* the same */
	enum limit_activity activity;   /* the same */
};

struct access_book;
/* Loads all keys; makes the first team if there is none. Blocking, at start. */
int access_book_new(struct store *store, struct access_book **ret, struct err *e);
struct access_book *access_book_free(struct access_book *book);
DEFINE_CLEANUP(struct access_book, access_book_free)
/* From now on writes when keys were used, this long after the first use that is not written yet. */
void access_keep_use(struct access_book *book, struct loop *loop, int64_t after_ms);

/* The team that the first start made: who acts when the server itself does, and whose the
 * templates in the templates directory are. */
const char *access_first_team(const struct access_book *book);
const struct access_team *access_team(const struct access_book *book, struct str id);
/* Oldest first. */
void access_each_team(const struct access_book *book,
	void (*fn)(void *arg, const struct access_team *team), void *arg);

/* -ENOENT: no such team. Holds for what is made from then on. */
void access_set_ceilings(struct access_book *book, struct str team_id,
	const struct limit_ceilings *ceilings, const char *actor, done_fn done, void *arg);
/* Of every team that has no other of its own; at start. */
void access_set_server_ceilings(struct access_book *book, const struct limit_ceilings *ceilings);
/* What is said about a team: its own, and where it has none the server's. */
void access_ceilings(const struct access_book *book, const char *team_id,
	struct limit_ceilings *ret);

/* What all sandboxes of a team have in their environment but for what their creators say; those
 * that are made or booted from then on. Copied. -EINVAL: a name that no variable has, -E2BIG: too
 * much, -ENOENT: no such team. */
enum {
	ACCESS_MAX_ENV = 64,
};
void access_set_env(struct access_book *book, const char *team_id, const struct json_map *env,
	const char *actor, done_fn done, void *arg);
/* As the sandbox room asks it; arg is the book. Borrowed until the next change. */
void access_env(void *arg, const char *team_id, struct json_map *ret);

/* What the team's sandboxes may have at once, all together. -ENOENT: no such team. */
void access_set_quota(struct access_book *book, const char *team_id,
	const struct limit_quota *quota, const char *actor, done_fn done, void *arg);
/* Of every team that has none of its own; at start. */
void access_set_server_quota(struct access_book *book, const struct limit_quota *quota);
/* What holds for a team, as the sandbox room asks it; arg is the book. */
void access_quota(void *arg, const char *team_id, struct limit_quota *ret);

/* How much is told of what is done in the team's sandboxes. -ENOENT: no such team. */
void access_set_activity(struct access_book *book, const char *team_id,
	enum limit_activity activity, const char *actor, done_fn done, void *arg);
/* Of every team that has none of its own; at start. */
void access_set_server_activity(struct access_book *book, enum limit_activity activity);
/* What holds for a team, as the sandbox room asks it; arg is the book. */
enum limit_activity access_activity(void *arg, const char *team_id);

void access_make_key(char key[ACCESS_KEY_SIZE]);
/* At start: the key of DATA/env is a key of the first team, unless it was revoked. */
int access_ensure_key(struct access_book *book, const char *key, struct err *e);

/* The live key behind what a client sent, or NULL (also when its time is up); it counts as used.
 * Valid until the next change of the book. */
const struct access_key *access_check(struct access_book *book, struct str key);

/* Tells whoever goes on with what was opened by this key (as access_check gave it) when it is
 * revoked or its time is up. Needs access_keep_use's loop for the latter. */
void access_hold(struct access_book *book, const struct access_key *key, struct notice *n,
	loop_fn fn, void *arg);
/* Is this text a key of this server's, live or not long expired? It does not count as used. */
bool access_is_key(const struct access_book *book, struct str text);
/* Was it a live key until its time was up? */
bool access_is_expired(const struct access_book *book, struct str key);

/* Makes and stores a key, then calls fn: r < 0, or the value and the key itself, this once. */
typedef void (*access_created_fn)(void *arg, int r, const struct access_key *made, const char *key,
	const struct err *e);
struct access_key_spec {
	const char *team_id, *actor;
	struct str name;
	struct str agent_id; /* empty: the team's */
	unsigned scopes;     /* 0: the usual ones */
	int64_t expires_us;  /* 0: never */
};
void access_create_key(struct access_book *book, const struct access_key_spec *spec,
	access_created_fn fn, void *arg);
/* A new key in the place of this one, which goes on for so long yet; it lives as long as the old
 * one was given, but not longer than the key that is the actor. -ENOENT: not this team's, or
 * revoked. -EEXIST: it has been rotated, or its time is up. */
void access_rotate_key(struct access_book *book, const char *team_id, struct str id,
	int64_t overlap_s, const char *actor, access_created_fn fn, void *arg);
/* NULL: not this team's, or revoked. Valid until the next change of the book. */
const struct access_key *access_find_key(const struct access_book *book, const char *team_id,
	struct str id);
/* -ENOENT: not this team's, or revoked. */
void access_rename_key(struct access_book *book, const char *team_id, struct str id,
	struct str name, const char *actor, done_fn done, void *arg);
/* -ENOENT: not this team's, or already revoked. -EBUSY: the team's last key. */
void access_revoke_key(struct access_book *book, const char *team_id, struct str id,
	const char *actor, done_fn done, void *arg);
/* Newest first. */
void access_each_key(const struct access_book *book, const char *team_id,
	void (*fn)(void *arg, const struct access_key *key), void *arg);
