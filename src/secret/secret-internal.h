/* The secret room's own objects, shared by its files. */
#pragma once

#include "secret/secret.h"

struct secret_book {
	struct loop *loop;
	struct store *store;
	struct limit_teams teams;
	uint8_t key[SHA256_SIZE];
};

struct secret_op { /* one call: the job's own copy of everything */
	struct secret_book *book;
	uint8_t key[SHA256_SIZE];
	char team_id[UUID_SIZE], actor[ACTOR_SIZE];
	char which[SECRET_ID_SIZE > SECRET_NAME_SIZE ? SECRET_ID_SIZE : SECRET_NAME_SIZE];
	bool has_metadata;
	int64_t most;         /* secrets that the team may have; of a new one */
	struct secret secret; /* the answer */
	struct buf value, metadata, box;
	struct err e; /* found before the store was asked */
	struct loop_task task;
	secret_fn fn;
	secret_value_fn value_fn;
	done_fn done;
	void *arg;
};

/* seal.c: version `secret.version` of `secret.id`. */
int op_seal(struct secret_op *op, struct err *e); /* value -> box */
int op_open(struct secret_op *op, struct err *e); /* box -> value; -EBADMSG */

/* rows.c: the work of a job; each fills op->secret. */
int rows_create(struct store_tx *tx, void *op, struct err *e);
int rows_update(struct store_tx *tx, void *op, struct err *e);
int rows_get(struct store_tx *tx, void *op, struct err *e);
int rows_remove(struct store_tx *tx, void *op, struct err *e);
int rows_open(struct store_tx *tx, void *op, struct err *e);
