/* What a sandbox may reach: shown, replaced, changed in part. */
#include "api/v1/v1.h"

void v1_network_get(struct api_call *call)
{
	const struct sandbox *sb = v1_sandbox(call);
	struct egress_denials denied;
	struct api_answer answer;
	struct jsonw *w = &answer.w;

	if (!sb)
		return;
	denied = egress_denied(call->api->config.egress, sb->id);
	(void)api_answer_begin(call, &answer, 0, NULL);
	jsonw_object(w, NULL);
	jsonw_bool(w, "internet", !sb->options.internet.is_set || sb->options.internet.value);
	api_network_members(call, w, sb->options.network);
	jsonw_object(w, "denied");
	jsonw_int(w, "packets", (int64_t)sb->denied_packets);
	jsonw_int(w, "names_asked", (int64_t)denied.names_asked);
	jsonw_int(w, "names_dialled", (int64_t)denied.names_dialled);
	jsonw_int(w, "addresses", (int64_t)denied.addresses);
	jsonw_end_object(w);
	jsonw_end_object(w);
	api_answer_send(call, &answer, 200);
}

static void network_set(void *arg, int r, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		v1_reply_changed(arg);
}

/* The whole way out anew; what is left out is cleared. */
void v1_network_put(struct api_call *call)
{
	const struct sandbox *sb = v1_running(call);
	struct sandbox_reach reach = { .actor = call->actor };

	if (sb && api_network_update(call, call->body, sb->options.network, &reach.network,
			  &reach.internet) == 0)
		sandbox_set_network(call->api->config.sandboxes, v1_owner(call), call->params[0],
			&reach, network_set, call);
}

/* What another change before it has made of the rest counts, not what was there when it came: each
 * time it is too late for that, somebody else has got on. */
static void part_set(void *arg, int r, const struct err *e)
{
	if (r == -ESTALE)
		v1_network_patch(arg);
	else
		network_set(arg, r, e);
}

/* What is left out stays as it is; null clears it. */
void v1_network_patch(struct api_call *call)
{
	const struct sandbox *sb = v1_running(call);
	struct sandbox_reach reach = { .actor = call->actor };
	struct str whole;

	if (!sb || api_network_merge(call, call->body, &sb->options, &whole) < 0 ||
		api_network_update(call, whole, sb->options.network, &reach.network,
			&reach.internet) < 0)
		return;
	reach.made_of = &sb->options;
	sandbox_set_network(call->api->config.sandboxes, v1_owner(call), call->params[0], &reach,
		part_set, call);
}
