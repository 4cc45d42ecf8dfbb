/* What the servers of these tests do, by path. */
#pragma once

#include "test-rig.h"

#include <sys/mman.h>

#define HOST "Host: a\r\n"

static void echo_done(void *arg, int r, struct str body)
{
	struct http_exchange *x = arg;

	if (r == -E2BIG)
		http_reply(x, 413, NULL, STR("too big"));
	else if (r == -EPROTO)
		http_reply(x, 400, NULL, STR("bad body"));
	else if (r < 0)
		http_abort(x);
	else
		http_reply(x, 200, "text/plain", body);
}

static void count_piece(void *arg, int r, struct str bytes)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);
	char text[32];

	if (bytes.n > 0) {
		atomic_fetch_add(&rig->body_bytes, (long)bytes.n);
		return;
	}
	atomic_fetch_add(&rig->bodies, 1);
	(void)snprintf(text, sizeof text, "%ld", atomic_load(&rig->body_bytes));
	if (r < 0)
		http_abort(x);
	else
		http_reply(x, 200, NULL, str_of(text));
}

static void on_gone(void *arg)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);

	atomic_fetch_add(&rig->gone, 1);
	http_abort(x);
}

struct flood {
	struct http_exchange *x;
	int left;
};

static void flood_more(void *arg)
{
	static const char piece[65536];
	struct flood *flood = arg;
	struct rig *rig = http_data(flood->x);

	while (flood->left > 0) {
		flood->left--;
		atomic_fetch_add(&rig->body_bytes, sizeof piece);
		if (!http_write(flood->x, str_make(piece, sizeof piece)) && flood->left > 0)
			return;
	}
	http_end(flood->x);
}

static void flood(struct http_exchange *x)
{
	struct flood *flood = arena_alloc(http_arena(x), sizeof *flood);

	*flood = (struct flood){ x, 1024 };
	http_on_drain(x, flood_more, flood);
	http_begin(x, 200, NULL, -1);
	flood_more(flood);
}

/* Something of the handler's own in the arena that others may point to until they are told. */
struct kept {
	struct rig *rig;
};

static void kept_end(void *arg)
{
	struct kept *kept = arg;

	atomic_fetch_add(&kept->rig->closed, 1);
}

static void keep(struct http_exchange *x)
{
	static const char piece[16 << 20];
	struct kept *kept = arena_alloc(http_arena(x), sizeof *kept);

	kept->rig = http_data(x);
	http_on_end(x, kept_end, kept);
	http_reply(x, 200, NULL, str_make(piece, sizeof piece));
}

struct later {
	struct loop_timer timer;
	struct http_exchange *x;
};

static void reply_later(void *arg)
{
	struct later *later = arg;

	http_reply(later->x, 200, NULL, STR("later"));
}

static void wait_ms(struct http_exchange *x, int64_t ms)
{
	struct later *later = arena_alloc(http_arena(x), sizeof *later);

	later->x = x;
	loop_timer_init(&later->timer, http_loop(x), reply_later, later);
	loop_timer_set(&later->timer, loop_now_ms(http_loop(x)) + ms);
}

static void send_file(struct http_exchange *x)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	(void)!write(fd, "0123456789", 10);
	http_begin(x, 200, NULL, 4);
	http_take_file(x, fd, 3, 4);
}

static void switch_protocol(struct http_exchange *x)
{
	struct buf rest = BUF_INIT(1024);
	int fd = http_detach(x, &rest);

	(void)fd_set_nonblock(fd, false);
	(void)fd_write_all(fd, "raw:", 4);
	(void)fd_write_all(fd, rest.p, rest.n);
	(void)close(fd);
	buf_done(&rest);
}

static void describe(struct http_exchange *x)
{
	char *text = arena_printf(http_arena(x), "%.*s|%.*s|%.*s|%.*s|%.*s",
		STR_ARG(http_method(x)), STR_ARG(http_path(x)), STR_ARG(http_query(x)),
		STR_ARG(http_query_value(x, "a b")), STR_ARG(http_header(x, "x-y")));

	http_reply(x, 200, NULL, str_of(text));
}

static void count_end(void *arg)
{
	struct rig *rig = arg;

	atomic_fetch_add(&rig->closed, 1);
}

static void end_stream(void *arg)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);

	atomic_fetch_add(&rig->gone, 1);
	http_end(x);
}

/* What a revoked key would do to an exchange that has come this far. */
static void dismiss(struct http_exchange *x, struct str how)
{
	http_on_end(x, count_end, http_data(x));
	if (str_is(how, "answered"))
		http_reply(x, 200, NULL, STR("answer"));
	if (str_is(how, "stream") || str_is(how, "deaf-stream")) {
		http_begin(x, 200, NULL, -1);
		(void)http_write(x, STR("half"));
	}
	if (str_is(how, "stream"))
		http_on_gone(x, end_stream, x);
	http_dismiss(x);
	if (str_is(how, "waiting")) /* what nobody told goes on into nothing */
		http_reply(x, 200, NULL, STR("answer"));
	if (str_is(how, "deaf-stream"))
		http_end(x);
}

static void handle(void *arg, struct http_exchange *x)
{
	struct str path = http_path(x);

	http_set_data(x, arg);
	if (str_is(path, "/echo")) {
		http_read_body(x, 100000, echo_done, x);
	} else if (str_is(path, "/count")) {
		http_stream_body(x, count_piece, x);
	} else if (str_is(path, "/flood")) {
		flood(x);
	} else if (str_is(path, "/keep")) {
		keep(x);
	} else if (str_is(path, "/hold")) {
		http_on_gone(x, on_gone, x);
	} else if (str_is(path, "/hold-stream")) {
		http_on_gone(x, on_gone, x);
		http_sse_begin(x);
	} else if (str_is(path, "/dismiss")) {
		dismiss(x, http_query(x));
	} else if (str_is(path, "/wait")) {
		wait_ms(x, 50);
	} else if (str_is(path, "/file")) {
		send_file(x);
	} else if (str_is(path, "/detach")) {
		switch_protocol(x);
	} else if (str_is(path, "/describe")) {
		describe(x);
	} else if (str_is(path, "/empty")) {
		http_reply(x, 204, NULL, STR(""));
	} else if (str_is(path, "/peer")) {
		http_reply(x, 200, NULL, http_peer(x));
	} else if (str_is(path, "/headers")) {
		http_add_header(x, "X-Good", STR("1"));
		http_add_header(x, "X-Bad", STR("1\r\nEvil: 1"));
		http_add_header(x, "Content-Length", STR("7"));
		http_reply(x, 200, NULL, STR("ok"));
	} else if (str_is(path, "/chunks")) {
		http_begin(x, 200, "text/plain", -1);
		(void)http_write(x, STR("one"));
		(void)http_write(x, STR("two"));
		http_end(x);
	} else if (str_is(path, "/sse")) {
		http_sse_begin(x);
		(void)http_sse_send(x, "tick", "7", STR("a\nb\r"));
		http_end(x);
	} else if (str_is(path, "/break")) {
		http_begin(x, 200, NULL, -1);
		(void)http_write(x, STR("half"));
		http_abort(x);
	} else {
		http_reply(x, 200, "text/plain", STR("hi"));
	}
}

#define RIG_WITH(limits)                          \
	CLEANUP(rig_stop) struct rig rig = { 0 }; \
	ASSERT(rig_start(&rig, limits, handle))
#define RIG RIG_WITH(NULL)
#define DIAL cleanup_close int fd = dial(rig.port)
