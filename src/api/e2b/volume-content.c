/* What is in a volume. These calls carry the volume's own token, not a key of its team. */
#include "api/e2b/e2b.h"

enum {
	HOLD_BYTES = 256 << 10 /* an upload's pieces are written in strides of about this */
};

/* ---- where ---- */

/* The volume, which may have gone since its token was checked, and the path; answers 401 and 400
 * itself. */
static int open_place(struct api_call *call, struct volume_at *ret)
{
	const struct volume *v = volume_find(call->api->config.volumes, NULL, call->params[0]);
	struct str path = http_query_value(call->x, "path");

	if (!v) {
		api_fail_status(call, 401, "the volume's token is missing or wrong");
		return -EACCES;
	}
	if (!path.p) {
		api_fail_status(call, 400, "validation error: path is required");
		return -EINVAL;
	}
	*ret = (struct volume_at){ v, path };
	return 0;
}

struct write_options {
	struct volume_attr attr;
	bool force;
};

static int read_options(struct api_call *call, struct write_options *ret)
{
	struct str force = http_query_value(call->x, "force");
	int64_t mode = VOLUME_KEEP, uid = VOLUME_KEEP, gid = VOLUME_KEEP;

	if (force.p && !str_is(force, "true") && !str_is(force, "false")) {
		api_fail_status(call, 400, "validation error: force must be true or false");
		return -EINVAL;
	}
	if (api_query_int(call, "mode", 0, VOLUME_MODE_MAX, &mode) < 0 ||
		api_query_int(call, "uid", 0, VOLUME_ID_MAX, &uid) < 0 ||
		api_query_int(call, "gid", 0, VOLUME_ID_MAX, &gid) < 0)
		return -EINVAL;
	*ret = (struct write_options){ { (int)mode, (int)uid, (int)gid }, str_is(force, "true") };
	return 0;
}

/* ---- entries ---- */

static void write_time(struct jsonw *w, const char *key, int64_t at_us)
{
	char at[RFC3339_SIZE];

	time_rfc3339(at_us, at);
	jsonw_strz(w, key, at);
}

static void write_entry(struct jsonw *w, const struct volume_entry *entry)
{
	static const char *const types[] = {
		[VOLUME_UNKNOWN] = "unknown",
		[VOLUME_FILE] = "file",
		[VOLUME_DIRECTORY] = "directory",
		[VOLUME_SYMLINK] = "symlink",
	};

	jsonw_object(w, NULL);
	jsonw_str(w, "name", entry->name);
	jsonw_strz(w, "type", types[entry->type]);
	jsonw_str(w, "path", entry->path);
	jsonw_int(w, "size", entry->size_bytes);
	jsonw_int(w, "mode", entry->mode);
	jsonw_int(w, "uid", entry->uid);
	jsonw_int(w, "gid", entry->gid);
	write_time(w, "atime", entry->atime_us);
	write_time(w, "mtime", entry->mtime_us);
	write_time(w, "ctime", entry->ctime_us);
	if (entry->target.p)
		jsonw_str(w, "target", entry->target);
	jsonw_end_object(w);
}

static void reply_entry(struct api_call *call, int status, int r, const struct volume_entry *v,
	const struct err *e)
{
	struct api_answer answer;

	if (!api_answer_begin(call, &answer, r, e))
		return;
	write_entry(&answer.w, v);
	api_answer_send(call, &answer, status);
}

static void reply_found(void *arg, int r, const struct volume_entry *v, size_t n,
	const struct err *e)
{
	(void)n;
	reply_entry(arg, 200, r, v, e);
}

static void reply_made(void *arg, int r, const struct volume_entry *v, size_t n,
	const struct err *e)
{
	(void)n;
	reply_entry(arg, 201, r, v, e);
}

void e2b_content_stat(struct api_call *call)
{
	struct volume_at at;

	if (open_place(call, &at) == 0)
		volume_stat(call->api->config.volumes, &at, reply_found, call);
}

void e2b_content_remove(struct api_call *call)
{
	struct volume_at at;

	if (open_place(call, &at) == 0)
		volume_delete(call->api->config.volumes, &at, api_done_empty, call);
}

struct patch_in {
	struct json_int uid, gid, mode;
};
static const struct json_field patch_fields[] = {
	JSON_FIELD(struct patch_in, uid, "uid", JSON_INT, .min = 0, .max = VOLUME_ID_MAX),
	JSON_FIELD(struct patch_in, gid, "gid", JSON_INT, .min = 0, .max = VOLUME_ID_MAX),
	JSON_FIELD(struct patch_in, mode, "mode", JSON_INT, .min = 0, .max = VOLUME_MODE_MAX),
};
static const struct json_shape patch_shape = JSON_SHAPE(struct patch_in, patch_fields);

static int or_keep(struct json_int given)
{
	return given.is_set ? (int)given.value : VOLUME_KEEP;
}

void e2b_content_patch(struct api_call *call)
{
	struct volume_attr attr;
	struct volume_at at;
	struct patch_in in;

	if (open_place(call, &at) < 0 || api_decode(call, &patch_shape, &in, false) < 0)
		return;
	attr = (struct volume_attr){ or_keep(in.mode), or_keep(in.uid), or_keep(in.gid) };
	volume_change(call->api->config.volumes, &at, &attr, reply_found, call);
}

static void render_listing(struct buf *out, const struct volume_entry *v, size_t n)
{
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_array(&w, NULL);
	for (size_t i = 0; i < n && !out->failed; i++)
		write_entry(&w, &v[i]);
	jsonw_end_array(&w);
}

static void reply_listing(void *arg, int r, struct str text, const struct err *e)
{
	if (r < 0)
		api_fail(arg, e);
	else
		api_reply_text(arg, 200, text);
}

void e2b_content_list(struct api_call *call)
{
	struct volume_at at;
	int64_t depth = 1;

	if (open_place(call, &at) == 0 &&
		api_query_int(call, "depth", 1, VOLUME_MAX_DEPTH, &depth) == 0)
		volume_list(call->api->config.volumes, &at, (int)depth, render_listing,
			reply_listing, call);
}

void e2b_content_mkdir(struct api_call *call)
{
	struct write_options options;
	struct volume_at at;

	if (open_place(call, &at) == 0 && read_options(call, &options) == 0)
		volume_mkdir(call->api->config.volumes, &at, &options.attr, options.force,
			reply_made, call);
}

/* ---- files ---- */

static void opened(void *arg, int fd, int64_t size, const struct err *e)
{
	struct api_call *call = arg;

	if (fd < 0) {
		api_fail(call, e);
		return;
	}
	api_add_attachment(call, STR_NONE);
	http_begin(call->x, 200, "application/octet-stream", size);
	api_take_file(call, fd, 0, size);
}

void e2b_content_read(struct api_call *call)
{
	struct volume_at at;

	if (open_place(call, &at) == 0)
		volume_open(call->api->config.volumes, &at, opened, call);
}

struct upload { /* in the exchange's arena, except for what it holds */
	struct api_call *call;
	struct volume_upload *up;
	struct buf coming, going; /* what arrives, and what a job is writing */
	bool is_writing, has_ended;
	int failed; /* the client's side: -EPROTO, -ECONNRESET */
	struct err e;
};

static void upload_step(struct upload *u);

static void upload_close(struct upload *u)
{
	buf_done(&u->coming);
	buf_done(&u->going);
}

static void upload_fail(struct upload *u)
{
	volume_upload_abort(u->up);
	upload_close(u);
	if (u->e.code < 0)
		api_fail(u->call, &u->e);
	else if (u->failed == -EPROTO)
		api_fail_status(u->call, 400, "the request body is framed wrongly");
	else
		http_abort(u->call->x);
}

static void finished(void *arg, int r, const struct volume_entry *v, size_t n, const struct err *e)
{
	struct upload *u = arg;

	(void)n;
	upload_close(u);
	reply_entry(u->call, 201, r, v, e);
}

static void written(void *arg, int r, const struct err *e)
{
	struct upload *u = arg;

	u->is_writing = false;
	buf_clear(&u->going);
	if (r < 0) {
		u->e = *e;
		buf_clear(&u->coming);
	}
	upload_step(u);
}

/* One write at a time; meanwhile the next stride comes in, then the client has to wait. After a
 * failure the rest is read and thrown away, so that the answer is seen. */
static void upload_step(struct upload *u)
{
	struct buf free_one = u->going;

	if (u->is_writing)
		return;
	if (u->coming.n && u->e.code == 0 && u->failed == 0 &&
		(u->coming.n >= HOLD_BYTES || u->has_ended)) {
		u->going = u->coming;
		u->coming = free_one;
		u->is_writing = true;
		volume_upload_write(u->up, buf_str(&u->going), written, u);
	}
	if (!u->has_ended)
		http_resume_body(u->call->x);
	else if (!u->is_writing && (u->e.code < 0 || u->failed < 0))
		upload_fail(u);
	else if (!u->is_writing)
		volume_upload_finish(u->up, finished, u);
}

static void arrived(void *arg, int r, struct str bytes)
{
	struct upload *u = arg;

	if (bytes.n == 0) {
		u->has_ended = true;
		u->failed = r;
	} else if (u->e.code == 0 && buf_add_str(&u->coming, bytes) < 0) {
		(void)err_set(&u->e, -ENOMEM, "out of memory");
	}
	if (u->is_writing && u->coming.n >= HOLD_BYTES)
		http_pause_body(u->call->x);
	upload_step(u);
}

static void upload_begun(void *arg, int r, struct volume_upload *up, const struct err *e)
{
	struct upload *u = arg;

	if (r < 0) {
		api_fail(u->call, e);
		return;
	}
	u->up = up;
	http_stream_body(u->call->x, arrived, u);
}

void e2b_content_write(struct api_call *call)
{
	struct upload *u = arena_alloc(http_arena(call->x), sizeof *u);
	struct write_options options;
	struct volume_at at;

	if (open_place(call, &at) < 0 || read_options(call, &options) < 0)
		return;
	if (!u) {
		api_fail_status(call, 500, "out of memory");
		return;
	}
	u->call = call;
	u->coming = u->going = BUF_INIT(16 << 20);
	volume_upload(call->api->config.volumes, &at, &options.attr, options.force, upload_begun,
		u);
}
