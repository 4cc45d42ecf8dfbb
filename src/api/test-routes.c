/* The OpenAPI documents and the tables of routes say the same. */
#include "api/api-internal.h"

#include "test.h"

enum {
	MAX_OPERATIONS = 256
};

struct operation {
	char method[8], path[96];
};

struct scan {
	struct operation v[MAX_OPERATIONS];
	size_t n;
};

/* A document has one key a line at two known depths: `  "/path": {` and `   "method": {...}`. */
static bool key_of(struct str line, size_t depth, char *out, size_t size)
{
	struct str rest, key;

	if (line.n < depth + 2 || line.p[depth] != '"')
		return false;
	for (size_t i = 0; i < depth; i++)
		if (line.p[i] != ' ')
			return false;
	rest = str_from(line, depth + 1);
	if (!str_split(&rest, '"', &key) || key.n >= size)
		return false;
	(void)snprintf(out, size, "%.*s", STR_ARG(key));
	return true;
}

static void scan_document(const char *document, struct scan *scan)
{
	struct str rest = str_of(document), line;
	char path[96] = "", key[96];
	bool in_paths = false;

	while (str_split(&rest, '\n', &line)) {
		if (key_of(line, 1, key, sizeof key))
			in_paths = strcmp(key, "paths") == 0;
		else if (in_paths && key_of(line, 2, key, sizeof key))
			(void)snprintf(path, sizeof path, "%s", key);
		else if (in_paths && key_of(line, 3, key, sizeof key) && scan->n < MAX_OPERATIONS) {
			struct operation *op = &scan->v[scan->n++];

			(void)snprintf(op->method, sizeof op->method, "%.7s", key);
			(void)snprintf(op->path, sizeof op->path, "%s", path);
		}
	}
}

/* A document's paths begin behind its server's own. */
struct surface {
	const char *document, *prefix;
	const struct api_route *routes;
};
static const struct surface surfaces[] = {
	{ api_openapi, "", api_e2b_routes },
	{ api_v1_openapi, "/api/v1", api_v1_routes },
};

static bool has(const struct scan *scan, const struct surface *surface,
	const struct api_route *route)
{
	const char *path = route->pattern + strlen(surface->prefix);

	for (size_t i = 0; i < scan->n; i++)
		if (str_eq_nocase(str_of(scan->v[i].method), str_of(route->method)) &&
			strcmp(scan->v[i].path, path) == 0)
			return true;
	return false;
}

/* How many operations are in one and not in the other. */
static size_t differ(const struct surface *surface)
{
	struct scan *scan = XNEW(struct scan);
	size_t n = 0, missing = 0;

	scan_document(surface->document, scan);
	for (const struct api_route *route = surface->routes; route->method; route++, n++) {
		if (has(scan, surface, route))
			continue;
		printf("# not in openapi.json: %s %s\n", route->method, route->pattern);
		missing++;
	}
	missing += n > scan->n ? n - scan->n : scan->n - n;
	free(scan);
	return missing;
}

TEST(every_route_is_documented_and_nothing_else_is)
{
	for (size_t i = 0; i < ARRAY_SIZE(surfaces); i++)
		ASSERT_EQ(differ(&surfaces[i]), 0);
}

/* Which team a key is of, every key may ask. */
static bool is_for_all(const struct api_route *r)
{
	return r->flags & (API_OPEN | API_ADMIN | API_VOLUME) || strcmp(r->pattern, "/teams") == 0;
}

TEST(every_route_says_what_a_key_needs)
{
	for (size_t i = 0; i < ARRAY_SIZE(surfaces); i++)
		for (const struct api_route *r = surfaces[i].routes; r->method; r++)
			if (!is_for_all(r) && !r->scope)
				TEST_FAIL("%s %s needs no scope", r->method, r->pattern);
}

/* Nothing is read from strangers: http.h refuses it as well. */
TEST(no_open_route_takes_a_body)
{
	for (size_t i = 0; i < ARRAY_SIZE(surfaces); i++)
		for (const struct api_route *r = surfaces[i].routes; r->method; r++)
			if (r->flags & API_OPEN &&
				(r->flags & API_BODY || strcmp(r->method, "GET")))
				TEST_FAIL("%s %s", r->method, r->pattern);
}

TEST(every_route_of_v1_lies_below_it)
{
	for (const struct api_route *r = api_v1_routes; r->method; r++)
		ASSERT(str_has_prefix(str_of(r->pattern), STR("/api/v1/")));
}

struct any {
	struct str openapi;
};

TEST(the_document_is_json)
{
	static const struct json_field fields[] = { JSON_FIELD(struct any, openapi, "openapi",
		JSON_STR, .flags = JSON_REQUIRED) };
	static const struct json_shape shape =
		JSON_SHAPE(struct any, fields, .ignore_unknown = true);
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(surfaces); i++) {
		struct arena *arena = arena_new(16 << 20);
		struct any any = { 0 };
		int r = json_decode(arena, str_of(surfaces[i].document), &shape, &any, &e);

		(void)arena_free(arena);
		ASSERT_EQ(r, 0);
	}
}

TEST(no_route_stands_twice)
{
	for (size_t i = 0; i < ARRAY_SIZE(surfaces); i++)
		for (const struct api_route *a = surfaces[i].routes; a->method; a++)
			for (const struct api_route *b = a + 1; b->method; b++)
				if (strcmp(a->method, b->method) == 0 &&
					strcmp(a->pattern, b->pattern) == 0)
					TEST_FAIL("%s %s", a->method, a->pattern);
}
