/* What the readers of the event log are asked for in a query, and what of it this caller may see.
 */
#include "api/v1/v1.h"

enum {
	MAX_TEXT = 256,
};

static int fail(struct api_call *call, const char *name, const char *what)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(512);

	(void)buf_printf(&text, "validation error: %s %s", name, what);
	api_fail_status(call, 400, buf_str(&text).p);
	return -EINVAL;
}

int v1_query_text(struct api_call *call, const char *name, struct str *ret)
{
	struct str text = http_query_value(call->x, name);

	if (text.n > MAX_TEXT)
		return fail(call, name, "is too long");
	if (text.n)
		*ret = text;
	return 0;
}

int v1_query_time(struct api_call *call, const char *name, int64_t *ret_us)
{
	static const int64_t most_s = 10413791999; /* the end of 2299, as elsewhere */
	struct str text = http_query_value(call->x, name);
	int64_t s;

	if (!text.p)
		return 0;
	if (str_to_int(text, 0, most_s, &s) == 0) {
		*ret_us = s * 1000000;
		return 0;
	}
	if (time_parse_rfc3339(text, ret_us) < 0 || *ret_us < 0)
		return fail(call, name,
			"must be a time such as 2026-01-31T12:00:00Z, or seconds since 1970");
	return 0;
}

static int read_kinds(struct api_call *call, struct observe_filter *filter)
{
	struct str rest = STR_NONE, kind;
	int r = v1_query_text(call, "kind", &rest);

	while (r >= 0 && rest.n && str_split(&rest, ',', &kind)) {
		if (kind.n == 0 || filter->n_kinds == OBSERVE_MAX_KINDS)
			return fail(call, "kind", "must be one to four kinds with a comma between");
		filter->kinds[filter->n_kinds++] = kind;
	}
	return r;
}

/* A key of an agent sees that agent's, a key of a team that team's, whatever it asks for. */
static int read_owner(struct api_call *call, struct observe_filter *filter)
{
	struct v1_caller caller = v1_caller(call);
	int r = v1_query_text(call, "agent_id", &filter->agent_id);

	if (r >= 0 && caller.agent_id[0]) {
		if (filter->agent_id.n && !str_is(filter->agent_id, caller.agent_id)) {
			api_fail_as(call, 403, "not_your_agent",
				"this key acts for one agent, and agent_id names another",
				"leave agent_id out, or use a key of the team");
			return -EPERM;
		}
		filter->agent_id = str_of(caller.agent_id);
	}
	if (r >= 0 && !caller.team_id[0])
		r = v1_query_text(call, "team_id", &filter->team_id);
	else
		filter->team_id = str_of(caller.team_id);
	return r;
}

int v1_event_filter(struct api_call *call, struct observe_filter *ret)
{
	int r;

	*ret = (struct observe_filter){ .only_sandboxes = !api_may(call, ACCESS_AUDIT) };
	r = read_owner(call, ret);
	if (r >= 0)
		r = read_kinds(call, ret);
	if (r >= 0)
		r = v1_query_text(call, "subject", &ret->subject);
	if (r >= 0)
		r = v1_query_text(call, "sandbox_id", &ret->subject);
	if (r >= 0)
		r = v1_query_text(call, "actor", &ret->actor);
	return r < 0 ? r : v1_query_text(call, "task_id", &ret->task_id);
}

enum v1_format v1_format(const struct api_call *call)
{
	static const struct {
		const char *name, *type;
		enum v1_format format;
	} formats[] = { { "json", "application/json", V1_JSON },
		{ "ndjson", "application/x-ndjson", V1_NDJSON }, { "csv", "text/csv", V1_CSV },
		{ "sse", "text/event-stream", V1_SSE } };
	struct str asked = http_query_value(call->x, "format"),
		   accept = http_header(call->x, "Accept");

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (str_is(asked, formats[i].name))
			return formats[i].format;
	for (size_t i = 0; !asked.n && accept.n && i < ARRAY_SIZE(formats); i++)
		if (memmem(accept.p, accept.n, formats[i].type, strlen(formats[i].type)))
			return formats[i].format;
	return asked.n ? V1_UNKNOWN : V1_ANY;
}

void v1_csv_cell(struct buf *out, struct str text, bool is_last)
{
	(void)buf_addc(out, '"');
	/* Programs that show tables take such a cell for a formula. */
	if (text.n && strchr("=+-@\t\r", text.p[0]))
		(void)buf_addc(out, '\'');
	for (size_t i = 0; i < text.n; i++) {
		if (text.p[i] == '"')
			(void)buf_addc(out, '"');
		(void)buf_addc(out, text.p[i]);
	}
	(void)buf_adds(out, is_last ? "\"\r\n" : "\",");
}

void v1_events_page(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;
	char next[24];

	if (!api_answer_begin(call, &answer, r, e))
		return;
	v1_page_begin(&answer.w);
	for (size_t i = 0; i < n; i++)
		observe_item_write(&answer.w, &v[i]);
	(void)snprintf(next, sizeof next, "%" PRId64, n ? v[n - 1].seq : 0);
	v1_page_end(&answer.w, more && n ? next : NULL);
	api_answer_send(call, &answer, 200);
}
