/* What was used, summed up from the spans in which sandboxes ran (sandbox_runs), and what it costs.
 * A span that is still open runs until now. What it has reserved counts by the millisecond; the
 * processor time and the bytes that it really used are known for the whole span, so a period that
 * cuts one is given its share. */
#include "observe/observe-internal.h"

enum {
	MAX_GROUPS = 10000,
	TEXTS_BYTES = 16 << 20,
};

void observe_add_run(struct observe_amounts *to, const struct observe_run *run)
{
	to->runs++;
	to->sandbox_ms += run->ms;
	to->vcpu_ms += run->ms * run->cpu_count;
	to->memory_mib_ms += run->ms * run->memory_mib;
	to->disk_mib_ms += run->ms * run->disk_mib;
	to->cpu_us += run->cpu_us;
	to->egress_bytes += run->egress_bytes;
}

/* ---- money ---- */

int observe_parse_price(struct str text, int64_t *ret)
{
	struct str whole, rest = text;
	int64_t units = 0, parts = 0;
	char digits[10] = "000000000";

	if (!str_split(&rest, '.', &whole) || str_to_int(whole, 0, 1000000000, &units) < 0)
		return -EINVAL;
	if (whole.n < text.n) {
		if (rest.n == 0 || rest.n > 9)
			return -EINVAL;
		memcpy(digits, rest.p, rest.n);
		if (str_find(str_of(digits), '-') >= 0 ||
			str_to_int(str_of(digits), 0, 999999999, &parts) < 0)
			return -EINVAL;
	}
	*ret = units * 1000000000 + parts;
	return 0;
}

double observe_cost(const struct observe_prices *p, const struct observe_amounts *a)
{
	const double hour_ms = 3600e3, gib_mib = 1024, gib = 1073741824;
	double nano = (double)a->vcpu_ms / hour_ms * (double)p->vcpu_hour +
		      (double)a->memory_mib_ms / gib_mib / hour_ms * (double)p->memory_gib_hour +
		      (double)a->disk_mib_ms / gib_mib / hour_ms * (double)p->disk_gib_hour +
		      (double)a->egress_bytes / gib * (double)p->egress_gib;

	return nano / 1e9;
}

static void write_decimal(struct jsonw *w, const char *key, int decimals, double value)
{
	char text[64];
	int n = snprintf(text, sizeof text, "%.*f", decimals, value);

	jsonw_raw(w, key, str_make(text, (size_t)n));
}

static void write_ms(struct jsonw *w, const char *key, int64_t ms)
{
	char text[32];
	int n = snprintf(text, sizeof text, "%" PRId64 ".%03" PRId64, ms / 1000, ms % 1000);

	jsonw_raw(w, key, str_make(text, (size_t)n));
}

void observe_amounts_write(struct jsonw *w, const struct observe_amounts *a,
	const struct observe_prices *prices)
{
	jsonw_int(w, "sandboxes", a->sandboxes);
	jsonw_int(w, "runs", a->runs);
	write_ms(w, "sandbox_seconds", a->sandbox_ms);
	write_ms(w, "vcpu_seconds", a->vcpu_ms);
	write_ms(w, "memory_mib_seconds", a->memory_mib_ms);
	write_ms(w, "disk_mib_seconds", a->disk_mib_ms);
	write_decimal(w, "cpu_used_seconds", 6, (double)a->cpu_us / 1e6);
	jsonw_int(w, "egress_bytes", a->egress_bytes);
	if (prices && prices->is_set) {
		write_decimal(w, "cost", 9, observe_cost(prices, a));
		jsonw_strz(w, "currency", prices->currency);
	} else {
		jsonw_null(w, "cost");
		jsonw_null(w, "currency");
	}
}

/* ---- from the store ---- */

struct usage_job {
	struct observe_usage_query query; /* its texts are in the arena */
	struct arena *arena;
	struct observe_usage *v;
	size_t n, cap;
	observe_usage_fn fn;
	void *arg;
};

/* `len` is how much of the span lies within the period, in µs; `whole` is all of it, at least 1.
 * Shares go by floating point: two processors' day times a day in µs is more than a BIGINT. */
#define SHARE " AS DOUBLE PRECISION) * len / whole AS BIGINT)"
static const char usage_sql[] =
	"SELECT team_key, agent_key, task_key, template_key, sandbox_key, "
	"COUNT(DISTINCT sandbox_id), COUNT(*), "
	"CAST(SUM(len / 1000) AS BIGINT), "
	"CAST(SUM(len / 1000 * cpu_count) AS BIGINT), "
	"CAST(SUM(len / 1000 * memory_mb) AS BIGINT), "
	"CAST(SUM(len / 1000 * disk_mb) AS BIGINT), "
	"CAST(SUM(CASE WHEN len = whole THEN cpu_us ELSE CAST(CAST(cpu_us" SHARE
	" END) AS BIGINT), "
	"CAST(SUM(CASE WHEN len = whole THEN egress_bytes ELSE CAST(CAST(egress_bytes" SHARE
	" END) AS BIGINT) "
	"FROM (SELECT "
	"CASE WHEN $8 = 1 THEN s.team_id ELSE '' END AS team_key, "
	"CASE WHEN $9 = 1 THEN COALESCE(s.agent_id, '') ELSE '' END AS agent_key, "
	"CASE WHEN $10 = 1 THEN COALESCE(s.task_id, '') ELSE '' END AS task_key, "
	"CASE WHEN $11 = 1 THEN s.template_name ELSE '' END AS template_key, "
	"CASE WHEN $12 = 1 THEN r.sandbox_id ELSE '' END AS sandbox_key, "
	"r.sandbox_id AS sandbox_id, s.cpu_count AS cpu_count, s.memory_mb AS memory_mb, "
	"s.disk_mb AS disk_mb, r.cpu_us AS cpu_us, r.egress_bytes AS egress_bytes, "
	"CASE WHEN COALESCE(r.ended_us, $13) > r.started_us "
	"THEN COALESCE(r.ended_us, $13) - r.started_us ELSE 1 END AS whole, "
	"CASE WHEN COALESCE(r.ended_us, $13) <= r.started_us THEN 1 ELSE "
	"CASE WHEN COALESCE(r.ended_us, $13) < $2 THEN COALESCE(r.ended_us, $13) ELSE $2 END - "
	"CASE WHEN r.started_us > $1 THEN r.started_us ELSE $1 END END AS len "
	"FROM sandbox_runs r JOIN sandboxes s ON s.id = r.sandbox_id "
	"WHERE r.started_us < $2 AND ((r.ended_us >= $1 AND (r.ended_us > $1 OR "
	"r.started_us = $1)) OR (r.ended_us IS NULL AND $13 > $1)) "
	"AND ($3 = '' OR s.team_id = $3) AND ($4 = '' OR s.agent_id = $4) "
	"AND ($5 = '' OR s.task_id = $5) AND ($6 = '' OR s.template_name = $6) "
	"AND ($7 = '' OR r.sandbox_id = $7)) AS spans "
	"GROUP BY team_key, agent_key, task_key, template_key, sandbox_key "
	"ORDER BY 8 DESC, 1, 2, 3, 4, 5 LIMIT $14";

static struct str keep(struct usage_job *job, struct str text)
{
	char *copy = arena_dup(job->arena, text.p ? text : STR(""));

	return (struct str){ copy, copy ? text.n : 0 };
}

static int grow(struct usage_job *job, struct err *e)
{
	size_t cap = job->cap ? 2 * job->cap : 16;
	struct observe_usage *more;

	if (job->n == MAX_GROUPS)
		return err_set(e, -E2BIG,
			"there are more than %d groups: ask for a shorter time or fewer",
			MAX_GROUPS);
	if (job->n < job->cap)
		return 0;
	more = realloc(job->v, cap * sizeof *more);
	if (!more)
		return err_set(e, -ENOMEM, "out of memory");
	job->v = more;
	job->cap = cap;
	return 0;
}

static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct usage_job *job = arg;
	int r = grow(job, e);
	struct observe_usage *u;

	if (r < 0)
		return r;
	u = &job->v[job->n++];
	*u = (struct observe_usage){ .team_id = keep(job, store_text(row, 0)),
		.agent_id = keep(job, store_text(row, 1)),
		.task_id = keep(job, store_text(row, 2)),
		.template_name = keep(job, store_text(row, 3)),
		.sandbox_id = keep(job, store_text(row, 4)),
		.amounts = { .sandboxes = store_int(row, 5),
			.runs = store_int(row, 6),
			.sandbox_ms = store_int(row, 7),
			.vcpu_ms = store_int(row, 8),
			.memory_mib_ms = store_int(row, 9),
			.disk_mib_ms = store_int(row, 10),
			.cpu_us = store_int(row, 11),
			.egress_bytes = store_int(row, 12) } };
	return u->sandbox_id.p ? 0 : err_set(e, -E2BIG, "the answer is too large");
}

static struct store_param text_of(struct str s)
{
	return P_STR(s.n ? s : STR(""));
}

static int sum_up(struct store_tx *tx, void *arg, struct err *e)
{
	struct usage_job *job = arg;
	const struct observe_usage_query *q = &job->query;

	job->n = 0; /* of an attempt that was undone */
	return store_query(tx, usage_sql,
		STORE_PARAMS(P_INT(q->from_us), P_INT(q->to_us), text_of(q->team_id),
			text_of(q->agent_id), text_of(q->task_id), text_of(q->template_name),
			text_of(q->sandbox_id), P_INT(!!(q->group & OBSERVE_BY_TEAM)),
			P_INT(!!(q->group & OBSERVE_BY_AGENT)),
			P_INT(!!(q->group & OBSERVE_BY_TASK)),
			P_INT(!!(q->group & OBSERVE_BY_TEMPLATE)),
			P_INT(!!(q->group & OBSERVE_BY_SANDBOX)),
			P_INT(MIN(time_wall_us(), q->to_us)), P_INT(MAX_GROUPS + 1)),
		read_row, job, e);
}

static void summed_up(void *arg, int r, const struct err *e)
{
	struct usage_job *job = arg;

	job->fn(job->arg, MIN(r, 0), job->v, r < 0 ? 0 : job->n, e);
	job->arena = arena_free(job->arena);
	free(job->v);
	free(job);
}

void observe_usage(struct store *store, const struct observe_usage_query *query,
	observe_usage_fn fn, void *arg)
{
	struct usage_job *job = XNEW(struct usage_job);
	struct observe_usage_query *q = &job->query;

	assert(query->from_us < query->to_us);
	job->arena = arena_new(TEXTS_BYTES);
	*q = *query;
	q->team_id = keep(job, query->team_id);
	q->agent_id = keep(job, query->agent_id);
	q->task_id = keep(job, query->task_id);
	q->template_name = keep(job, query->template_name);
	q->sandbox_id = keep(job, query->sandbox_id);
	job->fn = fn;
	job->arg = arg;
	store_read(store, sum_up, summed_up, job);
}
