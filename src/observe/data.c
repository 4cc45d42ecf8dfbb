/* The data of events as their readers understand it. Whoever writes an event may put more into it;
 * what is not of the expected type counts as not said. */
#include "observe/observe-internal.h"

static const struct json_field fields[] = {
	JSON_FIELD(struct event_data, us, "us", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, quota_us, "quota_us", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, row_us, "row_us", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, runtime_us, "runtime_us", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, ready_us, "ready_us", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, n, "execution", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, exit_code, "exit_code", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, duration_ms, "duration_ms", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, runtime, "runtime", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, base_template, "base_template", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, by, "by", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, why, "why", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, signal, "signal", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, ended_by, "ended_by", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, program, "program", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, user, "user", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, via, "via", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, ended_cause, "cause", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, args, "args", JSON_STRS, .flags = JSON_LAX),
	JSON_FIELD(struct event_data, pid, "pid", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape shape =
	JSON_SHAPE(struct event_data, fields, .ignore_unknown = true);

int event_data_read(struct arena *arena, struct str json, struct event_data *ret)
{
	*ret = (struct event_data){ 0 };
	return json_decode(arena, json.n ? json : STR("{}"), &shape, ret, NULL);
}
