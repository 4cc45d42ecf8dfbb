/* Requests to a sandbox's own API, for the handlers of files. */
#pragma once

#include "api/v1/v1.h"

/* r < 0: e says what the guest said, as v1_guest_fail takes it. */
typedef void (*v1_guest_fn)(void *arg, int r, struct str body, const struct err *e);
/* method, target, headers and body of the request must live as long as the exchange. -E2BIG: the
 * request has no memory left, and fn is not called. */
int v1_guest_call(struct api_call *call, const struct sandbox *sb,
	const struct http_request *request, v1_guest_fn fn, void *arg);
/* In the exchange's arena; NULL: too long. `more` is header lines. */
const char *v1_guest_headers(struct api_call *call, const struct sandbox *sb, struct str user,
	const char *more);
const char *v1_guest_file_target(struct api_call *call, struct str path, struct str user,
	struct str mode);
/* What a failed answer means; errno_name is its Atoll-Errno header, or "". */
int v1_guest_error(struct api_call *call, int status, const char *errno_name, struct str body,
	struct err *e);

/* `path` and `user` of the query. Answers 400 itself. */
int v1_file_names(struct api_call *call, struct str *ret_path, struct str *ret_user);
/* Into the event log; size < 0: it has none. */
void v1_file_event(const struct api_call *call, const char *id, const char *kind, struct str path,
	int64_t size);
