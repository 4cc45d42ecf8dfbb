/* A sandbox as /api/v1 shows it. */
#include "api/v1/v1.h"

static const struct json_field limit_fields[] = {
#define FIELD(kind, name, key, unit, least, most, standard, ceiling) \
	JSON_FIELD(struct limit_in, v[kind], key, JSON_INT, .min = (least), .max = (most)),
	LIMIT_TABLE(FIELD)
};
const struct json_shape v1_limits_shape = JSON_SHAPE(struct limit_in, limit_fields);

void v1_write_limits(struct jsonw *w, const char *key, const struct limit_set *set)
{
	jsonw_object(w, key);
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (set->v[i])
			jsonw_int(w, limit_key((enum limit_kind)i), set->v[i]);
	jsonw_end_object(w);
}

static const char *state_of(const struct sandbox_record *record)
{
	if (record->is_ended)
		return "ended";
	switch (record->sb.state) {
	case SANDBOX_STARTING:
		return "starting";
	case SANDBOX_RUNNING:
		return "running";
	case SANDBOX_PAUSING:
		return "pausing";
	case SANDBOX_PAUSED:
		return "paused";
	case SANDBOX_RESUMING:
		return "resuming";
	case SANDBOX_ENDING:
		return "ending";
	}
	return "unknown";
}

/* How it is, and what its guest said last. */
static void write_usage(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	struct sandbox_sample sample;
	bool is_known = sandbox_last_sample(call->api->config.sandboxes, sb->id, &sample);

	if (sb->state == SANDBOX_RUNNING)
		jsonw_strz(w, "health", sandbox_health_name(sb->health));
	else
		jsonw_null(w, "health");
	v1_time(w, "health_since", sb->state == SANDBOX_RUNNING ? sb->health_us : 0);
	v1_text(w, "health_why", sb->state == SANDBOX_RUNNING ? sb->health_why : "");
	if (!is_known) {
		jsonw_null(w, "usage");
		return;
	}
	jsonw_object(w, "usage");
	v1_time(w, "at", sample.at_us);
	jsonw_num(w, "cpu_percent", sample.cpu_pct);
	jsonw_int(w, "memory_bytes", sample.mem_used);
	jsonw_int(w, "disk_bytes", sample.disk_used);
	jsonw_int(w, "processes", sample.processes);
	jsonw_int(w, "connections", sample.connections);
	jsonw_end_object(w);
}

static void write_volumes(struct jsonw *w, const struct sandbox_options *options)
{
	jsonw_array(w, "volumes");
	for (size_t i = 0; i < options->n_mounts; i++) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "name", options->mounts[i].name);
		jsonw_strz(w, "path", options->mounts[i].path);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
}

/* What opens its own API and its ports: for keys that may do everything in there. */
static void write_access(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	char token[SANDBOX_TOKEN_SIZE];

	if (!api_may(call, ACCESS_EXECUTE | ACCESS_FILES)) {
		jsonw_null(w, "access");
		return;
	}
	jsonw_object(w, "access");
	jsonw_strz(w, "domain", call->api->config.domain);
	if (sb->secure)
		sandbox_token(call->api->config.sandboxes, sb->id, token);
	jsonw_strz(w, "token", sb->secure ? token : NULL);
	if (sb->options.is_private)
		sandbox_traffic_token(call->api->config.sandboxes, sb->id, token);
	jsonw_strz(w, "traffic_token", sb->options.is_private ? token : NULL);
	jsonw_end_object(w);
}

/* 0: null. */
static void write_seconds(struct jsonw *w, const char *key, int64_t seconds)
{
	if (seconds)
		jsonw_int(w, key, seconds);
	else
		jsonw_null(w, key);
}

/* While it lives. */
static void write_live(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	static const char *const on_timeout[] = {
		[SANDBOX_TIMEOUT_KILL] = "kill",
		[SANDBOX_TIMEOUT_PAUSE] = "pause",
		[SANDBOX_TIMEOUT_TO_DISK] = "pause_to_disk",
	};

	jsonw_strz(w, "on_timeout", on_timeout[sb->options.on_timeout]);
	jsonw_bool(w, "auto_resume", sb->options.auto_resume);
	write_seconds(w, "idle_timeout", sb->options.idle_timeout_s);
	write_seconds(w, "max_age", sb->options.max_age_s);
	jsonw_bool(w, "internet", !sb->options.internet.is_set || sb->options.internet.value);
	jsonw_bool(w, "nested", sb->options.nested.value);
	if (sb->options.network.n)
		api_network_write(call, w, "network", sb->options.network);
	else
		jsonw_null(w, "network");
	jsonw_raw(w, "secrets", sb->options.secrets.n ? sb->options.secrets : STR("{}"));
	write_volumes(w, &sb->options);
	write_usage(call, w, sb);
	write_access(call, w, sb);
}

static void write_who(struct jsonw *w, const struct sandbox *sb)
{
	jsonw_strz(w, "id", sb->id);
	jsonw_strz(w, "team_id", sb->team_id);
	v1_text(w, "agent_id", sb->agent_id);
	v1_text(w, "task_id", sb->task_id);
	jsonw_strz(w, "template", sb->template_name);
	jsonw_strz(w, "template_id", sb->template_id);
	jsonw_strz(w, "runtime", sb->runtime);
}

/* All it has used so far, and what that costs. */
static void write_used(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	struct observe_amounts used;

	sandbox_used(sb, &used);
	jsonw_object(w, "used");
	observe_amounts_write(w, &used, call->api->config.prices);
	jsonw_end_object(w);
}

/* From started_at to ends_at, as its making, a resume or an extension left it; where there is no
 * such end, what a resume gives it. */
static int64_t timeout_of(const struct sandbox_record *record)
{
	const struct sandbox *sb = &record->sb;

	if (record->is_ended || sandbox_is_paused(sb))
		return sb->timeout_s;
	return (sb->end_us - sb->run_started_us + 500000) / 1000000;
}

void v1_write_sandbox(struct api_call *call, struct jsonw *w, const struct sandbox_record *record)
{
	const struct sandbox *sb = &record->sb;

	jsonw_object(w, NULL);
	write_who(w, sb);
	jsonw_strz(w, "state", state_of(record));
	v1_time(w, "created_at", sb->started_us);
	v1_time(w, "started_at", sb->run_started_us);
	v1_time(w, "ends_at", record->is_ended || sandbox_is_paused(sb) ? 0 : sb->end_us);
	v1_time(w, "paused_at", record->is_ended ? 0 : sb->paused_us);
	v1_time(w, "ended_at", record->ended_us);
	v1_text(w, "ended_by", record->ended_by);
	v1_text(w, "ended_why", record->ended_why);
	v1_text(w, "origin", record->is_ended ? sandbox_origin(record->ended_by) : "");
	jsonw_int(w, "timeout", timeout_of(record));
	jsonw_map(w, "metadata", &sb->metadata);
	v1_write_limits(w, "limits", &sb->limits);
	v1_text(w, "traceparent", sb->traceparent);
	write_used(call, w, sb);
	if (!record->is_ended)
		write_live(call, w, sb);
	jsonw_end_object(w);
}

void v1_reply_changed(struct api_call *call)
{
	const struct sandbox *sb = v1_sandbox(call);

	if (sb)
		v1_reply_sandbox(call, 200, sb);
}

void v1_reply_sandbox(struct api_call *call, int status, const struct sandbox *sb)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(API_ANSWER_BYTES);
	struct sandbox_record record = { .sb = *sb };
	struct jsonw w;

	jsonw_init(&w, &body);
	v1_write_sandbox(call, &w, &record);
	api_reply_json(call, status, &body);
}
