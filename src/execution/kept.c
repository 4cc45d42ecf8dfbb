/* How many bytes of artifacts each team has: counted as they come in, so that no number of runs at
 * once gets past the team's ceiling, and until their files are gone. */
#include "execution/execution-internal.h"

struct kept {
	char team_id[SANDBOX_TEAM_SIZE];
	int64_t bytes;
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
