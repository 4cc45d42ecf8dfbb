/* What the files of this room share. */
#pragma once

#include "edge/edge.h"

struct edge_call { /* lives in the exchange's arena */
	struct edge *edge;
	struct http_exchange *x;
	char id[SANDBOX_ID_SIZE];
	int port;
	struct str host;         /* for the service inside; empty: as sent */
	bool is_tunnel;          /* bytes of any protocol, not HTTP */
	bool is_https;           /* the service speaks TLS */
	bool is_shared;          /* by a name of the server's own, and not by the sandbox's host */
	bool is_signed;          /* of those, by a signed URL alone */
	const char *disposition; /* of the reply, as it will be; NULL: the usual one */
	struct stream *secured;
};

/* ---- fields.c: an edge_call is the arg of all three ---- */
struct str fields_request(void *arg, struct str name, struct str value);
struct str fields_reply(void *arg, struct str name, struct str value);
const char *fields_lines(void *arg);

/* ---- cookie.c ---- */
/* The same Set-Cookie without its Domain. */
void cookie_host_only(struct str cookie, struct buf *out);

/* ---- credentials.c ---- */
typedef bool (*credential_fn)(void *arg, struct str word);
bool credential_is_token(struct str text); /* of a sandbox or a volume, by its shape */
/* Whether is_ours is true for anything in the text that is shaped like a key or a token. */
bool credential_within(struct str text, credential_fn is_ours, void *arg);
/* The same for what "Basic ..." carries. */
bool credential_in_login(struct str value, credential_fn is_ours, void *arg);

/* ---- signed.c ---- */
enum signed_kind {
	SIGNED_NOT, /* no signed file URL */
	SIGNED_FOUND,
	SIGNED_WRONG,      /* by nobody's token */
	SIGNED_EXPIRATION, /* whose expiration is no number */
	SIGNED_TOO_MANY,   /* not looked for: see struct tries */
};
/* Finding out means trying every sandbox's token, for anybody who asks: so many tries there are in
 * a second, and for one client (by address) a part of them. */
enum {
	TRIES_CLIENTS = 64, /* told apart at a time, by a hash that nobody else can compute */
};
struct tries_left {
	int64_t n, filled_ms;
};
struct tries {
	uint8_t key[16];
	struct tries_left all, clients[TRIES_CLIENTS];
};
void tries_init(struct tries *tries, int64_t now_ms);
/* Whether the client with this address ("1.2.3.4:567") may begin; then what it took is counted. */
bool tries_may(struct tries *tries, struct str peer, int64_t now_ms);
void tries_count(struct tries *tries, struct str peer, int64_t n);

struct edge {
	struct edge_config config;
	struct tries tries;     /* to find out who signed a URL */
	struct tls_server *tls; /* to services that speak it */
};

/* Which sandbox a file URL was signed for, when nothing else in the request names one. */
enum signed_kind signed_find(const struct sandbox_book *sandboxes, struct tries *tries,
	struct http_exchange *x, char id[SANDBOX_ID_SIZE]);
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
	EDGE_RESERVED,  /* a route of the guest that is the server's own */
	EDGE_NO_WORKER, /* a service worker's script, from a name of the server's own */
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
