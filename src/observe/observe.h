/* observe - what happened and how much of it: the event log and its readers (feeds, audit, usage
 * and cost, metrics, traces), teams' sandboxes over time, the machine itself. Owns:   events on
 * their way to the log, the feed's memory of the newest ones, metrics' counts, cursors of readers;
 * the rest it reads: tables of others and /proc. Uses:   base, loop, json, client (to send traces),
 * limit (ceilings of teams), store. Never:  changes what it looks at, answers HTTP, or makes
 * anybody wait for a reader. */
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "limit/limit.h"
#include "loop/loop.h"
#include "store/store.h"

/* The event log is append-only. What changes a row writes its event in the same transaction
 * (store_add_event); what merely happens is told here, and written soon, in order, off the way of
 * whoever tells it. On a full disk it waits for room; of more than can be kept (10,000, 32 MiB) the
 * log has one event, "events.lost", that says how many. */
struct observe_log;
struct observe_log *observe_log_new(struct loop *loop, struct store *store);
/* Writes what is left; the loop has stopped. */
struct observe_log *observe_log_free(struct observe_log *log);
DEFINE_CLEANUP(struct observe_log, observe_log_free)
struct observe_event {
	const char *actor, *kind, *subject; /* as in struct store_event */
	const char *team_id, *cause;        /* NULL: not known */
	const char *agent_id, *task_id;     /* NULL or empty: nobody in particular */
	struct str data;                    /* JSON object; empty: {} */
};
void observe_event(struct observe_log *log, const struct observe_event *event); /* copies */

/* ---- reading the log ---- */

enum {
	OBSERVE_MAX_KINDS = 4,
	OBSERVE_MAX_PAGE = 1000,
};

struct observe_item { /* one event, as it was read; all borrowed */
	int64_t seq, at_us;
	struct str actor, kind, subject, data;        /* data is a JSON object */
	struct str team_id, agent_id, task_id, cause; /* each may be empty, as the next */
	struct str actor_name;                        /* of a key, as it was called then */
	struct str source;                            /* the address that it came from */
};
/* An item as the API shows it, one JSON object. */
void observe_item_write(struct jsonw *w, const struct observe_item *item);

/* What is empty is not asked for. */
struct observe_filter {
	struct str team_id, agent_id, task_id, subject, actor;
	struct str kinds[OBSERVE_MAX_KINDS]; /* any of these, or what begins so: "sandbox." */
	size_t n_kinds;
	bool only_sandboxes; /* what happened to sandboxes, and not to keys, secrets, teams */
};
bool observe_matches(const struct observe_filter *filter, const struct observe_item *item);

struct observe_query {
	struct observe_filter filter;
	int64_t after, before;  /* numbers, both exclusive; before 0: no end */
	int64_t from_us, to_us; /* from <= at < to; to 0: no end */
	int64_t limit;          /* 1 to OBSERVE_MAX_PAGE */
	bool newest_first;
};
/* more: there are others behind the last of these. */
typedef void (*observe_page_fn)(void *arg, int r, const struct observe_item *v, size_t n, bool more,
	const struct err *e);
/* Copies the query. */
void observe_read(struct store *store, const struct observe_query *query, observe_page_fn fn,
	void *arg);

/* ---- metrics ---- */

/* Counted since the server started, in Prometheus' sense; labels are `name="value",...`, made by
 * observe_label. */
enum observe_family {
	OBSERVE_EVENTS,            /* kind */
	OBSERVE_CREATE_SECONDS,    /* runtime; histogram, as the next */
	OBSERVE_CREATE_PHASE,      /* phase */
	OBSERVE_DESTROY_SECONDS,   /* runtime */
	OBSERVE_SANDBOXES_CREATED, /* template */
	OBSERVE_SANDBOXES_ENDED,   /* by */
	OBSERVE_SANDBOXES_FAILED,  /* cause: infrastructure, quota ... */
	OBSERVE_EXECUTIONS,        /* ended_by */
	OBSERVE_EXECUTION_SECONDS, /* histogram */
	OBSERVE_REQUESTS,          /* method, route, status */
	OBSERVE_REQUEST_SECONDS,   /* route; histogram */
	OBSERVE_ERRORS,            /* cause: the code word of the answer */
	OBSERVE_BREAKER,           /* runtime; a gauge: 0 closed, 1 half open, 2 open */
	OBSERVE_FEED_GAPS,         /* none */
	OBSERVE_TRACE_SPANS,       /* result: sent, rejected, dropped */
	OBSERVE_TRACE_REQUESTS,    /* result: the status, or error */
	OBSERVE_FAMILIES,
};
struct observe_metrics;
struct observe_metrics *observe_metrics_new(void);
struct observe_metrics *observe_metrics_free(struct observe_metrics *m);
DEFINE_CLEANUP(struct observe_metrics, observe_metrics_free)
/* A team's own part of them, counted beside the whole; NULL: nobody's, or there are too many. Lives
 * as long as `m`. */
struct observe_metrics *observe_metrics_of(struct observe_metrics *m, struct str team_id);
/* Appends a label, escaped and cut at a sensible length. */
void observe_label(struct buf *labels, const char *name, struct str value);
/* m may be NULL in all of these: then nothing is counted. */
void observe_count(struct observe_metrics *m, enum observe_family family, struct str labels,
	int64_t by);
void observe_gauge(struct observe_metrics *m, enum observe_family family, struct str labels,
	double value);
void observe_time(struct observe_metrics *m, enum observe_family family, struct str labels,
	int64_t us);
/* One request that was answered. */
void observe_request(struct observe_metrics *m, struct str method, const char *route, int status,
	int64_t us);
/* All families in the text format 0.0.4; of a team, those that are about teams. */
void observe_metrics_write(const struct observe_metrics *m, struct buf *out);
/* What is only known when somebody asks: a family of its own, then its values. */
void observe_write_family(struct buf *out, const char *name, const char *type, const char *help);
void observe_write_value(struct buf *out, const char *name, struct str labels, double value);

/* ---- the feed ---- */

/* One query feeds all readers that are up to date; who is behind reads the store for itself. */
struct observe_feed;
/* Reads where the log ends: blocking, at start. */
int observe_feed_new(struct loop *loop, struct store *store, struct observe_metrics *metrics,
	struct observe_feed **ret, struct err *e);
/* The server stops: tells all readers that it is over, and takes no new ones. */
void observe_feed_close(struct observe_feed *feed);
struct observe_feed *observe_feed_free(struct observe_feed *feed); /* no readers are left */
DEFINE_CLEANUP(struct observe_feed, observe_feed_free)
int64_t observe_feed_head(const struct observe_feed *feed); /* the newest number it knows */
struct observe_feed_state {
	size_t readers, behind;
	int64_t head;
};
void observe_feed_state(const struct observe_feed *feed, struct observe_feed_state *ret);
/* Events that are older than that (0: for ever) are forgotten from now on, and of a team that has
 * more than its ceiling (teams NULL: none has one) the oldest; but for the newest: the next one
 * counts on its number. Readers that come from before hear which are gone (`forgotten`), those of
 * one team also of its own. */
void observe_feed_forget(struct observe_feed *feed, int64_t keep_s,
	const struct limit_teams *teams);
/* Called after each batch of new events, on the loop; for a reader with a cursor of its own. */
void observe_feed_on_new(struct observe_feed *feed, loop_fn fn, void *arg);

struct observe_reader;
struct observe_reader_config {
	struct observe_filter filter; /* copied */
	int64_t after;                /* goes on behind this one; -1: with the next that comes */
	/* Takes server-sent events, whole ones: the events that match, notices (`gap`, `reset`,
	 * `forgotten`) and heartbeats. False: no more, until observe_reader_drained. */
	bool (*send)(void *arg, struct str text);
	size_t (*queued)(void *arg); /* bytes that were sent and did not get away yet */
	void (*closed)(void *arg);   /* the feed is; the reader is already gone */
	void *arg;
};
/* NULL: the feed is closed, or has all the readers that it takes. Nothing is sent from inside this
 * call. */
struct observe_reader *observe_reader_new(struct observe_feed *feed,
	const struct observe_reader_config *config);
void observe_reader_drained(struct observe_reader *reader);
struct observe_reader *observe_reader_free(struct observe_reader *reader);

/* ---- usage and cost ---- */

/* Exact, so that sums are the same however they are grouped. */
struct observe_amounts {
	int64_t sandboxes, runs;
	int64_t sandbox_ms, vcpu_ms, memory_mib_ms, disk_mib_ms; /* reserved, times how long */
	int64_t cpu_us;                                          /* really used */
	int64_t egress_bytes;                                    /* sent by the sandbox */
};
/* One run of a sandbox; adds to `to`. */
struct observe_run {
	int64_t ms, cpu_count, memory_mib, disk_mib, cpu_us, egress_bytes;
};
void observe_add_run(struct observe_amounts *to, const struct observe_run *run);

struct observe_prices { /* each in billionths of the currency; 0: free */
	char currency[8];
	int64_t vcpu_hour, memory_gib_hour, disk_gib_hour, egress_gib;
	bool is_set; /* any of them */
};
/* "0.0504" in billionths. -EINVAL: no such number, or more than nine decimals. */
int observe_parse_price(struct str text, int64_t *ret);
double observe_cost(const struct observe_prices *prices, const struct observe_amounts *amounts);
/* Members of an open object: the amounts in seconds and bytes, and the cost where there are prices.
 */
void observe_amounts_write(struct jsonw *w, const struct observe_amounts *amounts,
	const struct observe_prices *prices);

enum observe_group { /* bits */
	OBSERVE_BY_TEAM = 1 << 0,
	OBSERVE_BY_AGENT = 1 << 1,
	OBSERVE_BY_TASK = 1 << 2,
	OBSERVE_BY_TEMPLATE = 1 << 3,
	OBSERVE_BY_SANDBOX = 1 << 4,
};
struct observe_usage_query {
	struct str team_id, agent_id, task_id, template_name, sandbox_id; /* empty: any */
	unsigned group;                                                   /* 0: one sum */
	int64_t from_us, to_us; /* what ran within; cpu and egress of a run that is cut by them
				 * count in proportion */
};
struct observe_usage { /* a view */
	struct str team_id, agent_id, task_id, template_name,
		sandbox_id; /* as grouped, else empty */
	struct observe_amounts amounts;
};
typedef void (*observe_usage_fn)(void *arg, int r, const struct observe_usage *v, size_t n,
	const struct err *e);
/* Largest first. -E2BIG: too many groups. */
void observe_usage(struct store *store, const struct observe_usage_query *query,
	observe_usage_fn fn, void *arg);

/* ---- traces ---- */

enum {
	OBSERVE_TRACE_ID_SIZE = 33,
	OBSERVE_SPAN_ID_SIZE = 17,
};
/* W3C trace context: "00-<32 hex>-<16 hex>-<2 hex>", later versions too. -EINVAL. */
struct observe_parent {
	char trace_id[OBSERVE_TRACE_ID_SIZE], span_id[OBSERVE_SPAN_ID_SIZE], flags[3];
};
int observe_parent_read(struct str text, struct observe_parent *ret);

struct observe_traces;
struct client;
struct observe_traces_config { /* texts are copied */
	struct loop *loop;
	struct store *store;
	struct observe_feed *feed;
	struct observe_metrics *metrics;
	struct client *client;
	const struct observe_prices *prices;
	const char *url;            /* the whole one, ending in /v1/traces */
	const char *const *headers; /* "Name: value", NULL at the end */
	const char *node_id;
};
/* Takes up where it stopped; the first time where the log ends. Blocking, at start. */
int observe_traces_new(const struct observe_traces_config *config, struct observe_traces **ret,
	struct err *e);
/* Sends what there is, for that long at most. What is left goes out after the next start. */
void observe_traces_stop(struct observe_traces *traces, int64_t within_ms, done_fn done, void *arg);
struct observe_traces *observe_traces_free(struct observe_traces *traces);
DEFINE_CLEANUP(struct observe_traces, observe_traces_free)
struct observe_traces_state {
	int64_t cursor, behind, sent, rejected, dropped, failures; /* failures: in a row */
};
void observe_traces_state(const struct observe_traces *traces, struct observe_traces_state *ret);

/* ---- teams, templates, the machine ---- */

enum {
	OBSERVE_MAX_POINTS = 360,
	OBSERVE_MIN_STEP_S = 10,
};

struct observe_point {
	int64_t at_us;     /* where its step begins */
	int64_t running;   /* the most at once within the step */
	double start_rate; /* sandboxes started a second, in the busiest ten seconds of it */
};
/* Steps of equal length that cover [from, to); e is set when r < 0. */
typedef void (*observe_points_fn)(void *arg, int r, const struct observe_point *v, size_t n,
	const struct err *e);
/* from_us < to_us. -E2BIG: too many sandboxes lived then to look at in one go. */
void observe_team(struct store *store, const char *team_id, int64_t from_us, int64_t to_us,
	observe_points_fn fn, void *arg);

struct observe_use {
	char template_id[24];
	int64_t count, last_us;
};
typedef void (*observe_uses_fn)(void *arg, int r, const struct observe_use *v, size_t n,
	const struct err *e);
/* How often a team started sandboxes from each template, and when last. */
void observe_templates(struct store *store, const char *team_id, observe_uses_fn fn, void *arg);

struct observe_machine {
	char cpu_family[16], cpu_model[16], cpu_name[96], cpu_architecture[32];
	int64_t cpu_count, memory_total, memory_used;                /* bytes */
	int64_t pages_total, pages_free, pages_reserved, page_bytes; /* huge ones */
	int64_t cpu_busy, cpu_all; /* ticks since boot: two readings give a percentage */
};
void observe_machine(struct observe_machine *ret);
