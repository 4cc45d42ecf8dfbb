/* The feed with readers that take as much as a test lets them. */
#include "observe/observe.h"

#include "scratch.h"
#include "test.h"

enum {
	HIGH = 4096, /* a sink's mark: above it wants no more */
};

struct rig {
	struct scratch scratch;
	struct loop *loop; /* the scratch's, as the next */
	struct store *store;
	struct observe_metrics *metrics;
	struct observe_feed *feed;
	struct loop_timer timer;
	int64_t n_added;
};

struct sink {
	struct observe_reader *reader;
	struct buf got;
	size_t queued; /* what a slow one has not taken yet */
	bool is_slow, is_closed;
	int64_t id, last, n, gaps, resets, forgotten, beats, disorder;
	int64_t gap_from, gap_to;
};

struct addition {
	int64_t from, n;
	size_t data_bytes;
};

static const char *const kinds[] = { "sandbox.created", "sandbox.ended", "key.created" };
static const char *const teams[] = { "t1", "t2" };
static const char *const agents[] = { "", "a1", "a2" };

static int add_events(struct store_tx *tx, void *arg, struct err *e)
{
	const struct addition *a = arg;
	CLEANUP(buf_done) struct buf data = BUF_INIT(1 << 20);
	int r = 0;

	(void)buf_adds(&data, "{\"pad\":\"");
	for (size_t i = 0; i < a->data_bytes; i++)
		(void)buf_addc(&data, 'x');
	(void)buf_adds(&data, "\"}");
	for (int64_t i = a->from; r >= 0 && i < a->from + a->n; i++) {
		char subject[16];
		struct store_event event = { "system", kinds[i % 3], subject, buf_str(&data) };
		struct store_cause cause = { .at_us = i,
			.team_id = teams[i % 2],
			.agent_id = agents[i % 3],
			.task_id = i % 5 ? "" : "task" };

		(void)snprintf(subject, sizeof subject, "s%" PRId64, i % 7);
		r = store_add_caused_event(tx, &event, &cause, e);
	}
	return r;
}

static int rig_open(struct rig *rig, struct err *e)
{
	int r = scratch_open(&rig->scratch, e);

	rig->loop = rig->scratch.loop;
	rig->store = rig->scratch.store;
	rig->metrics = observe_metrics_new();
	return r < 0 ? r : observe_feed_new(rig->loop, rig->store, rig->metrics, &rig->feed, e);
}

static void rig_done(struct rig *rig)
{
	loop_timer_cancel(&rig->timer);
	if (rig->feed)
		observe_feed_close(rig->feed);
	rig->feed = observe_feed_free(rig->feed);
	rig->metrics = observe_metrics_free(rig->metrics);
	scratch_done(&rig->scratch);
}

static void added(void *arg, int r, const struct err *e)
{
	if (r < 0)
		printf("# add: %s\n", e->msg);
	free(arg);
}

static void add(struct rig *rig, int64_t n, size_t data_bytes)
{
	struct addition *a = XNEW(struct addition);

	*a = (struct addition){ rig->n_added, n, data_bytes };
	rig->n_added += n;
	store_run(rig->store, add_events, added, a);
}

static void on_time(void *arg)
{
	loop_stop(arg);
}

static void run_for(struct rig *rig, int64_t ms)
{
	struct err e = { 0 };

	loop_timer_init(&rig->timer, rig->loop, on_time, rig->loop);
	loop_timer_set(&rig->timer, time_now_ms() + ms);
	(void)loop_run(rig->loop, &e);
}

/* A busy machine takes its time; what is wrong never comes. */
static void wait_for(struct rig *rig, const int64_t *what, int64_t want)
{
	for (int i = 0; i < 2000 && *what < want; i++)
		run_for(rig, 5);
}

static void wait_for_head(struct rig *rig, int64_t want)
{
	for (int i = 0; i < 2000 && observe_feed_head(rig->feed) < want; i++)
		run_for(rig, 5);
}

/* ---- a sink ---- */

static void take_event(struct sink *s, struct str text)
{
	static const struct str mark = STR("data: {\"seq\":");
	struct str line, digits;
	int64_t seq = 0;

	while (str_split(&text, '\n', &line)) {
		if (str_has_prefix(line, STR("id: ")))
			(void)str_to_int(str_from(line, 4), 0, INT64_MAX, &s->id);
		if (str_has_prefix(line, STR(": hb")))
			s->beats++;
		if (str_is(line, "event: gap"))
			s->gaps++;
		if (str_is(line, "event: reset"))
			s->resets++;
		if (str_is(line, "event: forgotten"))
			s->forgotten++;
		if (str_has_prefix(line, STR("data: {\"from\":")))
			(void)sscanf(line.p, "data: {\"from\":%" SCNd64 ",\"to\":%" SCNd64,
				&s->gap_from, &s->gap_to);
		if (!str_has_prefix(line, mark))
			continue;
		line = str_from(line, mark.n);
		(void)str_split(&line, ',', &digits);
		(void)str_to_int(digits, 1, INT64_MAX, &seq);
		s->disorder += seq <= s->last;
		s->last = seq;
		s->n++;
	}
}

static bool sink_send(void *arg, struct str text)
{
	struct sink *s = arg;

	take_event(s, text);
	if (s->is_slow)
		s->queued += text.n;
	return s->queued < HIGH;
}

static size_t sink_queued(void *arg)
{
	return ((struct sink *)arg)->queued;
}

static void sink_closed(void *arg)
{
	struct sink *s = arg;

	s->reader = NULL;
	s->is_closed = true;
}

static void sink_open(struct rig *rig, struct sink *s, int64_t after, struct observe_filter filter)
{
	struct observe_reader_config config = { .filter = filter,
		.after = after,
		.send = sink_send,
		.queued = sink_queued,
		.closed = sink_closed,
		.arg = s };

	s->reader = observe_reader_new(rig->feed, &config);
}

static void sink_drain(struct sink *s)
{
	s->queued = 0;
	observe_reader_drained(s->reader);
}

TEST(those_up_to_date_get_what_comes_and_nothing_else)
{
	struct sink a = { 0 }, b = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 10, 0);
	wait_for_head(&rig, 10);
	sink_open(&rig, &a, -1, (struct observe_filter){ 0 });
	sink_open(&rig, &b, 4, (struct observe_filter){ 0 });
	wait_for(&rig, &b.n, 6);
	ASSERT_EQ(a.n, 0);
	ASSERT_EQ(b.n, 6);
	add(&rig, 2500, 0);
	wait_for(&rig, &a.n, 2500);
	wait_for(&rig, &b.n, 2506);
	run_for(&rig, 50);
	ASSERT_EQ(a.n, 2500);
	ASSERT_EQ(b.n, 2506);
	ASSERT_EQ(a.last, 2510);
	ASSERT_EQ(a.disorder + b.disorder, 0);
	ASSERT_EQ(a.gaps + b.gaps + a.resets + b.resets, 0);
}

TEST(who_is_behind_what_is_kept_in_memory_reads_the_store)
{
	struct sink s = { 0 }, part = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 6000, 0);
	wait_for_head(&rig, 6000);
	sink_open(&rig, &s, 0, (struct observe_filter){ 0 });
	sink_open(&rig, &part, 0, (struct observe_filter){ .team_id = STR("t2") });
	wait_for(&rig, &s.n, 6000);
	wait_for(&rig, &part.n, 3000);
	ASSERT_EQ(s.n, 6000);
	ASSERT_EQ(part.n, 3000);
	ASSERT_EQ(s.disorder + part.disorder, 0);
	add(&rig, 10, 0);
	wait_for(&rig, &s.n, 6010);
	wait_for(&rig, &part.n, 3005);
	ASSERT_EQ(s.n, 6010);
	ASSERT_EQ(part.n, 3005);
}

/* The first takes nothing, the second everything. */
TEST(a_slow_reader_hears_of_its_gap_and_misses_nothing)
{
	struct sink slow = { .is_slow = true }, fast = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };
	int64_t behind;

	ASSERT_EQ(rig_open(&rig, &e), 0);
	sink_open(&rig, &slow, -1, (struct observe_filter){ 0 });
	sink_open(&rig, &fast, -1, (struct observe_filter){ 0 });
	for (int i = 0; i < 40; i++) {
		add(&rig, 100, 1000);
		run_for(&rig, 20);
	}
	wait_for(&rig, &fast.n, 4000);
	ASSERT_EQ(fast.n, 4000);
	ASSERT(slow.n < 2000);
	ASSERT(slow.queued > (1 << 20) && slow.queued < (3 << 20));
	ASSERT_EQ(slow.gaps, 0);
	behind = slow.last;
	for (int i = 0; i < 3000 && slow.n < 4000; i++) {
		sink_drain(&slow);
		run_for(&rig, 10);
	}
	ASSERT_EQ(slow.n, 4000);
	ASSERT_EQ(slow.disorder, 0);
	ASSERT(slow.gaps >= 1);
	ASSERT(slow.gap_from >= behind + 1 && slow.gap_to == 4000);
	add(&rig, 1, 0);
	slow.is_slow = false;
	sink_drain(&slow);
	wait_for(&rig, &slow.last, 4001);
	ASSERT_EQ(slow.last, 4001);
}

/* It is told of no gap: it is given the rest as it takes what it has. */
TEST(a_slow_reader_among_many_has_its_share)
{
	enum {
		MANY = 4096, /* 64 KiB each */
		EVENTS = 500,
	};
	cleanup_free struct sink *idle = XNEW_N(struct sink, MANY);
	struct sink slow = { .is_slow = true };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	for (size_t i = 0; i < MANY; i++)
		sink_open(&rig, &idle[i], -1, (struct observe_filter){ .team_id = STR("none") });
	sink_open(&rig, &slow, -1, (struct observe_filter){ 0 });
	add(&rig, EVENTS, 1000);
	wait_for_head(&rig, EVENTS);
	run_for(&rig, 50);
	ASSERT(slow.queued > 64 << 10 && slow.queued < 140 << 10);
	for (int i = 0; i < 3000 && slow.n < EVENTS; i++) { /* and says nothing of it */
		slow.queued = 0;
		run_for(&rig, 20);
	}
	ASSERT_EQ(slow.n, EVENTS);
	ASSERT_EQ(slow.disorder + slow.gaps, 0);
}

TEST(a_number_from_the_future_is_told_and_set_right)
{
	struct sink s = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 10, 0);
	wait_for_head(&rig, 10);
	sink_open(&rig, &s, 99, (struct observe_filter){ 0 });
	wait_for(&rig, &s.resets, 1);
	ASSERT_EQ(s.resets, 1);
	ASSERT_EQ(s.gap_to, 10);
	ASSERT_EQ(s.id, 10); /* what it comes again with */
	add(&rig, 3, 0);
	wait_for(&rig, &s.n, 3);
	ASSERT_EQ(s.n, 3);
}

/* An event that is written while the feed reads: whoever knows it already, from a page of its own
 * or from before it came again, is ahead of the feed for a moment, and that is no number of the
 * future.
 */
TEST(who_is_ahead_of_the_feed_is_not_set_back)
{
	struct sink s[48] = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct store_stats stats;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++) {
		struct addition late = { .from = rig.n_added + 1, .n = 1 };

		add(&rig, 1, 0);
		do {
			run_for(&rig, 0);
			store_stats(rig.store, &stats);
		} while (stats.waiting);
		run_for(&rig, (int64_t)i % 16); /* once the feed has just begun to read */
		(void)usleep(5000);
		ASSERT(store_run_now(rig.store, add_events, &late, &e) >= 0);
		rig.n_added++;
		sink_open(&rig, &s[i], rig.n_added, (struct observe_filter){ 0 });
		run_for(&rig, 30);
		ASSERT_EQ(s[i].resets, 0);
	}
	add(&rig, 1, 0);
	wait_for_head(&rig, rig.n_added);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		ASSERT_EQ(s[i].last, rig.n_added);
}

TEST(closing_tells_readers_and_takes_no_new_ones)
{
	struct sink s = { 0 }, late = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	sink_open(&rig, &s, 0, (struct observe_filter){ 0 });
	observe_feed_close(rig.feed);
	ASSERT(s.is_closed);
	sink_open(&rig, &late, 0, (struct observe_filter){ 0 });
	ASSERT(!late.reader);
}

TEST(there_are_only_so_many_readers)
{
	enum {
		MOST = 8192,
	};
	cleanup_free struct sink *s = XNEW_N(struct sink, MOST);
	struct sink late = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	for (size_t i = 0; i < MOST; i++)
		sink_open(&rig, &s[i], -1, (struct observe_filter){ 0 });
	ASSERT(s[MOST - 1].reader);
	sink_open(&rig, &late, -1, (struct observe_filter){ 0 });
	ASSERT(!late.reader);
	s[0].reader = observe_reader_free(s[0].reader);
	sink_open(&rig, &late, -1, (struct observe_filter){ 0 });
	ASSERT(late.reader);
}

TEST(heartbeats_come_by_themselves)
{
	struct sink s[15] = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	int64_t beats = 0;
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		sink_open(&rig, &s[i], -1, (struct observe_filter){ 0 });
	run_for(&rig, 2500);
	for (size_t i = 0; i < ARRAY_SIZE(s); i++)
		beats += s[i].beats;
	ASSERT(beats >= 1 && beats <= 3); /* one of fifteen a second */
}

/* ---- the same conditions twice ---- */

struct asked {
	struct rig *rig;
	int64_t seqs[256];
	size_t n;
	bool more;
	int r;
};

static void got_page(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e)
{
	struct asked *a = arg;

	(void)e;
	a->r = r;
	a->more = more;
	for (size_t i = 0; i < n && a->n < ARRAY_SIZE(a->seqs); i++)
		a->seqs[a->n++] = v[i].seq;
	loop_stop(a->rig->loop);
}

static struct asked ask(struct rig *rig, const struct observe_query *query)
{
	struct asked a = { .rig = rig };
	struct err e = { 0 };

	observe_read(rig->store, query, got_page, &a);
	(void)loop_run(rig->loop, &e);
	return a;
}

static const struct observe_filter filters[] = {
	{ .n_kinds = 0 },
	{ .team_id = { "t1", 2 } },
	{ .agent_id = { "a1", 2 } },
	{ .task_id = { "task", 4 } },
	{ .subject = { "s3", 2 } },
	{ .actor = { "system", 6 } },
	{ .actor = { "nobody", 6 } },
	{ .kinds = { { "sandbox.", 8 } }, .n_kinds = 1 },
	{ .kinds = { { "sandbox.ended", 13 }, { "key.", 4 } }, .n_kinds = 2 },
	{ .kinds = { { "sand%", 5 } }, .n_kinds = 1 },
	{ .team_id = { "t2", 2 },
		.agent_id = { "a2", 2 },
		.kinds = { { "key", 3 } },
		.n_kinds = 1 },
	{ .only_sandboxes = true },
	{ .team_id = { "t1", 2 }, .subject = { "s1", 2 }, .task_id = { "task", 4 } },
};

/* What a filter lets through of a feed is what it finds in the store. */
TEST(a_filter_means_the_same_live_and_stored)
{
	struct sink live[ARRAY_SIZE(filters)] = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++)
		sink_open(&rig, &live[i], -1, filters[i]);
	add(&rig, 210, 0);
	wait_for(&rig, &live[0].n, 210);
	run_for(&rig, 50);
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		struct observe_query up = { .filter = filters[i], .limit = 1000 };
		struct observe_query down = up;
		struct asked a = ask(&rig, &up), b;

		down.newest_first = true;
		b = ask(&rig, &down);
		ASSERT_EQ(a.r, 0);
		ASSERT_EQ((int64_t)a.n, live[i].n);
		ASSERT_EQ(a.n, b.n);
		ASSERT(!a.more && !b.more);
		for (size_t k = 0; k < a.n; k++)
			ASSERT_EQ(a.seqs[k], b.seqs[a.n - 1 - k]);
		ASSERT_EQ(a.n ? a.seqs[a.n - 1] : 0, live[i].last);
	}
	ASSERT_EQ(live[0].n, 210);
	ASSERT_EQ(live[6].n + live[9].n, 0);
	ASSERT_EQ(live[8].n, 140);
}

TEST(pages_follow_each_other_without_hole_or_overlap)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct observe_query query = { .limit = 40, .from_us = 50, .to_us = 190 };
	struct err e = { 0 };
	int64_t next = 51;

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 210, 0);
	wait_for_head(&rig, 210);
	for (int page = 0; page < 4; page++) {
		struct asked a = ask(&rig, &query);

		ASSERT_EQ(a.more, page < 3);
		ASSERT_EQ(a.n, page < 3 ? 40 : 20);
		for (size_t i = 0; i < a.n; i++)
			ASSERT_EQ(a.seqs[i], next++);
		query.after = a.seqs[a.n - 1];
	}
}

/* A page is also full when its texts are large. */
TEST(large_events_make_short_pages)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct observe_query query = { .limit = 1000 };
	struct err e = { 0 };
	struct asked a;

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add(&rig, 20, 500000);
	wait_for_head(&rig, 20);
	a = ask(&rig, &query);
	ASSERT(a.more);
	ASSERT(a.n > 4 && a.n < 12);
}

/* ---- the old end ---- */

static void add_old(struct rig *rig, int64_t n)
{
	rig->n_added = 1; /* their time, too, in 1970; 0 would be now */
	add(rig, n, 0);
}

static size_t count_stored(struct rig *rig)
{
	struct observe_query query = { .limit = 1000 };

	return ask(rig, &query).n;
}

/* The newest stays, however old it is: the next number comes from it. */
TEST(what_is_old_is_forgotten_but_for_the_newest)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add_old(&rig, 1200); /* more than are taken off at once */
	wait_for_head(&rig, 1200);
	observe_feed_forget(rig.feed, 1, NULL);
	for (int i = 0; i < 500 && count_stored(&rig) > 1; i++)
		run_for(&rig, 20);
	run_for(&rig, 300);
	ASSERT_EQ(count_stored(&rig), 1);
	add(&rig, 1, 0);
	wait_for_head(&rig, 1201);
	ASSERT_EQ(observe_feed_head(rig.feed), 1201);
}

TEST(what_is_young_stays_and_holds_what_is_behind_it)
{
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	rig.n_added = time_wall_us() + 3600 * INT64_C(1000000); /* their time */
	add(&rig, 3, 0);
	add_old(&rig, 7);
	wait_for_head(&rig, 10);
	observe_feed_forget(rig.feed, 1, NULL);
	run_for(&rig, 2500);
	ASSERT_EQ(count_stored(&rig), 10);
}

TEST(readers_from_before_hear_what_was_forgotten)
{
	struct sink late = { 0 }, first = { 0 }, up = { 0 }, again = { 0 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };

	ASSERT_EQ(rig_open(&rig, &e), 0);
	add_old(&rig, 50);
	wait_for_head(&rig, 50);
	/* Another feed, with nothing of it in memory. */
	rig.feed = observe_feed_free(rig.feed);
	ASSERT_EQ(observe_feed_new(rig.loop, rig.store, rig.metrics, &rig.feed, &e), 0);
	observe_feed_forget(rig.feed, 1, NULL);
	for (int i = 0; i < 500 && count_stored(&rig) > 1; i++)
		run_for(&rig, 20);
	sink_open(&rig, &late, 7, (struct observe_filter){ 0 });
	sink_open(&rig, &first, 0, (struct observe_filter){ 0 });
	sink_open(&rig, &up, 49, (struct observe_filter){ 0 });
	wait_for(&rig, &late.n, 1);
	wait_for(&rig, &first.n, 1);
	wait_for(&rig, &up.n, 1);
	ASSERT_EQ(late.forgotten, 1);
	ASSERT_EQ(late.gap_from, 8);
	ASSERT_EQ(late.gap_to, 49);
	ASSERT_EQ(late.last, 50);
	ASSERT_EQ(first.forgotten + up.forgotten, 0);
	ASSERT_EQ(first.last + up.last, 100);
	/* Also one that finds its number gone after a start. */
	(void)observe_reader_free(late.reader);
	(void)observe_reader_free(first.reader);
	(void)observe_reader_free(up.reader);
	rig.feed = observe_feed_free(rig.feed);
	ASSERT_EQ(observe_feed_new(rig.loop, rig.store, rig.metrics, &rig.feed, &e), 0);
	sink_open(&rig, &again, 1, (struct observe_filter){ 0 });
	wait_for(&rig, &again.n, 1);
	ASSERT_EQ(again.forgotten, 1);
	ASSERT_EQ(again.gap_from, 2);
	ASSERT_EQ(again.gap_to, 49);
	(void)observe_reader_free(again.reader);
}

/* Of t1, whatever the usual one is. */
static void one_mib(void *arg, const char *team_id, struct limit_ceilings *ret)
{
	(void)arg;
	ret->v[LIMIT_EVENTS] = strcmp(team_id, "t1") == 0 ? 1 : 0;
}

TEST(of_a_team_with_too_many_the_oldest_go_and_its_readers_hear_of_it)
{
	static const struct limit_teams ceilings = { one_mib, NULL };
	struct sink own = { 0 }, others = { 0 }, again = { 0 };
	struct observe_query t2 = { .filter = { .team_id = STR("t2") }, .limit = 1000 };
	CLEANUP(rig_done) struct rig rig = { 0 };
	struct err e = { 0 };
	int64_t most = 1 << 20;

	ASSERT_EQ(rig_open(&rig, &e), 0);
	rig.n_added = 2;
	add(&rig, 200, 14000); /* half of them t1's: 1.3 MiB */
	wait_for_head(&rig, 200);
	ASSERT(store_used(rig.store, "t1", STORE_USE_EVENTS) > most);
	rig.feed = observe_feed_free(rig.feed); /* another, with nothing of it in memory */
	ASSERT_EQ(observe_feed_new(rig.loop, rig.store, rig.metrics, &rig.feed, &e), 0);
	observe_feed_forget(rig.feed, 0, &ceilings);
	for (int i = 0; i < 500 && store_used(rig.store, "t1", STORE_USE_EVENTS) > most; i++)
		run_for(&rig, 20);
	run_for(&rig, 300);
	ASSERT(store_used(rig.store, "t1", STORE_USE_EVENTS) <= most);
	ASSERT(store_used(rig.store, "t1", STORE_USE_EVENTS) > most * 3 / 4);
	ASSERT_EQ(ask(&rig, &t2).n, 100);
	sink_open(&rig, &own, 1, (struct observe_filter){ .team_id = STR("t1") });
	sink_open(&rig, &others, 1, (struct observe_filter){ .team_id = STR("t2") });
	wait_for(&rig, &others.n, 99);
	wait_for(&rig, &own.n, 1);
	ASSERT_EQ(own.forgotten, 1);
	ASSERT_EQ(own.gap_from, 2);
	ASSERT(own.gap_to > 10 && own.gap_to < 100);
	ASSERT_EQ(others.forgotten, 0);
	(void)observe_reader_free(own.reader);
	(void)observe_reader_free(others.reader);
	/* The next server knows it too. */
	rig.feed = observe_feed_free(rig.feed);
	ASSERT_EQ(observe_feed_new(rig.loop, rig.store, rig.metrics, &rig.feed, &e), 0);
	sink_open(&rig, &again, 1, (struct observe_filter){ .team_id = STR("t1") });
	wait_for(&rig, &again.n, 1);
	ASSERT_EQ(again.forgotten, 1);
	ASSERT_EQ(again.gap_to, own.gap_to);
	(void)observe_reader_free(again.reader);
}
