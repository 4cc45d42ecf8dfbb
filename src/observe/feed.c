/* The feed: what is new in the event log, to many readers at once.
 *
 * After a transaction that appended events one query reads what is new, for everybody. The newest
 * events stay in a ring, each rendered once; a reader that is up to date, or not far behind, is fed
 * from there, with one write for all that is new to it. A reader whose place has left the ring
 * reads pages of the store for itself, one at a time and only while it takes them. A reader that
 * takes nothing is let fall behind: at MOST_QUEUED it gets no more, and when it has drained it
 * hears which numbers it missed live (`gap`) and is given them, like everybody who is behind. So
 * nothing is lost, nothing comes twice, and no reader holds more of our memory than that; nor do
 * thousands of them hold more than ALL_QUEUED together: each then has its share. */
#include "observe/observe-internal.h"

enum {
	MOST_QUEUED = 1 << 20,
	ALL_QUEUED = 256 << 20,
	MOST_READERS = 8192, /* half of the connections that a server takes: others get some too */
	RING = 4096,         /* events */
	RING_BYTES = 4 << 20,
	SEND_BYTES = 128 << 10, /* one write */
	PAGE = 256,             /* events that one who is behind reads at once ... */
	LEAST_PAGE = 16,        /* ... among many */
	USUAL_BYTES = 1 << 10,  /* of an event, at most */
	PACE_MS = 10,           /* between two queries: under load many events share a write */
	IDLE_PACE_MS = 250,     /* nobody reads, but for metrics */
	SHARE_MS = 200,         /* until those that have their share waiting are looked at again */
	RETRY_MS = 1000,        /* the store failed */
	BEAT_S = 15, /* a heartbeat for everybody in that many seconds: one slot a second */
};

struct event { /* its texts and its rendering in one piece */
	struct observe_item item;
	struct str sse;
};

struct observe_feed {
	struct loop *loop;
	struct store *store;
	struct observe_metrics *metrics;
	struct event *ring[RING]; /* ring[i % RING], first <= i < next */
	size_t first, next, ring_bytes;
	int64_t head;      /* the newest number that was read */
	struct trim *trim; /* knows what has been forgotten */
	struct list readers;
	struct list wheel[BEAT_S];
	size_t beat, joined, n_readers;
	struct loop_timer beat_timer, pace_timer, share_timer;
	int64_t read_ms; /* when the last query was begun */
	int64_t reads;   /* how many were */
	bool is_reading, is_dirty, is_closed;
	bool is_gone;   /* freed while it read */
	struct buf out; /* of the write that is being made */
	loop_fn on_new; /* may be NULL */
	void *on_new_arg;
};

struct observe_reader {
	struct observe_feed *feed; /* NULL: it was freed while its page was read */
	struct list node, beat_node;
	struct loop_task task; /* the first look */
	struct observe_reader_config config;
	char *texts;   /* of the filter */
	int64_t at;    /* all up to this one were sent, or do not match */
	int64_t asked; /* the feed's head when the page was asked for */
	int64_t came;  /* the feed's reads so far, when it came with a number that was not there;
			* 0: it is there, or has been */
	bool is_full;  /* it said so, and has not drained yet */
	bool is_off;   /* it takes nothing: it gets no more until it has drained */
	bool is_reading;
};

/* ---- the ring ---- */

static size_t add_text(char *to, size_t at, struct str text, struct str *ret)
{
	memcpy(to + at, text.p ? text.p : "", text.n);
	*ret = (struct str){ to + at, text.n };
	return at + text.n;
}

/* A line break may stand between the parts of an event's data, and would end the line here. */
static void render(const struct observe_item *item, struct buf *out)
{
	struct jsonw w;
	size_t from;

	(void)buf_printf(out, "id: %" PRId64 "\ndata: ", item->seq);
	from = out->n;
	jsonw_init(&w, out);
	observe_item_write(&w, item);
	for (size_t i = from; i < out->n; i++)
		if (out->p[i] == '\n' || out->p[i] == '\r')
			out->p[i] = ' ';
	(void)buf_adds(out, "\n\n");
}

static size_t texts_size(const struct observe_item *i)
{
	return i->actor.n + i->kind.n + i->subject.n + i->team_id.n + i->agent_id.n + i->task_id.n;
}

/* Of the texts only those that filters look at are kept beside the rendering. */
static struct event *event_new(const struct observe_item *item, struct buf *scratch)
{
	struct event *event;
	size_t at = 0;
	char *texts;

	buf_clear(scratch);
	render(item, scratch);
	event = xcalloc(1, sizeof *event + texts_size(item) + scratch->n);
	texts = (char *)(event + 1);
	event->item.seq = item->seq;
	event->item.at_us = item->at_us;
	at = add_text(texts, at, item->actor, &event->item.actor);
	at = add_text(texts, at, item->kind, &event->item.kind);
	at = add_text(texts, at, item->subject, &event->item.subject);
	at = add_text(texts, at, item->team_id, &event->item.team_id);
	at = add_text(texts, at, item->agent_id, &event->item.agent_id);
	at = add_text(texts, at, item->task_id, &event->item.task_id);
	(void)add_text(texts, at, buf_str(scratch), &event->sse);
	return event;
}

static void ring_drop(struct observe_feed *feed)
{
	struct event **oldest = &feed->ring[feed->first++ % RING];

	feed->ring_bytes -= (*oldest)->sse.n;
	free(*oldest);
	*oldest = NULL;
}

static void ring_add(struct observe_feed *feed, const struct observe_item *item)
{
	struct event *event = event_new(item, &feed->out);

	if (feed->next - feed->first == RING)
		ring_drop(feed);
	feed->ring[feed->next++ % RING] = event;
	feed->ring_bytes += event->sse.n;
	while (feed->ring_bytes > RING_BYTES && feed->next - feed->first > 1)
		ring_drop(feed);
}

static const struct event *ring_at(const struct observe_feed *feed, size_t i)
{
	return feed->ring[i % RING];
}

/* Where the first one behind `seq` is. */
static size_t ring_find(const struct observe_feed *feed, int64_t seq)
{
	size_t low = feed->first, high = feed->next;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ring_at(feed, middle)->item.seq <= seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Numbers have no holes where they are made, so one before the oldest is enough to know that
 * nothing lies in between. */
static bool ring_covers(const struct observe_feed *feed, int64_t seq)
{
	return seq >= feed->head ||
	       (feed->first < feed->next && ring_at(feed, feed->first)->item.seq <= seq + 1);
}

/* ---- one reader ---- */

static size_t share(const struct observe_feed *feed)
{
	return MIN((size_t)MOST_QUEUED, ALL_QUEUED / MAX(feed->n_readers, (size_t)1));
}

/* Who has its share waiting need not be full, and then nobody says when it has drained. */
static bool may_send(struct observe_reader *r)
{
	const struct observe_reader_config *c = &r->config;
	struct observe_feed *feed = r->feed;
	size_t queued = c->queued(c->arg);

	if (r->is_full && !r->is_off && queued > MOST_QUEUED) {
		r->is_off = true;
		observe_count(feed->metrics, OBSERVE_FEED_GAPS, STR(""), 1);
	}
	if (r->is_off || queued <= share(feed))
		return !r->is_off;
	if (!loop_timer_is_set(&feed->share_timer))
		loop_timer_set(&feed->share_timer, loop_now_ms(feed->loop) + SHARE_MS);
	return false;
}

static void send_text(struct observe_reader *r, struct str text)
{
	if (text.n && !r->config.send(r->config.arg, text))
		r->is_full = true;
}

static void page_for_reader(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e);

static void read_for(struct observe_reader *r)
{
	struct observe_query query = { .filter = r->config.filter,
		.after = r->at,
		.limit = (int64_t)MAX(MIN(share(r->feed) / USUAL_BYTES, (size_t)PAGE),
			(size_t)LEAST_PAGE) };

	r->is_reading = true;
	r->asked = r->feed->head;
	observe_read(r->feed->store, &query, page_for_reader, r);
}

/* As much of the ring as fits one write. */
static void send_from_ring(struct observe_reader *r)
{
	struct observe_feed *feed = r->feed;
	size_t i = ring_find(feed, r->at), most = MIN((size_t)SEND_BYTES, share(feed));

	buf_clear(&feed->out);
	for (; i < feed->next && feed->out.n < most; i++) {
		const struct event *event = ring_at(feed, i);

		r->at = event->item.seq;
		if (observe_matches(&r->config.filter, &event->item))
			(void)buf_add_str(&feed->out, event->sse);
	}
	if (i == feed->next)
		r->at = MAX(r->at, feed->head);
	send_text(r, buf_str(&feed->out));
}

/* Its number becomes another than it came with. It is given that, as an id: with the old one it
 * would be told the same at its next coming, past what it missed meanwhile. */
static void tell(struct observe_reader *r, const char *what, int64_t from)
{
	char text[160];
	int n = snprintf(text, sizeof text,
		"id: %" PRId64 "\nevent: %s\ndata: {\"from\":%" PRId64 ",\"to\":%" PRId64 "}\n\n",
		r->at, what, from, r->at);

	send_text(r, str_make(text, (size_t)n));
}

static void tell_gap(struct observe_reader *r)
{
	char text[128];
	int n = snprintf(text, sizeof text,
		"event: gap\ndata: {\"from\":%" PRId64 ",\"to\":%" PRId64 "}\n\n", r->at + 1,
		r->feed->head);

	send_text(r, str_make(text, (size_t)n));
}

static int64_t oldest_for(const struct observe_reader *r)
{
	return trim_oldest(r->feed->trim, r->config.filter.team_id);
}

/* What it has not seen, and nobody will any more; who asks for all from the first one on means the
 * first there is. */
static void skip_forgotten(struct observe_reader *r)
{
	int64_t from = r->at;

	r->at = oldest_for(r) - 1;
	if (from)
		tell(r, "forgotten", from + 1);
}

/* Brings it as far as it lets us. Who is behind the ring waits until its queue is empty, so that
 * what is read from the store for it never piles up. */
static void pump(struct observe_reader *r)
{
	while (!r->is_reading && r->at < r->feed->head && may_send(r)) {
		if (r->at + 1 < oldest_for(r) && !r->is_full)
			skip_forgotten(r);
		if (ring_covers(r->feed, r->at)) {
			send_from_ring(r);
		} else {
			if (!r->is_full)
				read_for(r);
			return;
		}
	}
}

static struct observe_reader *reader_free(struct observe_reader *r)
{
	free(r->texts);
	free(r);
	return NULL;
}

static void page_for_reader(void *arg, int code, const struct observe_item *v, size_t n, bool more,
	const struct err *e)
{
	struct observe_reader *r = arg;
	struct buf *out;

	if (!r->feed) {
		(void)reader_free(r);
		return;
	}
	r->is_reading = false;
	if (code < 0) { /* the next event, or the next heartbeat, tries again */
		log_debug("feed.page_failed", "err=%s", log_quote(str_of(e->msg)));
		return;
	}
	out = &r->feed->out;
	buf_clear(out);
	for (size_t i = 0; i < n; i++)
		render(&v[i], out);
	if (n)
		r->at = v[n - 1].seq;
	if (!more) /* whatever was there when we asked has been looked at */
		r->at = MAX(r->at, r->asked);
	send_text(r, buf_str(out));
	pump(r);
}

/* A number that is not there yet: the log was put back to an earlier state since. */
static void reset(struct observe_reader *r)
{
	int64_t from = r->at;

	r->at = r->feed->head;
	tell(r, "reset", from);
}

/* Only by a query that was begun after it came. One that reads the store for itself may be ahead of
 * the feed too. */
static void judge(struct observe_reader *r)
{
	if (!r->came || r->feed->reads <= r->came)
		return;
	r->came = 0;
	if (r->at > r->feed->head)
		reset(r);
}

static void feed_look(struct observe_feed *feed);

static void first_look(void *arg)
{
	struct observe_reader *r = arg;

	if (r->at > r->feed->head) { /* or the feed is a moment behind: the next query tells */
		r->came = r->feed->reads;
		r->feed->is_dirty = true;
		feed_look(r->feed);
	}
	pump(r);
}

static struct str copy_text(char **to, struct str text)
{
	char *start = *to;

	memcpy(start, text.p ? text.p : "", text.n);
	*to += text.n;
	return (struct str){ start, text.n };
}

static void keep_filter(struct observe_reader *r, const struct observe_filter *f)
{
	size_t size = f->team_id.n + f->agent_id.n + f->task_id.n + f->subject.n + f->actor.n + 1;
	struct observe_filter *to = &r->config.filter;
	char *at;

	for (size_t i = 0; i < f->n_kinds; i++)
		size += f->kinds[i].n;
	r->texts = at = xcalloc(1, size);
	to->team_id = copy_text(&at, f->team_id);
	to->agent_id = copy_text(&at, f->agent_id);
	to->task_id = copy_text(&at, f->task_id);
	to->subject = copy_text(&at, f->subject);
	to->actor = copy_text(&at, f->actor);
	for (size_t i = 0; i < f->n_kinds; i++)
		to->kinds[i] = copy_text(&at, f->kinds[i]);
}

struct observe_reader *observe_reader_new(struct observe_feed *feed,
	const struct observe_reader_config *config)
{
	struct observe_reader *r;

	if (feed->is_closed || feed->n_readers == MOST_READERS)
		return NULL;
	r = XNEW(struct observe_reader);
	r->feed = feed;
	r->config = *config;
	keep_filter(r, &config->filter);
	r->at = config->after < 0 ? feed->head : config->after;
	list_append(&feed->readers, &r->node);
	list_append(&feed->wheel[feed->joined++ % BEAT_S], &r->beat_node);
	feed->n_readers++;
	if (!loop_timer_is_set(&feed->beat_timer))
		loop_timer_set(&feed->beat_timer, loop_now_ms(feed->loop) + 1000);
	loop_defer(feed->loop, &r->task, first_look, r);
	return r;
}

void observe_reader_drained(struct observe_reader *r)
{
	r->is_full = false;
	if (r->is_off) {
		r->is_off = false;
		if (r->at < r->feed->head)
			tell_gap(r);
	}
	pump(r);
}

struct observe_reader *observe_reader_free(struct observe_reader *r)
{
	if (!r)
		return NULL;
	loop_task_cancel(&r->task);
	list_remove(&r->node);
	list_remove(&r->beat_node);
	r->feed->n_readers--;
	r->feed = NULL;
	return r->is_reading ? NULL : reader_free(r);
}

/* ---- the feed ---- */

static void fed(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e);

static void read_new(struct observe_feed *feed)
{
	struct observe_query query = { .after = feed->head, .limit = OBSERVE_MAX_PAGE };

	feed->is_reading = true;
	feed->is_dirty = false;
	feed->read_ms = loop_now_ms(feed->loop);
	feed->reads++;
	observe_read(feed->store, &query, fed, feed);
}

/* Now, or when the last look is long enough ago. */
static void feed_look(struct observe_feed *feed)
{
	int64_t due = feed->read_ms + (feed->n_readers ? PACE_MS : IDLE_PACE_MS);

	if (feed->is_reading || !feed->is_dirty)
		return;
	if (due <= loop_now_ms(feed->loop))
		read_new(feed);
	else
		loop_timer_set(&feed->pace_timer, due);
}

static void on_pace(void *arg)
{
	feed_look(arg);
}

static void on_share(void *arg)
{
	struct observe_feed *feed = arg;

	LIST_EACH(&feed->readers, node)
	pump(container_of(node, struct observe_reader, node));
}

static void on_events(void *arg)
{
	struct observe_feed *feed = arg;

	feed->is_dirty = true;
	feed_look(feed);
}

static void feed_destroy(struct observe_feed *feed)
{
	while (feed->first < feed->next)
		ring_drop(feed);
	buf_done(&feed->out);
	free(feed);
}

static void fed(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e)
{
	struct observe_feed *feed = arg;

	feed->is_reading = false;
	if (feed->is_gone) {
		feed_destroy(feed);
		return;
	}
	if (r < 0) {
		log_warn("feed.read_failed", "err=%s", log_quote(str_of(e->msg)));
		feed->is_dirty = true;
		loop_timer_set(&feed->pace_timer, loop_now_ms(feed->loop) + RETRY_MS);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		metrics_note(feed->metrics, &v[i]);
		ring_add(feed, &v[i]);
		feed->head = v[i].seq;
	}
	LIST_EACH(&feed->readers, node)
	{
		struct observe_reader *reader = container_of(node, struct observe_reader, node);

		if (!more)
			judge(reader);
		pump(reader);
	}
	if (n && feed->on_new)
		feed->on_new(feed->on_new_arg);
	if (more)
		read_new(feed);
	else
		feed_look(feed);
}

static void on_beat(void *arg)
{
	struct observe_feed *feed = arg;

	feed->beat = (feed->beat + 1) % BEAT_S;
	LIST_EACH(&feed->wheel[feed->beat], node)
	{
		struct observe_reader *r = container_of(node, struct observe_reader, beat_node);

		if (!r->is_full)
			send_text(r, STR(": hb\n\n"));
		pump(r); /* where a page could not be read */
	}
	if (feed->n_readers)
		loop_timer_set(&feed->beat_timer, loop_now_ms(feed->loop) + 1000);
}

int observe_feed_new(struct loop *loop, struct store *store, struct observe_metrics *metrics,
	struct observe_feed **ret, struct err *e)
{
	int64_t head = 0;
	int r = read_number(store, "SELECT COALESCE(MAX(seq), 0) FROM events", &head, e);
	struct observe_feed *feed;
	struct trim *trim = NULL;

	if (r >= 0)
		r = trim_new(loop, store, &trim, e);
	if (r < 0)
		return err_wrap(e, r, "read the end of the event log");
	feed = XNEW(struct observe_feed);
	feed->loop = loop;
	feed->store = store;
	feed->metrics = metrics;
	feed->head = head;
	feed->trim = trim;
	feed->reads = 1; /* this one */
	feed->out = BUF_INIT(64 << 20);
	list_init(&feed->readers);
	for (size_t i = 0; i < BEAT_S; i++)
		list_init(&feed->wheel[i]);
	loop_timer_init(&feed->beat_timer, loop, on_beat, feed);
	loop_timer_init(&feed->pace_timer, loop, on_pace, feed);
	loop_timer_init(&feed->share_timer, loop, on_share, feed);
	store_on_events(store, on_events, feed);
	*ret = feed;
	return 0;
}

void observe_feed_forget(struct observe_feed *feed, int64_t keep_s, const struct limit_teams *teams)
{
	trim_start(feed->trim, keep_s, teams);
}

void observe_feed_close(struct observe_feed *feed)
{
	feed->is_closed = true;
	LIST_EACH(&feed->readers, node)
	{
		struct observe_reader *r = container_of(node, struct observe_reader, node);
		void (*closed)(void *) = r->config.closed;
		void *arg = r->config.arg;

		(void)observe_reader_free(r);
		closed(arg);
	}
}

struct observe_feed *observe_feed_free(struct observe_feed *feed)
{
	if (!feed)
		return NULL;
	assert(list_empty(&feed->readers));
	store_on_events(feed->store, NULL, NULL);
	loop_timer_cancel(&feed->beat_timer);
	loop_timer_cancel(&feed->pace_timer);
	loop_timer_cancel(&feed->share_timer);
	feed->trim = trim_free(feed->trim);
	feed->is_gone = true;
	if (!feed->is_reading)
		feed_destroy(feed);
	return NULL;
}

int64_t observe_feed_head(const struct observe_feed *feed)
{
	return feed->head;
}

void observe_feed_state(const struct observe_feed *feed, struct observe_feed_state *ret)
{
	*ret = (struct observe_feed_state){ .readers = feed->n_readers, .head = feed->head };
	for (struct list *node = feed->readers.next; node != &feed->readers; node = node->next)
		ret->behind += container_of(node, struct observe_reader, node)->at < feed->head;
}

void observe_feed_on_new(struct observe_feed *feed, loop_fn fn, void *arg)
{
	feed->on_new = fn;
	feed->on_new_arg = arg;
}
