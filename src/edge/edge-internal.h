/* What the files of this room share. */
#pragma once

#include "edge/edge.h"

/* ---- signed.c ---- */
enum signed_kind {
	SIGNED_NOT, /* no signed file URL */
	SIGNED_FOUND,
	SIGNED_WRONG,      /* by nobody's token */
	SIGNED_EXPIRATION, /* whose expiration is no number */
};
/* Which sandbox a file URL was signed for, when nothing else in the request names one. */
enum signed_kind signed_find(const struct sandbox_book *sandboxes, struct http_exchange *x,
	char id[SANDBOX_ID_SIZE]);
/* Is this a file URL signed by this sandbox's token, and not expired? */
bool signed_by(const struct sandbox_book *sandboxes, struct http_exchange *x,
	const struct sandbox *sb);

/* ---- fail.c ---- */
enum edge_failure_kind {
	EDGE_GONE,
	EDGE_PORT_CLOSED,
	EDGE_TOKEN_MISSING,
	EDGE_TOKEN_WRONG,
	EDGE_MAY_NOT_WAKE,
	EDGE_BUSY,
	EDGE_TOO_MANY,
	EDGE_TOO_BUSY, /* it has as many connections as it may */
	EDGE_NO_TUNNEL,
	EDGE_RESERVED, /* a route of the guest that is the server's own */
};
struct edge_failure {
	enum edge_failure_kind kind;
	struct str id;
	int port;
	const char *message; /* instead of the usual one; NULL: that */
};
/* Answers, as JSON or as a page. */
void edge_fail(struct http_exchange *x, const struct edge_failure *f);
/* A person opened this in a browser. */
bool edge_wants_page(const struct http_exchange *x);
/* Outside text as part of a page. */
void edge_escape(struct buf *out, struct str text);
void edge_allow_any_origin(struct http_exchange *x);
