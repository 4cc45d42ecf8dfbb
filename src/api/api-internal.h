/* What the handlers of all surfaces share: one call, its answer, its errors. */
#pragma once

#include "api/api.h"
#include "json/json.h"

enum {
	API_MAX_PARAMS = 2,
	API_BODY_BYTES = 16 << 20,
};

struct api {
	struct api_config config;
};

struct api_route;
struct api_call { /* one request; lives in the exchange's arena */
	struct api *api;
	struct http_exchange *x;
	const struct api_route *route;
	struct access_key key;             /* who asks; all zero on open routes */
	struct str params[API_MAX_PARAMS]; /* decoded {segments} of the path, in order */
	struct str body;
};

typedef void (*api_fn)(struct api_call *call);
enum api_flags {
	API_OPEN = 1 << 0, /* no key needed */
	API_BODY = 1 << 1, /* the body is read before the handler is called */
};
struct api_route {
	const char *method, *pattern;
	api_fn fn;
	unsigned flags;
};
/* Each surface's table ends with a NULL method. */
extern const struct api_route api_e2b_routes[];

/* Answers. Each ends the exchange. */
void api_fail(struct api_call *call, const struct err *e);
void api_fail_status(struct api_call *call, int status, const char *message);
void api_reply_json(struct api_call *call, int status, const struct buf *body);
void api_reply_empty(struct api_call *call, int status);
int api_status_of(int err_code);

/* Decodes the body by a shape; answers 400 itself and returns negative when it cannot. An empty
 * body counts as {} when `optional`. */
int api_decode(struct api_call *call, const struct json_shape *shape, void *out, bool optional);
/* An integer query value; answers 400 itself. Absent leaves *ret alone. */
int api_query_int(struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *ret);
/* done_fn that ends a call with 204 or the error. */
void api_done_empty(void *call, int r, const struct err *e);
