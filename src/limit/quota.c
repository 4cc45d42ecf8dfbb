/* What a team may have at once, all sandboxes together. */
#include "limit/limit.h"

enum {
	ARENA_BYTES = 16 << 10
};

struct quota_in {
	struct json_int v[LIMIT_QUOTAS];
};

static const struct {
	const char *name, *unit;
	int64_t most;
} infos[] = {
#define INFO(kind, name, unit, most) [kind] = { name, unit, most },
	LIMIT_QUOTA_TABLE(INFO)
};

static const struct json_field fields[] = {
#define FIELD(kind, name, unit, most)                                                         \
	[kind] = JSON_FIELD(struct quota_in, v[kind], name, JSON_INT, .flags = JSON_NULLABLE, \
		.min = 1, .max = (most)),
	LIMIT_QUOTA_TABLE(FIELD)
};
static const struct json_shape shape = JSON_SHAPE(struct quota_in, fields);

const char *limit_quota_name(enum limit_quota_kind kind)
{
	return infos[kind].name;
}

const char *limit_quota_unit(enum limit_quota_kind kind)
{
	return infos[kind].unit;
}

int limit_quota_parse(struct str json, struct limit_quota *ret, struct err *e)
{
	struct arena *arena = arena_new(ARENA_BYTES);
	struct quota_in in = { 0 };
	int r = json_decode(arena, json, &shape, &in, e);

	for (size_t i = 0; r >= 0 && i < LIMIT_QUOTAS; i++)
		ret->v[i] = in.v[i].is_set ? in.v[i].value : 0;
	(void)arena_free(arena);
	return r;
}

void limit_quota_write(struct jsonw *w, const char *key, const struct limit_quota *quota)
{
	jsonw_object(w, key);
	for (size_t i = 0; i < LIMIT_QUOTAS; i++)
		if (quota->v[i])
			jsonw_int(w, infos[i].name, quota->v[i]);
	jsonw_end_object(w);
}

static int parse_item(struct str item, struct limit_quota *quota, struct err *e)
{
	struct str name;

	(void)str_split(&item, '=', &name);
	for (size_t i = 0; i < LIMIT_QUOTAS; i++)
		if (str_is(name, infos[i].name)) {
			if (str_to_int(item, 1, infos[i].most, &quota->v[i]) == 0)
				return 0;
			return err_set(e, -EINVAL, "%s must be from 1 to %" PRId64, infos[i].name,
				infos[i].most);
		}
	return err_set(e, -EINVAL, "there is no quota '%.*s'", STR_ARG(name));
}

int limit_quota_parse_list(struct str text, struct limit_quota *ret, struct err *e)
{
	struct limit_quota quota = { 0 };
	struct str item;

	while (text.n && str_split(&text, ',', &item)) {
		int r = parse_item(item, &quota, e);

		if (r < 0)
			return r;
	}
	*ret = quota;
	return 0;
}
