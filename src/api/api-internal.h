/* What the handlers of all surfaces share: one call, its answer, its errors. */
#pragma once

#include "api/api.h"
#include "json/json.h"

enum {
	API_MAX_PARAMS = 2,
	API_BODY_BYTES = 16 << 20,
	API_ANSWER_BYTES = 64 << 20,
};

/* This machine as its operator sees it; counted since the server started. */
struct api_node {
	char service_id[UUID_SIZE];
	bool draining;
	int64_t changed_us; /* when draining last changed */
	int64_t created, failed, starting;
	int64_t cpu_busy, cpu_all; /* at the last look */
};

struct api {
	struct api_config config;
	struct api_node node;
};

struct api_route;
struct api_call { /* one request; lives in the exchange's arena */
	struct api *api;
	struct http_exchange *x;
	const struct api_route *route;
	struct access_key key;             /* who asks; all zero on open routes */
	struct str params[API_MAX_PARAMS]; /* decoded {segments} of the path, in order */
	struct str body;
	bool is_counted; /* among those that are starting sandboxes */
};

typedef void (*api_fn)(struct api_call *call);
enum api_flags {
	API_OPEN = 1 << 0,   /* no key needed */
	API_BODY = 1 << 1,   /* the body is read before the handler is called */
	API_ADMIN = 1 << 2,  /* the operator's token is needed, and no key */
	API_STARTS = 1 << 3, /* makes sandboxes: refused while draining, and counted */
	API_HEALTH = 1 << 4, /* says no while draining */
};
struct api_route {
	const char *method, *pattern;
	api_fn fn;
	unsigned flags;
};
/* Each surface's table ends with a NULL method. */
extern const struct api_route api_e2b_routes[];
/* The same routes as an OpenAPI document, for people and programs: openapi.json, which a test keeps
 * true. */
extern const char api_openapi[];

/* Answers. Each ends the exchange. */
void api_fail(struct api_call *call, const struct err *e);
void api_fail_status(struct api_call *call, int status, const char *message);
void api_reply_json(struct api_call *call, int status, const struct buf *body);
void api_reply_empty(struct api_call *call, int status);
int api_status_of(int err_code);
/* The usual end of a call: the error, or one JSON document.
 *     if (!api_answer_begin(call, &answer, r, e))
 *             return;
 *     write_thing(&answer.w, thing);
 *     api_answer_send(call, &answer, 201); */
struct api_answer {
	struct buf body;
	struct jsonw w;
};
bool api_answer_begin(struct api_call *call, struct api_answer *answer, int r, const struct err *e);
void api_answer_send(struct api_call *call, struct api_answer *answer, int status);

/* Decodes the body by a shape; answers 400 itself and returns negative when it cannot. An empty
 * body counts as {} when `optional`. */
int api_decode(struct api_call *call, const struct json_shape *shape, void *out, bool optional);
/* The token of "Authorization: Bearer TOKEN"; p is NULL when there is none. */
struct str api_bearer(const struct http_exchange *x);
/* An integer query value; answers 400 itself. Absent leaves *ret alone. */
int api_query_int(struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *ret);
/* `start` and `end`, in seconds since 1970; absent leaves them alone. Answers 400 itself. */
int api_query_range(struct api_call *call, int64_t *start_s, int64_t *end_s);
/* done_fn that ends a call with 204 or the error. */
void api_done_empty(void *call, int r, const struct err *e);

/* ---- cors.c ---- */
/* Marks the coming answer as readable by pages of any origin; true: it was a preflight, answered.
 */
bool cors_handle(struct http_exchange *x);
