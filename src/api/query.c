/* What a query of /api/v1 may hold is what the OpenAPI document says of the call: it is read at
 * start. A parameter that is not known is refused, as a member of a body is, since a mode or a
 * filter that is misspelt would count as not given. */
#include "api/api-internal.h"

enum {
	MAX_NAMES = 32, /* of one call */
	DOCUMENT_ARENA = 16 << 20,
	NAMES_ARENA = 64 << 10,
};

struct parameter_in {
	struct str name, in;
};
static const struct json_field parameter_fields[] = {
	JSON_FIELD(struct parameter_in, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct parameter_in, in, "in", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape parameter_shape =
	JSON_SHAPE(struct parameter_in, parameter_fields, .ignore_unknown = true);

struct operation_in {
	struct json_list parameters;
};
static const struct json_field operation_fields[] = {
	JSON_FIELD(struct operation_in, parameters, "parameters", JSON_OBJECTS,
		.shape = &parameter_shape, .max = MAX_NAMES),
};
static const struct json_shape operation_shape =
	JSON_SHAPE(struct operation_in, operation_fields, .ignore_unknown = true);

struct path_in {
	struct operation_in get, put, post, delete, patch;
};
#define OPERATION(member) \
	JSON_FIELD(struct path_in, member, #member, JSON_OBJECT, .shape = &operation_shape)
static const struct json_field path_fields[] = { OPERATION(get), OPERATION(put), OPERATION(post),
	OPERATION(delete), OPERATION(patch) };
static const struct json_shape path_shape =
	JSON_SHAPE(struct path_in, path_fields, .ignore_unknown = true);

struct document_in {
	struct json_map paths;
};
static const struct json_field document_fields[] = {
	JSON_FIELD(struct document_in, paths, "paths", JSON_RAW_MAP, .flags = JSON_REQUIRED),
};
static const struct json_shape document_shape =
	JSON_SHAPE(struct document_in, document_fields, .ignore_unknown = true);

struct names {
	struct str v[MAX_NAMES]; /* in the arena */
	size_t n;
};
struct queries {
	struct arena *arena;
	struct names *of; /* one for each route, in the order of the table */
};

static const struct operation_in *operation_of(const struct path_in *path, const char *method)
{
	for (size_t i = 0; i < ARRAY_SIZE(path_fields); i++)
		if (str_eq_nocase(str_of(method), str_of(path_fields[i].name)))
			return (const void *)((const char *)path + path_fields[i].offset);
	return NULL;
}

static void keep(struct arena *arena, const struct operation_in *operation, struct names *ret)
{
	const struct parameter_in *in = operation->parameters.v;

	for (size_t i = 0; i < operation->parameters.n; i++)
		if (str_is(in[i].in, "query"))
			ret->v[ret->n++] = str_of(arena_dup(arena, in[i].name));
}

/* A path of the document is a route's pattern behind /api/v1. */
static int read_path(struct queries *q, struct arena *scratch, const struct json_pair *pair,
	struct err *e)
{
	static const struct str prefix = { "/api/v1", 7 };
	struct path_in path;
	int r = json_decode(scratch, pair->value, &path_shape, &path, e);

	for (size_t i = 0; r >= 0 && api_v1_routes[i].method; i++) {
		const struct operation_in *operation = operation_of(&path, api_v1_routes[i].method);

		if (operation &&
			str_eq(str_from(str_of(api_v1_routes[i].pattern), prefix.n), pair->key))
			keep(q->arena, operation, &q->of[i]);
	}
	return r;
}

int queries_new(struct queries **ret, struct err *e)
{
	CLEANUP(queries_freep) struct queries *q = XNEW(struct queries);
	struct arena *scratch = arena_new(DOCUMENT_ARENA);
	struct document_in document;
	size_t n = 0;
	int r;

	while (api_v1_routes[n].method)
		n++;
	q->of = XNEW_N(struct names, n);
	q->arena = arena_new(NAMES_ARENA);
	r = json_decode(scratch, str_of(api_v1_openapi), &document_shape, &document, e);
	for (size_t i = 0; r >= 0 && i < document.paths.n; i++)
		r = read_path(q, scratch, &document.paths.v[i], e);
	(void)arena_free(scratch);
	if (r < 0)
		return err_wrap(e, r, "the OpenAPI document");
	*ret = TAKE(q);
	return 0;
}

struct queries *queries_free(struct queries *q)
{
	if (!q)
		return NULL;
	(void)arena_free(q->arena);
	free(q->of);
	free(q);
	return NULL;
}

/* ---- a request ---- */

static void fail(struct api_call *call, const struct names *names, struct str key, const char *what)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);

	(void)buf_printf(&text, "validation error: query: '%.*s' is %s",
		(int)MIN(key.n, (size_t)64), key.p, what);
	for (size_t i = 0; i < names->n; i++)
		(void)buf_printf(&text, "%s%.*s", i ? ", " : "; this call takes ",
			STR_ARG(names->v[i]));
	api_fail_status(call, 400,
		names->n ? buf_str(&text).p : "validation error: this call takes no query");
}

static size_t find(const struct names *names, struct str key)
{
	size_t i = 0;

	while (i < names->n && !str_eq(names->v[i], key))
		i++;
	return i;
}

bool query_is_known(struct api_call *call)
{
	const struct names *names = &call->api->queries->of[call->route - api_v1_routes];
	CLEANUP(buf_done) struct buf key = BUF_INIT(64 << 10);
	struct str rest = http_query(call->x), pair, raw;
	uint32_t given = 0;

	while (rest.n && str_split(&rest, '&', &pair)) {
		size_t i;

		if (!str_split(&pair, '=', &raw) || !raw.n)
			continue;
		buf_clear(&key);
		(void)percent_decode(raw, true, &key);
		i = find(names, buf_str(&key));
		if (i == names->n || given & UINT32_C(1) << i) {
			fail(call, names, buf_str(&key),
				i == names->n ? "no parameter" : "given twice");
			return false;
		}
		given |= UINT32_C(1) << i;
	}
	return true;
}
