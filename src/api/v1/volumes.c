/* Volumes, as far as they have anything of their own here: replacing what opens one. The rest of
 * them is E2B's surface. */
#include "api/v1/v1.h"

static void rotated(void *arg, int r, const struct volume *v, const struct err *e)
{
	struct api_call *call = arg;
	char token[VOLUME_TOKEN_SIZE];
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	volume_token(call->api->config.volumes, v, token);
	jsonw_object(&answer.w, NULL);
	jsonw_strz(&answer.w, "id", v->id);
	jsonw_strz(&answer.w, "name", v->name);
	jsonw_strz(&answer.w, "token", token);
	jsonw_end_object(&answer.w);
	api_answer_send(call, &answer, 200);
}

void v1_volumes_rotate_token(struct api_call *call)
{
	volume_rotate_token(call->api->config.volumes, &call->volume_owner, call->params[0],
		call->actor, rotated, call);
}
