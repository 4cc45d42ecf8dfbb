/* filesystem.Filesystem: WatchDir streams what happens; CreateWatcher and GetWatcherEvents collect
 * it for clients that ask now and then. A watcher outlives the call that made it. */
#include "guest/rpc.h"

#include "guest/feed.h"
#include "guest/watch-book.h"

#include <sys/stat.h>
#include <sys/vfs.h>

enum {
	POLLED_MAX_BYTES = 16 << 20, /* not asked for: then the watcher has failed */
	LATE_MAX_BYTES = 64 << 20,   /* not taken by a stream's client: the same */
	FRAME_MAX_BYTES = 512 << 10,
	WATCHER_ID = 20,
};

/* ---- what both ask for ---- */

struct watch_in {
	struct str path;
	struct json_bool recursive, include_entry, allow_network;
};
static const struct json_field watch_fields[] = {
	JSON_FIELD(struct watch_in, path, "path", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct watch_in, recursive, "recursive", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct watch_in, include_entry, "includeEntry", JSON_BOOL, .flags = JSON_LAX,
		.alias = "include_entry"),
	JSON_FIELD(struct watch_in, allow_network, "allowNetworkMounts", JSON_BOOL,
		.flags = JSON_LAX, .alias = "allow_network_mounts"),
};
static const struct json_shape watch_shape =
	JSON_SHAPE(struct watch_in, watch_fields, .ignore_unknown = true);

/* inotify sees only what this kernel does, so on shared file systems it would lie by silence. */
static bool is_network(const char *path)
{
	static const uint32_t magics[] = { 0x6969 /* nfs */, 0xff534d42 /* cifs */,
		0x517b /* smb */, 0xfe534d42 /* smb2 */, 0x65735546 /* fuse */ };
	struct statfs st;

	if (statfs(path, &st) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
		if ((uint32_t)st.f_type == magics[i])
			return true;
	return false;
}

/* False: it was answered. */
static bool decode_watch(struct rpc *rpc, struct str message, char path[PATH_MAX],
	struct watch_options *o)
{
	struct watch_in in;
	struct stat st;

	if (!rpc_decode(rpc, message, &watch_shape, &in) || !rpc_resolve(rpc, in.path, path))
		return false;
	*o = (struct watch_options){ in.recursive.value, in.include_entry.value };
	if (stat(path, &st) < 0)
		rpc_fail(rpc, errno == ENOENT ? CONNECT_NOT_FOUND : CONNECT_INTERNAL,
			"path %s not found: %s", path,
			errno == ENOENT ? "no such file or directory" : strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "path %s not a directory", path);
	else if (!in.allow_network.value && is_network(path))
		rpc_fail(rpc, CONNECT_INVALID_ARGUMENT,
			"cannot watch path on network filesystem: %s", path);
	else
		return true;
	return false;
}

/* ---- WatchDir ---- */

struct watch_stream {
	struct rpc *rpc; /* until it has started */
	struct feed_options options;
	struct watch *watch;
	struct feed *feed;
	struct buf frame;
	/* A directory that was moved in is many events at once, more than the client takes. */
	struct buf late;
	size_t late_at; /* sent already */
	bool is_full;
};

static void stream_free(struct watch_stream *s)
{
	(void)watch_free(s->watch);
	buf_done(&s->frame);
	buf_done(&s->late);
	free(s);
}

static void stream_send(struct watch_stream *s, struct str frame)
{
	if (feed_send(s->feed, frame))
		return;
	s->is_full = true;
	watch_pause(s->watch, true);
}

static void stream_event(void *arg, struct str json)
{
	struct watch_stream *s = arg;
	size_t mark;

	buf_clear(&s->frame);
	mark = connect_frame_begin(&s->frame);
	buf_adds(&s->frame, "{\"filesystem\":");
	buf_add_str(&s->frame, json);
	buf_adds(&s->frame, "}");
	if (s->frame.failed)
		return;
	connect_frame_end(&s->frame, mark, 0);
	if (s->is_full)
		(void)buf_add_str(&s->late, buf_str(&s->frame));
	else
		stream_send(s, buf_str(&s->frame));
}

static void stream_failed(void *arg, const struct err *e)
{
	struct watch_stream *s = arg;

	buf_clear(&s->frame);
	connect_end_error(&s->frame, CONNECT_INTERNAL, e->msg);
	feed_finish(s->feed, buf_str(&s->frame));
	stream_free(s);
}

static struct str first_frame(struct str frames)
{
	const unsigned char *p = (const unsigned char *)frames.p;
	size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];

	return str_make(frames.p, CONNECT_HEAD + n);
}

static void stream_drained(void *arg)
{
	struct watch_stream *s = arg;
	struct err e = { 0 };

	s->is_full = false;
	if (s->late.failed) {
		(void)err_set(&e, -EOVERFLOW, "watcher error: too many events were not read");
		stream_failed(s, &e);
		return;
	}
	while (s->late_at < s->late.n && !s->is_full) {
		struct str frame = first_frame(str_from(buf_str(&s->late), s->late_at));

		s->late_at += frame.n;
		stream_send(s, frame);
	}
	if (s->is_full)
		return;
	buf_done(&s->late);
	s->late_at = 0;
	watch_pause(s->watch, false);
}

static void stream_closed(void *arg)
{
	stream_free(arg);
}

static const struct watch_ops stream_ops = { stream_event, stream_failed };
static const struct feed_ops stream_feed_ops = {
	.keepalive = "{\"keepalive\":{}}",
	.drained = stream_drained,
	.closed = stream_closed,
};

static void stream_started(void *arg, int r, const struct err *e)
{
	struct watch_stream *s = arg;
	struct rpc *rpc = TAKE(s->rpc);
	size_t mark;

	if (r == -ECANCELED)
		(void)rpc_take_exchange(rpc);
	else if (r < 0)
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", e->msg);
	if (r < 0) {
		stream_free(s);
		return;
	}
	s->feed = feed_open(rpc_take_exchange(rpc), &s->options, &stream_feed_ops, s);
	mark = connect_frame_begin(&s->frame);
	buf_adds(&s->frame, "{\"start\":{}}");
	connect_frame_end(&s->frame, mark, 0);
	(void)feed_send(s->feed, buf_str(&s->frame));
}

void rpc_filesystem_watch_dir(struct rpc *rpc, struct str message)
{
	struct feed_options options;
	struct watch_options o;
	struct watch_stream *s;
	struct err e = { 0 };
	char path[PATH_MAX];

	if (!decode_watch(rpc, message, path, &o))
		return;
	if (!rpc_stream_options(rpc, &options))
		return;
	s = XNEW(struct watch_stream);
	s->rpc = rpc;
	s->options = options;
	s->frame = BUF_INIT(FRAME_MAX_BYTES);
	s->late = BUF_INIT(LATE_MAX_BYTES);
	if (watch_new(&rpc->guest->watches, path, &o, &stream_ops, s, &s->watch, &e) < 0) {
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", e.msg);
		stream_free(s);
		return;
	}
	watch_start(s->watch, stream_started, s);
}

/* ---- CreateWatcher and its companions ---- */

struct watcher {
	struct list node;
	struct rpc *rpc; /* until it has started */
	char id[WATCHER_ID + 2];
	struct watch *watch;
	struct buf events; /* comma-separated */
	struct err failed; /* code < 0: what every question gets */
};

static void watcher_event(void *arg, struct str json)
{
	struct watcher *w = arg;

	if (w->events.n)
		buf_addc(&w->events, ',');
	buf_add_str(&w->events, json);
	if (w->events.failed && w->failed.code == 0)
		err_set(&w->failed, -EOVERFLOW,
			"watcher error: too many events were not asked for");
}

static void watcher_failed(void *arg, const struct err *e)
{
	struct watcher *w = arg;

	w->failed = *e;
}

static const struct watch_ops watcher_ops = { watcher_event, watcher_failed };

static void watcher_free(struct watcher *w)
{
	(void)watch_free(w->watch);
	buf_done(&w->events);
	list_remove(&w->node);
	free(w);
}

void watch_book_done(struct list *book)
{
	LIST_EACH(book, node)
	watcher_free(container_of(node, struct watcher, node));
}

static void reply_watcher_id(struct rpc *rpc, const char *id)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(256);
	struct jsonw w;

	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "watcherId", id);
	jsonw_end_object(&w);
	rpc_reply(rpc, &out);
}

static void watcher_started(void *arg, int r, const struct err *e)
{
	struct watcher *w = arg;
	struct rpc *rpc = TAKE(w->rpc);

	if (r == 0) {
		list_append(&rpc->guest->watchers, &w->node);
		reply_watcher_id(rpc, w->id);
		return;
	}
	if (r == -ECANCELED)
		(void)rpc_take_exchange(rpc);
	else
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", e->msg);
	watcher_free(w);
}

void rpc_filesystem_create_watcher(struct rpc *rpc, struct str message)
{
	struct watch_options o;
	struct err e = { 0 };
	char path[PATH_MAX];
	struct watcher *w;

	if (!decode_watch(rpc, message, path, &o))
		return;
	w = XNEW(struct watcher);
	w->rpc = rpc;
	w->events = BUF_INIT(POLLED_MAX_BYTES);
	w->id[0] = 'w';
	random_id(w->id + 1, WATCHER_ID);
	list_init(&w->node);
	if (watch_new(&rpc->guest->watches, path, &o, &watcher_ops, w, &w->watch, &e) < 0) {
		watcher_free(w);
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", e.msg);
		return;
	}
	watch_start(w->watch, watcher_started, w);
}

struct watcher_in {
	struct str id;
};
static const struct json_field watcher_fields[] = {
	JSON_FIELD(struct watcher_in, id, "watcherId", JSON_STR, .flags = JSON_LAX,
		.alias = "watcher_id"),
};
static const struct json_shape watcher_shape =
	JSON_SHAPE(struct watcher_in, watcher_fields, .ignore_unknown = true);

/* NULL: it was answered. */
static struct watcher *find_watcher(struct rpc *rpc, struct str message)
{
	struct watcher_in in;

	if (!rpc_decode(rpc, message, &watcher_shape, &in))
		return NULL;
	LIST_EACH(&rpc->guest->watchers, node)
	{
		struct watcher *w = container_of(node, struct watcher, node);

		if (str_is(in.id, w->id))
			return w;
	}
	rpc_fail(rpc, CONNECT_NOT_FOUND, "watcher with id %.*s not found", STR_ARG(in.id));
	return NULL;
}

void rpc_filesystem_get_watcher_events(struct rpc *rpc, struct str message)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(POLLED_MAX_BYTES + 64);
	struct watcher *w = find_watcher(rpc, message);

	if (!w)
		return;
	watch_drain(w->watch);
	if (w->failed.code < 0) {
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", w->failed.msg);
		return;
	}
	buf_adds(&out, "{\"events\":[");
	buf_add_str(&out, buf_str(&w->events));
	buf_adds(&out, "]}");
	buf_done(&w->events);
	rpc_reply(rpc, &out);
}

void rpc_filesystem_remove_watcher(struct rpc *rpc, struct str message)
{
	struct watcher *w = find_watcher(rpc, message);

	if (!w)
		return;
	watcher_free(w);
	rpc_reply_empty(rpc);
}
