/* A tunnel through an HTTP server. libcurl connects (names, proxies, TLS); then the bytes are ours,
 * each direction by itself through one buffer: nothing is read before the last of it was taken.
 * A tunnel has a client of its own: curl minds the connections it keeps, and takes one that nobody
 * transfers on and that has bytes to read for dead. */
#include "client/client-internal.h"

#include <openssl/ssl.h>
#include <sys/socket.h>

enum {
	LANE_BYTES = 64 << 10,
	ANSWER_MS = 30 * 1000, /* a paused sandbox may have to be woken first */
	TURNS = 16,            /* then others have theirs */
};

enum tunnel_state {
	TUNNEL_CONNECTING,
	TUNNEL_ASKING,  /* the request is on its way, or its answer */
	TUNNEL_REFUSED, /* the rest of that answer is awaited */
	TUNNEL_OPEN,
	TUNNEL_OVER,
};

struct lane { /* bytes from `at` to `n` are on their way */
	char *bytes;
	size_t at, n;
	bool is_dry;  /* nothing more comes in */
	bool is_shut; /* and the other side was told */
};

struct side { /* one of the two sockets, as the loop sees it */
	struct loop_io io;
	int fd;
	bool hung_up; /* reported again and again, whether asked for or not */
};

struct client_tunnel {
	struct client *client;
	struct client_call *call;
	struct loop *loop;
	client_tunnel_fn fn;
	void *arg;
	enum tunnel_state state;
	struct side near, far; /* far's descriptor is curl's */
	struct lane up, down;
	struct upgrade_answer answer;
	struct loop_timer timer;
	struct loop_task task; /* what is left of this turn's work, or the end */
	int r;
	struct err e;
};

static void pump(struct client_tunnel *t);

/* ---- the end ---- */

struct client_tunnel *client_tunnel_free(struct client_tunnel *t)
{
	if (!t)
		return NULL;
	t->state = TUNNEL_OVER;
	loop_task_cancel(&t->task);
	loop_timer_cancel(&t->timer);
	loop_io_remove(&t->near.io);
	loop_io_remove(&t->far.io);
	t->client = client_free(t->client);
	close_fdp(&t->near.fd);
	free(t->up.bytes);
	free(t->down.bytes);
	free(t);
	return NULL;
}

static void tell(void *arg)
{
	struct client_tunnel *t = arg;
	struct str body = STR_NONE;

	if (t->r == -EREMOTEIO)
		body = str_make(t->down.bytes + t->answer.head_n, t->down.n - t->answer.head_n);
	t->fn(t->arg, t, t->r, t->answer.status, body, &t->e);
}

/* A connection that breaks must not look like one that ended. */
static void reset_near(struct client_tunnel *t)
{
	struct linger now = { .l_onoff = 1 };

	(void)setsockopt(t->near.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void finish(struct client_tunnel *t, int r, const char *words)
{
	if (t->state == TUNNEL_OVER)
		return;
	if (r < 0)
		reset_near(t);
	t->state = TUNNEL_OVER;
	t->r = r < 0 ? err_set(&t->e, r, "%s", words) : 0;
	loop_timer_cancel(&t->timer);
	loop_io_remove(&t->near.io);
	loop_io_remove(&t->far.io);
	loop_task_cancel(&t->task);
	loop_defer(t->loop, &t->task, tell, t);
}

/* ---- bytes ---- */

static CURL *easy_of(const struct client_tunnel *t)
{
	return t->call->easy;
}

/* Like read: 0 at the end, -EAGAIN. */
static ssize_t far_read(struct client_tunnel *t, char *p, size_t n)
{
	size_t got = 0;
	CURLcode result = curl_easy_recv(easy_of(t), p, n, &got);

	if (result == CURLE_AGAIN)
		return -EAGAIN;
	return result == CURLE_OK ? (ssize_t)got : -ECONNRESET;
}

/* TLS must be given the same bytes again after -EAGAIN: a lane does not move what it holds. */
static ssize_t far_write(struct client_tunnel *t, const char *p, size_t n)
{
	size_t put = 0;
	CURLcode result = curl_easy_send(easy_of(t), p, n, &put);

	if (result == CURLE_AGAIN)
		return -EAGAIN;
	return result == CURLE_OK ? (ssize_t)put : -ECONNRESET;
}

static void far_shut(struct client_tunnel *t)
{
	struct curl_tlssessioninfo *tls = NULL;

	if (curl_easy_getinfo(easy_of(t), CURLINFO_TLS_SSL_PTR, &tls) == CURLE_OK && tls &&
		tls->backend == CURLSSLBACKEND_OPENSSL && tls->internals)
		(void)SSL_shutdown(tls->internals); /* its half of it: reading goes on */
	else
		(void)shutdown(t->far.fd, SHUT_WR);
}

static bool must_wait(void)
{
	return errno == EAGAIN || errno == EINTR;
}

static ssize_t near_read(struct client_tunnel *t, char *p, size_t n)
{
	ssize_t got = recv(t->near.fd, p, n, MSG_DONTWAIT);

	return got >= 0 ? got : must_wait() ? -EAGAIN : -EPIPE;
}

static ssize_t near_write(struct client_tunnel *t, const char *p, size_t n)
{
	ssize_t put = send(t->near.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	return put >= 0 ? put : must_wait() ? -EAGAIN : -EPIPE;
}

static void near_shut(struct client_tunnel *t)
{
	(void)shutdown(t->near.fd, SHUT_WR);
}

struct ends { /* of one direction */
	ssize_t (*read)(struct client_tunnel *t, char *p, size_t n);
	ssize_t (*write)(struct client_tunnel *t, const char *p, size_t n);
	void (*shut)(struct client_tunnel *t);
};
static const struct ends upwards = { near_read, far_write, far_shut };
static const struct ends downwards = { far_read, near_write, near_shut };

/* 1: something moved, 0: wait, -errno. */
static int move(struct client_tunnel *t, struct lane *lane, const struct ends *ends)
{
	ssize_t n;

	if (lane->is_shut)
		return 0;
	if (lane->at < lane->n) {
		n = ends->write(t, lane->bytes + lane->at, lane->n - lane->at);
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		lane->at += (size_t)n;
		return 1;
	}
	if (lane->is_dry) {
		ends->shut(t);
		lane->is_shut = true;
		return 1;
	}
	n = ends->read(t, lane->bytes, LANE_BYTES);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	lane->at = 0;
	lane->n = (size_t)n;
	lane->is_dry = n == 0;
	return 1;
}

/* ---- asking ---- */

static void open_up(struct client_tunnel *t)
{
	loop_timer_cancel(&t->timer);
	t->down.at = t->answer.head_n;
	t->up.at = t->up.n = 0;
	t->state = TUNNEL_OPEN;
}

static bool is_whole(const struct client_tunnel *t)
{
	return t->down.is_dry || t->down.n == LANE_BYTES ||
	       (t->answer.length >= 0 &&
		       t->down.n - t->answer.head_n >= (uint64_t)t->answer.length);
}

static void read_answer(struct client_tunnel *t)
{
	int r = 0;

	if (t->state == TUNNEL_ASKING && t->down.n > 0)
		r = upgrade_answer(str_make(t->down.bytes, t->down.n), &t->answer);
	if (r == 0 && t->state == TUNNEL_ASKING && t->down.is_dry)
		finish(t, -ECONNRESET, "the server closed the connection without an answer");
	else if (r < 0 || (r == 0 && t->state == TUNNEL_ASKING && t->down.n == LANE_BYTES))
		finish(t, -EPROTO, "the answer is not HTTP");
	else if (r > 0 && t->answer.status == 101)
		open_up(t);
	else if (r > 0)
		t->state = TUNNEL_REFUSED;
	if (t->state == TUNNEL_REFUSED && is_whole(t))
		finish(t, -EREMOTEIO, "the server refused");
}

/* The request goes by the lane up, the answer is collected in the lane down. */
static int ask(struct client_tunnel *t)
{
	ssize_t n;

	if (t->up.at < t->up.n) {
		n = far_write(t, t->up.bytes + t->up.at, t->up.n - t->up.at);
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		t->up.at += (size_t)n;
		return 1;
	}
	n = far_read(t, t->down.bytes + t->down.n, LANE_BYTES - t->down.n);
	if (n < 0)
		return n == -EAGAIN ? 0 : (int)n;
	t->down.n += (size_t)n;
	t->down.is_dry = n == 0;
	read_answer(t);
	return 1;
}

/* ---- turns ---- */

static void on_near(void *arg, uint32_t events)
{
	struct client_tunnel *t = arg;

	t->near.hung_up |= (events & (EPOLLHUP | EPOLLERR)) != 0;
	pump(t);
}

static void on_far(void *arg, uint32_t events)
{
	struct client_tunnel *t = arg;

	t->far.hung_up |= (events & (EPOLLHUP | EPOLLERR)) != 0;
	pump(t);
}

static void on_task(void *arg)
{
	pump(arg);
}

/* A side that hung up is not watched while nothing is wanted of it. */
static int watch(struct client_tunnel *t, struct side *side, loop_io_fn fn, uint32_t events)
{
	if (events == 0 && side->hung_up)
		loop_io_remove(&side->io);
	else if (side->io.loop)
		loop_io_set(&side->io, events);
	else
		return loop_io_add(t->loop, &side->io, side->fd, events, fn, t, NULL);
	return 0;
}

static void watch_both(struct client_tunnel *t)
{
	bool up = t->up.at < t->up.n, down = t->down.at < t->down.n;
	bool open = t->state == TUNNEL_OPEN;
	uint32_t far = up ? EPOLLOUT : 0, near = open && down ? EPOLLOUT : 0;

	if (open && !up && !t->up.is_dry)
		near |= EPOLLIN;
	if (!t->down.is_dry && (!open || !down))
		far |= EPOLLIN;
	if (watch(t, &t->far, on_far, far) < 0 || (open && watch(t, &t->near, on_near, near) < 0))
		finish(t, -ENOMEM, "the loop has no room");
}

static void pump(struct client_tunnel *t)
{
	int up = 1, down = 1;

	for (int i = 0; i < TURNS && t->state < TUNNEL_OVER && (up > 0 || down > 0); i++) {
		if (t->state == TUNNEL_OPEN) {
			up = move(t, &t->up, &upwards);
			down = up < 0 ? up : move(t, &t->down, &downwards);
		} else {
			up = down = ask(t);
		}
		if (up < 0 || down < 0)
			finish(t, up < 0 ? up : down, "the connection broke");
		else if (t->up.is_shut && t->down.is_shut)
			finish(t, 0, "");
	}
	if (t->state == TUNNEL_OVER)
		return;
	if (up > 0 || down > 0)
		loop_defer(t->loop, &t->task, on_task, t);
	watch_both(t);
}

static void on_timeout(void *arg)
{
	finish(arg, -ETIMEDOUT, "the server does not answer");
}

static void on_connected(void *arg)
{
	struct client_tunnel *t = arg;
	curl_socket_t fd = CURL_SOCKET_BAD;

	if (t->state != TUNNEL_CONNECTING)
		return;
	(void)curl_easy_getinfo(easy_of(t), CURLINFO_ACTIVESOCKET, &fd);
	t->far.fd = fd;
	t->state = TUNNEL_ASKING;
	pump(t);
}

/* Only what went wrong before it was connected comes here. */
static void on_done(void *arg, int r, const struct err *e)
{
	struct client_tunnel *t = arg;

	t->call = NULL;
	if (r < 0)
		finish(t, r, e->msg);
}

/* ---- the door ---- */

static int prepare(struct client_tunnel *t, const struct client_request *request,
	const char *protocol, struct err *e)
{
	CLEANUP(buf_done) struct buf head = BUF_INIT(LANE_BYTES);
	int r = client_new(t->loop, &t->client, e);

	if (r == 0)
		r = upgrade_request(request, protocol, &head, e);
	if (r < 0)
		return r;
	memcpy(t->up.bytes, head.p, head.n);
	t->up.n = head.n;
	r = fd_set_nonblock(t->near.fd, true);
	return r < 0 ? err_sys(e, r, "make a socket non-blocking") : 0;
}

static void connect_far(struct client_tunnel *t, const struct client_request *request,
	const char *ca_file)
{
	const struct client_handlers handlers = { .done = on_done, .arg = t };
	struct client_request plain = { .method = "GET",
		.url = request->url,
		.unix_socket = request->unix_socket,
		.ca_file = request->ca_file ? request->ca_file : ca_file,
		.connect_timeout_ms = request->connect_timeout_ms };

	t->call = client_start(t->client, &plain, &handlers);
	t->call->connected = on_connected;
	if (!t->call->easy)
		return;
	(void)curl_easy_setopt(easy_of(t), CURLOPT_CONNECT_ONLY, 1L);
	(void)curl_easy_setopt(easy_of(t), CURLOPT_HTTPPROXYTUNNEL, 1L);
	(void)curl_easy_setopt(easy_of(t), CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
}

struct client_tunnel *client_take_tunnel(struct client *client,
	const struct client_request *request, const char *protocol, int fd, client_tunnel_fn fn,
	void *arg)
{
	struct client_tunnel *t = XNEW(struct client_tunnel);
	struct err e = { 0 };
	int r;

	t->loop = client->loop;
	t->fn = fn;
	t->arg = arg;
	t->near.fd = fd;
	t->up.bytes = xcalloc(1, LANE_BYTES);
	t->down.bytes = xcalloc(1, LANE_BYTES);
	loop_timer_init(&t->timer, t->loop, on_timeout, t);
	loop_timer_set(&t->timer, loop_now_ms(t->loop) + ANSWER_MS);
	r = prepare(t, request, protocol, &e);
	if (r < 0)
		finish(t, r, e.msg);
	else
		connect_far(t, request, client->ca_file);
	return t;
}
