/* rpc - a Connect call on its way: decoded head, user, answer. Methods speak JSON; a client that
 * speaks binary protobuf is translated for, here and in feed.c.
 * The table in rpc.c names every method. A call is answered exactly once, by rpc_reply, rpc_fail or
 * by handing its exchange to a stream (rpc_take_exchange); each of them frees it. */
#pragma once

#include "connect/connect.h"
#include "guest/feed.h"
#include "guest/guest.h"
#include "json/json.h"

enum {
	RPC_MAX_BYTES = 16 << 20,  /* of one message, */
	RPC_JSON_BYTES = 64 << 20, /* and of what a binary one is in JSON */
	RPC_ARENA_BYTES =
		128 << 20,    /* a message decoded: many short strings cost more than their text */
	RPC_KEEPALIVE_S = 90, /* unless the client names its own */
};

enum rpc_kind {
	RPC_UNARY,
	RPC_SERVER_STREAM,
	RPC_CLIENT_STREAM, /* the method reads the body itself */
};

struct rpc {
	struct guest *guest;
	struct http_exchange *x;
	const struct rpc_method *method;
	struct arena *arena;
	bool is_proto;    /* the client speaks binary protobuf */
	struct user user; /* whom the call acts as, when the method needs one */
};

struct rpc_method {
	const char *path;
	enum rpc_kind kind;
	bool needs_user;
	void (*call)(struct rpc *rpc, struct str message);
	const struct proto_message *request, *reply;
};

/* True when the path is an RPC's: the exchange is taken then. */
bool rpc_handle(struct guest *g, struct http_exchange *x);

/* The message as JSON: as it came, or translated into `text`. */
int rpc_to_json(const struct rpc *rpc, struct str *message, struct buf *text, struct err *e);
/* Decodes into out, in the call's arena. False: it was answered with invalid_argument. */
bool rpc_decode(struct rpc *rpc, struct str message, const struct json_shape *shape, void *out);
/* Resolves a client's path. False: it was answered. */
bool rpc_resolve(struct rpc *rpc, struct str path, char out[PATH_MAX]);

/* For unary calls: the message. A body past its ceiling becomes resource_exhausted. */
void rpc_reply(struct rpc *rpc, struct buf *message);
void rpc_reply_empty(struct rpc *rpc);
void rpc_fail(struct rpc *rpc, enum connect_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* What answers are said in: the protobuf message, or NULL for JSON. */
const struct proto_message *rpc_codec(const struct rpc *rpc);
/* rpc_reply in two steps, for a job that makes a large answer: `message` becomes what is sent. */
int rpc_encode(const struct proto_message *codec, struct buf *message, struct err *e);
void rpc_reply_encoded(struct rpc *rpc, const struct buf *message);
/* Frees the call, gives its exchange to the caller. */
struct http_exchange *rpc_take_exchange(struct rpc *take_rpc);

/* Connect-Timeout-Ms, Keepalive-Ping-Interval, the codec. False: it was answered. */
bool rpc_stream_options(struct rpc *rpc, struct feed_options *ret);

/* The methods. */
void rpc_process_list(struct rpc *rpc, struct str message);
void rpc_process_start(struct rpc *rpc, struct str message);
void rpc_process_connect(struct rpc *rpc, struct str message);
void rpc_process_update(struct rpc *rpc, struct str message);
void rpc_process_send_input(struct rpc *rpc, struct str message);
void rpc_process_stream_input(struct rpc *rpc, struct str message);
void rpc_process_send_signal(struct rpc *rpc, struct str message);
void rpc_process_close_stdin(struct rpc *rpc, struct str message);
void rpc_process_forget(struct rpc *rpc, struct str message);

void rpc_filesystem_stat(struct rpc *rpc, struct str message);
void rpc_filesystem_make_dir(struct rpc *rpc, struct str message);
void rpc_filesystem_move(struct rpc *rpc, struct str message);
void rpc_filesystem_list_dir(struct rpc *rpc, struct str message);
void rpc_filesystem_remove(struct rpc *rpc, struct str message);

void rpc_filesystem_watch_dir(struct rpc *rpc, struct str message);
void rpc_filesystem_create_watcher(struct rpc *rpc, struct str message);
void rpc_filesystem_get_watcher_events(struct rpc *rpc, struct str message);
void rpc_filesystem_remove_watcher(struct rpc *rpc, struct str message);
