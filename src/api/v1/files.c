/* Files of a sandbox: passed through between the client and the guest as they come, in both
 * directions, with back-pressure; nothing is kept here. */
#include "api/v1/guest.h"

enum {
	HEAD_MS = 30 * 1000,
	STALL_MS = 60 * 1000,
	SMALL_ANSWER = 64 << 10,
};

struct transfer { /* lives in the exchange's arena */
	struct api_call *call;
	char id[SANDBOX_ID_SIZE];
	struct str path, user, mode;
	struct http_stream *stream; /* NULL: over */
	int status;
	int64_t sent; /* bytes of an upload */
	char errno_name[24];
	bool has_begun, is_over;
	struct buf answer; /* what is not passed on */
};

/* ---- what both directions begin with ---- */

static bool is_mode(struct str mode)
{
	for (size_t i = 0; i < mode.n; i++)
		if (mode.p[i] < '0' || mode.p[i] > '7')
			return false;
	return mode.n == 3 || mode.n == 4;
}

static struct transfer *transfer_new(struct api_call *call, const struct sandbox *sb)
{
	struct transfer *t = arena_alloc(http_arena(call->x), sizeof *t);
	struct err e = { 0 };

	if (!t) {
		api_fail_status(call, 500, "out of memory");
		return NULL;
	}
	t->call = call;
	t->answer = BUF_INIT(SMALL_ANSWER);
	memcpy(t->id, sb->id, sizeof t->id);
	if (sandbox_enter(call->api->config.sandboxes, sb, RUNTIME_GUEST_PORT, &e) == 0)
		return t;
	api_fail_as(call, 429, "too_many_connections", e.msg, NULL);
	return NULL;
}

/* Once: from then on only the exchange is left to be answered. */
static void transfer_over(struct transfer *t)
{
	if (t->is_over)
		return;
	t->is_over = true;
	t->stream = NULL;
	sandbox_leave(t->call->api->config.sandboxes, t->id);
}

static void transfer_fail(struct transfer *t, const struct err *e)
{
	transfer_over(t);
	v1_guest_fail(t->call, e);
	buf_done(&t->answer);
}

static void client_gone(void *arg)
{
	struct transfer *t = arg;

	if (t->stream)
		http_stream_cancel(t->stream);
	if (t->is_over)
		return;
	transfer_over(t);
	buf_done(&t->answer);
	http_abort(t->call->x);
}

/* ---- download ---- */

static void pass_header(struct transfer *t, const char *name)
{
	struct str value = http_stream_header(t->stream, name);

	if (value.p)
		http_add_header(t->call->x, name, value);
}

static void read_cause(struct transfer *t)
{
	(void)snprintf(t->errno_name, sizeof t->errno_name, "%.*s",
		STR_ARG(http_stream_header(t->stream, "Atoll-Errno")));
}

static void fail_range(struct transfer *t)
{
	pass_header(t, "Content-Range");
	http_stream_cancel(t->stream);
	transfer_over(t);
	api_fail_as(t->call, 416, NULL, "the range is not within the file", NULL);
}

static void download_head(void *arg, int status)
{
	static const char *const passed[] = { "Content-Range", "Accept-Ranges", "ETag",
		"Last-Modified" };
	struct transfer *t = arg;
	struct http_exchange *x = t->call->x;
	struct str type = http_inert_type(http_stream_header(t->stream, "Content-Type"));
	int64_t length = -1;

	t->status = status;
	if (status == 416) {
		fail_range(t);
		return;
	}
	if (status >= 400) {
		read_cause(t);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
		pass_header(t, passed[i]);
	(void)str_to_int(http_stream_header(t->stream, "Content-Length"), 0, INT64_MAX, &length);
	api_add_attachment(t->call, http_stream_header(t->stream, "Content-Disposition"));
	api_note_answer(t->call, status);
	t->has_begun = true;
	http_begin(x, status, arena_dup(http_arena(x), type), status == 304 ? 0 : length);
}

static void download_body(void *arg, struct str bytes)
{
	struct transfer *t = arg;

	sandbox_touch(t->call->api->config.sandboxes, t->id);
	if (!t->has_begun)
		(void)buf_add_str(&t->answer, bytes);
	else if (!http_write(t->call->x, bytes))
		http_stream_pause(t->stream);
}

static void download_end(void *arg, int r, const struct err *e)
{
	struct transfer *t = arg;
	struct err own = { 0 };

	transfer_over(t);
	if (t->has_begun && r < 0) {
		http_abort(t->call->x); /* it must not be taken for the whole */
	} else if (t->has_begun) {
		http_end(t->call->x);
	} else if (r < 0) {
		(void)err_set(&own, -EAGAIN, "the sandbox did not answer: %s", e->msg);
		api_fail(t->call, &own);
	} else {
		(void)v1_guest_error(t->call, t->status, t->errno_name, buf_str(&t->answer), &own);
		v1_guest_fail(t->call, &own);
	}
	buf_done(&t->answer);
}

static void client_drained(void *arg)
{
	struct transfer *t = arg;

	if (t->stream)
		http_stream_resume(t->stream);
}

static const struct http_stream_ops download_ops = {
	.head = download_head,
	.body = download_body,
	.end = download_end,
};

static const char *download_headers(struct transfer *t, const struct sandbox *sb)
{
	static const char *const passed[] = { "Range", "If-Range", "If-None-Match",
		"If-Modified-Since" };
	CLEANUP(buf_done) struct buf lines = BUF_INIT(8 << 10);

	for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
		struct str value = http_header(t->call->x, passed[i]);

		if (value.p) /* it came as one field: no line break is in it */
			(void)buf_printf(&lines, "%s: %.*s\r\n", passed[i], STR_ARG(value));
	}
	return v1_guest_headers(t->call, sb, STR_NONE, buf_str(&lines).p);
}

static void dial_failed(struct transfer *t, const struct err *e)
{
	struct err own = { 0 };

	(void)err_set(&own, -EAGAIN, "the sandbox cannot be reached: %s", e->msg);
	transfer_fail(t, &own);
}

static void download_dialled(void *arg, int fd, const struct err *e)
{
	struct transfer *t = arg;
	const struct sandbox *sb = fd < 0 ? NULL
					  : sandbox_find(t->call->api->config.sandboxes,
						    v1_owner(t->call), str_of(t->id));
	struct http_stream_request request = { .method = "GET",
		.target = v1_guest_file_target(t->call, t->path, t->user, STR_NONE),
		.host = "localhost",
		.head_timeout_ms = HEAD_MS,
		.stall_timeout_ms = STALL_MS };
	const struct err gone = { .msg = "it has ended" };

	if (!sb || !request.target) {
		if (fd >= 0)
			(void)close(fd);
		dial_failed(t, fd < 0 ? e : &gone);
		return;
	}
	request.headers = download_headers(t, sb);
	http_on_gone(t->call->x, client_gone, t);
	http_on_drain(t->call->x, client_drained, t);
	t->stream = http_stream_open(t->call->api->config.loop, fd, &request, &download_ops, t);
}

void v1_files_get(struct api_call *call)
{
	const struct sandbox *sb;
	struct str path, user;
	struct transfer *t;

	if (v1_file_names(call, &path, &user) < 0)
		return;
	sb = v1_running(call);
	t = sb ? transfer_new(call, sb) : NULL;
	if (!t)
		return;
	t->path = path;
	t->user = user;
	sandbox_dial(call->api->config.sandboxes, sb, RUNTIME_GUEST_PORT, download_dialled, t);
}

/* ---- upload ---- */

static void upload_head(void *arg, int status)
{
	struct transfer *t = arg;

	t->status = status;
	read_cause(t);
}

static void upload_body(void *arg, struct str bytes)
{
	struct transfer *t = arg;

	(void)buf_add_str(&t->answer, bytes);
}

struct entry_in {
	struct str path;
};
static const struct json_field written_fields[] = {
	JSON_FIELD(struct entry_in, path, "path", JSON_STR),
};
static const struct json_shape written_shape =
	JSON_SHAPE(struct entry_in, written_fields, .ignore_unknown = true);

static void reply_written(struct transfer *t)
{
	struct api_answer answer;
	struct json_list list = { 0 };
	struct str path = t->path;

	if (json_decode_list(http_arena(t->call->x), buf_str(&t->answer), &written_shape, &list,
		    NULL) == 0 &&
		list.n)
		path = ((struct entry_in *)list.v)[0].path;
	v1_file_event(t->call, t->id, "file.written", path, t->sent);
	(void)api_answer_begin(t->call, &answer, 0, NULL);
	jsonw_object(&answer.w, NULL);
	jsonw_str(&answer.w, "path", path);
	jsonw_int(&answer.w, "size", t->sent);
	jsonw_end_object(&answer.w);
	api_answer_send(t->call, &answer, 200);
}

static void upload_end(void *arg, int r, const struct err *e)
{
	struct transfer *t = arg;
	struct err own = { 0 };

	transfer_over(t);
	if (r < 0)
		(void)err_set(&own, -EAGAIN, "the sandbox did not answer: %s", e->msg);
	else if (t->status >= 300)
		(void)v1_guest_error(t->call, t->status, t->errno_name, buf_str(&t->answer), &own);
	if (own.code < 0)
		v1_guest_fail(t->call, &own);
	else
		reply_written(t);
	buf_done(&t->answer);
}

static void upload_drained(void *arg)
{
	struct transfer *t = arg;

	http_resume_body(t->call->x);
}

static const struct http_stream_ops upload_ops = {
	.head = upload_head,
	.body = upload_body,
	.end = upload_end,
	.drained = upload_drained,
};

static void on_chunk(void *arg, int r, struct str bytes)
{
	struct transfer *t = arg;

	if (t->is_over) /* answered early */
		return;
	if (r < 0) {
		http_stream_cancel(t->stream);
		transfer_over(t);
		buf_done(&t->answer);
		http_abort(t->call->x);
	} else if (bytes.n == 0) {
		http_stream_send_end(t->stream);
	} else {
		t->sent += (int64_t)bytes.n;
		sandbox_touch(t->call->api->config.sandboxes, t->id);
		if (!http_stream_send(t->stream, bytes))
			http_pause_body(t->call->x);
	}
}

static void upload_dialled(void *arg, int fd, const struct err *e)
{
	struct transfer *t = arg;
	const struct sandbox *sb = fd < 0 ? NULL
					  : sandbox_find(t->call->api->config.sandboxes,
						    v1_owner(t->call), str_of(t->id));
	struct http_stream_request request = { .method = "POST",
		.target = v1_guest_file_target(t->call, t->path, t->user, t->mode),
		.host = "localhost",
		.streams_body = true,
		.length = http_body_length(t->call->x),
		.stall_timeout_ms = STALL_MS };
	const struct err gone = { .msg = "it has ended" };

	if (!sb || !request.target) {
		if (fd >= 0)
			(void)close(fd);
		dial_failed(t, fd < 0 ? e : &gone);
		return;
	}
	request.headers = v1_guest_headers(t->call, sb, STR_NONE,
		"Content-Type: application/octet-stream\r\nAtoll-Recorded: 1\r\n");
	http_on_gone(t->call->x, client_gone, t);
	t->stream = http_stream_open(t->call->api->config.loop, fd, &request, &upload_ops, t);
	http_stream_body(t->call->x, on_chunk, t);
}

/* Answers 400 or 413 itself. */
static int check_upload(struct api_call *call, const struct sandbox *sb, struct str mode)
{
	int64_t most = sb->limits.v[LIMIT_DISK] << 20;

	if (mode.p && !is_mode(mode)) {
		api_fail_status(call, 400,
			"validation error: mode must be three or four octal digits");
		return -EINVAL;
	}
	if (http_body_length(call->x) <= most)
		return 0;
	api_fail_as(call, 413, "file_too_large", "the file is larger than the sandbox's disk",
		"make a sandbox with a larger disk_mb");
	return -EFBIG;
}

void v1_files_put(struct api_call *call)
{
	struct str path, user, mode = http_query_value(call->x, "mode");
	const struct sandbox *sb;
	struct transfer *t;

	if (v1_file_names(call, &path, &user) < 0)
		return;
	sb = v1_running(call);
	if (!sb || check_upload(call, sb, mode) < 0)
		return;
	t = transfer_new(call, sb);
	if (!t)
		return;
	t->path = path;
	t->user = user;
	t->mode = mode;
	sandbox_dial(call->api->config.sandboxes, sb, RUNTIME_GUEST_PORT, upload_dialled, t);
}
