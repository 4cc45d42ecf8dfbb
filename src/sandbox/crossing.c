/* What happens when a sandbox comes up against a limit: one line in its log, with the cause, and in
 * the server's. A program that does so in a loop is told of once in a while, with how often. The
 * log itself has limits too: what a sandbox can make us write must not fill our disk. */
#include "observe/observe.h"
#include "sandbox/sandbox-internal.h"

enum {
	QUIET_MS = 10000, /* between two lines about the same limit */
	MINUTE_MS = 60000,
	CAUSE_BYTES = 200,
	CPU_BUSY_PERCENT = 25, /* held back in so many of its periods: worth telling */
	CPU_FULL_PERCENT = 98, /* of what it has; on as many processors none is held back */
};

/* ---- lines ---- */

/* Tokens come back evenly: a minute's worth may be used at once, and not more than that. */
static void refill(struct live *live)
{
	int64_t now_ms = loop_now_ms(live->book->config.loop),
		rate = live->view.limits.v[LIMIT_LOG_RATE];
	int64_t gained = (now_ms - live->log.filled_ms) * rate / MINUTE_MS;

	if (!live->log.filled_ms) {
		live->log.tokens = rate;
		live->log.filled_ms = now_ms;
	} else if (gained > 0) {
		live->log.tokens = MIN(live->log.tokens + gained, rate);
		live->log.filled_ms = now_ms;
	}
}

static void write_line(struct live *live, const char *kind, const char *cause, struct str data)
{
	struct observe_event event = { .actor = "system",
		.kind = kind,
		.subject = live->view.id,
		.team_id = live->view.team_id,
		.agent_id = live->view.agent_id,
		.task_id = live->view.task_id,
		.cause = cause,
		.data = data };

	live->log.lines++;
	observe_event(live->book->config.events, &event);
}

/* The mark that stands where lines are missing. */
static void mark_dropped(struct live *live, bool is_full)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(256);
	char cause[CAUSE_BYTES];
	struct jsonw w;

	if (is_full)
		(void)snprintf(cause, sizeof cause,
			"dropped %" PRId64 " lines: the log has reached its limit of %" PRId64
			" lines",
			live->log.dropped, live->view.limits.v[LIMIT_LOG_LINES]);
	else
		(void)snprintf(cause, sizeof cause,
			"dropped %" PRId64 " lines: more than %" PRId64 " lines a minute",
			live->log.dropped, live->view.limits.v[LIMIT_LOG_RATE]);
	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "limit", limit_key(is_full ? LIMIT_LOG_LINES : LIMIT_LOG_RATE));
	jsonw_int(&w, "lines", live->log.dropped);
	jsonw_strz(&w, "cause", cause);
	jsonw_end_object(&w);
	write_line(live, "sandbox.log_dropped", cause, buf_str(&data));
	live->log.dropped_in_all += live->log.dropped;
	live->log.dropped = 0;
}

static void log_line(struct live *live, const char *kind, const char *cause, struct str data)
{
	bool is_full = live->log.lines >= live->view.limits.v[LIMIT_LOG_LINES];

	refill(live);
	if (!is_full && live->log.tokens > 0) {
		live->log.tokens--;
		write_line(live, kind, cause, data);
		return;
	}
	live->log.dropped++;
	/* Full for good: said once here, and with the number at the end. */
	if (is_full && !live->log.is_full_told) {
		live->log.is_full_told = true;
		mark_dropped(live, true);
	}
}

/* ---- limits ---- */

static void explain(const struct live *live, enum limit_kind kind, int64_t times, char *out,
	size_t size)
{
	static const struct {
		const char *before, *after;
	} words[] = {
		[LIMIT_CPU] = { "the processors: its", "was used in full" },
		[LIMIT_MEMORY] = { "out of memory: its",
			"was reached, and the kernel killed a process" },
		[LIMIT_DISK] = { "the disk is full: its", "was reached" },
		[LIMIT_INODES] = { "the disk has no room for more files: its", "was reached" },
		[LIMIT_PROCESSES] = { "no more processes: its",
			"was reached, and one could not be started" },
		[LIMIT_FILES] = { "no more open files: a process has reached its", "at once" },
		[LIMIT_SHM] = { "/dev/shm is full: its", "was reached" },
		[LIMIT_LOG_LINES] = { "the log is full: its", "was reached" },
		[LIMIT_LOG_RATE] = { "the log: its", "was reached" },
		[LIMIT_CONNECTIONS] = { "no more connections: its",
			"was reached, and one was refused" },
	};
	int n = snprintf(out, size, "%s limit of %" PRId64 "%s %s", words[kind].before,
		live->view.limits.v[kind], limit_unit(kind), words[kind].after);

	if (times > 1 && n > 0 && (size_t)n < size)
		(void)snprintf(out + n, size - (size_t)n, " (%" PRId64 " times)", times);
}

static void tell(struct live *live, enum limit_kind kind)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(1024);
	struct tally *tally = &live->tallies[kind];
	char cause[CAUSE_BYTES];
	struct jsonw w;

	explain(live, kind, tally->untold, cause, sizeof cause);
	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "limit", limit_key(kind));
	jsonw_int(&w, "value", live->view.limits.v[kind]);
	jsonw_int(&w, "times", tally->untold);
	jsonw_strz(&w, "cause", cause);
	jsonw_end_object(&w);
	log_info("sandbox.limit", "sandbox_id=%s limit=%s times=%" PRId64, live->view.id,
		limit_key(kind), tally->untold);
	tally->untold = 0;
	tally->quiet_until_ms = loop_now_ms(live->book->config.loop) + QUIET_MS;
	log_line(live, "sandbox.limit", cause, buf_str(&data));
}

void live_crossed(struct live *live, enum limit_kind kind, int64_t times)
{
	struct tally *tally = &live->tallies[kind];

	tally->times += times;
	tally->untold += times;
	if (loop_now_ms(live->book->config.loop) >= tally->quiet_until_ms)
		tell(live, kind);
}

void crossings_step(struct live *live)
{
	int64_t now_ms = loop_now_ms(live->book->config.loop);

	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (live->tallies[i].untold && now_ms >= live->tallies[i].quiet_until_ms)
			tell(live, (enum limit_kind)i);
	refill(live);
	if (live->log.dropped && !live->log.is_full_told && live->log.tokens > 0) {
		live->log.tokens--;
		mark_dropped(live, false);
	}
}

void crossings_last(struct live *live)
{
	if (live->log.dropped)
		mark_dropped(live, live->log.is_full_told);
}

/* ---- who tells us ---- */

void on_crossed(void *arg, const char *id, enum runtime_limit limit, uint64_t times)
{
	static const enum limit_kind kinds[] = {
		[RUNTIME_LIMIT_MEMORY] = LIMIT_MEMORY,
		[RUNTIME_LIMIT_PIDS] = LIMIT_PROCESSES,
	};
	struct live *live = live_find(arg, NULL, str_of(id));
	int64_t n = (int64_t)MIN(times, (uint64_t)INT32_MAX);

	if (!live)
		return;
	live->tallies[kinds[limit]].heard += n;
	live_crossed(live, kinds[limit], n);
}

/* Its program did nothing wrong but to write: the cause is said as often as it happens. */
void on_held(void *arg, const char *id, bool is_held)
{
	struct live *live = live_find(arg, NULL, str_of(id));
	const char *cause =
		is_held ? "the host's disk is nearly full: the sandbox stands still, since "
			  "it writes"
			: "there is room on the host's disk again: the sandbox goes on";

	if (!live)
		return;
	live->is_held = is_held;
	log_line(live, is_held ? "sandbox.held" : "sandbox.released", cause, STR_NONE);
}

/* A guest's word, which only grows; the first one after a restart of the server tells nothing. */
static void compare(struct live *live, enum limit_kind kind, int64_t now)
{
	struct tally *tally = &live->tallies[kind];

	if (live->is_heard && now > tally->heard)
		live_crossed(live, kind, MIN(now - tally->heard, INT32_MAX));
	tally->heard = MAX(tally->heard, now);
}

void crossings_hear(struct live *live, const struct guest_word *word)
{
	int64_t periods = word->cpu_periods - live->cpu_periods,
		held = word->cpu_held - live->cpu_held;

	/* The runtime has told of these already, where the kernel tells it at once. */
	compare(live, LIMIT_MEMORY, word->kills);
	compare(live, LIMIT_PROCESSES, word->refused);
	compare(live, LIMIT_DISK, word->disk);
	compare(live, LIMIT_INODES, word->inodes);
	compare(live, LIMIT_SHM, word->shm);
	compare(live, LIMIT_FILES, word->files);
	live->cpu_pressure =
		live->is_heard && periods > 0 ? (double)held * 100 / (double)periods : 0;
	if (!(live->cpu_pressure >= 0 && live->cpu_pressure <= 100))
		live->cpu_pressure = 0;
	if (live->cpu_pressure >= CPU_BUSY_PERCENT ||
		(live->is_heard && word->cpu_pct >= CPU_FULL_PERCENT))
		live_crossed(live, LIMIT_CPU, 1);
	live->cpu_periods = word->cpu_periods;
	live->cpu_held = word->cpu_held;
	live->is_heard = true;
}

void crossings_reborn(struct live *live)
{
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		live->tallies[i].heard = 0;
	live->cpu_periods = live->cpu_held = 0;
	live->is_heard = true;
}

/* ---- connections ---- */

/* Strangers may come to the ports of a sandbox. However many do, its owner's way in stays open. */
int sandbox_enter(struct sandbox_book *book, const struct sandbox *sb, int port, struct err *e)
{
	struct live *live = map_get(&book->by_id, str_of(sb->id));
	int64_t most = sb->limits.v[LIMIT_CONNECTIONS];

	assert(live);
	if (port != RUNTIME_GUEST_PORT)
		most -= most / 4;
	live_used(live);
	if (live->connections < most) {
		live->connections++;
		return 0;
	}
	live_crossed(live, LIMIT_CONNECTIONS, 1);
	return err_set(e, -EDQUOT,
		"The sandbox's limit of %" PRId64 " connections at once was reached", most);
}

void sandbox_leave(struct sandbox_book *book, const char *id)
{
	struct live *live = map_get(&book->by_id, str_of(id));

	/* One that ended meanwhile took its count with it. */
	if (!live)
		return;
	live_used(live);
	if (live->connections > 0)
		live->connections--;
}

int sandbox_crossings(const struct sandbox_book *book, const char *id,
	struct sandbox_crossings *ret)
{
	const struct live *live = live_find(book, NULL, str_of(id));

	if (!live)
		return -ENOENT;
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		ret->times[i] = live->tallies[i].times;
	ret->connections = live->connections;
	ret->lines_dropped = live->log.dropped_in_all + live->log.dropped;
	return 0;
}
