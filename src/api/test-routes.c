/* The OpenAPI document and the table of routes say the same. */
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

/* The document has one key a line at two known depths: `  "/path": {` and `   "method": {...}`. */
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

static void scan_document(struct scan *scan)
{
	struct str rest = str_of(api_openapi), line;
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

static bool has(const struct scan *scan, const struct api_route *route)
{
	for (size_t i = 0; i < scan->n; i++)
		if (str_eq_nocase(str_of(scan->v[i].method), str_of(route->method)) &&
			strcmp(scan->v[i].path, route->pattern) == 0)
			return true;
	return false;
}

TEST(every_route_is_documented_and_nothing_else_is)
{
	struct scan *scan = XNEW(struct scan);
	size_t n = 0, missing = 0;

	scan_document(scan);
	for (const struct api_route *route = api_e2b_routes; route->method; route++, n++) {
		if (has(scan, route))
			continue;
		printf("# not in openapi.json: %s %s\n", route->method, route->pattern);
		missing++;
	}
	n -= scan->n;
	free(scan);
	ASSERT_EQ(missing, 0);
	ASSERT_EQ(n, 0);
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
	struct arena *arena = arena_new(16 << 20);
	struct any any = { 0 };
	struct err e = { 0 };
	int r = json_decode(arena, str_of(api_openapi), &shape, &any, &e);

	(void)arena_free(arena);
	ASSERT_EQ(r, 0);
}

TEST(no_route_stands_twice)
{
	for (const struct api_route *a = api_e2b_routes; a->method; a++)
		for (const struct api_route *b = a + 1; b->method; b++)
			if (strcmp(a->method, b->method) == 0 &&
				strcmp(a->pattern, b->pattern) == 0)
				TEST_FAIL("%s %s", a->method, a->pattern);
}
