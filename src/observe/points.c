/* A team's sandboxes over time, worked out from when each started and ended: exact, and the same
 * after a restart. */
#include "observe/observe.h"

enum {
	MAX_ROWS = 200000
};

struct edge { /* somebody came (+1) or went (-1) */
	int64_t at_us;
	int by;
};

struct sweep {
	char team_id[UUID_SIZE];
	int64_t from_us, to_us, step_us;
	struct edge *edges;
	size_t n_edges, cap;
	struct observe_point *points;
	size_t n_points;
	observe_points_fn fn;
	void *arg;
};

static int add_edge(struct sweep *s, int64_t at_us, int by, struct err *e)
{
	if (s->n_edges == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 256;
		struct edge *more = realloc(s->edges, cap * sizeof *more);

		if (!more)
			return err_set(e, -ENOMEM, "out of memory");
		s->edges = more;
		s->cap = cap;
	}
	s->edges[s->n_edges++] = (struct edge){ at_us, by };
	return 0;
}

static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct sweep *s = arg;
	int r = add_edge(s, store_int(row, 0), 1, e);

	if (r >= 0 && !store_is_null(row, 1))
		r = add_edge(s, store_int(row, 1), -1, e);
	if (r >= 0 && s->n_edges > (size_t)2 * MAX_ROWS)
		r = err_set(e, -E2BIG,
			"more than %d sandboxes lived in that time: ask for a shorter one",
			MAX_ROWS);
	return r;
}

/* Who leaves and who comes at the same moment were never there together. */
static int by_time(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	if (x->at_us != y->at_us)
		return x->at_us < y->at_us ? -1 : 1;
	return x->by - y->by;
}

/* One step: the most at once and the most started within a window, and on to the next edge. */
static void fill_point(struct sweep *s, struct observe_point *p, size_t *at, int64_t *running)
{
	const int64_t window_us = (int64_t)OBSERVE_MIN_STEP_S * 1000000;
	int64_t window = -1, started = 0, most = 0;

	p->running = *running;
	for (; *at < s->n_edges && s->edges[*at].at_us < p->at_us + s->step_us; (*at)++) {
		const struct edge *edge = &s->edges[*at];
		int64_t now = (edge->at_us - p->at_us) / window_us;

		started = now == window ? started : 0;
		window = now;
		started += edge->by > 0;
		*running += edge->by;
		most = MAX(most, started);
		p->running = MAX(p->running, *running);
	}
	p->start_rate = (double)most / OBSERVE_MIN_STEP_S;
}

static void fill_points(struct sweep *s)
{
	int64_t running = 0;
	size_t at = 0;

	for (; at < s->n_edges && s->edges[at].at_us < s->from_us; at++)
		running += s->edges[at].by;
	for (size_t i = 0; i < s->n_points; i++) {
		s->points[i].at_us = s->from_us + (int64_t)i * s->step_us;
		fill_point(s, &s->points[i], &at, &running);
	}
}

static int look(struct store_tx *tx, void *arg, struct err *e)
{
	struct sweep *s = arg;
	int r = store_query(tx,
		"SELECT started_us, COALESCE(ended_us, paused_us) FROM sandboxes WHERE team_id = "
		"$1 AND started_us < $3 "
		"AND (ended_us IS NULL OR ended_us >= $2)",
		STORE_PARAMS(P_TEXT(s->team_id), P_INT(s->from_us), P_INT(s->to_us)), read_row, s,
		e);

	if (r < 0)
		return r;
	if (s->n_edges)
		qsort(s->edges, s->n_edges, sizeof *s->edges, by_time);
	fill_points(s);
	return 0;
}

static void looked(void *arg, int r, const struct err *e)
{
	struct sweep *s = arg;

	s->fn(s->arg, MIN(r, 0), s->points, s->n_points, e);
	free(s->edges);
	free(s->points);
	free(s);
}

/* A whole number of seconds, so that no more than the most points cover the time. */
static int64_t step_of(int64_t span_us)
{
	int64_t per_us = (int64_t)OBSERVE_MAX_POINTS * 1000000;

	return MAX(OBSERVE_MIN_STEP_S, (span_us + per_us - 1) / per_us) * 1000000;
}

void observe_team(struct store *store, const char *team_id, int64_t from_us, int64_t to_us,
	observe_points_fn fn, void *arg)
{
	struct sweep *s = XNEW(struct sweep);

	assert(from_us < to_us);
	(void)snprintf(s->team_id, sizeof s->team_id, "%s", team_id);
	s->from_us = from_us;
	s->to_us = to_us;
	s->step_us = step_of(to_us - from_us);
	s->n_points = (size_t)((to_us - from_us + s->step_us - 1) / s->step_us);
	s->points = XNEW_N(struct observe_point, s->n_points);
	s->fn = fn;
	s->arg = arg;
	store_read(store, look, looked, s);
}
