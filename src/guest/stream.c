#include "guest/stream.h"

#include "connect/connect.h"
#include "guest/schema.h"
#include "json/json.h"

enum {
	STREAM_SMALL_FRAME = 1024 /* everything but data */
};

/* A stream that wants older events holds the backlog until it has sent them: it is then either
 * blocked, so that the process is not read, or has caught up within the same call. So what it sends
 * from the backlog and what it gets live never overlap and leave nothing out. When the process ends
 * before that, the stream moves to the table's replays and finishes by itself. */
struct stream {
	struct list node; /* in process->streams, or in table->replays */
	struct process_table *table;
	struct process *process; /* NULL: it has ended as `ending` says */
	struct ending ending;
	struct feed *feed;
	bool is_proto;   /* its client speaks binary protobuf */
	bool is_blocked; /* its client does not keep up */

	struct backlog *backlog; /* NULL: caught up */
	struct backlog_chunk *at;
	uint64_t next_seq;
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

/* The first and the last of the wanted events that are no more, if there are any. */
struct gap {
	uint64_t from, to; /* from 0: none */
};

static void add_start(struct buf *out, pid_t pid, const struct gap *gap)
{
	struct jsonw w;
	size_t mark;

	event_begin(&w, out, &mark);
	jsonw_object(&w, "start");
	jsonw_int(&w, "pid", pid);
	if (gap->from) {
		jsonw_object(&w, "replayGap");
		jsonw_int(&w, "from", (int64_t)gap->from);
		jsonw_int(&w, "to", (int64_t)gap->to);
		jsonw_end_object(&w);
	}
	jsonw_end_object(&w);
	event_end(&w, mark);
}

/* `seq` is ours: clients that do not know it pass over it. */
static void add_data(struct buf *out, const struct backlog_event *event)
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
	jsonw_base64(&w, names[event->kind], event->bytes);
	jsonw_int(&w, "seq", (int64_t)event->seq);
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
	if (ending->tells_more && ending->signo)
		jsonw_int(&w, "signal", ending->signo);
	if (ending->tells_more && ending->fault)
		jsonw_strz(&w, "fault", ending->fault);
	jsonw_end_object(&w);
	event_end(&w, mark);
	connect_end_ok(out);
}

/* ---- the life of a stream ---- */

static void block(struct stream *s)
{
	if (s->is_blocked)
		return;
	s->is_blocked = true;
	if (s->process && s->process->n_blocked++ == 0)
		process_pause_output(s->process);
}

static void unblock(struct stream *s)
{
	if (!s->is_blocked)
		return;
	s->is_blocked = false;
	if (s->process && --s->process->n_blocked == 0)
		process_resume_output(s->process);
}

static void drop_backlog(struct stream *s)
{
	if (s->backlog)
		backlog_release(s->backlog);
	s->backlog = backlog_unref(s->backlog);
	s->at = NULL;
}

static void stream_free(struct stream *s)
{
	unblock(s);
	drop_backlog(s);
	list_remove(&s->node);
	free(s);
}

static void stream_finish(struct stream *s, const struct ending *ending)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(STREAM_SMALL_FRAME);

	add_end(&out, ending);
	feed_finish(s->feed, buf_str(&out));
	stream_free(s);
}

static void stream_send(struct stream *s, struct str frames)
{
	if (!feed_send(s->feed, frames))
		block(s);
}

/* The frame is made once for all streams that speak the same; `made` is what it holds now. */
enum made {
	MADE_NOTHING,
	MADE_JSON,
	MADE_PROTO,
};

static void stream_send_data(struct stream *s, const struct backlog_event *event, enum made *made)
{
	enum made want = s->is_proto ? MADE_PROTO : MADE_JSON;
	struct buf *frame = &s->table->frame;

	if (*made != want) {
		buf_clear(frame);
		if (s->is_proto)
			schema_add_output(frame, event);
		else
			add_data(frame, event);
		*made = want;
	}
	if (!feed_send_as_is(s->feed, buf_str(frame)))
		block(s);
}

/* Sends what is kept, as long as the client takes it; may free the stream. */
static void catch_up(struct stream *s)
{
	struct backlog_event event;

	while (s->backlog && !s->is_blocked) {
		enum made made = MADE_NOTHING;

		if (!backlog_read(s->backlog, s->next_seq, &s->at, &event)) {
			drop_backlog(s);
			break;
		}
		s->next_seq = event.seq + 1;
		stream_send_data(s, &event, &made);
	}
	if (!s->backlog && !s->process)
		stream_finish(s, &s->ending);
}

static void on_drained(void *arg)
{
	struct stream *s = arg;

	unblock(s);
	catch_up(s);
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

static struct stream *stream_new(struct process_table *t, struct http_exchange *take_x,
	const struct feed_options *o)
{
	struct stream *s = XNEW(struct stream);

	s->table = t;
	s->is_proto = o->proto;
	s->feed = feed_open(take_x, o, &feed_ops, s);
	return s;
}

/* The start event, and all that is behind it. */
static void stream_begin(struct stream *s, pid_t pid, struct backlog *b, uint64_t from_seq)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(STREAM_SMALL_FRAME);
	struct gap gap = { 0 };

	if (from_seq > 0) {
		if (from_seq < backlog_first(b))
			gap = (struct gap){ from_seq, backlog_first(b) - 1 };
		s->backlog = backlog_ref(b);
		backlog_hold(b);
		s->next_seq = from_seq;
	}
	add_start(&out, pid, &gap);
	stream_send(s, buf_str(&out));
	catch_up(s);
}

void stream_open(struct process *p, struct http_exchange *take_x, const struct feed_options *o,
	uint64_t from_seq)
{
	struct stream *s = stream_new(p->table, take_x, o);

	s->process = p;
	list_append(&p->streams, &s->node);
	stream_begin(s, p->pid, p->backlog, from_seq);
	process_followed(p);
}

void stream_replay(struct process_table *t, const struct process_ended *ended,
	struct http_exchange *take_x, const struct feed_options *o, uint64_t from_seq)
{
	struct stream *s = stream_new(t, take_x, o);

	process_describe_end(t,
		&(struct process_fate){ ended->wait_status, ended->is_oom, ended->is_held,
			ended->is_timed_out },
		&s->ending);
	list_append(&t->replays, &s->node);
	stream_begin(s, ended->pid, ended->backlog, from_seq);
}

/* ---- from the process ---- */

void streams_output(struct process *p, const struct backlog_event *event)
{
	enum made made = MADE_NOTHING;

	LIST_EACH(&p->streams, node)
	stream_send_data(container_of(node, struct stream, node), event, &made);
}

void streams_end(struct process *p, const struct ending *ending)
{
	LIST_EACH(&p->streams, node)
	{
		struct stream *s = container_of(node, struct stream, node);

		if (!s->backlog) {
			stream_finish(s, ending);
			continue;
		}
		s->process = NULL;
		s->ending = *ending;
		if (ending->error) /* it points into the caller's */
			s->ending.error = s->ending.cause[0] ? s->ending.cause : s->ending.status;
		list_remove(&s->node);
		list_append(&s->table->replays, &s->node);
	}
}

void streams_cut(struct list *streams)
{
	LIST_EACH(streams, node)
	{
		struct stream *s = container_of(node, struct stream, node);

		feed_cut(s->feed);
		stream_free(s);
	}
}
