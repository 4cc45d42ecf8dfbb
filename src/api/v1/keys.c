/* API keys: listed without what they are, shown once when made. A key gives away no more than it
 * has: not a scope, not a day, and an agent's gives nothing. */
#include "api/v1/v1.h"

enum {
	MAX_SCOPES = 32,
	MAX_LIFE_S = 10 * 365 * 24 * 3600,
	MAX_OVERLAP_S = 30 * 24 * 3600,
	USUAL_OVERLAP_S = 24 * 3600,
};

static void write_scopes(struct jsonw *w, unsigned scopes)
{
	jsonw_array(w, "scopes");
	for (unsigned one = 1; one < ACCESS_ALL; one <<= 1) {
		CLEANUP(buf_done) struct buf name = BUF_INIT(64);

		if (!(scopes & one))
			continue;
		access_scopes_write(&name, one, "");
		jsonw_str(w, NULL, buf_str(&name));
	}
	jsonw_end_array(w);
}

static const char *state_of(const struct access_key *key)
{
	if (key->expires_us && key->expires_us <= time_wall_us())
		return "expired";
	return key->replaced_by[0] ? "rotated" : "live";
}

static void write_key(struct jsonw *w, const struct access_key *key, const char *text)
{
	char mask[32];

	(void)snprintf(mask, sizeof mask, "e2b_%s...%s", key->mask_start, key->mask_end);
	jsonw_object(w, NULL);
	jsonw_strz(w, "id", key->id);
	jsonw_strz(w, "name", key->name);
	if (text)
		jsonw_strz(w, "key", text);
	jsonw_strz(w, "mask", mask);
	v1_text(w, "agent_id", key->agent_id);
	write_scopes(w, key->scopes);
	jsonw_strz(w, "state", state_of(key));
	v1_time(w, "created_at", key->created_us);
	v1_text(w, "created_by", key->created_by);
	v1_time(w, "last_used_at", key->last_used_us);
	v1_time(w, "expires_at", key->expires_us);
	v1_text(w, "replaced_by", key->replaced_by);
	jsonw_end_object(w);
}

static void list_one(void *arg, const struct access_key *key)
{
	write_key(arg, key, NULL);
}

void v1_keys_list(struct api_call *call)
{
	struct api_answer answer;

	(void)api_answer_begin(call, &answer, 0, NULL);
	v1_page_begin(&answer.w);
	access_each_key(call->api->config.access, call->key.team_id, list_one, &answer.w);
	v1_page_end(&answer.w, NULL);
	api_answer_send(call, &answer, 200);
}

static void key_made(void *arg, int r, const struct access_key *made, const char *text,
	const struct err *e)
{
	struct api_call *call = arg;
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	write_key(&answer.w, made, text);
	http_add_header(call->x, "Cache-Control", STR("no-store"));
	api_answer_send(call, &answer, 201);
}

struct key_in {
	struct str name, agent_id;
	struct json_strs scopes;
	struct json_int expires_in;
};
static const struct json_field key_fields[] = {
	JSON_FIELD(struct key_in, name, "name", JSON_STR, .flags = JSON_REQUIRED, .max = 100),
	JSON_FIELD(struct key_in, agent_id, "agent_id", JSON_STR, .max = ACCESS_AGENT_SIZE - 1),
	JSON_FIELD(struct key_in, scopes, "scopes", JSON_STRS, .max = MAX_SCOPES),
	JSON_FIELD(struct key_in, expires_in, "expires_in", JSON_INT, .min = 1, .max = MAX_LIFE_S),
};
static const struct json_shape key_shape = JSON_SHAPE(struct key_in, key_fields);

/* Answers 400, 403 or 422 itself. */
static int read_scopes(struct api_call *call, const struct key_in *in, unsigned *ret)
{
	unsigned scopes = 0, has = call->key.scopes;

	for (size_t i = 0; i < in->scopes.n; i++) {
		unsigned one = access_scope_find(in->scopes.v[i]);

		if (!one) {
			api_fail_status(call, 400,
				arena_printf(http_arena(call->x),
					"validation error: scopes: there is no scope '%.*s'",
					(int)MIN(in->scopes.v[i].n, (size_t)64),
					in->scopes.v[i].p));
			return -EINVAL;
		}
		scopes |= one;
	}
	if (in->scopes.is_set && !scopes) {
		api_fail_status(call, 400, "validation error: scopes: must not be empty");
		return -EINVAL;
	}
	if (!scopes) /* what is usual, as far as this key reaches */
		scopes = access_scopes_usual(in->agent_id.n > 0) & has;
	if (in->agent_id.n && scopes & ACCESS_NEVER_AGENTS) {
		v1_unprocessable(call, "scope_not_for_agents",
			"scopes: an agent's key can have neither keys nor admin");
		return -EINVAL;
	}
	if (!scopes || (scopes & has) != scopes) { /* none would be all to those below */
		api_fail_as(call, 403, "missing_scope",
			"scopes: this key cannot give away what it does not have", NULL);
		return -EPERM;
	}
	*ret = scopes;
	return 0;
}

/* Is this end, 0 being none, later than the caller's own? */
static bool outlives(const struct api_call *call, int64_t expires_us)
{
	int64_t own = call->key.expires_us;

	return own && (!expires_us || expires_us > own);
}

/* Answers 400 or 403 itself. */
static int read_end(struct api_call *call, const struct key_in *in, int64_t *ret)
{
	int64_t asked = in->expires_in.is_set ? time_wall_us() + in->expires_in.value * 1000000 : 0;

	*ret = asked ? asked : call->key.expires_us;
	if (!outlives(call, *ret))
		return 0;
	api_fail_as(call, 403, "outlives_its_maker",
		"expires_in: this key ends earlier, and what it makes must not live longer", NULL);
	return -EPERM;
}

void v1_keys_create(struct api_call *call)
{
	struct access_key_spec spec = { .team_id = call->key.team_id, .actor = call->actor };
	struct key_in in;

	if (api_decode(call, &key_shape, &in, false) < 0)
		return;
	if (!in.name.n || (in.agent_id.p && !access_is_agent(in.agent_id))) {
		api_fail_status(call, 400,
			in.name.n ? "validation error: agent_id is 1 to 128 letters, digits and "
				    ". _ : / @ - inside"
				  : "validation error: name: must not be empty");
		return;
	}
	if (read_scopes(call, &in, &spec.scopes) < 0 || read_end(call, &in, &spec.expires_us) < 0)
		return;
	spec.name = in.name;
	spec.agent_id = in.agent_id;
	access_create_key(call->api->config.access, &spec, key_made, call);
}

/* ---- rotating and revoking ---- */

struct rotate_in {
	struct json_int overlap;
};
static const struct json_field rotate_fields[] = {
	JSON_FIELD(struct rotate_in, overlap, "overlap_s", JSON_INT, .min = 0,
		.max = MAX_OVERLAP_S),
};
static const struct json_shape rotate_shape = JSON_SHAPE(struct rotate_in, rotate_fields);

void v1_keys_rotate(struct api_call *call)
{
	const struct access_key *old =
		access_find_key(call->api->config.access, call->key.team_id, call->params[0]);
	struct rotate_in in;

	if (api_decode(call, &rotate_shape, &in, true) < 0)
		return;
	/* The new key is shown to whoever asks, so it must be nothing more than the asker is. */
	if (old && (old->scopes & call->key.scopes) != old->scopes) {
		api_fail_as(call, 403, "missing_scope", "that key has scopes that this one has not",
			NULL);
		return;
	}
	if (old && outlives(call, old->expires_us)) {
		api_fail_as(call, 403, "outlives_its_maker",
			"this key ends earlier than that one, and what it makes must not live "
			"longer",
			NULL);
		return;
	}
	access_rotate_key(call->api->config.access, call->key.team_id, call->params[0],
		in.overlap.is_set ? in.overlap.value : USUAL_OVERLAP_S, call->actor, key_made,
		call);
}

void v1_keys_revoke(struct api_call *call)
{
	access_revoke_key(call->api->config.access, call->key.team_id, call->params[0], call->actor,
		api_done_empty, call);
}
