#include "observe/spans.h"

enum {
	DATA_BYTES = 1 << 20,
	KIND_INTERNAL = 1,
	KIND_SERVER = 2,
	STATUS_OK = 1,
	STATUS_ERROR = 2,
	MAX_TEXT = 8192, /* of one attribute */
};

/* ---- ids ---- */

static bool is_lower_hex(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
	return true;
}

static bool is_zero(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] != '0')
			return false;
	return true;
}

int observe_parent_read(struct str text, struct observe_parent *ret)
{
	struct str version, trace, span, flags;
	const size_t whole = text.n, exact = 55; /* of version 00, which has nothing behind it */

	if (!str_split(&text, '-', &version) || !str_split(&text, '-', &trace) ||
		!str_split(&text, '-', &span) || !str_split(&text, '-', &flags))
		return -EINVAL;
	if (version.n != 2 || trace.n != 32 || span.n != 16 || flags.n != 2 ||
		str_is(version, "ff") || (str_is(version, "00") && whole != exact))
		return -EINVAL;
	if (!is_lower_hex(version) || !is_lower_hex(trace) || !is_lower_hex(span) ||
		!is_lower_hex(flags) || is_zero(trace) || is_zero(span))
		return -EINVAL;
	(void)snprintf(ret->trace_id, sizeof ret->trace_id, "%.*s", STR_ARG(trace));
	(void)snprintf(ret->span_id, sizeof ret->span_id, "%.*s", STR_ARG(span));
	(void)snprintf(ret->flags, sizeof ret->flags, "%.*s", STR_ARG(flags));
	return 0;
}

static void make_id(const char *what, struct str sandbox_id, const char *name, int64_t seq,
	size_t bytes, char *out)
{
	uint8_t digest[SHA256_SIZE];
	char text[160];
	int n = snprintf(text, sizeof text, "%s %.*s %s %" PRId64, what,
		(int)MIN(sandbox_id.n, (size_t)64), sandbox_id.p ? sandbox_id.p : "", name, seq);

	sha256(text, (size_t)n, digest);
	digest[0] |= 1; /* never all zero */
	hex_encode(digest, bytes, out);
}

struct scene { /* what the spans of one event share */
	struct jsonw *w;
	const struct trace_event *event;
	const struct observe_prices *prices;
	struct event_data data;
	char trace_id[OBSERVE_TRACE_ID_SIZE], root_id[OBSERVE_SPAN_ID_SIZE],
		parent_id[OBSERVE_SPAN_ID_SIZE];
};

struct span {
	const char *name;
	char id[OBSERVE_SPAN_ID_SIZE];
	const char *parent; /* empty: none */
	int64_t start_us, end_us;
	int kind;
	bool failed;
	struct str why; /* of a failure */
};

static void scene_init(struct scene *s, struct jsonw *w, const struct trace_event *event,
	const struct observe_prices *prices)
{
	struct str id = event->item->subject;
	struct observe_parent parent;

	*s = (struct scene){ .w = w, .event = event, .prices = prices };
	make_id("span", id, "sandbox", 0, 8, s->root_id);
	if (observe_parent_read(event->traceparent, &parent) >= 0) {
		memcpy(s->trace_id, parent.trace_id, sizeof s->trace_id);
		memcpy(s->parent_id, parent.span_id, sizeof s->parent_id);
	} else {
		make_id("trace", id, "", 0, 16, s->trace_id);
	}
}

static void name_span(const struct scene *s, struct span *span)
{
	make_id("span", s->event->item->subject, span->name, s->event->item->seq, 8, span->id);
}

/* ---- attributes ---- */

static void begin_value(struct jsonw *w, const char *key)
{
	jsonw_object(w, NULL);
	jsonw_strz(w, "key", key);
	jsonw_object(w, "value");
}

static void end_value(struct jsonw *w)
{
	jsonw_end_object(w);
	jsonw_end_object(w);
}

static void add_text(struct jsonw *w, const char *key, struct str text)
{
	if (text.n == 0)
		return;
	begin_value(w, key);
	jsonw_str(w, "stringValue", str_make(text.p, MIN(text.n, (size_t)MAX_TEXT)));
	end_value(w);
}

static void add_int(struct jsonw *w, const char *key, int64_t value)
{
	begin_value(w, key);
	jsonw_int64_str(w, "intValue", value);
	end_value(w);
}

static void add_double(struct jsonw *w, const char *key, double value)
{
	char text[48];
	int n = snprintf(text, sizeof text, "%.9f", value);

	begin_value(w, key);
	jsonw_raw(w, "doubleValue", str_make(text, (size_t)n));
	end_value(w);
}

/* On every span: a receiver may build the trace's row from any of them. */
static void add_common(const struct scene *s, const char *type, const struct span *span)
{
	const struct observe_item *item = s->event->item;
	struct jsonw *w = s->w;

	add_text(w, "sandbox.id", item->subject);
	add_text(w, "sandbox.template", s->event->template_name);
	add_text(w, "sandbox.runtime", s->event->runtime);
	add_text(w, "container.id", item->subject);
	add_text(w, "atoll.team_id", item->team_id);
	add_text(w, "gen_ai.agent.id", item->agent_id);
	add_text(w, "user.id", item->agent_id);
	add_text(w, "session.id", item->task_id);
	add_text(w, "langfuse.trace.name", STR("sandbox"));
	add_text(w, "langfuse.trace.metadata.sandbox_id", item->subject);
	add_text(w, "langfuse.trace.metadata.template", s->event->template_name);
	add_text(w, "langfuse.trace.metadata.task_id", item->task_id);
	add_text(w, "langfuse.observation.type", str_of(type));
	if (span->failed) {
		add_text(w, "langfuse.observation.level", STR("ERROR"));
		add_text(w, "langfuse.observation.status_message", span->why);
		add_text(w, "error.type", STR("infrastructure"));
	}
}

static void add_cost(const struct scene *s)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(256);
	double cost;

	add_double(s->w, "atoll.sandbox_seconds", (double)s->event->amounts.sandbox_ms / 1e3);
	add_double(s->w, "atoll.cpu_used_seconds", (double)s->event->amounts.cpu_us / 1e6);
	add_int(s->w, "atoll.egress_bytes", s->event->amounts.egress_bytes);
	if (!s->prices || !s->prices->is_set)
		return;
	cost = observe_cost(s->prices, &s->event->amounts);
	add_double(s->w, "atoll.cost", cost);
	add_text(s->w, "atoll.currency", str_of(s->prices->currency));
	(void)buf_printf(&text, "{\"total\":%.9f}", cost);
	add_text(s->w, "langfuse.observation.cost_details", buf_str(&text));
}

/* ---- spans ---- */

static void write_nanos(struct jsonw *w, const char *key, int64_t us)
{
	jsonw_int64_str(w, key, MAX(us, 0) * 1000);
}

/* The attributes' array is open afterwards. */
static void span_begin(const struct scene *s, const struct span *span, const char *type)
{
	struct jsonw *w = s->w;

	jsonw_object(w, NULL);
	jsonw_strz(w, "traceId", s->trace_id);
	jsonw_strz(w, "spanId", span->id);
	if (span->parent[0])
		jsonw_strz(w, "parentSpanId", span->parent);
	jsonw_strz(w, "name", span->name);
	jsonw_int(w, "kind", span->kind);
	write_nanos(w, "startTimeUnixNano", MIN(span->start_us, span->end_us));
	write_nanos(w, "endTimeUnixNano", span->end_us);
	jsonw_array(w, "attributes");
	add_common(s, type, span);
}

static void span_close(const struct scene *s, const struct span *span)
{
	struct jsonw *w = s->w;

	jsonw_object(w, "status");
	jsonw_int(w, "code", span->failed ? STATUS_ERROR : STATUS_OK);
	if (span->failed && span->why.n)
		jsonw_str(w, "message", span->why);
	jsonw_end_object(w);
	jsonw_end_object(w);
}

static void span_end(const struct scene *s, const struct span *span)
{
	jsonw_end_array(s->w);
	span_close(s, span);
}

/* One that took `us` until the event. */
static struct span until_now(const struct scene *s, const char *name, int64_t us)
{
	struct span span = { .name = name,
		.parent = s->root_id,
		.start_us = s->event->item->at_us - MAX(us, 0),
		.end_us = s->event->item->at_us,
		.kind = KIND_INTERNAL };

	name_span(s, &span);
	return span;
}

static size_t write_plain(const struct scene *s, const char *name)
{
	struct span span = until_now(s, name, s->data.us.value);

	span_begin(s, &span, "span");
	add_text(s->w, "atoll.actor", s->event->item->actor);
	span_end(s, &span);
	return 1;
}

static size_t write_phase(const struct scene *s, const struct span *create, const char *name,
	int64_t after_us, struct json_int us)
{
	struct span span = { .name = name,
		.parent = create->id,
		.start_us = create->start_us + after_us,
		.end_us = create->start_us + after_us + us.value,
		.kind = KIND_INTERNAL };

	if (!us.is_set || us.value < 0)
		return 0;
	name_span(s, &span);
	span_begin(s, &span, "span");
	span_end(s, &span);
	return 1;
}

/* The row is written while the runtime works: both begin when the quota has been looked at. */
static size_t write_create(const struct scene *s)
{
	const struct event_data *d = &s->data;
	struct span span = until_now(s, "create", d->us.value);
	int64_t quota_us = MAX(d->quota_us.value, 0);
	size_t n = 1;

	span.kind = KIND_SERVER;
	span_begin(s, &span, "span");
	add_text(s->w, "atoll.actor", s->event->item->actor);
	span_end(s, &span);
	n += write_phase(s, &span, "quota", 0, d->quota_us);
	n += write_phase(s, &span, "row", quota_us, d->row_us);
	n += write_phase(s, &span, "runtime", quota_us, d->runtime_us);
	n += write_phase(s, &span, "ready", MAX(d->us.value - d->ready_us.value, 0), d->ready_us);
	return n;
}

/* The request for an execution may have come from another trace than the sandbox's: then it is a
 * link. */
static void write_link(const struct scene *s, const struct observe_parent *from)
{
	jsonw_array(s->w, "links");
	jsonw_object(s->w, NULL);
	jsonw_strz(s->w, "traceId", from->trace_id);
	jsonw_strz(s->w, "spanId", from->span_id);
	jsonw_end_object(s->w);
	jsonw_end_array(s->w);
}

static void add_execution(const struct scene *s, const struct span *span)
{
	const struct event_data *d = &s->data;
	CLEANUP(buf_done) struct buf out = BUF_INIT(1024);
	bool is_odd = !span->failed && (!d->exit_code.is_set || d->exit_code.value != 0);

	add_text(s->w, "gen_ai.operation.name", STR("execute_tool"));
	add_text(s->w, "gen_ai.tool.name", STR("command"));
	add_int(s->w, "atoll.execution", d->n.value);
	add_text(s->w, "process.command_line", s->event->command);
	add_text(s->w, "langfuse.observation.input", s->event->command);
	add_text(s->w, "atoll.ended_by", d->ended_by);
	if (d->exit_code.is_set)
		add_int(s->w, "process.exit.code", d->exit_code.value);
	add_text(s->w, "process.signal", d->signal);
	if (d->exit_code.is_set)
		(void)buf_printf(&out, "{\"exit_code\":%" PRId64 "}", d->exit_code.value);
	add_text(s->w, "langfuse.observation.output", buf_str(&out));
	if (is_odd)
		add_text(s->w, "langfuse.observation.level", STR("WARNING"));
}

static size_t write_execution(const struct scene *s)
{
	const struct event_data *d = &s->data;
	struct span span = until_now(s, "execute", d->duration_ms.value * 1000);
	struct observe_parent from;
	bool has_from = observe_parent_read(s->event->exec_traceparent, &from) >= 0;
	bool is_same = has_from && strcmp(from.trace_id, s->trace_id) == 0;

	if (is_same && strcmp(from.span_id, s->parent_id) != 0)
		span.parent = from.span_id;
	span.failed = str_is(d->ended_by, "infrastructure");
	span.why = s->event->item->cause;
	span_begin(s, &span, "tool");
	add_execution(s, &span);
	jsonw_end_array(s->w);
	if (has_from && !is_same)
		write_link(s, &from);
	span_close(s, &span);
	return 1;
}

/* Of a command that the server ran itself its execution's span says more. */
static size_t write_process(const struct scene *s)
{
	const struct event_data *d = &s->data;
	struct span span = until_now(s, "process", MAX(d->us.value, 0));
	CLEANUP(buf_done) struct buf line = BUF_INIT(MAX_TEXT);

	if (str_is(d->via, "execution"))
		return 0;
	span_begin(s, &span, "tool");
	add_text(s->w, "gen_ai.operation.name", STR("execute_tool"));
	add_text(s->w, "gen_ai.tool.name", STR("command"));
	(void)buf_add_str(&line, d->program);
	for (size_t i = 0; i < d->args.n; i++)
		(void)buf_printf(&line, " %.*s", STR_ARG(d->args.v[i]));
	add_text(s->w, "process.executable.name", d->program);
	add_text(s->w, "process.command_line", buf_str(&line));
	add_text(s->w, "langfuse.observation.input", buf_str(&line));
	add_text(s->w, "process.owner", d->user);
	if (d->pid.is_set)
		add_int(s->w, "process.pid", d->pid.value);
	if (d->exit_code.is_set)
		add_int(s->w, "process.exit.code", d->exit_code.value);
	add_text(s->w, "process.signal", d->signal);
	add_text(s->w, "atoll.ended_by", d->ended_cause);
	if (!d->exit_code.is_set || d->exit_code.value != 0)
		add_text(s->w, "langfuse.observation.level", STR("WARNING"));
	span_end(s, &span);
	return 1;
}

static size_t write_root(const struct scene *s)
{
	const struct event_data *d = &s->data;
	struct span span = { .name = "sandbox",
		.parent = s->parent_id,
		.start_us = s->event->started_us ? s->event->started_us : s->event->item->at_us,
		.end_us = s->event->item->at_us,
		.kind = KIND_SERVER,
		.failed = str_is(d->by, "infrastructure"),
		.why = d->why };

	memcpy(span.id, s->root_id, sizeof span.id);
	span_begin(s, &span, "agent");
	add_text(s->w, "atoll.ended_by", d->by);
	add_text(s->w, "atoll.ended_why", d->why);
	add_cost(s);
	span_end(s, &span);
	return 1;
}

size_t spans_write(struct jsonw *w, const struct trace_event *event,
	const struct observe_prices *prices)
{
	struct str kind = event->item->kind;
	struct arena *arena = arena_new(DATA_BYTES);
	struct scene s;
	size_t n = 0;

	scene_init(&s, w, event, prices);
	(void)event_data_read(arena, event->item->data, &s.data);
	if (str_is(kind, "sandbox.started"))
		n = write_create(&s);
	else if (str_is(kind, "execution.ended"))
		n = write_execution(&s);
	else if (str_is(kind, "process.ended") || str_is(kind, "terminal.closed"))
		n = write_process(&s);
	else if (str_is(kind, "sandbox.paused"))
		n = write_plain(&s, "pause");
	else if (str_is(kind, "sandbox.resumed"))
		n = write_plain(&s, "resume");
	else if (str_is(kind, "snapshot.created") || str_is(kind, "sandbox.snapshot"))
		n = write_plain(&s, "snapshot");
	else if (str_is(kind, "sandbox.removed"))
		n = write_plain(&s, "destroy");
	else if (str_is(kind, "sandbox.ended"))
		n = write_root(&s);
	(void)arena_free(arena);
	return n;
}

void spans_begin(struct jsonw *w, struct buf *out, const char *node_id)
{
	jsonw_init(w, out);
	jsonw_object(w, NULL);
	jsonw_array(w, "resourceSpans");
	jsonw_object(w, NULL);
	jsonw_object(w, "resource");
	jsonw_array(w, "attributes");
	add_text(w, "service.name", STR("atoll"));
	add_text(w, "service.version", STR(ATOLL_VERSION));
	add_text(w, "service.instance.id", str_of(node_id));
	jsonw_end_array(w);
	jsonw_end_object(w);
	jsonw_array(w, "scopeSpans");
	jsonw_object(w, NULL);
	jsonw_object(w, "scope");
	jsonw_strz(w, "name", "atoll");
	jsonw_strz(w, "version", ATOLL_VERSION);
	jsonw_end_object(w);
	jsonw_array(w, "spans");
}

void spans_end(struct jsonw *w)
{
	jsonw_end_array(w);
	jsonw_end_object(w);
	jsonw_end_array(w);
	jsonw_end_object(w);
	jsonw_end_array(w);
	jsonw_end_object(w);
}
