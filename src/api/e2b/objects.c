/* Sandboxes as E2B's clients read them (e2b-wire §2.3). */
#include "api/e2b/e2b.h"

int e2b_check_id(struct api_call *call, struct str id, struct str *ret)
{
	ptrdiff_t dash = str_find(id, '-');

	if (dash >= 0 && str_find(str_from(id, (size_t)dash + 1), '-') < 0)
		id.n = (size_t)dash; /* old ids carried a "-clientID" */
	for (size_t i = 0; i < id.n; i++)
		if (!((id.p[i] >= 'a' && id.p[i] <= 'z') || (id.p[i] >= '0' && id.p[i] <= '9')))
			id.n = 0;
	if (id.n == 0) {
		api_fail_status(call, 400, "Invalid sandbox ID");
		return -EINVAL;
	}
	*ret = id;
	return 0;
}

int e2b_id(struct api_call *call, struct str *ret)
{
	return e2b_check_id(call, call->params[0], ret);
}

void e2b_not_found(struct api_call *call, struct str id)
{
	struct err e = { 0 };

	(void)err_set(&e, -ENOENT, "Sandbox \"%.*s\" doesn't exist or you don't have access to it",
		STR_ARG(id));
	api_fail(call, &e);
}

static void write_token(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	char token[SANDBOX_TOKEN_SIZE];

	/* It opens everything inside: a key that may not do that does not get it. */
	if (!sb->secure || !api_may(call, ACCESS_EXECUTE | ACCESS_FILES))
		return;
	sandbox_token(call->api->config.sandboxes, sb->id, token);
	jsonw_strz(w, "envdAccessToken", token);
}

void e2b_write_sandbox(struct api_call *call, struct jsonw *w, const char *key,
	const struct sandbox *sb)
{
	char token[SANDBOX_TOKEN_SIZE];

	jsonw_object(w, key);
	jsonw_strz(w, "sandboxID", sb->id);
	jsonw_strz(w, "templateID", sb->template_id);
	jsonw_strz(w, "alias", sb->template_name);
	jsonw_strz(w, "clientID", E2B_CLIENT_ID);
	jsonw_strz(w, "envdVersion", E2B_ENVD_VERSION);
	write_token(call, w, sb);
	if (sb->options.is_private && api_may(call, ACCESS_EXECUTE)) {
		sandbox_traffic_token(call->api->config.sandboxes, sb->id, token);
		jsonw_strz(w, "trafficAccessToken", token);
	} else {
		jsonw_null(w, "trafficAccessToken");
	}
	jsonw_strz(w, "domain", call->api->config.domain);
	jsonw_end_object(w);
}

void e2b_reply_sandbox(struct api_call *call, int status, const struct sandbox *sb)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct jsonw w;

	jsonw_init(&w, &body);
	e2b_write_sandbox(call, &w, NULL, sb);
	api_reply_json(call, status, &body);
}

/* In what is shown of it: volumeMounts. */
static void write_mounts(struct jsonw *w, const struct sandbox_options *options)
{
	jsonw_array(w, "volumeMounts");
	for (size_t i = 0; i < options->n_mounts; i++) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "name", options->mounts[i].name);
		jsonw_strz(w, "path", options->mounts[i].path);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
}

/* What lists and details share. */
static void write_common(struct jsonw *w, const struct sandbox *sb)
{
	char started[RFC3339_SIZE], end[RFC3339_SIZE];
	bool paused = sandbox_is_paused(sb);

	time_rfc3339(sb->started_us, started);
	time_rfc3339(paused && sb->paused_us ? sb->paused_us : sb->end_us, end);
	jsonw_strz(w, "sandboxID", sb->id);
	jsonw_strz(w, "templateID", sb->template_id);
	jsonw_strz(w, "alias", sb->template_name);
	jsonw_strz(w, "clientID", E2B_CLIENT_ID);
	jsonw_strz(w, "startedAt", started);
	jsonw_strz(w, "endAt", end);
	jsonw_strz(w, "envdVersion", E2B_ENVD_VERSION);
	jsonw_int(w, "cpuCount", sb->limits.v[LIMIT_CPU]);
	jsonw_int(w, "memoryMB", sb->limits.v[LIMIT_MEMORY]);
	jsonw_int(w, "diskSizeMB", sb->limits.v[LIMIT_DISK]);
	jsonw_strz(w, "state", paused ? "paused" : "running");
	jsonw_strz(w, "runtime", sb->runtime);
	jsonw_map(w, "metadata", &sb->metadata);
	write_mounts(w, &sb->options);
}

void e2b_write_listed(struct jsonw *w, const struct sandbox *sb)
{
	jsonw_object(w, NULL);
	write_common(w, sb);
	jsonw_end_object(w);
}

/* What the network rules refused it, where they did. */
static void write_denied(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	struct egress_denials denied = egress_denied(call->api->config.egress, sb->id);

	jsonw_object(w, "networkDenied");
	jsonw_int(w, "packets", (int64_t)sb->denied_packets);
	jsonw_int(w, "namesAsked", (int64_t)denied.names_asked);
	jsonw_int(w, "namesDialled", (int64_t)denied.names_dialled);
	jsonw_int(w, "addresses", (int64_t)denied.addresses);
	jsonw_end_object(w);
}

void e2b_write_detail(struct api_call *call, struct jsonw *w, const struct sandbox *sb)
{
	jsonw_object(w, NULL);
	write_common(w, sb);
	write_token(call, w, sb);
	jsonw_strz(w, "domain", sandbox_is_paused(sb) ? NULL : call->api->config.domain);
	if (sb->options.internet.is_set)
		jsonw_bool(w, "allowInternetAccess", sb->options.internet.value);
	else
		jsonw_null(w, "allowInternetAccess");
	jsonw_bool(w, "nested", sb->options.nested.value);
	if (sb->options.network.n)
		api_network_write(call, w, "network", sb->options.network);
	write_denied(call, w, sb);
	e2b_write_limits(call, w, sb);
	jsonw_object(w, "lifecycle");
	jsonw_bool(w, "autoResume", sb->options.auto_resume);
	jsonw_strz(w, "onTimeout",
		sb->options.on_timeout == SANDBOX_TIMEOUT_KILL ? "kill" : "pause");
	jsonw_end_object(w);
	jsonw_end_object(w);
}
