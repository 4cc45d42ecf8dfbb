/* The access room's own objects, shared by its files. */
#pragma once

#include "access/access.h"
#include "loop/loop.h"

enum {
	HASH_SIZE = 2 * SHA256_SIZE + 1
};

struct entry { /* a live key */
	struct access_key key;
	char hash[HASH_SIZE];
	bool used;           /* since last_used_us was written */
	struct list node;    /* oldest first */
	struct list holders; /* notices of what was opened with it and is still open */
};

struct team {
	struct access_team view;
	struct arena *env_arena; /* owns env; NULL: there is none */
	struct json_map env;
	struct list node; /* oldest first */
};

struct access_book {
	struct store *store;
	struct loop *loop; /* NULL: when a key was used is not kept */
	struct loop_timer timer;
	struct loop_timer ends; /* when the next key that is held may be over */
	int64_t use_after_ms;
	struct map by_hash;
	struct list entries, teams;
	struct limit_ceilings ceilings; /* the server's */
	struct limit_quota quota;       /* the same */
	enum limit_activity activity;   /* the same */
};

/* environment.c: of a row; what cannot be read is nothing. */
void team_read_env(struct team *team, struct str json);

int key_hash(struct str key, char hash[HASH_SIZE]);
void book_add(struct access_book *book, const struct access_key *key, const char *hash);
void book_remove(struct access_book *book, struct entry *entry); /* then nobody finds it */
void entry_end(struct entry *entry); /* tells its holders, and frees it */
/* Its end has come nearer. */
void book_watch_end(struct access_book *book, const struct entry *entry);
struct entry *book_find(const struct access_book *book, const char *team_id, struct str id);
