/* Counts since the server started, in Prometheus' text format 0.0.4. Each family has as many series
 * as there were different labels; labels come from tables of ours (routes, kinds, causes), but a
 * ceiling makes sure that nobody's names fill the memory. */
#include "observe/observe-internal.h"

enum {
	MAX_SERIES = 1024, /* of one family: requests by route, method and status are the most */
	MAX_LABEL = 96,
	MAX_TEAMS = 256,
	BUCKETS = 16,
	DATA_BYTES = 256 << 10,
};

enum type {
	COUNTER,
	GAUGE,
	HISTOGRAM
};

static const struct family {
	const char *name, *help;
	enum type type;
	bool is_servers; /* no team's business */
} families[OBSERVE_FAMILIES] = {
	[OBSERVE_EVENTS] = { "atoll_events_total", "Events that were appended to the log.",
		COUNTER },
	[OBSERVE_CREATE_SECONDS] = { "atoll_sandbox_create_seconds",
		"From the request for a sandbox until it ran.", HISTOGRAM },
	[OBSERVE_CREATE_PHASE] = { "atoll_sandbox_create_phase_seconds",
		"The parts of that; some go on at the same time.", HISTOGRAM },
	[OBSERVE_DESTROY_SECONDS] = { "atoll_sandbox_destroy_seconds",
		"From the end of a sandbox until nothing of it was left.", HISTOGRAM },
	[OBSERVE_SANDBOXES_CREATED] = { "atoll_sandboxes_created_total",
		"Sandboxes that were asked for and admitted.", COUNTER },
	[OBSERVE_SANDBOXES_ENDED] = { "atoll_sandboxes_ended_total", "Sandboxes that ended.",
		COUNTER },
	[OBSERVE_SANDBOXES_FAILED] = { "atoll_sandboxes_failed_total",
		"Sandboxes that could not be made, or not be resumed.", COUNTER },
	[OBSERVE_EXECUTIONS] = { "atoll_executions_total", "Commands that ended.", COUNTER },
	[OBSERVE_EXECUTION_SECONDS] = { "atoll_execution_seconds", "How long commands ran.",
		HISTOGRAM },
	[OBSERVE_REQUESTS] = { "atoll_http_requests_total", "Requests that were answered.",
		COUNTER },
	[OBSERVE_REQUEST_SECONDS] = { "atoll_http_request_seconds",
		"From the head of a request until its answer began.", HISTOGRAM },
	[OBSERVE_ERRORS] = { "atoll_errors_total", "Answers that were errors, by cause.", COUNTER },
	[OBSERVE_BREAKER] = { "atoll_breaker_state",
		"Circuit breaker of a runtime: 0 closed, 1 half open, 2 open.", GAUGE, true },
	[OBSERVE_FEED_GAPS] = { "atoll_feed_gaps_total",
		"Times a slow reader was taken off the live feed.", COUNTER, true },
	[OBSERVE_TRACE_SPANS] = { "atoll_trace_spans_total", "Spans by what became of them.",
		COUNTER, true },
	[OBSERVE_TRACE_REQUESTS] = { "atoll_trace_requests_total",
		"Requests to the trace collector by their result.", COUNTER, true },
};

static const int64_t bounds_us[BUCKETS] = { 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000,
	500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000 };

struct series {
	double value;
	int64_t count, sum_us;
	int64_t *buckets; /* of a histogram, else NULL */
	size_t labels_n;
	char labels[];
};

struct observe_metrics {
	struct map series[OBSERVE_FAMILIES];
	int64_t dropped;         /* labels that there was no room for */
	struct map teams;        /* the same of each team, by its id */
	char team_id[UUID_SIZE]; /* empty: of the whole server */
};

struct observe_metrics *observe_metrics_new(void)
{
	return XNEW(struct observe_metrics);
}

static void free_family(struct map *all)
{
	struct series *s;
	size_t at = 0;

	while ((s = map_next(all, &at))) {
		free(s->buckets);
		free(s);
	}
	map_done(all);
}

static void free_one(struct observe_metrics *m)
{
	for (size_t i = 0; i < OBSERVE_FAMILIES; i++)
		free_family(&m->series[i]);
	free(m);
}

struct observe_metrics *observe_metrics_free(struct observe_metrics *m)
{
	struct observe_metrics *of_team;
	size_t at = 0;

	if (!m)
		return NULL;
	while ((of_team = map_next(&m->teams, &at)))
		free_one(of_team);
	map_done(&m->teams);
	free_one(m);
	return NULL;
}

struct observe_metrics *observe_metrics_of(struct observe_metrics *m, struct str team_id)
{
	struct observe_metrics *of_team = m && team_id.n ? map_get(&m->teams, team_id) : NULL;

	if (of_team || !m || !team_id.n || team_id.n >= sizeof of_team->team_id)
		return of_team;
	if (m->teams.n >= MAX_TEAMS) {
		m->dropped++;
		return NULL;
	}
	of_team = XNEW(struct observe_metrics);
	(void)snprintf(of_team->team_id, sizeof of_team->team_id, "%.*s", STR_ARG(team_id));
	(void)map_put(&m->teams, str_of(of_team->team_id), of_team);
	return of_team;
}

void observe_label(struct buf *labels, const char *name, struct str value)
{
	(void)buf_printf(labels, "%s%s=\"", labels->n ? "," : "", name);
	for (size_t i = 0; i < MIN(value.n, (size_t)MAX_LABEL); i++) {
		unsigned char c = (unsigned char)value.p[i];

		if (c == '"' || c == '\\')
			(void)buf_addc(labels, '\\');
		(void)buf_addc(labels, c < 0x20 || c >= 0x7f ? '_' : (char)c);
	}
	(void)buf_addc(labels, '"');
}

static struct series *series_of(struct observe_metrics *m, enum observe_family family,
	struct str labels)
{
	struct map *all = &m->series[family];
	struct series *s = map_get(all, labels);

	if (s)
		return s;
	if (all->n >= MAX_SERIES) {
		m->dropped++;
		return NULL;
	}
	s = xcalloc(1, sizeof *s + labels.n + 1);
	s->labels_n = labels.n;
	if (labels.n)
		memcpy(s->labels, labels.p, labels.n);
	if (families[family].type == HISTOGRAM)
		s->buckets = XNEW_N(int64_t, BUCKETS);
	(void)map_put(all, str_make(s->labels, s->labels_n), s);
	return s;
}

void observe_count(struct observe_metrics *m, enum observe_family family, struct str labels,
	int64_t by)
{
	struct series *s = m ? series_of(m, family, labels) : NULL;

	if (s)
		s->value += (double)by;
}

void observe_gauge(struct observe_metrics *m, enum observe_family family, struct str labels,
	double value)
{
	struct series *s = m ? series_of(m, family, labels) : NULL;

	if (s)
		s->value = value;
}

void observe_time(struct observe_metrics *m, enum observe_family family, struct str labels,
	int64_t us)
{
	struct series *s = m ? series_of(m, family, labels) : NULL;
	size_t at = 0;

	if (!s)
		return;
	assert(s->buckets);
	s->count++;
	s->sum_us += MAX(us, 0);
	while (at < BUCKETS && us > bounds_us[at])
		at++;
	if (at < BUCKETS)
		s->buckets[at]++;
}

void observe_request(struct observe_metrics *m, struct str method, const char *route, int status,
	int64_t us)
{
	static const char *const methods[] = { "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD" };
	CLEANUP(buf_done) struct buf labels = BUF_INIT(1024);
	bool is_known = false;
	char code[16];

	if (!m)
		return;
	for (size_t i = 0; !is_known && i < ARRAY_SIZE(methods); i++)
		is_known = str_is(method, methods[i]);
	(void)snprintf(code, sizeof code, "%d", status);
	observe_label(&labels, "route", str_of(route));
	observe_time(m, OBSERVE_REQUEST_SECONDS, buf_str(&labels), us);
	observe_label(&labels, "method", is_known ? method : STR("other"));
	observe_label(&labels, "status", str_of(code));
	observe_count(m, OBSERVE_REQUESTS, buf_str(&labels), 1);
}

/* ---- what events tell ---- */

static struct str one_label(struct buf *labels, const char *name, struct str value,
	const char *otherwise)
{
	buf_clear(labels);
	observe_label(labels, name, value.n ? value : str_of(otherwise));
	return buf_str(labels);
}

static void note_phase(struct observe_metrics *m, struct buf *labels, const char *phase,
	struct json_int us)
{
	if (us.is_set)
		observe_time(m, OBSERVE_CREATE_PHASE, one_label(labels, "phase", str_of(phase), ""),
			us.value);
}

static void note_started(struct observe_metrics *m, struct buf *labels, const struct event_data *d)
{
	if (d->us.is_set)
		observe_time(m, OBSERVE_CREATE_SECONDS,
			one_label(labels, "runtime", d->runtime, "unknown"), d->us.value);
	note_phase(m, labels, "quota", d->quota_us);
	note_phase(m, labels, "row", d->row_us);
	note_phase(m, labels, "runtime", d->runtime_us);
	note_phase(m, labels, "ready", d->ready_us);
}

static void note_execution(struct observe_metrics *m, struct buf *labels,
	const struct event_data *d)
{
	observe_count(m, OBSERVE_EXECUTIONS, one_label(labels, "ended_by", d->ended_by, "unknown"),
		1);
	if (d->duration_ms.is_set)
		observe_time(m, OBSERVE_EXECUTION_SECONDS, STR(""), d->duration_ms.value * 1000);
}

static void note_data(struct observe_metrics *m, struct buf *labels,
	const struct observe_item *item, const struct event_data *d)
{
	/* The operator sees the whole, and a team's own name for its snapshot is no label there. */
	if (str_is(item->kind, "sandbox.created"))
		observe_count(m, OBSERVE_SANDBOXES_CREATED,
			one_label(labels, "template", d->base_template, "unknown"), 1);
	else if (str_is(item->kind, "sandbox.started"))
		note_started(m, labels, d);
	else if (str_is(item->kind, "sandbox.ended"))
		observe_count(m, OBSERVE_SANDBOXES_ENDED, one_label(labels, "by", d->by, "unknown"),
			1);
	else if (str_is(item->kind, "sandbox.failed"))
		observe_count(m, OBSERVE_SANDBOXES_FAILED,
			one_label(labels, "cause", d->by, "infrastructure"), 1);
	else if (str_is(item->kind, "quota.refused"))
		observe_count(m, OBSERVE_SANDBOXES_FAILED, STR("cause=\"quota\""), 1);
	else if (str_is(item->kind, "sandbox.removed") && d->us.is_set)
		observe_time(m, OBSERVE_DESTROY_SECONDS,
			one_label(labels, "runtime", d->runtime, "unknown"), d->us.value);
	else if (str_is(item->kind, "execution.ended"))
		note_execution(m, labels, d);
}

static bool is_telling(struct str kind)
{
	return str_has_prefix(kind, STR("sandbox.")) || str_has_prefix(kind, STR("execution.")) ||
	       str_has_prefix(kind, STR("quota."));
}

void metrics_note(struct observe_metrics *m, const struct observe_item *item)
{
	CLEANUP(buf_done) struct buf labels = BUF_INIT(1024);
	struct observe_metrics *of_team = observe_metrics_of(m, item->team_id);
	struct str kind = one_label(&labels, "kind", item->kind, "");
	struct arena *arena;
	struct event_data data;

	observe_count(m, OBSERVE_EVENTS, kind, 1);
	observe_count(of_team, OBSERVE_EVENTS, kind, 1);
	if (!m || !is_telling(item->kind))
		return;
	arena = arena_new(DATA_BYTES);
	if (event_data_read(arena, item->data, &data) >= 0) {
		note_data(m, &labels, item, &data);
		note_data(of_team, &labels, item, &data);
	}
	(void)arena_free(arena);
}

/* ---- the text ---- */

void observe_write_family(struct buf *out, const char *name, const char *type, const char *help)
{
	(void)buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void observe_write_value(struct buf *out, const char *name, struct str labels, double value)
{
	(void)buf_adds(out, name);
	if (labels.n) {
		(void)buf_addc(out, '{');
		(void)buf_add_str(out, labels);
		(void)buf_addc(out, '}');
	}
	(void)buf_printf(out, " %.15g\n", value);
}

static void write_bucket(struct buf *out, const char *name, const struct series *s,
	const char *bound, int64_t count)
{
	(void)buf_printf(out, "%s_bucket{%s%sle=\"%s\"} %" PRId64 "\n", name, s->labels,
		s->labels_n ? "," : "", bound, count);
}

static void write_histogram(struct buf *out, const char *name, const struct series *s)
{
	int64_t below = 0;
	char bound[32], text[64];

	for (size_t i = 0; i < BUCKETS; i++) {
		below += s->buckets[i];
		(void)snprintf(bound, sizeof bound, "%.6g", (double)bounds_us[i] / 1e6);
		write_bucket(out, name, s, bound, below);
	}
	write_bucket(out, name, s, "+Inf", s->count);
	(void)snprintf(text, sizeof text, "%s_sum", name);
	observe_write_value(out, text, str_make(s->labels, s->labels_n), (double)s->sum_us / 1e6);
	(void)snprintf(text, sizeof text, "%s_count", name);
	observe_write_value(out, text, str_make(s->labels, s->labels_n), (double)s->count);
}

static void write_family(const struct observe_metrics *m, enum observe_family family,
	struct buf *out)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };
	const struct family *f = &families[family];
	const struct series *s;
	size_t at = 0;

	observe_write_family(out, f->name, types[f->type], f->help);
	while ((s = map_next(&m->series[family], &at)))
		if (s->buckets)
			write_histogram(out, f->name, s);
		else
			observe_write_value(out, f->name, str_make(s->labels, s->labels_n),
				s->value);
}

void observe_metrics_write(const struct observe_metrics *m, struct buf *out)
{
	for (size_t i = 0; i < OBSERVE_FAMILIES; i++)
		if (!m->team_id[0] || !families[i].is_servers)
			write_family(m, (enum observe_family)i, out);
	observe_write_family(out, "atoll_metrics_dropped_total", "counter",
		"Counts whose labels there was no room for.");
	observe_write_value(out, "atoll_metrics_dropped_total", STR(""), (double)m->dropped);
}
