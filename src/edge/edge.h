/* edge - from a request to a port inside a sandbox.
 * Owns:   both ways of addressing (PORT-ID.domain, E2b-Sandbox-* headers), tunnels of bytes to a
 *         port (Upgrade: atoll-tcp, with the sandbox's access token), the proxy's own errors.
 * Uses:   base, json, http, tls (services that speak it), access and volume (what is a credential
 * of this server and stays outside), sandbox. Never:  reads or changes a body: bytes pass in both
 * directions as they come. */
#pragma once

#include "access/access.h"
#include "http/http.h"
#include "sandbox/sandbox.h"
#include "volume/volume.h"

enum edge_kind {
	EDGE_OTHER, /* not addressed to a sandbox: the control plane's */
	EDGE_TARGET,
	EDGE_BAD, /* addressed wrongly: 400 with `why` */
};
struct edge_target {
	enum edge_kind kind;
	struct str id;
	int port;
	bool by_headers; /* and not by a host of its own */
	const char *why;
};
/* Pure: what Host and the two routing headers (p NULL: absent) mean. */
struct edge_target edge_parse(struct str host, struct str id_header, struct str port_header);

struct edge;
struct edge_config { /* all borrowed */
	struct loop *loop;
	struct sandbox_book *sandboxes;
	const struct access_book *access;
	const struct volume_book *volumes;
	const char *admin_token; /* NULL: there is none */
};
struct edge *edge_new(const struct edge_config *config);
struct edge *edge_free(struct edge *edge);
DEFINE_CLEANUP(struct edge, edge_free)
/* True: taken, the exchange is the edge's. False: not for a sandbox. A signed file URL that names
 * no sandbox goes to the one whose token signed it. */
bool edge_handle(struct edge *edge, struct http_exchange *x);
