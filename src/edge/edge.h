/* edge - from a request to a port inside a sandbox.
 * Owns:   both ways of addressing (PORT-ID.domain, E2b-Sandbox-* headers), tunnels of bytes to a
 *         port (Upgrade: atoll-tcp, with the sandbox's access token), the proxy's own errors.
 * Uses:   base, json, http, tls (services that speak it), sandbox.
 * Never:  reads or changes a body: bytes pass in both directions as they come. */
#pragma once

#include "http/http.h"
#include "sandbox/sandbox.h"

enum edge_kind {
	EDGE_OTHER, /* not addressed to a sandbox: the control plane's */
	EDGE_TARGET,
	EDGE_BAD, /* addressed wrongly: 400 with `why` */
};
struct edge_target {
	enum edge_kind kind;
	struct str id;
	int port;
	const char *why;
};
/* Pure: what Host and the two routing headers (p NULL: absent) mean. */
struct edge_target edge_parse(struct str host, struct str id_header, struct str port_header);

struct edge;
struct edge *edge_new(struct loop *loop, struct sandbox_book *sandboxes);
struct edge *edge_free(struct edge *edge);
DEFINE_CLEANUP(struct edge, edge_free)
/* True: taken, the exchange is the edge's. False: not for a sandbox. A signed file URL that names
 * no sandbox goes to the one whose token signed it. */
bool edge_handle(struct edge *edge, struct http_exchange *x);
