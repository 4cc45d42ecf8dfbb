#include "guest/stream.h"

#include "connect/connect.h"
#include "json/json.h"

enum {
	STREAM_SMALL_FRAME = 1024 /* everything but data */
};

struct stream {
	struct list node; /* in process->streams */
	struct process *process;
	struct feed *feed;
	bool is_blocked; /* its client does not keep up */
};

/* ---- events ---- */

static void event_begin(struct jsonw *w, struct buf *out, size_t *mark)
{
	*mark = connect_frame_begin(out);
	jsonw_init(w, out);
	jsonw_object(w, NULL);
	jsonw_object(w, "event");
}

static void event_end(struct jsonw *w, size_t mark)
{
	jsonw_end_object(w);
	jsonw_end_object(w);
	connect_frame_end(w->out, mark, 0);
}

static void add_start(struct buf *out, pid_t pid)
{
	struct jsonw w;
	size_t mark;

	event_begin(&w, out, &mark);
	jsonw_object(&w, "start");
	jsonw_int(&w, "pid", pid);
	jsonw_end_object(&w);
	event_end(&w, mark);
}

static void add_data(struct buf *out, enum output_kind kind, struct str bytes)
{
	static const char *const names[] = {
		[OUTPUT_STDOUT] = "stdout",
		[OUTPUT_STDERR] = "stderr",
		[OUTPUT_PTY] = "pty",
	};
	struct jsonw w;
	size_t mark;

	event_begin(&w, out, &mark);
	jsonw_object(&w, "data");
	jsonw_base64(&w, names[kind], bytes);
	jsonw_end_object(&w);
	event_end(&w, mark);
}

/* The end event and the end of the stream, so that both leave in one piece. */
static void add_end(struct buf *out, const struct ending *ending)
{
	struct jsonw w;
	size_t mark;

	event_begin(&w, out, &mark);
	jsonw_object(&w, "end");
	jsonw_int(&w, "exitCode", ending->exit_code);
	jsonw_bool(&w, "exited", ending->exited);
	jsonw_strz(&w, "status", ending->status);
	if (ending->error)
		jsonw_strz(&w, "error", ending->error);
	jsonw_end_object(&w);
	event_end(&w, mark);
	connect_end_ok(out);
}

/* ---- the life of a stream ---- */

static void unblock(struct stream *s)
{
	if (!s->is_blocked)
		return;
	s->is_blocked = false;
	if (--s->process->n_blocked == 0)
		process_resume_output(s->process);
}

static void stream_free(struct stream *s)
{
	unblock(s);
	list_remove(&s->node);
	free(s);
}

static void on_drained(void *arg)
{
	unblock(arg);
}

static void on_closed(void *arg)
{
	stream_free(arg);
}

static const struct feed_ops feed_ops = {
	.keepalive = "{\"event\":{\"keepalive\":{}}}",
	.drained = on_drained,
	.closed = on_closed,
};

static void stream_send(struct stream *s, struct str frames)
{
	if (feed_send(s->feed, frames) || s->is_blocked)
		return;
	s->is_blocked = true;
	s->process->n_blocked++;
}

void stream_open(struct process *p, struct http_exchange *take_x, const struct feed_options *o)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(STREAM_SMALL_FRAME);
	struct stream *s = XNEW(struct stream);

	s->process = p;
	s->feed = feed_open(take_x, o, &feed_ops, s);
	list_append(&p->streams, &s->node);
	add_start(&out, p->pid);
	stream_send(s, buf_str(&out));
}

void stream_replay(const struct process_ended *ended, struct http_exchange *take_x)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT((size_t)2 * STREAM_SMALL_FRAME);
	struct ending ending;

	ending_from_status(ended->wait_status, &ending);
	add_start(&out, ended->pid);
	add_end(&out, &ending);
	http_reply(take_x, 200, "application/connect+json", buf_str(&out));
}

/* ---- from the process ---- */

void streams_output(struct process *p, enum output_kind kind, struct str bytes)
{
	struct buf *frame = &p->table->frame;

	if (list_empty(&p->streams))
		return;
	buf_clear(frame);
	add_data(frame, kind, bytes);
	LIST_EACH(&p->streams, node)
	stream_send(container_of(node, struct stream, node), buf_str(frame));
}

void streams_end(struct process *p, const struct ending *ending)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(STREAM_SMALL_FRAME);

	add_end(&out, ending);
	LIST_EACH(&p->streams, node)
	{
		struct stream *s = container_of(node, struct stream, node);

		feed_finish(s->feed, buf_str(&out));
		stream_free(s);
	}
}

void streams_cut(struct process *p)
{
	LIST_EACH(&p->streams, node)
	{
		struct stream *s = container_of(node, struct stream, node);

		feed_cut(s->feed);
		stream_free(s);
	}
}
