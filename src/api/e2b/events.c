/* GET /events/sandboxes/{id}: what happened to a sandbox, as E2B's event API shows it. */
#include "api/e2b/e2b.h"

enum {
	MAX_EVENTS = 100,
	MAX_OFFSET = 1000000,
};

struct events_call {
	struct api_call *call;
	struct buf body;
	struct jsonw w;
};

/* E2B's names for what it knows too; ours stay as they are. */
static const char *type_of(struct str kind)
{
	static const struct {
		const char *ours, *theirs;
	} names[] = {
		{ "sandbox.created", "sandbox.lifecycle.created" },
		{ "sandbox.paused", "sandbox.lifecycle.paused" },
		{ "sandbox.resumed", "sandbox.lifecycle.resumed" },
		{ "sandbox.ended", "sandbox.lifecycle.killed" },
		{ "snapshot.created", "sandbox.lifecycle.checkpointed" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_is(kind, names[i].ours))
			return names[i].theirs;
	return kind.p; /* terminated */
}

/* The same for an event for ever. */
static void id_of(const struct sandbox_log_line *line, char out[UUID_SIZE])
{
	uint8_t digest[SHA256_SIZE];
	char text[64];
	int n = snprintf(text, sizeof text, "event %" PRId64 " %" PRId64, line->seq, line->at_us);

	sha256(text, (size_t)n, digest);
	uuid_format(digest, out);
}

static void write_event(void *arg, const struct sandbox_log_line *line)
{
	struct events_call *l = arg;
	struct jsonw *w = &l->w;
	char at[RFC3339_SIZE], id[UUID_SIZE];

	time_rfc3339(line->at_us, at);
	id_of(line, id);
	jsonw_object(w, NULL);
	jsonw_strz(w, "version", "v2");
	jsonw_strz(w, "id", id);
	jsonw_int(w, "seq", line->seq);
	jsonw_strz(w, "type", type_of(line->kind));
	jsonw_str(w, "sandboxId", l->call->params[0]);
	jsonw_strz(w, "sandboxTeamId", l->call->key.team_id);
	jsonw_strz(w, "timestamp", at);
	jsonw_str(w, "actor", line->actor);
	jsonw_strz(w, "cause", line->cause.n ? line->cause.p : NULL);
	jsonw_raw(w, "eventData", line->data);
	jsonw_end_object(w);
}

static void events_read(void *arg, int r, const struct err *e)
{
	struct events_call *l = arg;

	jsonw_end_array(&l->w);
	if (r < 0)
		api_fail(l->call, e);
	else
		api_reply_json(l->call, 200, &l->body);
	buf_done(&l->body);
	free(l);
}

/* Newest first, unless orderAsc=true. */
void e2b_events(struct api_call *call)
{
	struct sandbox_log_query query = { .to_us = INT64_MAX, .limit = 10 };
	struct events_call *l;
	struct str id;

	if (e2b_id(call, &id) < 0 ||
		api_query_int(call, "offset", 0, MAX_OFFSET, &query.skip) < 0 ||
		api_query_int(call, "limit", 1, MAX_EVENTS, &query.limit) < 0)
		return;
	query.newest_first = !str_is(http_query_value(call->x, "orderAsc"), "true");
	l = XNEW(struct events_call);
	l->call = call;
	l->body = BUF_INIT(16 << 20);
	jsonw_init(&l->w, &l->body);
	jsonw_array(&l->w, NULL);
	sandbox_read_log(call->api->config.sandboxes, &call->owner, id, &query, write_event,
		events_read, l);
}
