/* What the rows of each team take. It is added up in the same transaction as they are written or
 * removed in, one row for each team, and known in memory from the last one that was
 * committed: nobody counts rows to find out, and a crash loses nothing. */
#include "store/store-internal.h"

/* ---- in a transaction ---- */

static struct store_count *count_of(struct store_counts *counts, const char *team_id)
{
	struct store_count *v = counts->v;

	for (size_t i = 0; i < counts->n; i++)
		if (strcmp(v[i].team_id, team_id) == 0)
			return &v[i];
	v = xcalloc(counts->n + 1, sizeof *v);
	if (counts->n)
		memcpy(v, counts->v, counts->n * sizeof *v);
	free(counts->v);
	counts->v = v;
	(void)snprintf(v[counts->n].team_id, sizeof v->team_id, "%s", team_id);
	return &v[counts->n++];
}

void store_count(struct store_tx *tx, const char *team_id, enum store_use use, int64_t bytes)
{
	if (team_id && team_id[0] && bytes)
		count_of(&tx->counts, team_id)->bytes[use] += bytes;
}

int store_counts_write(struct store_tx *tx, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < tx->counts.n; i++) {
		const struct store_count *count = &tx->counts.v[i];

		r = store_exec(tx,
			"INSERT INTO team_bytes (team_id, history, commands, output, events) "
			"VALUES ($1, $2, $3, $4, $5) ON CONFLICT (team_id) DO UPDATE SET "
			"history = team_bytes.history + EXCLUDED.history, "
			"commands = team_bytes.commands + EXCLUDED.commands, "
			"output = team_bytes.output + EXCLUDED.output, "
			"events = team_bytes.events + EXCLUDED.events",
			STORE_PARAMS(P_TEXT(count->team_id), P_INT(count->bytes[STORE_USE_HISTORY]),
				P_INT(count->bytes[STORE_USE_COMMANDS]),
				P_INT(count->bytes[STORE_USE_OUTPUT]),
				P_INT(count->bytes[STORE_USE_EVENTS])),
			e);
	}
	return r;
}

void store_counts_done(struct store_counts *counts)
{
	free(counts->v);
	*counts = (struct store_counts){ 0 };
}

/* ---- on the loop ---- */

static struct store_count *used_of(struct store *store, const char *team_id)
{
	struct store_count *used = map_get(&store->used, str_of(team_id));

	if (used)
		return used;
	used = XNEW(struct store_count);
	(void)snprintf(used->team_id, sizeof used->team_id, "%s", team_id);
	(void)map_put(&store->used, str_of(used->team_id), used);
	return used;
}

void store_counts_take(struct store *store, struct store_counts *counts)
{
	for (size_t i = 0; i < counts->n; i++) {
		struct store_count *used = used_of(store, counts->v[i].team_id);

		for (size_t use = 0; use < STORE_USES; use++)
			used->bytes[use] += counts->v[i].bytes[use];
	}
	store_counts_done(counts);
}

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	char team_id[STORE_TEAM_SIZE];
	struct store_count *used;

	(void)e;
	store_copy_text(row, 0, team_id, sizeof team_id);
	used = used_of(arg, team_id);
	used->bytes[STORE_USE_HISTORY] = store_int(row, 1);
	used->bytes[STORE_USE_COMMANDS] = store_int(row, 2);
	used->bytes[STORE_USE_OUTPUT] = store_int(row, 3);
	used->bytes[STORE_USE_EVENTS] = store_int(row, 4);
	return 0;
}

int store_used_load(struct store_tx *tx, void *store, struct err *e)
{
	return store_query(tx, "SELECT team_id, history, commands, output, events FROM team_bytes",
		NULL, 0, load_row, store, e);
}

void store_used_done(struct store *store)
{
	struct store_count *used;
	size_t at = 0;

	while ((used = map_next(&store->used, &at)))
		free(used);
	map_done(&store->used);
}

int64_t store_used(const struct store *store, const char *team_id, enum store_use use)
{
	const struct store_count *used = map_get(&store->used, str_of(team_id));

	return used ? MAX(used->bytes[use], 0) : 0;
}

void store_each_used(const struct store *store, enum store_use use,
	void (*fn)(void *arg, const char *team_id, int64_t bytes), void *arg)
{
	const struct store_count *used;
	size_t at = 0;

	while ((used = map_next(&store->used, &at)))
		if (used->bytes[use] > 0)
			fn(arg, used->team_id, used->bytes[use]);
}
