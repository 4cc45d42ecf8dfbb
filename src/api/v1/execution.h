/* What the handlers of commands and of whole runs share. */
#pragma once

#include "api/v1/v1.h"
#include "execution/execution.h"

struct v1_command {
	struct str shell, cwd, user, input, input_bytes;
	struct json_strs argv;
	struct json_map envs, secrets;
	struct json_int timeout_ms, keep_bytes;
	struct json_bool stream, background;
};
enum {
	V1_COMMAND_FIELDS = 12
};
extern const struct json_field v1_command_fields[V1_COMMAND_FIELDS];
/* Answers 400 or 403 itself. */
int v1_command_spec(struct api_call *call, const struct v1_command *in, struct execution_spec *ret);
size_t v1_command_limit(const struct v1_command *in); /* of each stream in the answer */
void v1_execution_fail(struct api_call *call, const struct err *e);

void v1_execution_write(struct jsonw *w, const char *key, const struct execution *ex);
void v1_result_write(struct jsonw *w, const char *key, const struct execution_result *result);

void v1_sse_begin(struct api_call *call);
bool v1_sse_execution(struct api_call *call, const char *event, const struct execution *ex);
bool v1_sse_chunk(struct api_call *call, const struct execution_chunk *chunk);
