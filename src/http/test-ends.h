/* The relay between a raw client and a raw upstream, both played by the test. */
#pragma once

#include "test-rig.h"

#define HOST "Host: a\r\n"
#define GET "GET /p?q HTTP/1.1\r\n" HOST "\r\n"

static const char added[] = "X-Added: yes\r\nX-Real: gate\r\n";

static void on_closed(void *arg)
{
	struct rig *rig = arg;

	atomic_fetch_add(&rig->closed, 1);
}

static void refused_body(void *arg, int r, struct str body)
{
	struct http_exchange *x = arg;

	http_reply(x, r < 0 ? 500 : 503, NULL, body);
}

static void on_refused(void *arg, struct http_exchange *x, int r)
{
	struct rig *rig = arg;

	atomic_store(&rig->refused, -r);
	http_read_body(x, 1000, refused_body, x);
}

static int start_dial(int port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)connect_to(fd, port);
	return fd;
}

static struct str pass_request(void *arg, struct str name, struct str value)
{
	(void)arg;
	if (str_eq_nocase(name, STR("X-Stays")))
		return STR_NONE;
	return str_is(name, "X-Turns") ? STR("turned") : value;
}

static struct str pass_reply(void *arg, struct str name, struct str value)
{
	(void)arg;
	return str_is(name, "X-Broken") ? STR("a\r\nb: c") : pass_request(arg, name, value);
}

static const char *more_reply(void *arg)
{
	(void)arg;
	return "X-More: 1\r\n";
}

static void handle(void *arg, struct http_exchange *x)
{
	struct http_claim claim = { .holder = STR("team"), .use = HTTP_STREAM };
	struct rig *rig = arg;
	int fd;
	struct http_relay_options options = { .add_headers = added,
		.first_byte_timeout_ms = 300,
		.closed = on_closed,
		.arg = rig };

	if (str_is(http_path(x), "/direct")) {
		http_reply(x, 200, NULL, STR("direct"));
		return;
	}
	if (http_admit(x, &claim, NULL) < 0) {
		http_reply(x, 429, NULL, STR_NONE);
		return;
	}
	if (str_is(http_path(x), "/patient"))
		options.first_byte_timeout_ms = 0;
	if (str_is(http_path(x), "/websocket"))
		options.upgrade = "websocket";
	if (str_is(http_path(x), "/carried") || str_is(http_path(x), "/cut")) {
		options.carriage = XNEW(struct http_carriage);
		options.carriage->cut = str_is(http_path(x), "/cut");
	}
	if (str_is(http_path(x), "/fields")) {
		options.request_field = pass_request;
		options.reply_field = pass_reply;
		options.reply_lines = more_reply;
	}
	options.tunnel = str_is(http_path(x), "/tunnel");
	fd = rig->upstream_fd > 0 ? rig->upstream_fd : start_dial(rig->upstream_port);
	(void)http_relay(x, fd, &options, on_refused);
}

/* The two ends of one relayed connection, and what they said last. */
struct ends {
	struct rig rig;
	int listener, client, upstream;
	char got[8192];
};

static void ends_done(struct ends *t)
{
	close_fdp(&t->client);
	close_fdp(&t->upstream);
	close_fdp(&t->listener);
	rig_stop(&t->rig);
}

static bool ends_start(struct ends *t, const struct http_limits *limits)
{
	t->client = t->upstream = -EBADF;
	t->listener = http_listen("127.0.0.1:0", NULL);
	(void)fd_set_nonblock(t->listener, false);
	t->rig.upstream_port = socket_port(t->listener);
	if (!rig_start(&t->rig, limits, handle))
		return false;
	t->client = dial(t->rig.port);
	return t->client >= 0;
}

/* Sends from the client and takes the relay's connection; NULL if the head did not arrive. */
static const char *pass(struct ends *t, const char *request)
{
	if (!say(t->client, request))
		return NULL;
	t->upstream = accept(t->listener, NULL, NULL);
	if (t->upstream < 0)
		return NULL;
	set_wait(t->upstream);
	return hear(t->upstream, t->got, sizeof t->got, "\r\n\r\n");
}

static const char *client_hears(struct ends *t, const char *until)
{
	return hear(t->client, t->got, sizeof t->got, until);
}

#define ENDS_WITH(limits)                         \
	CLEANUP(ends_done) struct ends t = { 0 }; \
	ASSERT(ends_start(&t, limits))
#define ENDS ENDS_WITH(NULL)
