/* http - HTTP/1.1 over the loop.
 * Owns:   connections, heads, bodies, their limits and deadlines; the server side, the client side
 *         over a connected descriptor, and the relay between the two.
 * Uses:   base, loop.
 * Never:  resolves names, speaks TLS, knows a route. Ambiguous framing is refused, never guessed.
 *
 * Server: a handler is called once the head is complete. It reads the body (or not), then replies.
 * The exchange lives until the reply is complete, also when its client has gone (writes then go
 * nowhere); after that it is freed at the end of the loop turn. Exactly one of: http_reply,
 * http_begin...http_end, http_abort, http_detach, http_relay must end every exchange. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

#include <sys/socket.h>

struct http_server;
struct http_exchange;
struct conn;

struct http_limits {              /* zero: the default in parentheses */
	size_t head_bytes;        /* request line and headers together (32 KiB) -> 431 */
	int max_headers;          /* (128) -> 431 */
	int64_t head_timeout_ms;  /* first byte to end of head (10 s) -> 408 */
	int64_t idle_timeout_ms;  /* between requests (650 s: above the clients' 300 s pools) */
	int64_t stall_timeout_ms; /* a body or reply that moves no byte in either direction (60 s);
				     not counted while the handler itself is the one that waits */
	size_t max_connections;   /* (16384); over it see admission.h */
	size_t write_high_bytes;  /* queued reply bytes at which http_write says stop (256 KiB) */
	/* Above 0: callers are told apart. Until http_admit has said whose request it is, it is a
	 * stranger's, of whose body no more than this is read (-E2BIG) and who cannot be relayed.
	 * 0: all connections belong to one caller, and the next three have no meaning. */
	size_t stranger_body_bytes;
	size_t max_holder_connections; /* of one team; 0: half of what the others leave */
	size_t max_queued_bytes;       /* unread replies and collected bodies (256 MiB) */
	size_t min_body_bytes;         /* of a body in each stall_timeout_ms, or its end (4 KiB) */
};

/* ---- server ---- */
typedef void (*http_handler_fn)(void *arg, struct http_exchange *x);
struct http_server *http_server_new(struct loop *loop, const struct http_limits *limits,
	http_handler_fn handler, void *arg);
/* Cuts what is left, without a callback; its exchanges and relays are gone with it. */
struct http_server *http_server_free(struct http_server *server);
DEFINE_CLEANUP(struct http_server, http_server_free)
/* Takes a listening socket (any family), also when it fails. */
int http_server_take_listener(struct http_server *server, int fd, struct err *e);
/* A connection whose bytes somebody else carries (TLS) is served like an accepted one. How it ended
 * is shared by both, since either may be gone first: `cut` is set when it breaks off in the middle
 * of something, which must not be made to look like a clean end. */
struct http_carriage {
	struct sockaddr_storage peer; /* what http_peer says */
	int n_refs;                   /* begins at 1, the carrier's own */
	bool cut;
	/* Called with the last reference, for one that is part of something larger; NULL: it is
	 * freed. */
	void (*gone)(struct http_carriage *carriage);
	struct conn *conn;       /* the server's own; NULL: none, or none any more */
	struct waiting *waiting; /* as this */
};
struct http_carriage *http_carriage_unref(struct http_carriage *carriage);
/* Cuts the connection at once, whatever it is at; its carriage is let go at the end of the turn. */
void http_carriage_cut(struct http_carriage *carriage);
/* Before it carries HTTP (a TLS handshake), it has a place among the strangers. When that is needed
 * for somebody else, evicted is called, on the spot. -EAGAIN: there is no place. */
int http_carriage_enter(struct http_server *server, struct http_carriage *carriage, loop_fn evicted,
	void *arg);
void http_carriage_leave(struct http_carriage *carriage); /* fine if it has none */
/* It takes so much memory meanwhile, which counts like an unread reply: evicted may be called. */
void http_carriage_note(struct http_carriage *carriage, size_t bytes);
/* For who accepts in its place and has no descriptor left: closes one that can go. */
bool http_server_make_room(struct http_server *server);
/* Of the connection that this exchange came by; NULL: it was accepted by the server itself. */
struct http_carriage *http_carriage(const struct http_exchange *x);
/* Takes a connected descriptor, also when there is no room for it, and its own reference. */
void http_server_take_connection(struct http_server *server, int fd,
	struct http_carriage *carriage);
/* Stops listening, and says with each reply that it is the last of its connection. What has been
 * accepted before may still bring its first request. */
void http_server_close(struct http_server *server);
/* How many those are. */
size_t http_server_newcomers(struct http_server *server);
/* Stops listening, closes idle connections, lets exchanges finish until the deadline (on
 * loop_now_ms's clock), then cuts and ends in -ETIMEDOUT. */
void http_server_stop(struct http_server *server, int64_t deadline_ms, done_fn done, void *arg);
size_t http_server_connections(const struct http_server *server);

/* ---- who holds the connections: admission.h has the rules ---- */
struct http_admission {
	size_t max, reserve, connections, strangers, operators; /* the rest is teams' */
	size_t bytes, max_bytes;                                /* unread replies, and bodies */
	uint64_t evicted_strangers, evicted_idle; /* to make room, since the server began */
	uint64_t turned_away;                     /* no slot was left */
	uint64_t refused;                         /* by http_admit */
	uint64_t cut_unread, cut_bytes;           /* replies that nobody read */
	char last_cut[64];                        /* whose was the last one */
};
void http_server_admission(const struct http_server *server, struct http_admission *ret);
typedef void (*http_holder_fn)(void *arg, const char *name, size_t connections, size_t bytes);
void http_server_each_holder(const struct http_server *server, http_holder_fn fn, void *arg);

/* "127.0.0.1:3000", "[::1]:3000", "localhost:3000", ":3000" (all addresses), "unix:/path". */
int http_listen(const char *address, struct err *e); /* a listening fd, or -errno */

/* ---- one exchange: the request ---- */
struct str http_method(const struct http_exchange *x);
struct str http_target(
	const struct http_exchange *x);               /* as sent: path and query, percent-encoded */
struct str http_path(const struct http_exchange *x);  /* raw path, before '?' */
struct str http_query(const struct http_exchange *x); /* raw, after '?'; empty when none */
/* A form-decoded query value, in the arena; p is NULL when absent. -EINVAL text counts as absent.
 */
struct str http_query_value(struct http_exchange *x, const char *name);
struct str http_header(const struct http_exchange *x, const char *name); /* first; p NULL: absent */
/* All headers in order; false past the end. */
bool http_header_at(const struct http_exchange *x, size_t i, struct str *name, struct str *value);
struct arena *http_arena(struct http_exchange *x);
struct loop *http_loop(struct http_exchange *x);
struct http_server *http_server_of(const struct http_exchange *x);
struct str http_peer(const struct http_exchange *x);      /* "127.0.0.1:5123", "unix" */
struct str http_peer_host(const struct http_exchange *x); /* "127.0.0.1", "::1", "unix" */
void http_set_data(struct http_exchange *x, void *data);  /* the router's own pointer */
void *http_data(const struct http_exchange *x);

/* Says whose request this is: from now on the connection is counted for the team of this name, or,
 * without a name, for the operator. -EDQUOT with the reason: it has all that it may have now, which
 * is to be answered with 429. */
enum http_use {
	HTTP_CALL,   /* of the control plane: is answered and over */
	HTTP_STREAM, /* may stay open */
	HTTP_VISIT,  /* a stranger, to a port of the team's sandbox */
};
struct http_claim {
	struct str holder;
	enum http_use use;
	bool is_admin; /* may use the operators' reserve, for calls */
};
int http_admit(struct http_exchange *x, const struct http_claim *claim, struct err *e);

/* Reads the whole body, then calls fn once, on a later turn or this one: r = 0 and the bytes
 * (borrowed until the exchange ends); -E2BIG past max_bytes; -EDQUOT when its holder has too much
 * in memory already; -EPROTO for bad framing or -ECONNRESET for a client that left: in all cases
 * the exchange must still be ended (http_abort is fine). */
typedef void (*http_body_fn)(void *arg, int r, struct str body);
void http_read_body(struct http_exchange *x, size_t max_bytes, http_body_fn fn, void *arg);
/* Streams the body: fn gets pieces as they come and, last, one call with n == 0 and r 0 (end) or
 * negative (as above). Nothing is read from the socket while paused: that is the back-pressure. */
typedef void (*http_chunk_fn)(void *arg, int r, struct str bytes);
void http_stream_body(struct http_exchange *x, http_chunk_fn fn, void *arg);
void http_pause_body(struct http_exchange *x);
void http_resume_body(struct http_exchange *x);
/* Content-Length, or -1 when the body is chunked; 0 when there is none. */
int64_t http_body_length(const struct http_exchange *x);

/* ---- the reply ---- */
/* Adds a header to the coming reply. Names and values are checked: CR, LF, NUL never get out. */
void http_add_header(struct http_exchange *x, const char *name, struct str value);
/* A whole reply with Content-Length; type NULL: no Content-Type. HEAD sends no body. */
void http_reply(struct http_exchange *x, int status, const char *type, struct str body);
/* A streamed reply: length >= 0 sends Content-Length, -1 chunked (or until close for HTTP/1.0). */
void http_begin(struct http_exchange *x, int status, const char *type, int64_t length);
/* Queues or sends; bytes are copied only if the socket does not take them now. Returns true while
 * more is welcome; after false, wait for the drain callback. Who goes on for 16 times the mark is
 * cut. */
bool http_write(struct http_exchange *x, struct str bytes);
void http_on_drain(struct http_exchange *x, loop_fn fn, void *arg);
size_t http_queued(const struct http_exchange *x); /* bytes that the socket has not taken yet */
/* Sends length bytes of a regular file from offset, by sendfile, then ends the reply (after
 * http_begin with that length). Takes the descriptor. */
void http_take_file(struct http_exchange *x, int fd, int64_t offset, int64_t length);
void http_end(struct http_exchange *x);
/* Cuts the connection in the middle: how a stream's client learns that its sandbox is gone. */
void http_abort(struct http_exchange *x);
/* Called once when the client goes away before the reply was complete. The exchange still lives. A
 * client that shuts its sending side after its request is given a second for the reply to begin
 * before it counts as gone, and gets the reply even then if it is still there. */
void http_on_gone(struct http_exchange *x, loop_fn fn, void *arg);
bool http_is_gone(const struct http_exchange *x);
/* Called once, before the exchange's arena is freed: for whoever keeps something in it that others
 * point to. That is when the exchange is over, or has ended and waits for its reply to be read. */
void http_on_end(struct http_exchange *x, loop_fn fn, void *arg);
/* What let its client in is valid no more. The handler is told as if the client had gone, and may
 * end a reply that it streams; otherwise the client is cut. An answer that is already made is left
 * alone, but a file that is still being sent is not. */
void http_dismiss(struct http_exchange *x);
/* Server-sent events: http_begin with text/event-stream is done here. */
void http_sse_begin(struct http_exchange *x);
bool http_sse_send(struct http_exchange *x, const char *event, const char *id, struct str data);

/* ---- what nobody vouches for ---- */
/* A browser neither runs nor frames the coming reply, nor guesses at its type; for replies of
 * others the same as header lines. */
void http_add_inert(struct http_exchange *x);
extern const char http_inert_lines[];
/* The same type if nothing of that type is ever run, styled with or framed; else one that says
 * nothing. */
struct str http_inert_type(struct str type);
/* A Content-Disposition (empty: none) that keeps its file name and is always saved. */
void http_attachment(struct str disposition, struct buf *out);
/* A browser asks for the script of a service worker: it would own the origin. */
bool http_wants_worker(const struct http_exchange *x);

/* Gives up the connection after the head (Upgrade, tunnels): returns the descriptor, puts what was
 * read beyond the head into `rest`, ends the exchange without a reply. */
int http_detach(struct http_exchange *x, struct buf *rest);

/* ---- client side, and the relay ---- */
/* A field on its way through: the value to pass on; p NULL: it stays behind. The value must live
 * until the head is written (what is in the exchange's arena does). */
typedef struct str (*http_field_fn)(void *arg, struct str name, struct str value);
struct http_relay_options {
	/* Header lines "Name: value\r\n..." added to the request; connection-level and these names'
	 * own occurrences from the client are dropped. NULL: none. */
	const char *add_headers;
	struct str host; /* replaces Host when n > 0 */
	/* The only protocol that may be upgraded to: a request for another one is passed on without
	 * that wish. NULL: any. */
	const char *upgrade;
	/* What carries the upstream's bytes; its `cut` tells a reply that broke off from one that
	 * ends with its connection. NULL: nobody, the descriptor tells by itself. */
	struct http_carriage *carriage;
	int64_t first_byte_timeout_ms; /* 0: none */
	/* The upstream speaks no HTTP: the client, which must have asked for an upgrade, is told
	 * 101 once it is connected, and from then on their bytes pass as they are. */
	bool tunnel;
	/* Asked for every field of the request, and of each reply head, that is not about framing;
	 * NULL: all pass as they are. */
	http_field_fn request_field, reply_field;
	/* Header lines for the final head of the reply, asked for once its fields are through.
	 * NULL: none. */
	const char *(*reply_lines)(void *arg);
	void (*closed)(void *arg); /* the relay is over and the exchange ended (what is in its
				      arena still lives during this call); may be NULL */
	void *arg;
};
/* Passes this exchange to a server behind `upstream_fd` (connected, or still connecting and
 * non-blocking; taken also on failure), bodies as they come in both directions, with back-pressure,
 * Upgrade and CONNECT-like tunnels included. Trailers of requests stay behind, where no field of
 * theirs is looked at as those of the head are. A reply that breaks off cuts the client
 * too. When the upstream refuses the connection before a byte was sent, refused(arg, r) is called
 * instead and the exchange is the caller's again, its body untouched. */
struct http_relay;
typedef void (*http_refused_fn)(void *arg, struct http_exchange *x, int r);
struct http_relay *http_relay(struct http_exchange *x, int upstream_fd,
	const struct http_relay_options *options, http_refused_fn refused);
/* Ends it now, cutting both sides (its sandbox is gone). */
void http_relay_cut(struct http_relay *relay);

/* A request of our own over a connected descriptor (taken), its reply given as it comes. */
struct http_stream;
struct http_stream_ops {
	/* The final head has come; http_stream_header answers during this call. May be NULL. */
	void (*head)(void *arg, int status);
	void (*body)(void *arg, struct str bytes);
	/* Exactly once, last, on a later turn than the request: r is 0 when the reply was whole.
	 * The stream is no more. */
	void (*end)(void *arg, int r, const struct err *e);
	void (*drained)(void *arg); /* after http_stream_send said stop; may be NULL */
	/* Asked before each reading of the body: false leaves it in the socket until the next turn,
	 * when it is asked again. May be NULL. */
	bool (*may_read)(void *arg);
};
struct http_stream_request {
	const char *method, *target, *host;
	const char *headers;      /* "Name: value\r\n..." or NULL */
	struct str body;          /* whole, copied; or */
	bool streams_body;        /* it comes by http_stream_send, */
	int64_t length;           /* so long, or -1: chunked */
	int64_t head_timeout_ms;  /* until the reply's head; 0: none, as the next two */
	int64_t stall_timeout_ms; /* no byte moved; not counted while paused */
	int64_t timeout_ms;       /* for all of it */
};
struct http_stream *http_stream_open(struct loop *loop, int fd,
	const struct http_stream_request *request, const struct http_stream_ops *ops, void *arg);
struct str http_stream_header(const struct http_stream *s, const char *name); /* p NULL: absent */
/* Nothing is read from the socket while paused, and no body callback comes. */
void http_stream_pause(struct http_stream *s);
void http_stream_resume(struct http_stream *s);
/* True while more is welcome. A server that has replied already takes nothing any more, silently.
 */
bool http_stream_send(struct http_stream *s, struct str bytes);
void http_stream_send_end(struct http_stream *s);
/* Cuts it; no callback comes any more. */
void http_stream_cancel(struct http_stream *s);

/* One request over a connected descriptor (taken): for the server's own calls to a guest. The reply
 * is collected up to max_bytes. */
typedef void (
	*http_response_fn)(void *arg, int r, int status, struct str body, const struct err *e);
struct http_request {
	const char *method, *target, *host;
	const char *headers; /* "Name: value\r\n..." or NULL */
	struct str body;     /* copied */
	size_t max_bytes;
	int64_t timeout_ms;
};
struct http_call; /* until fn is called */
struct http_call *http_request(struct loop *loop, int fd, const struct http_request *request,
	http_response_fn fn, void *arg);
void http_request_cancel(struct http_call *call); /* fn is not called any more */
