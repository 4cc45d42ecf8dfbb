#include "limit/limit.h"

enum {
	ARENA_BYTES = 64 << 10,
	SHM_SHARE = 2,       /* of the memory: what the kernel gives a tmpfs that says nothing */
	INODES_PER_MIB = 64, /* what mkfs gives a disk that says nothing */
	MOST_PER_MIB = 2048, /* then half of the disk is their table; mkfs refuses many more */
	DISK_GRAIN_MIB = 64, /* for each size the warden keeps an empty disk to copy */
	INODE_GRAIN = 1024,
};

static const struct limit_info {
	const char *name, *key, *unit;
	int64_t standard, ceiling;
} infos[] = {
#define INFO(kind, name, key, unit, least, most, standard, ceiling) \
	[kind] = { name, key, unit, standard, ceiling },
	LIMIT_TABLE(INFO)
#define TEAM_INFO(kind, name, key, unit, most, ceiling) [kind] = { name, key, unit, 0, ceiling },
		LIMIT_TEAM_TABLE(TEAM_INFO)
};
static_assert(ARRAY_SIZE(infos) == LIMIT_ALL_KINDS, "one line each");

static const struct json_field fields[] = {
#define FIELD(kind, name, key, unit, least, most, standard, ceiling)                          \
	[kind] = JSON_FIELD(struct limit_in, v[kind], name, JSON_INT, .flags = JSON_NULLABLE, \
		.min = (least), .max = (most)),
	LIMIT_TABLE(FIELD)
};
const struct json_shape limit_shape = JSON_SHAPE(struct limit_in, fields);

static const struct json_field ceiling_fields[] = {
#define CEILING(kind, name, key, unit, least, most, standard, ceiling)         \
	[kind] = JSON_FIELD(struct limit_ceilings_in, v[kind], name, JSON_INT, \
		.flags = JSON_NULLABLE, .min = (least), .max = (most)),
	LIMIT_TABLE(CEILING)
#define TEAM_CEILING(kind, name, key, unit, most, ceiling)                     \
	[kind] = JSON_FIELD(struct limit_ceilings_in, v[kind], name, JSON_INT, \
		.flags = JSON_NULLABLE, .min = 1, .max = (most)),
		LIMIT_TEAM_TABLE(TEAM_CEILING)
};
const struct json_shape limit_ceilings_shape = JSON_SHAPE(struct limit_ceilings_in, ceiling_fields);

static const struct json_field change_fields[] = {
#define CHANGE(kind, name, key, unit, least, most, standard, ceiling) \
	[kind] = JSON_FIELD(struct limit_ceilings_change, v[kind], name, JSON_RAW),
	LIMIT_TABLE(CHANGE)
#define TEAM_CHANGE(kind, name, key, unit, most, ceiling) \
	[kind] = JSON_FIELD(struct limit_ceilings_change, v[kind], name, JSON_RAW),
		LIMIT_TEAM_TABLE(TEAM_CHANGE)
};
const struct json_shape limit_change_shape =
	JSON_SHAPE(struct limit_ceilings_change, change_fields);

const char *limit_name(enum limit_kind kind)
{
	return infos[kind].name;
}

const char *limit_key(enum limit_kind kind)
{
	return infos[kind].key;
}

const char *limit_unit(enum limit_kind kind)
{
	return infos[kind].unit;
}

void limit_set_read(const struct limit_in *in, struct limit_set *ret)
{
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		ret->v[i] = in->v[i].is_set ? in->v[i].value : 0;
}

void limit_set_write(struct jsonw *w, const char *key, const struct limit_set *set)
{
	jsonw_object(w, key);
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (set->v[i])
			jsonw_int(w, infos[i].name, set->v[i]);
	jsonw_end_object(w);
}

void limit_set_parse(struct str json, struct limit_set *ret)
{
	struct arena *arena = arena_new(ARENA_BYTES);
	struct limit_in in = { 0 };

	*ret = (struct limit_set){ 0 };
	if (json.n && json_decode(arena, json, &limit_shape, &in, NULL) >= 0)
		limit_set_read(&in, ret);
	(void)arena_free(arena);
}

void limit_ceilings_read(const struct limit_ceilings_in *in, struct limit_ceilings *ret)
{
	for (size_t i = 0; i < LIMIT_ALL_KINDS; i++)
		ret->v[i] = in->v[i].is_set ? in->v[i].value : 0;
}

void limit_ceilings_write(struct jsonw *w, const char *key, const struct limit_ceilings *c)
{
	jsonw_object(w, key);
	for (size_t i = 0; i < LIMIT_ALL_KINDS; i++)
		if (c->v[i])
			jsonw_int(w, infos[i].name, c->v[i]);
	jsonw_end_object(w);
}

void limit_ceilings_parse(struct str json, struct limit_ceilings *ret)
{
	struct arena *arena = arena_new(ARENA_BYTES);
	struct limit_ceilings_in in = { 0 };

	*ret = (struct limit_ceilings){ 0 };
	if (json.n && json_decode(arena, json, &limit_ceilings_shape, &in, NULL) >= 0)
		limit_ceilings_read(&in, ret);
	(void)arena_free(arena);
}

/* One NAME=NUMBER of a list, into v[kind]. */
static int parse_one(struct str item, size_t n_kinds, int64_t *v, struct err *e)
{
	struct str value = item, name = STR_NONE;

	if (!str_split(&value, '=', &name) || name.n == item.n)
		return err_set(e, -EINVAL, "'%.*s': must be NAME=NUMBER", STR_ARG(item));
	for (size_t i = 0; i < n_kinds; i++) {
		const struct json_field *field = &ceiling_fields[i];

		if (!str_is(name, field->name) && !str_is(name, infos[i].key))
			continue;
		if (str_to_int(value, field->min, field->max, &v[i]) >= 0)
			return 0;
		return err_set(e, -EINVAL, "%.*s: must be a number from %" PRId64 " to %" PRId64,
			STR_ARG(name), field->min, field->max);
	}
	return err_set(e, -EINVAL, "'%.*s' is no limit: see docs/limits.md", STR_ARG(name));
}

static int parse_list(struct str text, size_t n_kinds, int64_t *v, struct err *e)
{
	struct str item;
	int r = 0;

	while (r >= 0 && text.n && str_split(&text, ',', &item))
		r = parse_one(str_trim(item), n_kinds, v, e);
	return r;
}

int limit_set_parse_list(struct str text, struct limit_set *ret, struct err *e)
{
	return parse_list(text, LIMIT_KINDS, ret->v, e);
}

int limit_ceilings_parse_list(struct str text, struct limit_ceilings *ret, struct err *e)
{
	return parse_list(text, LIMIT_ALL_KINDS, ret->v, e);
}

void limit_ceilings_add(struct limit_ceilings *c, const struct limit_ceilings *other)
{
	for (size_t i = 0; i < LIMIT_ALL_KINDS; i++)
		if (!c->v[i])
			c->v[i] = other->v[i];
}

int64_t limit_ceiling(const struct limit_ceilings *c, enum limit_kind kind)
{
	return c->v[kind] ? c->v[kind] : infos[kind].ceiling;
}

int limit_ceilings_change(struct limit_ceilings *c, const struct limit_ceilings_change *change,
	struct err *e)
{
	struct limit_ceilings changed = *c;

	for (size_t i = 0; i < LIMIT_ALL_KINDS; i++) {
		const struct json_field *field = &ceiling_fields[i];

		if (!change->v[i].p)
			continue;
		changed.v[i] = 0;
		if (!str_is(change->v[i], "null") &&
			str_to_int(change->v[i], field->min, field->max, &changed.v[i]) < 0)
			return err_set(e, -EINVAL,
				"%s: must be a number from %" PRId64 " to %" PRId64 ", or null",
				field->name, field->min, field->max);
	}
	*c = changed;
	return 0;
}

int64_t limit_team_ceiling(const struct limit_teams *teams, const char *team_id,
	enum limit_kind kind)
{
	struct limit_ceilings c = { 0 };

	if (teams->find)
		teams->find(teams->arg, team_id, &c);
	return limit_ceiling(&c, kind);
}

void limit_set_default(struct limit_set *set)
{
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (!set->v[i])
			set->v[i] = infos[i].standard;
	if (!set->v[LIMIT_SHM])
		set->v[LIMIT_SHM] = set->v[LIMIT_MEMORY] / SHM_SHARE;
	if (!set->v[LIMIT_INODES])
		set->v[LIMIT_INODES] = set->v[LIMIT_DISK] * INODES_PER_MIB;
}

struct limit_word limit_word(const struct limit_choice *c, enum limit_kind kind)
{
	struct limit_word word;

	(void)snprintf(word.text, sizeof word.text, c->by_key ? "%s" : "limits.%s",
		c->by_key ? infos[kind].key : infos[kind].name);
	return word;
}

static int64_t ceiling_of(const struct limit_choice *c, size_t kind)
{
	if (c->ceilings && c->ceilings->v[kind])
		return c->ceilings->v[kind];
	/* An operator who made a larger template meant it. */
	return MAX(infos[kind].ceiling, c->template->v[kind]);
}

static int64_t round_up(int64_t value, int64_t grain)
{
	return (value + grain - 1) / grain * grain;
}

/* Shared memory is memory, and files take room on the disk: what nobody asked for follows when
 * those are others than the template's. */
static int fit(const struct limit_choice *c, struct limit_set *set, struct err *e)
{
	static const struct limit_set nothing;
	const int64_t *asked = c->asked ? c->asked->v : nothing.v, *from = c->template->v;
	int64_t *v = set->v;

	if (asked[LIMIT_DISK])
		v[LIMIT_DISK] = round_up(v[LIMIT_DISK], DISK_GRAIN_MIB);
	if (asked[LIMIT_INODES])
		v[LIMIT_INODES] = round_up(v[LIMIT_INODES], INODE_GRAIN);
	else if (v[LIMIT_DISK] != from[LIMIT_DISK])
		v[LIMIT_INODES] = MIN(v[LIMIT_INODES], v[LIMIT_DISK] * INODES_PER_MIB);
	if (!asked[LIMIT_SHM] && v[LIMIT_MEMORY] != from[LIMIT_MEMORY])
		v[LIMIT_SHM] = MIN(v[LIMIT_SHM], v[LIMIT_MEMORY] / SHM_SHARE);
	if (asked[LIMIT_INODES] > v[LIMIT_DISK] * MOST_PER_MIB)
		return err_set(e, -ERANGE,
			"%s: %" PRId64 " do not fit on a disk of %" PRId64 " MiB",
			limit_word(c, LIMIT_INODES).text, asked[LIMIT_INODES], v[LIMIT_DISK]);
	if (v[LIMIT_SHM] <= v[LIMIT_MEMORY])
		return 0;
	return err_set(e, -ERANGE,
		"%s: %" PRId64 " is above the memory, %" PRId64 ", of which it is a part",
		limit_word(c, LIMIT_SHM).text, v[LIMIT_SHM], v[LIMIT_MEMORY]);
}

int limit_choose(const struct limit_choice *c, struct limit_set *ret, struct err *e)
{
	struct limit_set set;
	int r;

	for (size_t i = 0; i < LIMIT_KINDS; i++) {
		int64_t asked = c->asked ? c->asked->v[i] : 0, ceiling = ceiling_of(c, i);

		if (asked > ceiling)
			return err_set(e, -ERANGE,
				"%s: %" PRId64 " is above the ceiling of your team, %" PRId64 "%s",
				limit_word(c, (enum limit_kind)i).text, asked, ceiling,
				infos[i].unit);
		set.v[i] = asked ? asked : MIN(c->template->v[i], ceiling);
	}
	r = fit(c, &set, e);
	if (r >= 0)
		*ret = set;
	return r;
}
