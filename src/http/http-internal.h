/* What the files of this room share.
 *
 *   parse.c     heads: where one ends, what it says, why it is refused
 *   body.c      where a body ends, and its payload
 *   outq.c      bytes that a socket did not take yet, and those of a connection
 *   conn.c      one client connection: the state machine that calls handlers
 *   exchange.c  the request side of an exchange
 *   reply.c     the reply side
 *   admission.c who holds connections and memory, and who gives way
 *   server.c    listening, limits, stopping      listen.c  addresses
 *   relay*.c    an exchange passed to another server; pipe.c moves its bulk by splice
 *   stream.c    one request of our own, streamed; request.c collects its reply
 *
 * Memory: a connection that waits holds no buffers. Reads go into the server's one scratch buffer,
 * `view` is what of them is not consumed yet, and only what is left at the end of a callback is
 * copied into the connection's own `in`. The scratch buffer is filled only by the io callback of
 * the connection (or relay) that then works on it, so no callback can overwrite another's view. */
#pragma once

#include "http/admission.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
	SCRATCH_BYTES = 64 * 1024,
	HEAD_READ_BYTES =
		16 * 1024, /* smaller than the scratch: a waiting handler pins what is left */
	DRAIN_MAX_BYTES = 64 * 1024, /* an unread body up to this is read to keep the connection */
	DRAIN_MS = 5000,
	LINGER_MAX_BYTES = 32 << 20,
	LINGER_MS = 2000,
	/* A client that only shut its sending side and one that is gone look alike on TCP until
	 * something is sent. Its reply has this long to begin before it counts as gone. */
	HALF_CLOSE_MS = 1000,
	THROTTLED_HIGH_BYTES = 16 * 1024, /* write_high_bytes of a holder that has much unread */
	MAX_EMPTY_LINES = 4,              /* before a request line, as some old clients send them */
	/* Of all Connection fields together: the relay looks for every field among them. */
	MAX_CONNECTION_OPTIONS = 64,
};

/* ---- parse.c ---- */
struct field { /* offsets from the start of the head */
	uint32_t name, name_n, value, value_n;
};

struct head {
	const char *base;
	const struct field *fields;
	uint32_t n_fields;
	uint32_t method_n; /* a request's method begins at 0 */
	uint32_t target, target_n;
	uint32_t reason, reason_n;
	int status, minor;
	int64_t length;     /* Content-Length; -1: not given */
	uint32_t host;      /* index of the field */
	uint32_t n_options; /* in Connection */
	bool has_host, chunked, close, keep_alive, connection_upgrade, upgrade, expect;
};

/* How far a head was looked at, so that a slow client does not make us look twice. */
struct head_scan {
	uint32_t line, at;
};

/* 1: the head ends at *ret_end; 0: more is needed; -EBADMSG; -EMSGSIZE past max. A head that is
 * only an empty line ends at 2. */
int head_find_end(struct str in, size_t max, struct head_scan *scan, size_t *ret_end);
/* `text` as found by head_find_end. 0, or the status to refuse the request with. */
int head_parse_request(struct str text, struct field *fields, size_t max_fields, struct head *ret);
/* As above; anything but 0 means a reply that nobody should guess at. */
int head_parse_response(struct str text, struct field *fields, size_t max_fields, struct head *ret);
struct str head_name(const struct head *h, uint32_t i);
struct str head_value(const struct head *h, uint32_t i);
struct str head_get(const struct head *h, struct str name); /* first; p NULL: absent */
bool is_token(struct str s);
bool is_field_value(struct str s);

/* ---- body.c ---- */
enum body_state {
	BODY_LENGTH,
	BODY_UNTIL_CLOSE,
	BODY_SIZE_FIRST, /* the states of chunked coding, in the order of its grammar */
	BODY_SIZE,
	BODY_EXTENSION,
	BODY_SIZE_LF,
	BODY_DATA,
	BODY_DATA_CR,
	BODY_DATA_LF,
	BODY_TRAILER_FIRST,
	BODY_TRAILER_NAME,
	BODY_TRAILER_VALUE,
	BODY_TRAILER_LF,
	BODY_END_LF,
	BODY_DONE,
	BODY_BAD,
};

struct body {
	uint64_t left; /* of the body, or of the current chunk */
	enum body_state state;
	uint16_t size_digits;
	uint16_t extension_n, trailer_n;
};

void body_start_length(struct body *b, int64_t length);
void body_start_chunked(struct body *b);
void body_start_until_close(struct body *b);
static inline bool body_is_done(const struct body *b)
{
	return b->state == BODY_DONE;
}
/* Takes bytes from the front of `in` and returns how many; *piece is the payload among them, empty
 * when they were framing only. -EPROTO for bad framing, now and ever after. */
ssize_t body_next(struct body *b, struct str in, struct str *piece);
/* For passing on unchanged: how many bytes of `in` belong to this body. */
ssize_t body_pass(struct body *b, struct str in);
/* The same without trailers: `kept` is what of those bytes is to be passed on. */
ssize_t body_pass_bare(struct body *b, struct str in, struct str kept[2]);

/* ---- outq.c ---- */
struct outq {
	struct buf buf;
	size_t at; /* sent already */
};

static inline size_t outq_pending(const struct outq *q)
{
	return q->buf.n - q->at;
}
/* Sends what is queued and then iov in one call, keeping what the socket does not take.
 * 1: all sent; 0: something is queued, wait for EPOLLOUT; -errno: the socket is lost. */
int outq_send(struct outq *q, int fd, const struct iovec *iov, int n_iov);
/* Queues without sending. */
int outq_add(struct outq *q, const struct iovec *iov, int n_iov, size_t skip);
void outq_done(struct outq *q);
static inline struct iovec iov_of(struct str s)
{
	union {
		const void *in;
		void *out;
	} p = { .in = s.p }; /* sendmsg takes iovecs it does not write to */

	return (struct iovec){ p.out, s.n };
}

/* ---- pipe.c ---- */
enum {
	PIPES_KEPT = 8,
	PIPES_MAX = 64
};
struct pipe {
	struct list node;
	int read_fd, write_fd;
	size_t fill;
};

struct pipe_pool {
	struct list kept;
	int n_kept, n_all;
};

enum pipe_result {
	PIPE_DONE,     /* *left is 0 and all of it is with dst */
	PIPE_WAIT_SRC, /* everything so far is with dst */
	PIPE_WAIT_DST,
	PIPE_AGAIN, /* this turn's share is used up */
	PIPE_END,   /* end of file at src, everything is with dst */
	PIPE_SRC_LOST,
	PIPE_DST_LOST,
	PIPE_UNFIT, /* src cannot be spliced; nothing was moved */
};

void pipe_pool_init(struct pipe_pool *pool);
void pipe_pool_done(struct pipe_pool *pool);
struct pipe *pipe_get(struct pipe_pool *pool); /* NULL: none to be had, copy instead */
struct pipe *pipe_put(struct pipe_pool *pool,
	struct pipe *p); /* one that still holds bytes is closed */
/* Both must be non-blocking. *left counts down; *moved is set when anything went anywhere. */
enum pipe_result pipe_move(struct pipe *p, int src, int dst, uint64_t *left, bool *moved);

/* ---- server.c ---- */
struct listener {
	struct list node;
	struct http_server *server;
	struct loop_listener socket;
};

struct http_server {
	struct loop *loop;
	struct http_limits limits;
	http_handler_fn handler;
	void *arg;
	struct list listeners;
	struct list idle; /* connections between requests, the longest idle first */
	struct list busy;
	struct list relays;
	size_t n_conns;
	struct admission admission;
	struct loop_timer stop_timer;
	struct loop_task stop_task;
	done_fn stopped;
	void *stopped_arg;
	int stop_result;
	bool closing; /* nothing more is accepted, replies are the last of their connections */
	bool stopping;
	char *scratch;
	struct field *fields; /* of the head being parsed */
	struct buf head;      /* the head being written */
	struct pipe_pool pipes;
	int64_t date_ms; /* when `date` was made */
	char date[48];
};

struct str server_date(struct http_server *server); /* a whole Date line */
void server_conn_gone(struct http_server *server);

/* ---- conn.c ---- */
enum conn_state {
	CONN_HEAD,     /* between requests, or inside a head */
	CONN_EXCHANGE, /* a handler has it */
	CONN_DRAIN,    /* replied; the rest of the body is dropped */
	CONN_LINGER, /* our side is shut; what still comes is dropped, so no reset eats the reply */
	CONN_CLOSED,
};

struct peer {
	sa_family_t family;
	in_port_t port; /* network order */
	struct in6_addr address;
};

struct conn {
	struct http_server *server;
	struct list node; /* in server->idle or server->busy */
	struct slot slot; /* while the client can be reached, or something is done for it */
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	int fd;
	enum conn_state state;
	int64_t since_ms; /* when the current wait began; its meaning depends on the state */
	struct str view;  /* read, not consumed */
	struct buf in;    /* holds the view between callbacks */
	struct outq out;
	struct head_scan scan;
	struct body body; /* of the current request */
	uint64_t dropped; /* bytes, in CONN_DRAIN and CONN_LINGER */
	size_t fed;       /* bytes of a body since since_ms */
	struct http_exchange *x;
	struct http_carriage *carriage; /* NULL: the socket is the client's own */
	char *peer_text;                /* made when first asked for */
	struct peer peer;
	uint8_t empty_lines;
	bool running;     /* inside conn_run: it will notice changes by itself */
	bool blocked;     /* the socket is full: EPOLLOUT will tell */
	bool eof;         /* read to the end */
	bool half_closed; /* EPOLLRDHUP seen while nothing was being read */
	bool answered;    /* sent to since then: if nobody is there, a reset will tell */
	bool head_begun;  /* since_ms counts from the head's first byte */
	bool asked;       /* a request came by it */
	bool mute;        /* input came that nobody wants now */
};

struct http_exchange {
	struct conn *conn;
	struct http_relay *relay;
	struct arena *arena;
	void *data;
	http_chunk_fn body_fn; /* set while the handler wants the body */
	void *body_arg;
	http_body_fn whole_fn;
	void *whole_arg;
	struct buf body;          /* collected for whole_fn */
	struct buf reply_headers; /* added by the handler */
	loop_fn gone_fn;
	void *gone_arg;
	loop_fn drain_fn;
	void *drain_arg;
	loop_fn end_fn;
	void *end_arg;
	int64_t reply_left; /* of a streamed reply with a length; -1: none declared */
	int file_fd;
	int64_t file_offset, file_left;
	int body_error;       /* to be reported instead of the body */
	size_t stranger_left; /* of the body, for somebody that nobody has admitted */
	bool admitted;        /* by http_admit, or nobody is told apart here */
	bool paused, body_over;
	bool continued; /* 100 sent, or never needed */
	bool gone;
	bool begun, ended;
	bool held;    /* by a relay that is over but has not said so yet */
	bool chunked; /* the reply */
	bool no_body; /* HEAD, 204, 304: what is written goes nowhere */
	bool keep;    /* the connection after this reply */
	bool drain_due;
	struct head head;
	struct field fields[]; /* then the head's bytes */
};

/* Owns the descriptor, also when it fails or there is no slot: NULL, and the client was told. */
struct conn *conn_new(struct http_server *server, int fd, const struct sockaddr_storage *address,
	struct err *e);
void conn_start(struct conn *conn); /* looks for a request at once */
void conn_destroy(struct conn *conn);
void conn_close(struct conn *conn); /* freed at the end of the turn */
/* The client cannot be reached any more: its exchange goes on, into nothing. */
void conn_lose(struct conn *conn);
/* Makes the state machine look again, soon. */
void conn_wake(struct conn *conn);
/* Sends behind what is queued; losing the client is noticed here and told later. */
void conn_send(struct conn *conn, const struct iovec *iov, int n_iov);
void conn_flush(struct conn *conn);
/* Counts what it has in memory, and may lose it for that. */
void conn_account(struct conn *conn);
/* How many queued bytes of a reply are too many. */
size_t conn_write_high(const struct conn *conn);
/* At the end of a callback: keeps what is left of the view. */
void conn_settle(struct conn *conn);
static inline bool conn_is_idle(const struct conn *conn)
{
	return conn->state == CONN_HEAD && conn->view.n == 0;
}

/* ---- exchange.c ---- */
struct http_exchange *exchange_new(struct conn *conn, const struct head *head, size_t head_n);
struct http_exchange *exchange_free(struct http_exchange *x);
/* Of one that has ended and waits for its reply to be read: what only its handler needed. */
void exchange_release(struct http_exchange *x);

/* ---- reply.c ---- */
const char *status_text(int status);
/* Whether the connection can serve another request once this exchange has its reply. */
bool reply_may_keep(const struct http_exchange *x);
void reply_send_file(struct conn *conn, struct http_exchange *x);
void reply_refuse(struct conn *conn, int status); /* when there is no exchange yet */
void reply_turn_away(int fd);                     /* nor a connection; takes the descriptor */
/* {"code":..,"message":..}, the error shape of the whole product. */
void reply_error(struct http_exchange *x, int status, const char *message);
/* Ends the exchange: the connection will free it once everything is out. */
void exchange_ended(struct http_exchange *x);

/* ---- relay-head.c ---- */
/* The rewritten heads, into server->head; -ENOBUFS when they do not fit. */
int relay_request_head(struct http_exchange *x, const struct http_relay_options *options);
/* Whether all that it wants to be upgraded to is this. */
bool relay_wants_only(const struct head *head, const char *protocol);
int relay_interim_head(struct http_exchange *x, const struct head *reply);
int relay_tunnel_head(struct http_exchange *x); /* our own 101 */
/* Also decides how the reply is framed for this client. */
int relay_reply_head(struct http_exchange *x, const struct head *reply);

/* ---- relay.c ---- */
enum relay_state {        /* in this order */
	RELAY_CONNECTING, /* not a byte was sent: the exchange could still be given back */
	RELAY_HEAD,       /* the reply's head has not come yet */
	RELAY_BODY,
	RELAY_TUNNEL,
	RELAY_REFUSED,
	RELAY_OVER,
};

enum relay_mode {
	RELAY_RAW,     /* the reply's framing suits the client as it is */
	RELAY_DECODE,  /* chunked, for an HTTP/1.0 client */
	RELAY_RECHUNK, /* delimited by close, for a client that wants to keep its connection */
};

struct http_relay {
	struct list node; /* in server->relays */
	struct http_server *server;
	struct http_exchange *x;
	struct conn *conn;
	int fd;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	http_refused_fn refused;
	void (*closed)(void *arg);
	http_field_fn reply_field;
	const char *(*reply_lines)(void *arg);
	void *arg;
	struct http_carriage *carriage; /* of the upstream; NULL: none */
	int refused_error;
	int64_t first_byte_ms;
	int64_t since_ms;       /* a byte last moved */
	int64_t fed_ms;         /* its client last sent enough of a body, or had to wait */
	int64_t half_closed_ms; /* and nothing more was to be had from the client */
	enum relay_state state;
	enum relay_mode mode;
	struct outq up;  /* for the upstream, not taken by it yet */
	struct buf held; /* an unfinished reply head */
	struct head_scan scan;
	struct body reply;
	struct pipe *up_pipe, *down_pipe; /* while they hold bytes */
	size_t fed;                       /* bytes since fed_ms */
	uint8_t n_interim;
	bool is_raw;             /* a tunnel from the start: no HTTP is spoken to the upstream */
	bool up_done, down_done; /* all of that direction has been passed on */
	bool up_lost;            /* the upstream stopped reading; it may still reply */
	bool up_bulk, down_bulk; /* worth a pipe */
	bool no_splice;
	bool hung_up; /* EPOLLHUP of the upstream: reported even when not asked for */
};

void relay_on_client(struct http_relay *relay, uint32_t events);
struct http_relay *relay_free(struct http_relay *relay); /* no callbacks */

/* ---- relay-flow.c ---- */
enum flow {
	FLOW_MORE, /* something was done, try again */
	FLOW_WAIT,
	FLOW_END,
	FLOW_SRC_LOST,
	FLOW_DST_LOST,
	FLOW_BAD, /* framing */
};

/* Move what can be moved now; both end with the scratch buffer free for others. */
enum flow relay_move_up(struct http_relay *relay);
enum flow relay_move_down(struct http_relay *relay);
static inline bool relay_up_blocked(const struct http_relay *relay)
{
	return outq_pending(&relay->up) > 0 || relay->up_pipe;
}
static inline bool relay_down_blocked(const struct http_relay *relay)
{
	return relay->conn->blocked || relay->down_pipe;
}
