#include "guest/feed.h"

enum {
	SMALL_FRAME_BYTES = 1024
};

struct feed {
	struct http_exchange *x; /* NULL: over, about to be freed */
	const struct proto_message *proto;
	struct loop *loop;
	const struct feed_ops *ops;
	void *arg;
	int64_t keepalive_ms, last_ms;
	bool is_blocked;
	bool is_broken; /* something could not be sent: to be cut */
	struct loop_timer keepalive, deadline;
	struct loop_task free_task;
};

static void feed_free(void *arg)
{
	free(arg);
}

/* At the end of the turn it is freed: whoever is sending right now may still hold it. */
static struct http_exchange *feed_close(struct feed *f)
{
	struct http_exchange *x = TAKE(f->x);

	loop_timer_cancel(&f->keepalive);
	loop_timer_cancel(&f->deadline);
	loop_defer(f->loop, &f->free_task, feed_free, f);
	return x;
}

/* ---- frames ---- */

struct translation {
	const struct proto_message *message;
	struct buf *out;
};

/* The end of a stream is JSON whatever the client speaks. */
static int add_translated(void *arg, unsigned flags, struct str payload, struct err *e)
{
	struct translation *t = arg;
	size_t mark = connect_frame_begin(t->out);
	int r = 0;

	if (flags & CONNECT_FLAG_END)
		(void)buf_add_str(t->out, payload);
	else
		r = proto_from_json(t->message, payload, t->out, e);
	connect_frame_end(t->out, mark, flags);
	return r;
}

/* To what the client speaks; uncopied when that is JSON. False when memory is out. */
static bool translate(const struct feed *f, struct str *frames, struct buf *out)
{
	CLEANUP(connect_reader_done) struct connect_reader reader = { 0 };
	struct translation t = { f->proto, out };

	if (!f->proto)
		return true;
	*out = BUF_INIT(2 * frames->n); /* a short map is a little longer than its JSON */
	connect_reader_init(&reader, frames->n);
	if (connect_reader_feed(&reader, *frames, add_translated, &t, NULL) < 0 || out->failed)
		return false;
	*frames = buf_str(out);
	return true;
}

void feed_finish(struct feed *f, struct str frames)
{
	CLEANUP(buf_done) struct buf out = { 0 };
	struct http_exchange *x = feed_close(f);

	if (!translate(f, &frames, &out)) {
		http_abort(x);
		return;
	}
	(void)http_write(x, frames);
	http_end(x);
}

void feed_cut(struct feed *f)
{
	http_abort(feed_close(f));
}

static void on_gone(void *arg)
{
	struct feed *f = arg;

	if (!f->x)
		return;
	feed_cut(f);
	f->ops->closed(f->arg);
}

static void on_drain(void *arg)
{
	struct feed *f = arg;

	if (!f->x || !f->is_blocked || f->is_broken)
		return;
	f->is_blocked = false;
	f->ops->drained(f->arg);
}

static void on_deadline(void *arg)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(SMALL_FRAME_BYTES);
	struct feed *f = arg;

	if (f->is_broken) {
		feed_cut(f);
	} else {
		connect_end_error(&out, CONNECT_DEADLINE_EXCEEDED, "context deadline exceeded");
		feed_finish(f, buf_str(&out));
	}
	f->ops->closed(f->arg);
}

static void send_keepalive(struct feed *f)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(SMALL_FRAME_BYTES);
	size_t mark = connect_frame_begin(&out);

	buf_adds(&out, f->ops->keepalive);
	connect_frame_end(&out, mark, 0);
	(void)feed_send(f, buf_str(&out));
}

/* Data does not move the timer: it looks back when it fires, so busy feeds pay nothing. */
static void on_keepalive(void *arg)
{
	struct feed *f = arg;
	int64_t now = loop_now_ms(f->loop);

	if (now - f->last_ms >= f->keepalive_ms && !f->is_blocked)
		send_keepalive(f);
	/* A client that reads nothing is asked no sooner again. */
	if (f->x)
		loop_timer_set(&f->keepalive, (f->is_blocked ? now : f->last_ms) + f->keepalive_ms);
}

bool feed_send_as_is(struct feed *f, struct str frames)
{
	f->last_ms = loop_now_ms(f->loop);
	if (f->is_broken || !http_write(f->x, frames))
		f->is_blocked = true;
	return !f->is_blocked;
}

bool feed_send(struct feed *f, struct str frames)
{
	CLEANUP(buf_done) struct buf out = { 0 };

	if (!translate(f, &frames, &out)) {
		/* A gap would go unnoticed. Its owner is in the middle of sending: told later. */
		f->is_broken = true;
		loop_timer_set(&f->deadline, loop_now_ms(f->loop));
	}
	return feed_send_as_is(f, frames);
}

struct feed *feed_open(struct http_exchange *take_x, const struct feed_options *o,
	const struct feed_ops *ops, void *arg)
{
	struct feed *f = XNEW(struct feed);
	struct loop *loop = http_loop(take_x);
	int64_t now = loop_now_ms(loop);

	*f = (struct feed){ .x = take_x,
		.proto = o->proto,
		.loop = loop,
		.ops = ops,
		.arg = arg,
		.keepalive_ms = o->keepalive_ms,
		.last_ms = now };
	loop_timer_init(&f->keepalive, loop, on_keepalive, f);
	loop_timer_init(&f->deadline, loop, on_deadline, f);
	loop_timer_set(&f->keepalive, now + f->keepalive_ms);
	if (o->deadline_ms > 0)
		loop_timer_set(&f->deadline, now + o->deadline_ms);
	http_begin(take_x, 200, o->proto ? FEED_PROTO : FEED_JSON, -1);
	http_on_drain(take_x, on_drain, f);
	http_on_gone(take_x, on_gone, f);
	return f;
}
