/* PUT /sandboxes/{id}/network: the whole way out anew; what is left out is cleared. */
#include "api/e2b/e2b.h"

void e2b_network_put(struct api_call *call)
{
	struct str body = call->body.n ? call->body : STR("{}"), id;
	struct sandbox_reach reach = { .actor = call->actor };
	const struct sandbox *sb;

	if (e2b_id(call, &id) < 0)
		return;
	sb = sandbox_find_any(call->api->config.sandboxes, &call->owner, id);
	if (api_network_update(call, body, sb ? sb->options.network : STR_NONE, &reach.network,
		    &reach.internet) == 0)
		sandbox_set_network(call->api->config.sandboxes, &call->owner, id, &reach,
			api_done_empty, call);
}
