/* How many bytes of artifacts each team has: counted as they come in, so that no number of runs at
 * once gets past the team's ceiling, and until their files are gone. How many its commands and
 * their output have in the database the store knows; what is on its way there is counted here. */
#include "execution/execution-internal.h"

enum {
	SLACK_SHARE = 8, /* of a ceiling: so much above it no command is begun any more ... */
	ROOM_SHARE = 16, /* ... and so much below it old ones begin to go */
};

struct kept {
	char team_id[SANDBOX_TEAM_SIZE];
	int64_t bytes;   /* of artifacts */
	int64_t pending; /* of output that is not written yet */
};

static struct kept *kept_of(struct execution_book *book, const char *team_id)
{
	struct kept *kept = map_get(&book->kept, str_of(team_id));

	if (kept)
		return kept;
	kept = XNEW(struct kept);
	(void)snprintf(kept->team_id, sizeof kept->team_id, "%s", team_id);
	(void)map_put(&book->kept, str_of(kept->team_id), kept);
	return kept;
}

void kept_done(struct execution_book *book)
{
	struct kept *kept;
	size_t at = 0;

	while ((kept = map_next(&book->kept, &at)))
		free(kept);
	map_done(&book->kept);
}

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	char team_id[SANDBOX_TEAM_SIZE];

	(void)e;
	store_copy_text(row, 0, team_id, sizeof team_id);
	kept_of(arg, team_id)->bytes = store_int(row, 1);
	return 0;
}

/* At start, before anything else is asked of the book. */
int kept_load(struct store_tx *tx, struct execution_book *book, struct err *e)
{
	return store_query(tx,
		"SELECT team_id, CAST(SUM(bytes + $1) AS BIGINT) FROM artifacts GROUP BY team_id",
		STORE_PARAMS(P_INT(KEPT_FILE_BYTES)), load_row, book, e);
}

static int64_t ceiling(const struct execution_book *book, const char *team_id)
{
	return limit_team_ceiling(&book->config.teams, team_id, LIMIT_ARTIFACT_STORAGE);
}

int kept_add(struct execution_book *book, const char *team_id, int64_t bytes, struct err *e)
{
	struct kept *kept = kept_of(book, team_id);
	int64_t most_mb = ceiling(book, team_id);

	kept->bytes += bytes;
	return bytes <= 0 || kept->bytes <= most_mb << 20
		       ? 0
		       : err_set(e, -EDQUOT,
				 "the limit of your team, %" PRId64
				 " MiB of artifacts, was reached: remove some first",
				 most_mb);
}

int64_t execution_artifact_bytes(const struct execution_book *book, const char *team_id)
{
	const struct kept *kept = map_get(&book->kept, str_of(team_id));

	return kept ? kept->bytes : 0;
}

int execution_artifact_room(const struct execution_book *book, const char *team_id, struct err *e)
{
	int64_t most_mb = ceiling(book, team_id);

	return execution_artifact_bytes(book, team_id) + KEPT_FILE_BYTES <= most_mb << 20
		       ? 0
		       : err_set(e, -ENOSPC,
				 "the limit of your team, %" PRId64
				 " MiB of artifacts, is reached: remove some first",
				 most_mb);
}

/* ---- in the database ---- */

static int64_t most_bytes(const struct execution_book *book, const char *team_id,
	enum limit_kind kind)
{
	return limit_team_ceiling(&book->config.teams, team_id, kind) << 20;
}

int64_t kept_chunk_bytes(size_t n)
{
	return KEPT_CHUNK_BYTES + (int64_t)base64_size(n);
}

size_t kept_output_room(struct execution_book *book, const char *team_id)
{
	int64_t left = most_bytes(book, team_id, LIMIT_OUTPUT) -
		       store_used(book->config.store, team_id, STORE_USE_OUTPUT) -
		       kept_of(book, team_id)->pending - KEPT_CHUNK_BYTES;

	return left < 4 ? 0 : (size_t)left / 4 * 3;
}

void kept_pending(struct execution_book *book, const char *team_id, int64_t bytes)
{
	kept_of(book, team_id)->pending += bytes;
}

int kept_check(const struct execution_book *book, const char *team_id, struct err *e)
{
	int64_t most = most_bytes(book, team_id, LIMIT_COMMANDS);

	if (store_used(book->config.store, team_id, STORE_USE_COMMANDS) <=
		most + most / SLACK_SHARE)
		return 0;
	return err_set(e, -EDQUOT,
		"the limit of your team, %" PRId64 " MiB of rows of commands (commands_mb), is "
		"reached: wait until those that run have "
		"ended, or a moment until old ones are removed",
		most >> 20);
}

/* How much has to go; 0: nothing. The old ones go before there is no room, so that what is new is
 * kept. */
static int64_t too_much(const struct execution_book *book, const char *team_id,
	enum limit_kind kind, enum store_use use)
{
	int64_t most = most_bytes(book, team_id, kind);
	int64_t used = store_used(book->config.store, team_id, use);

	return used > most - most / ROOM_SHARE ? used - most + 2 * (most / ROOM_SHARE) : 0;
}

static bool look(const struct execution_book *book, const char *team_id, struct history_over *ret)
{
	(void)snprintf(ret->team_id, sizeof ret->team_id, "%s", team_id);
	ret->output = too_much(book, team_id, LIMIT_OUTPUT, STORE_USE_OUTPUT);
	ret->commands = too_much(book, team_id, LIMIT_COMMANDS, STORE_USE_COMMANDS);
	return ret->output || ret->commands;
}

void kept_grown(struct execution_book *book, const char *team_id)
{
	struct history_over over;

	if (look(book, team_id, &over))
		artifacts_sweep_soon(book);
}

struct over_list {
	const struct execution_book *book;
	struct history_over *v;
	size_t n;
};

static void add_over(void *arg, const char *team_id, int64_t bytes)
{
	struct over_list *list = arg;

	(void)bytes;
	if (list->n < KEPT_MAX_OVER && look(list->book, team_id, &list->v[list->n]))
		list->n++;
}

/* Whoever has output has rows of commands. */
size_t kept_over(const struct execution_book *book, struct history_over over[KEPT_MAX_OVER])
{
	struct over_list list = { book, over, 0 };

	store_each_used(book->config.store, STORE_USE_COMMANDS, add_over, &list);
	return list.n;
}
