/* client - HTTP requests to other servers, by libcurl on the loop.
 * Owns:   the connection pool, name resolution, TLS, the deadlines of a request.
 * Uses:   base, loop, libcurl.
 * Never:  follows a redirect, repeats a request, decides what a status means, takes a proxy from
 * the environment for a loopback host, talks to a TLS server whose certificate it cannot check.
 *
 * A call goes head -> data ... -> done. All three come from the loop, never from inside
 * client_start, and any function of this door except client_free may be called from within them. */
#pragma once

#include "base/base.h"
#include "loop/loop.h"

struct client;
struct client_call;

int client_new(struct loop *loop, struct client **ret, struct err *e);
/* Ends what is under way with -ECANCELED. Not from a callback of this room. */
struct client *client_free(struct client *client);
DEFINE_CLEANUP(struct client, client_free)

/* Calls that name no ca_file trust this bundle (PEM) instead of the system's. */
void client_trust(struct client *client, const char *ca_file);

/* Fills p with up to n bytes of the request body: how many, 0 at the end, -EAGAIN when there is
 * nothing now (call client_more when there is), or another -errno, which ends the call with it. */
typedef ssize_t (*client_source_fn)(void *arg, char *p, size_t n);

struct client_request {
	const char *method;
	const char *url;            /* http or https */
	const char *const *headers; /* "Name: value" each, NULL at the end; NULL: none */
	struct str body;            /* copied; p NULL: none */
	client_source_fn source; /* a body that is produced while it is sent, instead of `body` */
	int64_t source_length;   /* known length, or -1: chunked */
	const char *unix_socket; /* connect to this path whatever the URL's host; NULL: no */
	const char *ca_file;     /* trust this bundle instead of the client's; NULL: no */
	int64_t connect_timeout_ms; /* 0: 5 s */
	int64_t timeout_ms;         /* from start to done; 0: none */
	int64_t idle_timeout_ms;    /* no byte either way, while not paused; 0: none */
};

struct client_handlers {
	/* Once, with the final status: client_status and client_header answer from here on. */
	void (*head)(void *arg, struct client_call *call);
	void (*data)(void *arg, struct client_call *call, struct str bytes);
	/* Exactly once; r 0 means a whole response, whatever its status. The call is gone
	 * afterwards. -ECONNREFUSED -EHOSTUNREACH -ETIMEDOUT -ECONNRESET -EKEYREJECTED
	 * (certificate) -EPROTO (TLS otherwise, not HTTP) -EINVAL (URL). */
	done_fn done;
	void *arg;
};

/* Never fails here: what is wrong with the request comes to done. Everything in the request is
 * copied but the source's arg, which is handlers->arg. head and data may be NULL. */
struct client_call *client_start(struct client *client, const struct client_request *request,
	const struct client_handlers *handlers);
void client_cancel(struct client_call *call); /* only done(-ECANCELED) comes after this */
/* Stops data; at most one buffer of the socket is read ahead. */
void client_pause(struct client_call *call);
void client_resume(struct client_call *call);
void client_more(struct client_call *call); /* the source that said -EAGAIN has bytes again */

int client_status(const struct client_call *call); /* 0 before the head */
/* The first header of that name; p NULL when absent. Borrowed until done returns. */
struct str client_header(const struct client_call *call, const char *name);

/* The whole response at once, up to max_bytes of body (-ENOBUFS past it). */
typedef void (*client_response_fn)(void *arg, int r, const struct client_call *call,
	struct str body, const struct err *e);
struct client_call *client_fetch(struct client *client, const struct client_request *request,
	size_t max_bytes, client_response_fn fn, void *arg);

/* ---- tunnels ---- */

/* Asks the server of request->url for an upgrade to `protocol`. Once it has agreed (101), the bytes
 * of `fd`, a connected socket which is taken, and those of the server pass both ways, half-closes
 * too, until both have ended. Of the request, url, headers, unix_socket, ca_file and
 * connect_timeout_ms count. The client must outlive it. */
struct client_tunnel;
/* Once, from the loop: r 0, it was open and has ended; -EREMOTEIO, the server said something else:
 * its status and the beginning of its body; -EPIPE, fd broke off; others as of a call. Then `fd`
 * ends in a reset. The tunnel may be freed in it, and must be at some time. */
typedef void (*client_tunnel_fn)(void *arg, struct client_tunnel *tunnel, int r, int status,
	struct str body, const struct err *e);
struct client_tunnel *client_take_tunnel(struct client *client,
	const struct client_request *request, const char *protocol, int fd, client_tunnel_fn fn,
	void *arg);
struct client_tunnel *client_tunnel_free(struct client_tunnel *tunnel); /* without a callback */
DEFINE_CLEANUP(struct client_tunnel, client_tunnel_free)
