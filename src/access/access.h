/* access - who may do what: teams and their API keys.
 * Owns:   the teams and api_keys tables, and the keys' hashes in memory.
 * Uses:   base, loop, store, limit.
 * Never:  keeps or logs a key: it is shown once, when it is made; only its SHA-256 stays. */
#pragma once

#include "base/base.h"
#include "limit/limit.h"
#include "store/store.h"

enum {
	ACCESS_ID_SIZE = UUID_SIZE,
	ACCESS_KEY_SIZE = 45, /* "e2b_", 40 hex digits and a NUL */
	ACCESS_NAME_SIZE = 128,
};

struct access_key { /* a plain value, without the key */
	char id[ACCESS_ID_SIZE], team_id[ACCESS_ID_SIZE];
	char created_by[ACCESS_ID_SIZE]; /* the key that made it; empty: the system or an admin */
	char name[ACCESS_NAME_SIZE];
	char mask_start[8], mask_end[8];  /* first 2 and last 4 of the 40 digits */
	int64_t created_us, last_used_us; /* 0: never used */
};

struct access_team {
	char id[ACCESS_ID_SIZE];
	char name[ACCESS_NAME_SIZE];
	struct limit_set ceilings; /* of each of its sandboxes; 0: the usual one */
};

struct access_book;
struct loop;
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

/* -ENOENT: no such team. Holds for sandboxes made from then on. */
void access_set_ceilings(struct access_book *book, struct str team_id,
	const struct limit_set *ceilings, const char *actor, done_fn done, void *arg);

void access_make_key(char key[ACCESS_KEY_SIZE]);
/* At start: the key of DATA/env is a key of the first team, unless it was revoked. */
int access_ensure_key(struct access_book *book, const char *key, struct err *e);

/* The live key behind what a client sent, or NULL; it counts as used. Valid until the next change
 * of the book. */
const struct access_key *access_check(struct access_book *book, struct str key);

/* Makes and stores a key, then calls fn: r < 0, or the value and the key itself, this once. */
typedef void (*access_created_fn)(void *arg, int r, const struct access_key *made, const char *key,
	const struct err *e);
void access_create_key(struct access_book *book, const char *team_id, struct str name,
	const char *actor, access_created_fn fn, void *arg);
/* -ENOENT: not this team's, or revoked. */
void access_rename_key(struct access_book *book, const char *team_id, struct str id,
	struct str name, const char *actor, done_fn done, void *arg);
/* -ENOENT: not this team's, or already revoked. -EBUSY: the team's last key. */
void access_revoke_key(struct access_book *book, const char *team_id, struct str id,
	const char *actor, done_fn done, void *arg);
/* Newest first. */
void access_each_key(const struct access_book *book, const char *team_id,
	void (*fn)(void *arg, const struct access_key *key), void *arg);
