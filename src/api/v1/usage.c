/* GET /api/v1/usage: what sandboxes used, in sums, and what it costs. */
#include "api/v1/v1.h"

enum {
	USUAL_S = 30 * 86400,
};

static const struct group {
	const char *name;
	enum observe_group bit;
	size_t offset; /* of its name in struct observe_usage */
} groups[] = {
	{ "team", OBSERVE_BY_TEAM, offsetof(struct observe_usage, team_id) },
	{ "agent", OBSERVE_BY_AGENT, offsetof(struct observe_usage, agent_id) },
	{ "task", OBSERVE_BY_TASK, offsetof(struct observe_usage, task_id) },
	{ "template", OBSERVE_BY_TEMPLATE, offsetof(struct observe_usage, template_name) },
	{ "sandbox", OBSERVE_BY_SANDBOX, offsetof(struct observe_usage, sandbox_id) },
};

struct usage_call {
	struct api_call *call;
	struct observe_usage_query query;
	bool is_csv;
};

static int read_group(struct api_call *call, unsigned *ret)
{
	struct str rest = STR_NONE, name;

	if (v1_query_text(call, "group_by", &rest) < 0)
		return -EINVAL;
	while (rest.n && str_split(&rest, ',', &name)) {
		unsigned bit = 0;

		for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
			bit |= str_is(name, groups[i].name) ? (unsigned)groups[i].bit : 0;
		if (!bit) {
			api_fail_status(call, 400,
				"validation error: group_by must be of team, agent, task, template "
				"and sandbox, with a comma between");
			return -EINVAL;
		}
		*ret |= bit;
	}
	return 0;
}

static struct str name_of(const struct observe_usage *u, const struct group *group)
{
	return *(const struct str *)((const char *)u + group->offset);
}

/* ---- answers ---- */

static void add_up(struct observe_amounts *to, const struct observe_amounts *from)
{
	to->sandboxes += from->sandboxes;
	to->runs += from->runs;
	to->sandbox_ms += from->sandbox_ms;
	to->vcpu_ms += from->vcpu_ms;
	to->memory_mib_ms += from->memory_mib_ms;
	to->disk_mib_ms += from->disk_mib_ms;
	to->cpu_us += from->cpu_us;
	to->egress_bytes += from->egress_bytes;
}

static void write_item(struct jsonw *w, const struct usage_call *u, const struct observe_usage *v)
{
	jsonw_object(w, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		struct str name = name_of(v, &groups[i]);

		if (!(u->query.group & groups[i].bit))
			continue;
		if (name.n)
			jsonw_str(w, groups[i].name, name);
		else
			jsonw_null(w, groups[i].name);
	}
	observe_amounts_write(w, &v->amounts, u->call->api->config.prices);
	jsonw_end_object(w);
}

static void reply_json(const struct usage_call *u, const struct observe_usage *v, size_t n)
{
	struct observe_amounts total = { 0 };
	struct api_answer answer;

	if (!api_answer_begin(u->call, &answer, 0, NULL))
		return;
	jsonw_object(&answer.w, NULL);
	v1_time(&answer.w, "from", u->query.from_us);
	v1_time(&answer.w, "to", u->query.to_us);
	jsonw_array(&answer.w, "items");
	for (size_t i = 0; i < n; i++) {
		write_item(&answer.w, u, &v[i]);
		add_up(&total, &v[i].amounts);
	}
	jsonw_end_array(&answer.w);
	jsonw_object(&answer.w, "total");
	observe_amounts_write(&answer.w, &total, u->call->api->config.prices);
	jsonw_end_object(&answer.w);
	jsonw_end_object(&answer.w);
	api_answer_send(u->call, &answer, 200);
}

static void csv_number(struct buf *out, const char *behind, double value)
{
	(void)buf_printf(out, "%.6f%s", value, behind);
}

static void reply_csv(const struct usage_call *u, const struct observe_usage *v, size_t n)
{
	const struct observe_prices *prices = u->call->api->config.prices;
	CLEANUP(buf_done) struct buf out = BUF_INIT(API_ANSWER_BYTES);

	(void)buf_adds(&out,
		"team,agent,task,template,sandbox,sandboxes,runs,sandbox_seconds,vcpu_seconds,"
		"memory_mib_seconds,disk_mib_seconds,cpu_used_seconds,egress_bytes,cost\r\n");
	for (size_t i = 0; i < n; i++) {
		const struct observe_amounts *a = &v[i].amounts;

		for (size_t k = 0; k < ARRAY_SIZE(groups); k++)
			v1_csv_cell(&out, name_of(&v[i], &groups[k]), false);
		(void)buf_printf(&out, "%" PRId64 ",%" PRId64 ",", a->sandboxes, a->runs);
		csv_number(&out, ",", (double)a->sandbox_ms / 1e3);
		csv_number(&out, ",", (double)a->vcpu_ms / 1e3);
		csv_number(&out, ",", (double)a->memory_mib_ms / 1e3);
		csv_number(&out, ",", (double)a->disk_mib_ms / 1e3);
		csv_number(&out, ",", (double)a->cpu_us / 1e6);
		(void)buf_printf(&out, "%" PRId64 ",", a->egress_bytes);
		if (prices->is_set)
			csv_number(&out, "", observe_cost(prices, a));
		(void)buf_adds(&out, "\r\n");
	}
	api_note_answer(u->call, 200);
	http_reply(u->call->x, 200, "text/csv; charset=utf-8", buf_str(&out));
}

static void usage_read(void *arg, int r, const struct observe_usage *v, size_t n,
	const struct err *e)
{
	const struct usage_call *u = arg;

	if (r < 0)
		api_fail(u->call, e);
	else if (u->is_csv)
		reply_csv(u, v, n);
	else
		reply_json(u, v, n);
}

/* ---- the question ---- */

static int read_owner(struct api_call *call, struct observe_usage_query *q)
{
	struct observe_filter filter;

	if (v1_event_filter(call, &filter) < 0)
		return -EINVAL;
	q->team_id = filter.team_id;
	q->agent_id = filter.agent_id;
	q->task_id = filter.task_id;
	q->sandbox_id = filter.subject;
	return v1_query_text(call, "template", &q->template_name);
}

void v1_usage(struct api_call *call)
{
	struct usage_call *u = arena_alloc(http_arena(call->x), sizeof *u);
	struct observe_usage_query *q = &u->query;
	enum v1_format format = v1_format(call);

	u->call = call;
	u->is_csv = format == V1_CSV;
	q->to_us = time_wall_us();
	if (read_owner(call, q) < 0 || read_group(call, &q->group) < 0 ||
		v1_query_time(call, "to", &q->to_us) < 0)
		return;
	q->from_us = MAX(q->to_us - (int64_t)USUAL_S * 1000000, 0);
	if (v1_query_time(call, "from", &q->from_us) < 0)
		return;
	if (q->from_us >= q->to_us)
		api_fail_status(call, 400, "validation error: from must be before to");
	else if (format != V1_ANY && format != V1_JSON && format != V1_CSV)
		api_fail_status(call, 400, "validation error: format must be json or csv");
	else
		observe_usage(call->api->config.store, q, usage_read, u);
}
