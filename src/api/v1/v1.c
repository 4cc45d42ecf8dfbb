/* What the handlers of /api/v1 share. */
#include "api/v1/v1.h"

struct v1_caller v1_caller(const struct api_call *call)
{
	return (struct v1_caller){ .team_id = call->key.team_id,
		.agent_id = call->key.agent_id,
		.key_id = call->actor,
		.scopes = call->key.scopes,
		.is_operator = call->is_operator };
}

const struct sandbox_owner *v1_owner(const struct api_call *call)
{
	/* Without a team only the operator comes this far, and only where it may. */
	assert(call->key.team_id[0] || (call->is_operator && call->route->flags & API_ALL_TEAMS));
	return call->key.team_id[0] ? &call->owner : NULL;
}

/* ---- sandboxes ---- */

static bool id_is_sane(struct str id)
{
	for (size_t i = 0; i < id.n; i++)
		if (!((id.p[i] >= 'a' && id.p[i] <= 'z') || (id.p[i] >= '0' && id.p[i] <= '9')))
			return false;
	return id.n > 0 && id.n < SANDBOX_ID_SIZE;
}

static void fail_not_found(struct api_call *call)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(512);

	(void)buf_printf(&text, "sandbox '%.*s' does not exist, or is another's",
		(int)MIN(call->params[0].n, (size_t)64), call->params[0].p);
	api_fail_as(call, 404, "sandbox_not_found", buf_str(&text).p, NULL);
}

/* It is not there: because it never was, or because it has ended. */
static void absent_read(void *arg, int r, const struct sandbox_record *record, const struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1024);
	struct api_call *call = arg;

	if (r == -ENOENT) {
		fail_not_found(call);
	} else if (r < 0) {
		api_fail(call, e);
	} else if (!record->is_ended) {
		api_fail_as(call, 409, "busy", "the sandbox is being made or ended: try again",
			NULL);
	} else {
		call->origin = sandbox_origin(record->ended_by);
		(void)buf_printf(&text, "the sandbox has ended: %s (%s)", record->ended_why,
			record->ended_by);
		api_fail_as(call, 409, "sandbox_ended", buf_str(&text).p,
			"GET the sandbox for when and why, or make a new one");
	}
}

static void fail_absent(struct api_call *call)
{
	if (id_is_sane(call->params[0]))
		sandbox_look(call->api->config.sandboxes, v1_owner(call), call->params[0],
			absent_read, call);
	else
		fail_not_found(call);
}

const struct sandbox *v1_sandbox(struct api_call *call)
{
	const struct sandbox *sb =
		sandbox_find_any(call->api->config.sandboxes, v1_owner(call), call->params[0]);

	if (!sb)
		fail_absent(call);
	return sb;
}

const struct sandbox *v1_running(struct api_call *call)
{
	const struct sandbox *sb = v1_sandbox(call);

	if (!sb || sb->state == SANDBOX_RUNNING)
		return sb;
	if (sandbox_is_paused(sb))
		api_fail_as(call, 409, "sandbox_paused", "the sandbox is paused",
			"resume it: POST .../resume");
	else
		api_fail_as(call, 409, "busy", "the sandbox is being resumed: try again", NULL);
	return NULL;
}

struct record_call {
	struct api_call *call;
	void (*fn)(struct api_call *call, const struct sandbox_record *record);
};

static void record_read(void *arg, int r, const struct sandbox_record *record, const struct err *e)
{
	struct record_call *rc = arg;

	if (r == -ENOENT)
		fail_not_found(rc->call);
	else if (r < 0)
		api_fail(rc->call, e);
	else
		rc->fn(rc->call, record);
}

void v1_record(struct api_call *call,
	void (*fn)(struct api_call *call, const struct sandbox_record *record))
{
	const struct sandbox *sb =
		sandbox_find_any(call->api->config.sandboxes, v1_owner(call), call->params[0]);
	struct record_call *rc = arena_alloc(http_arena(call->x), sizeof *rc);

	if (sb) {
		const struct sandbox_record record = { .sb = *sb };

		fn(call, &record);
	} else if (!rc || !id_is_sane(call->params[0])) {
		fail_not_found(call);
	} else {
		*rc = (struct record_call){ call, fn };
		sandbox_look(call->api->config.sandboxes, v1_owner(call), call->params[0],
			record_read, rc);
	}
}

/* ---- answers ---- */

void v1_unprocessable(struct api_call *call, const char *code, const char *message)
{
	api_fail_as(call, 422, code, message, NULL);
}

void v1_time(struct jsonw *w, const char *key, int64_t at_us)
{
	char text[RFC3339_SIZE];

	time_rfc3339(at_us, text);
	jsonw_strz(w, key, at_us ? text : NULL);
}

void v1_text(struct jsonw *w, const char *key, const char *text)
{
	jsonw_strz(w, key, text && text[0] ? text : NULL);
}

/* ---- pages ---- */

int v1_page_read(struct api_call *call, int64_t usual, int64_t most, struct v1_page *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1024);
	struct str token = http_query_value(call->x, "cursor");
	char *kept;

	*ret = (struct v1_page){ .limit = usual, .cursor = STR("") };
	if (api_query_int(call, "limit", 1, most, &ret->limit) < 0)
		return -EINVAL;
	if (!token.n)
		return 0;
	kept = base64_decode(token, &text) < 0 || !str_is_utf8(buf_str(&text))
		       ? NULL
		       : arena_dup(http_arena(call->x), buf_str(&text));
	if (!kept) {
		api_fail_as(call, 400, "invalid_cursor",
			"validation error: cursor is not one that this server gave",
			"use next_cursor of the page before, or leave it out");
		return -EINVAL;
	}
	ret->cursor = str_make(kept, text.n);
	return 0;
}

int v1_cursor_us(struct api_call *call, const struct v1_page *page, int64_t *ret_us,
	struct str *ret_id)
{
	struct str rest = page->cursor, at;

	*ret_us = 0;
	*ret_id = STR("");
	if (!rest.n)
		return 0;
	if (str_split(&rest, ' ', &at) && str_to_int(at, 1, INT64_MAX, ret_us) == 0 && rest.n) {
		*ret_id = rest;
		return 0;
	}
	api_fail_as(call, 400, "invalid_cursor",
		"validation error: cursor is not one of this listing", NULL);
	return -EINVAL;
}

void v1_page_begin(struct jsonw *w)
{
	jsonw_object(w, NULL);
	jsonw_array(w, "items");
}

bool v1_is_behind(int64_t before_us, struct str before_id, int64_t at_us, const char *id)
{
	return !before_us || at_us < before_us ||
	       (at_us == before_us && strcmp(id, before_id.p) > 0);
}

void v1_page_end_us(struct jsonw *w, bool more, int64_t last_us, const char *last_id)
{
	char next[64];

	(void)snprintf(next, sizeof next, "%" PRId64 " %s", last_us, last_id);
	v1_page_end(w, more ? next : NULL);
}

/* base64url without padding: it goes into a query as it is. */
void v1_page_end(struct jsonw *w, const char *next)
{
	char encoded[1024];
	size_t n = next ? strlen(next) : 0, size = base64_size(n);

	jsonw_end_array(w);
	assert(size < sizeof encoded);
	base64_encode(next ? next : "", n, encoded);
	for (size_t i = 0; i < size; i++)
		encoded[i] = encoded[i] == '+' ? '-' : encoded[i] == '/' ? '_' : encoded[i];
	while (size && encoded[size - 1] == '=')
		size--;
	if (next)
		jsonw_str(w, "next_cursor", str_make(encoded, size));
	else
		jsonw_null(w, "next_cursor");
	jsonw_end_object(w);
}
