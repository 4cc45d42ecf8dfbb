/* Idempotency-Key: a client that does not know whether its request arrived sends it again, with the
 * same key, and gets the answer of the first. Who asks while the first is still under way waits for
 * it. Only success is remembered: what failed may be tried again. By which request a sandbox was
 * made stands in its row, so that also the next server knows it: who lost its answer to a crash
 * gets the sandbox that it asked for. What forks, snapshots and runs leave does not say so: they
 * are written down before they are begun, and again with the answer (once-rows.c). One that was
 * begun and not answered when a server died may have been done: it is refused, and never done
 * again. */
#include "api/e2b/e2b.h"
#include "api/v1/v1.h"

enum {
	REMEMBER_MS = 10 * 60 * 1000,
	MAX_REMEMBERED = 10000,
	MAX_KEY = 255,
	MAX_BODY = 256 << 10,
	MAX_BYTES = 64 << 20, /* of all of them */
	TEAM_PART = 8,        /* of both, that one team may have: it forgets its own first */
};

struct once_team {
	char id[ACCESS_ID_SIZE];
	struct list all; /* oldest first */
	size_t n, bytes;
};

struct once {
	struct list node;    /* oldest first */
	struct list of_team; /* the same, of its team's */
	struct once_team *team;
	char name[API_ONCE_SIZE];  /* of whose, what and the key */
	uint8_t body[SHA256_SIZE]; /* what was asked */
	struct api_call *first;    /* NULL: answered */
	struct api_call *waiting;  /* a chain by call->next_waiting */
	int64_t until_ms;
	int status;      /* 0, and answered: it cannot be told again */
	bool is_kept;    /* it has a row */
	bool is_unknown; /* it was begun by a server that never answered */
	struct buf answer;
};

static struct once_team *team_of(struct api *api, const char *id)
{
	struct once_team *team = map_get(&api->once.teams, str_of(id));

	if (team)
		return team;
	team = XNEW(struct once_team);
	(void)snprintf(team->id, sizeof team->id, "%s", id);
	list_init(&team->all);
	(void)map_put(&api->once.teams, str_of(team->id), team);
	return team;
}

static void once_free(struct api *api, struct once *once)
{
	struct once_team *team = once->team;

	(void)map_remove(&api->once.by_name, str_of(once->name));
	list_remove(&once->node);
	list_remove(&once->of_team);
	api->once.bytes -= once->answer.n;
	team->bytes -= once->answer.n;
	if (--team->n == 0) {
		(void)map_remove(&api->once.teams, str_of(team->id));
		free(team);
	}
	buf_done(&once->answer);
	free(once);
}

/* Before its time. */
static void forget(struct api *api, struct once *once)
{
	if (once->is_kept)
		once_row_remove(api->config.store, once->name);
	once_free(api, once);
}

void once_done(struct api *api)
{
	LIST_EACH(&api->once.all, node)
	once_free(api, container_of(node, struct once, node));
	map_done(&api->once.by_name);
	map_done(&api->once.teams);
}

/* Those whose time is up, and of too many the oldest; never one that somebody waits for. */
static void sweep(struct api *api, int64_t now_ms)
{
	LIST_EACH(&api->once.all, node)
	{
		struct once *once = container_of(node, struct once, node);

		if (once->until_ms > now_ms && api->once.by_name.n < MAX_REMEMBERED &&
			api->once.bytes < MAX_BYTES)
			break;
		if (once->first)
			continue;
		if (once->until_ms > now_ms)
			forget(api, once);
		else
			once_free(api, once); /* rows whose time is up go with the next one */
	}
}

/* What one team remembers is not forgotten for another's. */
static void sweep_team(struct api *api, const char *id)
{
	struct once_team *team = map_get(&api->once.teams, str_of(id));

	if (!team)
		return;
	LIST_EACH(&team->all, node)
	{
		struct once *once = container_of(node, struct once, of_team);

		if (team->n < MAX_REMEMBERED / TEAM_PART && team->bytes < MAX_BYTES / TEAM_PART)
			break; /* with some left: one alone has not so much */
		if (!once->first)
			forget(api, once);
	}
}

static bool key_is_sane(struct str key)
{
	if (key.n == 0 || key.n > MAX_KEY)
		return false;
	for (size_t i = 0; i < key.n; i++)
		if (key.p[i] < '!' || key.p[i] > '~')
			return false;
	return true;
}

/* The same key from another team or agent, or to another path, is another one; and from a caller
 * of other scopes too, since they decide what an answer shows. */
static void name_it(const struct api_call *call, struct str key, char out[API_ONCE_SIZE])
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	uint8_t digest[SHA256_SIZE];

	(void)buf_printf(&text, "%s\n%s\n%x\n%.*s\n%.*s\n%.*s", call->key.team_id,
		call->key.agent_id, call->key.scopes, STR_ARG(http_method(call->x)),
		STR_ARG(http_path(call->x)), STR_ARG(key));
	sha256(text.p, text.n, digest);
	hex_encode(digest, sizeof digest, out);
}

static void answer_again(struct api_call *call, int status, struct str body)
{
	api_note_answer(call, status); /* it has no `once` of its own */
	http_add_header(call->x, "Idempotent-Replayed", STR("true"));
	if (status == 429 || status == 503)
		api_retry_after(call, 1);
	http_reply(call->x, status, body.n ? "application/json; charset=utf-8" : NULL, body);
}

static void fail_mismatch(struct api_call *call)
{
	api_fail_as(call, 422, "idempotency_mismatch",
		"this Idempotency-Key was used with another body",
		"use a new key for every new request");
}

static void fail_untold(struct api_call *call)
{
	api_fail_as(call, 409, "not_repeatable",
		"what was asked for with this Idempotency-Key was done, and its answer, a stream "
		"or larger than 256 KiB, was not kept",
		"ask for its outcome by the ids that the answer gave, or use a new key");
}

static void fail_unknown(struct api_call *call)
{
	api_fail_as(call, 409, "not_repeatable",
		"the server ended before it had answered the first request with this "
		"Idempotency-Key: it may have been done",
		"look for what it made, or use a new key");
}

/* Made for the same request: by the server before this one, or with an answer that was not kept. */
static bool find_made(struct api_call *call, const uint8_t body[SHA256_SIZE])
{
	char digest[2 * SHA256_SIZE + 1];
	const struct sandbox *sb = sandbox_find_request(call->api->config.sandboxes, &call->owner,
		str_of(call->once_name));

	hex_encode(body, SHA256_SIZE, digest);
	(void)snprintf(call->once_request, sizeof call->once_request, "%s %s", call->once_name,
		digest);
	if (!sb || sb->started_us < time_wall_us() - REMEMBER_MS * 1000LL)
		return false;
	if (!str_is(sb->options.request, call->once_request)) {
		fail_mismatch(call);
		return true;
	}
	http_add_header(call->x, "Idempotent-Replayed", STR("true"));
	if (call->is_v1)
		v1_reply_sandbox(call, 201, sb);
	else
		e2b_reply_sandbox(call, 201, sb);
	return true;
}

static bool join(struct api_call *call, struct once *once, const uint8_t body[SHA256_SIZE])
{
	if (memcmp(once->body, body, SHA256_SIZE) != 0) {
		fail_mismatch(call);
	} else if (once->first) {
		call->next_waiting = once->waiting;
		once->waiting = call;
	} else if (once->is_unknown) {
		fail_unknown(call);
	} else if (once->status == 0) {
		if (!find_made(call, body))
			fail_untold(call);
	} else {
		answer_again(call, once->status, buf_str(&once->answer));
	}
	return true;
}

static struct once *once_new(struct api *api, const struct once_row *row)
{
	struct once *once = XNEW(struct once);

	once->until_ms = time_now_ms() + REMEMBER_MS;
	once->answer = BUF_INIT(MAX_BODY);
	memcpy(once->name, row->name, sizeof once->name);
	memcpy(once->body, row->body, sizeof once->body);
	once->team = team_of(api, row->team_id);
	once->team->n++;
	list_append(&once->team->all, &once->of_team);
	list_append(&api->once.all, &once->node);
	(void)map_put(&api->once.by_name, str_of(once->name), once);
	return once;
}

static void keep_answer(struct api *api, struct once *once, int status, struct str body)
{
	if (buf_add_str(&once->answer, body) < 0)
		return; /* too long */
	once->status = status;
	api->once.bytes += once->answer.n;
	once->team->bytes += once->answer.n;
}

static void load_one(void *arg, const struct once_row *row, struct str answer)
{
	struct api *api = arg;
	struct once *once = once_new(api, row);
	int64_t age_ms = (time_wall_us() - row->asked_us) / 1000;

	once->is_kept = true;
	once->is_unknown = row->status == 0;
	once->until_ms -= MIN(MAX(age_ms, 0), REMEMBER_MS);
	if (row->status > ONCE_UNTOLD)
		keep_answer(api, once, row->status, answer);
}

int once_load(struct api *api, struct err *e)
{
	return once_rows_load(api->config.store, api->once.key,
		time_wall_us() - REMEMBER_MS * 1000LL, load_one, api, e);
}

/* Now it cannot be done twice, whatever happens. */
static void row_written(void *arg, int r, const struct err *e)
{
	struct api_call *call = arg;

	CRASH_POINT("once.begun");
	if (r < 0)
		api_fail(call, e);
	else
		api_run(call);
}

bool once_begin(struct api_call *call)
{
	struct str key = http_header(call->x, "Idempotency-Key");
	struct api *api = call->api;
	struct once_row row = { .asked_us = time_wall_us() };
	struct once *once;

	if (!key.p)
		return false;
	if (!key_is_sane(key)) {
		api_fail_status(call, 400,
			"Idempotency-Key must be 1 to 255 visible ASCII characters");
		return true;
	}
	sweep(api, time_now_ms());
	sweep_team(api, call->key.team_id);
	name_it(call, key, call->once_name);
	sha256(call->body.p, call->body.n, row.body);
	once = map_get(&api->once.by_name, str_of(call->once_name));
	if (once)
		return join(call, once, row.body);
	if (find_made(call, row.body))
		return true;
	memcpy(row.name, call->once_name, sizeof row.name);
	memcpy(row.team_id, call->key.team_id, sizeof row.team_id);
	once = once_new(api, &row);
	once->first = call;
	once->is_kept = call->route->flags & API_KEPT;
	call->once = once;
	if (once->is_kept)
		once_row_insert(api->config.store, &row, row.asked_us - REMEMBER_MS * 1000LL,
			row_written, call);
	return once->is_kept;
}

static void row_answered(struct api *api, const struct once *once)
{
	if (once->is_kept)
		once_row_answer(api->config.store, api->once.key, once->name,
			once->status ? once->status : ONCE_UNTOLD, buf_str(&once->answer));
}

void once_answered(struct api_call *call, int status, struct str body)
{
	struct once *once = TAKE(call->once);

	if (!once)
		return;
	once->first = NULL;
	for (struct api_call *next, *other = TAKE(once->waiting); other; other = next) {
		next = other->next_waiting;
		answer_again(other, status, body);
	}
	if (status >= 300) {
		forget(call->api, once);
		return;
	}
	keep_answer(call->api, once, status, body);
	row_answered(call->api, once);
}

static void fail_abandoned(struct api_call *call)
{
	api_fail_status(call, 503, "the first request with this Idempotency-Key was given up");
}

/* There is no answer that others could have. */
static struct once *once_end(struct api_call *call, api_fn fail)
{
	struct once *once = TAKE(call->once);

	for (struct api_call *next, *other = once ? TAKE(once->waiting) : NULL; other;
		other = next) {
		next = other->next_waiting;
		fail(other);
	}
	if (once)
		once->first = NULL;
	return once;
}

void once_streamed(struct api_call *call)
{
	const struct once *once = once_end(call, fail_untold);

	if (once)
		row_answered(call->api, once);
}

void once_abandoned(struct api_call *call)
{
	struct once *once = once_end(call, fail_abandoned);

	if (once)
		forget(call->api, once);
}

bool once_is_awaited(const struct api_call *call)
{
	return call->once && call->once->waiting;
}
