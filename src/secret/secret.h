/* secret - values that are given once and never shown again.
 * Owns:   the secrets and secret_versions tables, and the key that encrypts what they hold.
 * Uses:   base, loop, json, store, libsodium.
 * Never:  logs a value, or gives one to a request: only the rooms below the API may open one.
 *
 * Each version is a secretbox under a key of its own, derived from the server's seed, the secret's
 * id and the version's number: a row moved to another place does not open. */
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "limit/limit.h"
#include "store/store.h"

enum {
	SECRET_ID_SIZE = 4 + UUID_SIZE, /* "sec_" and a UUID */
	SECRET_NAME_SIZE = 129,
	SECRET_VALUE_MAX = 64 << 10,
	SECRET_MAX_PAIRS = 32, /* of metadata; the next three are bytes */
	SECRET_MAX_KEY = 128,
	SECRET_MAX_TEXT = 1024,
	SECRET_MAX_METADATA = 8192,
};

struct secret { /* a view: read it, keep nothing of it beyond the callback */
	char id[SECRET_ID_SIZE], name[SECRET_NAME_SIZE];
	int64_t version, created_us, updated_us;
	struct str metadata; /* a JSON object of strings */
};

struct secret_book;
/* Borrows loop and store. teams NULL: the usual ceilings. */
struct secret_book *secret_book_new(struct loop *loop, struct store *store,
	const struct limit_teams *teams, const uint8_t seed[SHA256_SIZE]);
struct secret_book *secret_book_free(struct secret_book *book);
DEFINE_CLEANUP(struct secret_book, secret_book_free)

struct secret_in {
	const char *team_id, *actor;
	struct str which; /* create: the name; else name or id */
	struct str value;
	struct json_map metadata; /* update: not set keeps what was there */
};
typedef void (*secret_fn)(void *arg, int r, const struct secret *secret, const struct err *e);
/* -EINVAL: the name, the value or the metadata breaks a limit, and which. -EEXIST: the name is
 * taken. -EDQUOT: too many. Everything is copied. */
void secret_create(struct secret_book *book, const struct secret_in *in, secret_fn fn, void *arg);
/* Adds a version. -ENOENT: none of this team. */
void secret_update(struct secret_book *book, const struct secret_in *in, secret_fn fn, void *arg);
void secret_get(struct secret_book *book, const char *team_id, struct str which, secret_fn fn,
	void *arg);
void secret_remove(struct secret_book *book, const char *team_id, struct str which,
	const char *actor, done_fn done, void *arg);

/* A page by name, behind the name `after` (empty: from the start); more says that others follow. */
typedef void (*secret_page_fn)(void *arg, int r, const struct secret *v, size_t n, bool more,
	const struct err *e);
void secret_list(struct secret_book *book, const char *team_id, struct str after, size_t limit,
	secret_page_fn fn, void *arg);

/* The newest value itself, for rooms that use it on the team's behalf. -EBADMSG: it does not open
 * with this server's seed. */
typedef void (*secret_value_fn)(void *arg, int r, struct str value, const struct err *e);
void secret_open(struct secret_book *book, const char *team_id, struct str which,
	secret_value_fn fn, void *arg);
