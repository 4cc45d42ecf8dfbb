/* POST /files: an upload of any size in constant memory. The body passes through, as needed,
 * inflate, the multipart parser, and ends in one `save` at a time. All of that is a job, as disks
 * may be slow: while one batch of bytes is written the next is collected, and then the client
 * waits. Only a small body is written on the spot: a few system calls, where a job would double the
 * time. After a failure the rest of the body is read and dropped, so that the client gets to see
 * the answer. */
#include "guest/guest.h"

#include "guest/auth.h"
#include "guest/files.h"
#include "guest/inflate.h"
#include "guest/metadata.h"
#include "guest/multipart.h"
#include "guest/path.h"
#include "guest/save.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	UPLOAD_MAX_REPLY = 16 << 20,
	UPLOAD_MAX_PATHS = 16 << 20, /* bytes of the names of one upload */
	UPLOAD_MAX_METADATA = 64,
	UPLOAD_BATCH_BYTES = 256 << 10, /* collected: the client waits */
	UPLOAD_BATCH_MAX = 1 << 20,     /* one piece more than that is still taken */
	UPLOAD_SMALL_BYTES = 64 << 10,  /* written on the spot */
	UPLOAD_ARENA_BYTES = 1 << 20,
};

struct upload {
	struct transfer transfer;
	struct guest *guest;
	struct http_exchange *x;                     /* NULL: the client has left */
	bool is_small, is_busy, is_paused, is_ended; /* ended: the body */
	struct buf collected;
	struct err failed; /* code < 0: the answer */

	/* The job's, while there is one. */
	struct arena *arena; /* what it keeps of the request, which may be gone before it */
	struct buf batch;
	struct user user;
	const char *workdir; /* or NULL; the settings' may change meanwhile */
	struct str path;     /* the query's; p NULL: the parts name themselves */
	struct json_map metadata;
	struct json_pair pairs[UPLOAD_MAX_METADATA];
	int mode;        /* of the file; -1: as new files are */
	int64_t written; /* bytes of all files */

	struct inflate *inflate;      /* NULL: comes as it is */
	struct multipart multipart;   /* when is_multipart */
	bool is_multipart, is_opened; /* the second: the one file of a plain body */
	struct save save;             /* fd >= 0: a part named "file" is open */
	struct buf paths;             /* terminated paths so far: no two may be the same */
	size_t last_path;             /* where the last of them begins */
	struct activity_asker asker;
	bool is_whole; /* all of it was written */
	struct buf reply;
	struct jsonw w;
};

/* What was begun has changed a file, whatever became of the rest. */
static void record(const struct upload *u)
{
	struct activity_file file = { .asker = u->asker,
		.kind = "file.written",
		.user = u->user.name,
		.bytes = u->last_path == 0 ? u->written : -1 };

	for (size_t at = 0; at < u->paths.n; at += strlen(u->paths.p + at) + 1) {
		file.path = u->paths.p + at;
		file.is_partly = !u->is_whole && at == u->last_path;
		activity_file(&u->guest->activity, &file);
	}
}

static void upload_free(struct upload *u)
{
	record(u);
	list_remove(&u->transfer.node);
	buf_done(&u->collected);
	buf_done(&u->batch);
	save_done(&u->save);
	multipart_done(&u->multipart);
	u->inflate = inflate_free(u->inflate);
	buf_done(&u->paths);
	buf_done(&u->reply);
	(void)arena_free(u->arena);
	free(u);
}

static void upload_cancel(struct transfer *t)
{
	struct upload *u = container_of(t, struct upload, transfer);

	u->x = NULL;
	if (!u->is_busy)
		upload_free(u);
}

/* How full is full: the limit is part of the answer. */
static void explain_space(struct upload *u)
{
	const struct settings *s = &u->guest->settings;
	struct err e = u->failed;
	struct statvfs st;
	bool inodes = statvfs("/", &st) == 0 && st.f_files && st.f_favail == 0;

	if (u->failed.code != -ENOSPC)
		return;
	gauges_look(&u->guest->gauges);
	if (inodes && s->max_inodes)
		(void)err_set(&u->failed, -ENOSPC, "%s (the sandbox's limit is %" PRId64 " files)",
			e.msg, s->max_inodes);
	else if (s->disk_mb)
		(void)err_set(&u->failed, -ENOSPC, "%s (the sandbox's limit is %" PRId64 " MiB)",
			e.msg, s->disk_mb);
}

static int status_of(int code)
{
	switch (code) {
	case -ENOSPC:
		return 507;
	case -EISDIR:
	case -EINVAL:
	case -EPROTO:
	case -ENAMETOOLONG:
	case -E2BIG:
	case -ENOTDIR:
		return 400;
	default:
		return 500;
	}
}

/* ---- where the bytes end ---- */

static int file_open(struct upload *u, struct str name, struct err *e)
{
	size_t before = u->paths.n;
	char path[PATH_MAX];
	int r = path_resolve(&u->user, u->workdir, name, path, e);

	if (r < 0)
		return err_wrap(e, r, "error resolving path");
	for (const char *p = u->paths.p; p && p < u->paths.p + u->paths.n; p += strlen(p) + 1)
		if (strcmp(p, path) == 0)
			return err_set(e, -EINVAL,
				"you cannot upload multiple files to the same path '%s' in one "
				"upload request, only the first specified file was uploaded",
				path);
	if (buf_add(&u->paths, path, strlen(path) + 1) < 0)
		return err_set(e, -E2BIG, "too many files in one upload");
	r = save_open(&u->save, path, &u->user, e);
	if (r < 0)
		u->paths.n = before;
	else
		u->last_path = before;
	return r;
}

static int file_close(struct upload *u, struct err *e)
{
	char path[PATH_MAX];
	int r;

	memcpy(path, u->save.path, sizeof path);
	if (u->mode >= 0 && fchmod(u->save.fd, (mode_t)u->mode) < 0)
		return err_sys(e, -errno, "error changing file mode: chmod %s", path);
	r = save_close(&u->save, &u->metadata, e);
	if (r < 0)
		return r;
	jsonw_object(&u->w, NULL);
	jsonw_strz(&u->w, "path", path);
	jsonw_str(&u->w, "name", path_base(path));
	jsonw_strz(&u->w, "type", "file");
	metadata_write_json(&u->w, "metadata", path);
	jsonw_end_object(&u->w);
	return 0;
}

static int on_part(void *arg, const struct multipart_part *part, struct err *e)
{
	struct upload *u = arg;

	if (!str_is(part->name, "file"))
		return 0;
	if (u->path.p)
		return file_open(u, u->path, e);
	if (!part->filename.p)
		return err_set(e, -EINVAL,
			"error getting multipart custom part file name: filename not found in "
			"Content-Disposition header");
	return file_open(u, part->filename, e);
}

static int on_part_data(void *arg, struct str bytes, struct err *e)
{
	struct upload *u = arg;

	if (u->save.fd < 0)
		return 0;
	u->written += (int64_t)bytes.n;
	return save_write(&u->save, bytes, e);
}

static int on_part_end(void *arg, struct err *e)
{
	struct upload *u = arg;

	return u->save.fd >= 0 ? file_close(u, e) : 0;
}

static const struct multipart_ops part_ops = { on_part, on_part_data, on_part_end };

static int on_plain(void *arg, struct str bytes, struct err *e)
{
	struct upload *u = arg;

	if (u->is_multipart)
		return multipart_feed(&u->multipart, bytes, e);
	u->written += (int64_t)bytes.n;
	return save_write(&u->save, bytes, e);
}

/* ---- the job ---- */

static int open_once(struct upload *u, struct err *e)
{
	if (u->is_multipart || u->is_opened)
		return 0;
	u->is_opened = true;
	return file_open(u, u->path, e);
}

static int write_batch(void *arg, struct err *e)
{
	struct upload *u = arg;
	int r = open_once(u, e);

	if (r < 0)
		return r;
	return u->inflate ? inflate_feed(u->inflate, buf_str(&u->batch), e)
			  : on_plain(u, buf_str(&u->batch), e);
}

static int finish(void *arg, struct err *e)
{
	struct upload *u = arg;
	int r = open_once(u, e);

	if (r == 0 && u->inflate)
		r = inflate_finish(u->inflate, e);
	if (r < 0)
		return r;
	return u->is_multipart ? multipart_finish(&u->multipart, e) : file_close(u, e);
}

/* ---- the body ---- */

static void answer(struct upload *u)
{
	/* What was written is visible to a poll that comes right behind the answer. */
	watch_set_drain(&u->guest->watches);
	if (u->failed.code < 0) {
		explain_space(u);
		files_say_errno(u->x, u->failed.code);
		reply_fail(u->x, status_of(u->failed.code), "%s", u->failed.msg);
	} else {
		u->is_whole = true;
		jsonw_end_array(&u->w);
		http_reply(u->x, 200, "application/json", buf_str(&u->reply));
	}
	upload_free(u);
}

static void run(struct upload *u, loop_work_fn work, done_fn done)
{
	struct err e = { 0 };

	u->is_busy = true;
	if (u->is_small)
		done(u, work(u, &e), &e);
	else
		loop_job(u->guest->loop, LOOP_ANY, work, done, u);
}

/* False: nobody is left to go on for. */
static bool note_done(struct upload *u, int r, const struct err *e)
{
	u->is_busy = false;
	if (!u->x) {
		upload_free(u);
		return false;
	}
	if (r < 0) { /* a half-written file is closed at once, its space may be needed */
		u->failed = *e;
		u->failed.code = r;
		save_done(&u->save);
		buf_clear(&u->collected);
	}
	return true;
}

static void finished(void *arg, int r, const struct err *e)
{
	if (note_done(arg, r, e))
		answer(arg);
}

static void batch_written(void *arg, int r, const struct err *e);

/* Whatever is next, unless a job is at it. */
static void advance(struct upload *u)
{
	struct buf written = u->batch;

	if (u->is_busy)
		return;
	if (u->collected.n > 0) {
		buf_clear(&written);
		u->batch = u->collected;
		u->collected = written;
		run(u, write_batch, batch_written);
	} else if (u->is_ended && u->failed.code < 0) {
		answer(u);
	} else if (u->is_ended) {
		run(u, finish, finished);
	}
}

static void batch_written(void *arg, int r, const struct err *e)
{
	struct upload *u = arg;

	if (!note_done(u, r, e))
		return;
	if (u->is_paused) {
		u->is_paused = false;
		http_resume_body(u->x);
	}
	advance(u);
}

static void on_chunk(void *arg, int r, struct str bytes)
{
	struct upload *u = arg;

	if (r < 0) { /* the client left, or what it sent is no HTTP: nobody to answer */
		http_abort(u->x);
		upload_cancel(&u->transfer);
		return;
	}
	u->is_ended = bytes.n == 0;
	if (u->failed.code == 0 && buf_add_str(&u->collected, bytes) < 0) {
		err_set(&u->failed, -ENOMEM, "no memory for the upload");
		buf_clear(&u->collected);
	}
	if (u->collected.n >= UPLOAD_BATCH_BYTES && u->is_busy) {
		u->is_paused = true;
		http_pause_body(u->x);
	}
	advance(u);
}

/* ---- the head ---- */

static bool is_media(struct str type, struct str want)
{
	return type.n >= want.n && str_eq_nocase(str_make(type.p, want.n), want);
}

/* X-Metadata-Key: value; the key in lower case, the first of two wins. */
static int read_metadata(struct upload *u, struct err *e)
{
	static const struct str prefix = { "X-Metadata-", 11 };
	struct str name, value;

	u->metadata.v = u->pairs;
	for (size_t i = 0; http_header_at(u->x, i, &name, &value); i++) {
		char *key, *text;

		if (!is_media(name, prefix) || name.n == prefix.n)
			continue;
		if (u->metadata.n == UPLOAD_MAX_METADATA)
			return err_set(e, -EINVAL, "more than %d metadata keys",
				UPLOAD_MAX_METADATA);
		key = arena_dup(u->arena, str_from(name, prefix.n));
		text = arena_dup(u->arena, value);
		if (!key || !text)
			return err_set(e, -EINVAL, "metadata is too large");
		for (char *c = key; *c; c++)
			if (*c >= 'A' && *c <= 'Z')
				*c = (char)(*c + ('a' - 'A'));
		u->pairs[u->metadata.n++] = (struct json_pair){ str_of(key), str_of(text) };
	}
	return metadata_check(&u->metadata, e) < 0 ? err_wrap(e, -EINVAL, "invalid metadata") : 0;
}

/* Not E2B's: mode=0755 in the query. */
static int read_mode(struct upload *u, struct err *e)
{
	struct str text = http_query_value(u->x, "mode");

	u->mode = -1;
	if (!text.p)
		return 0;
	u->mode = 0;
	for (size_t i = 0; i < text.n; i++) {
		if (text.n > 4 || text.p[i] < '0' || text.p[i] > '7')
			return err_set(e, -EINVAL, "mode must be up to four octal digits");
		u->mode = u->mode * 8 + (text.p[i] - '0');
	}
	return 0;
}

static int read_encoding(struct upload *u, struct err *e)
{
	struct str header = http_header(u->x, "Content-Encoding"), first;

	if (!header.n || !str_split(&header, ';', &first))
		return 0;
	first = str_trim(first);
	if (str_eq_nocase(first, STR("identity")))
		return 0;
	if (!str_eq_nocase(first, STR("gzip")))
		return err_set(e, -EINVAL,
			"error decompressing request body: unsupported Content-Encoding: %.*s, "
			"supported: [gzip]",
			STR_ARG(first));
	return inflate_new(on_plain, u, &u->inflate, e);
}

static int read_type(struct upload *u, struct err *e)
{
	struct str type = http_header(u->x, "Content-Type");
	char boundary[MULTIPART_MAX_BOUNDARY + 1];
	int r;

	if (is_media(type, STR("multipart/"))) {
		r = multipart_boundary(type, boundary, e);
		if (r < 0)
			return err_wrap(e, r, "error parsing multipart form");
		u->is_multipart = true;
		multipart_init(&u->multipart, boundary, &part_ops, u);
		return 0;
	}
	if (!is_media(type, STR("application/octet-stream")))
		return err_set(e, -EINVAL,
			"unsupported content type: %.*s, expected multipart/form-data or "
			"application/octet-stream",
			STR_ARG(type));
	if (!u->path.p)
		return err_set(e, -EINVAL, "path query parameter is required for raw body upload");
	return 0;
}

static struct upload *upload_new(struct guest *g, struct http_exchange *x, const struct user *user,
	struct str path)
{
	struct upload *u = XNEW(struct upload);
	struct arena *arena = arena_new(UPLOAD_ARENA_BYTES);

	*u = (struct upload){ .guest = g,
		.x = x,
		.arena = arena,
		.user = *user,
		.collected = BUF_INIT(UPLOAD_BATCH_MAX),
		.batch = BUF_INIT(UPLOAD_BATCH_MAX),
		.save = SAVE_INIT,
		.paths = BUF_INIT(UPLOAD_MAX_PATHS),
		.reply = BUF_INIT(UPLOAD_MAX_REPLY) };
	/* Both are short: they came in a request's head, or in settings that were checked. */
	if (path.p)
		u->path = str_make(arena_dup(arena, path), path.n);
	if (g->settings.workdir)
		u->workdir = arena_dup(arena, str_of(g->settings.workdir));
	u->asker = guest_asker_keep(x, arena);
	transfer_add(g, &u->transfer, upload_cancel);
	jsonw_init(&u->w, &u->reply);
	jsonw_array(&u->w, NULL);
	return u;
}

void files_post(struct guest *g, struct http_exchange *x)
{
	struct upload *u;
	struct user user;
	struct str path;
	int r;

	if (!files_admit(g, x, "write", &user, &path))
		return;
	u = upload_new(g, x, &user, path);
	r = read_mode(u, &u->failed);
	if (r == 0)
		r = read_encoding(u, &u->failed);
	if (r == 0)
		r = read_metadata(u, &u->failed);
	if (r == 0)
		r = read_type(u, &u->failed);
	if (r < 0)
		u->failed.code = r;
	/* Packed bytes are small only as long as they are packed. */
	u->is_small = !u->inflate && http_body_length(x) >= 0 &&
		      http_body_length(x) <= UPLOAD_SMALL_BYTES;
	http_stream_body(x, on_chunk, u);
}
