/* api - the control plane over HTTP: E2B's REST surface (e2b/), later /api/v1 and the dashboard.
 * Owns:   routes, authentication of requests, decoding and encoding, the table of status codes, the
 *         requests table (what was asked for with an Idempotency-Key).
 * Uses:   base, json, http, store, access, observe, secret, sandbox, template, volume.
 * Never:  SQL outside once-rows.c, files, waiting. A handler decodes, calls one door and answers.
 */
#pragma once

#include "access/access.h"
#include "egress/egress.h"
#include "execution/execution.h"
#include "http/http.h"
#include "observe/observe.h"
#include "sandbox/sandbox.h"
#include "secret/secret.h"
#include "store/store.h"
#include "template/template.h"
#include "volume/volume.h"

struct api;
struct api_config {          /* all borrowed */
	struct store *store; /* for what observe makes of it */
	struct loop *loop;
	struct observe_log *events;
	struct access_book *access;
	struct secret_book *secrets;
	struct execution_book *executions;
	struct volume_book *volumes;
	struct sandbox_book *sandboxes;
	struct template_book *templates;
	const struct egress *egress;
	const struct runtime_set *runtimes;
	struct observe_feed *feed;
	struct observe_metrics *metrics;
	const struct observe_traces *traces; /* NULL: none are sent */
	const struct observe_prices *prices;
	bool metrics_open;       /* to everybody, without a key */
	const char *domain;      /* what clients put behind PORT-ID. */
	const char *admin_token; /* what X-Admin-Token must be; NULL: nobody is the operator */
	const char *node_id;
	int64_t max_timeout_s;
	uint8_t seed[SHA256_SIZE]; /* what answers are sealed with is derived from it */
};
/* Reads what the server before remembered: blocking, at start. */
int api_new(const struct api_config *config, struct api **ret, struct err *e);
struct api *api_free(struct api *api);
DEFINE_CLEANUP(struct api, api_free)
void api_handle(struct api *api, struct http_exchange *x);
