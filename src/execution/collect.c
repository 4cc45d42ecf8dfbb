#include "execution/collect.h"

#include "base/fault.h"
#include "base/glob.h"

#include <sodium.h>

enum {
	STRIDE_BYTES = 256 << 10, /* written by one job; meanwhile the next comes in */
	HEAD_MS = 20000,
	STALL_MS = 60000,
	LIST_BYTES = 8 << 20,
	LIST_ARENA_BYTES = 64 << 20,
	LIST_MS = 30000,
};

struct collect {
	struct execution_book *book;
	struct collected file;
	char team_id[SANDBOX_TEAM_SIZE], sandbox_id[SANDBOX_ID_SIZE];
	int64_t counted_bytes; /* as the team's */
	struct buf target;
	int64_t max_bytes;
	struct http_stream *stream;
	int status, fd;
	struct buf coming, going; /* what arrives, and what a job is writing */
	bool is_writing, has_ended, is_synced;
	crypto_hash_sha256_state sha;
	struct err e;
	collect_fn fn;
	void *arg;
};

static void step(struct collect *c);

void collect_undo(struct execution_book *book, const char *team_id, const char *id,
	int64_t counted_bytes)
{
	(void)unlinkat(book->config.artifacts_fd, id, 0);
	(void)kept_add(book, team_id, -counted_bytes, NULL);
}

static void collect_end(struct collect *c)
{
	uint8_t digest[SHA256_SIZE];

	if (c->fd >= 0)
		(void)close(c->fd);
	if (c->e.code < 0)
		collect_undo(c->book, c->team_id, c->file.id, c->counted_bytes);
	(void)crypto_hash_sha256_final(&c->sha, digest);
	hex_encode(digest, sizeof digest, c->file.sha256);
	c->fn(c->arg, c->e.code, &c->file, &c->e);
	buf_done(&c->coming);
	buf_done(&c->going);
	buf_done(&c->target);
	free(c);
}

static int write_stride(void *arg, struct err *e)
{
	struct collect *c = arg;
	int r = fd_write_all(c->fd, c->going.p, c->going.n);

	(void)crypto_hash_sha256_update(&c->sha, (const unsigned char *)c->going.p, c->going.n);
	return r < 0 ? err_sys(e, r, "write the artifact") : 0;
}

static void written(void *arg, int r, const struct err *e)
{
	struct collect *c = arg;

	c->is_writing = false;
	buf_clear(&c->going);
	if (r < 0 && c->e.code == 0)
		c->e = *e;
	if (c->stream)
		http_stream_resume(c->stream);
	step(c);
}

static int sync_fd(int fd, const char *what, struct err *e)
{
	int r = fsync(fd) < 0 ? -errno : -(int)fault_value(FAULT_SYNC_ERRNO);

	return r < 0 ? err_sys(e, r, "write out %s", what) : 0;
}

int collect_sync_names(const struct execution_book *book, struct err *e)
{
	return sync_fd(book->config.artifacts_fd, "the directory of artifacts", e);
}

static int sync_file(void *arg, struct err *e)
{
	struct collect *c = arg;

	return sync_fd(c->fd, "the artifact", e);
}

/* One write at a time; the last is for the disk itself. */
static void step(struct collect *c)
{
	struct buf free_one = c->going;

	if (c->is_writing)
		return;
	if (c->e.code < 0 && c->stream) {
		http_stream_cancel(TAKE(c->stream));
		c->has_ended = true;
	}
	if (c->e.code == 0 && c->coming.n && (c->coming.n >= STRIDE_BYTES || c->has_ended)) {
		c->going = c->coming;
		c->coming = free_one;
		c->is_writing = true;
		loop_job_for(c->book->config.loop, c->team_id, write_stride, written, c);
	} else if (c->e.code == 0 && c->has_ended && !c->is_synced) {
		c->is_synced = c->is_writing = true;
		loop_job_for(c->book->config.loop, c->team_id, sync_file, written, c);
	} else if (c->has_ended) {
		collect_end(c);
	}
}

static void on_head(void *arg, int status)
{
	struct collect *c = arg;

	c->status = status;
}

static void count(struct collect *c, int64_t bytes)
{
	c->counted_bytes += bytes;
	(void)kept_add(c->book, c->team_id, bytes, &c->e);
}

static void on_body(void *arg, struct str bytes)
{
	struct collect *c = arg;

	if (c->status != 200)
		return;
	c->file.bytes += (int64_t)bytes.n;
	if (c->file.bytes > c->max_bytes)
		(void)err_set(&c->e, -EFBIG, "it is larger than %" PRId64 " bytes", c->max_bytes);
	if (c->e.code == 0)
		count(c, (int64_t)bytes.n);
	if (c->e.code == 0 && buf_add_str(&c->coming, bytes) < 0)
		(void)err_set(&c->e, -ENOMEM, "out of memory");
	if (c->is_writing && c->coming.n >= STRIDE_BYTES)
		http_stream_pause(c->stream);
	step(c);
}

static void on_end(void *arg, int r, const struct err *e)
{
	struct collect *c = arg;

	c->stream = NULL;
	c->has_ended = true;
	if (r < 0 && c->e.code == 0)
		c->e = *e;
	else if (c->status == 404)
		(void)err_set(&c->e, -ENOENT, "there is no such file");
	else if (c->status != 200 && c->e.code == 0)
		(void)err_set(&c->e, -EINVAL, "it cannot be read as a file");
	step(c);
}

static const struct http_stream_ops stream_ops = {
	.head = on_head,
	.body = on_body,
	.end = on_end,
};

static void fail(struct collect *c, const struct err *e)
{
	c->e = *e;
	c->has_ended = true;
	step(c);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct collect *c = arg;
	char token[SANDBOX_TOKEN_SIZE], headers[128];
	struct http_stream_request request = { .method = "GET",
		.target = c->target.p,
		.headers = headers,
		.head_timeout_ms = HEAD_MS,
		.stall_timeout_ms = STALL_MS };

	if (fd < 0) {
		fail(c, e);
		return;
	}
	sandbox_token(c->book->config.sandboxes, c->sandbox_id, token);
	(void)snprintf(headers, sizeof headers, "X-Access-Token: %s\r\n", token);
	c->stream = http_stream_open(c->book->config.loop, fd, &request, &stream_ops, c);
}

static int open_file(void *arg, struct err *e)
{
	struct collect *c = arg;

	c->fd = openat(c->book->config.artifacts_fd, c->file.id,
		O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return c->fd < 0 ? err_sys(e, -errno, "make the artifact's file") : 0;
}

static void opened(void *arg, int r, const struct err *e)
{
	struct collect *c = arg;
	const struct sandbox *sb =
		sandbox_find(c->book->config.sandboxes, NULL, str_of(c->sandbox_id));
	struct err gone = { 0 };

	if (r >= 0)
		count(c, KEPT_FILE_BYTES);
	if (r < 0 || c->e.code < 0) {
		fail(c, r < 0 ? e : &c->e);
	} else if (!sb) {
		(void)err_set(&gone, -ENOENT, "the sandbox has ended");
		fail(c, &gone);
	} else {
		sandbox_dial(c->book->config.sandboxes, sb, RUNTIME_GUEST_PORT, dialled, c);
	}
}

static void add_query(struct buf *out, struct str path, const char *user)
{
	(void)buf_adds(out, "/files?path=");
	(void)percent_encode(path, out);
	if (user[0]) {
		(void)buf_adds(out, "&username=");
		(void)percent_encode(str_of(user), out);
	}
}

void collect_file(struct execution_book *book, const struct collect_from *from, struct str path,
	int64_t max_bytes, collect_fn fn, void *arg)
{
	struct collect *c = XNEW(struct collect);

	c->book = book;
	c->fd = -EBADF;
	c->max_bytes = max_bytes;
	c->fn = fn;
	c->arg = arg;
	c->target = BUF_INIT(64 << 10);
	c->coming = c->going = BUF_INIT((size_t)4 * STRIDE_BYTES);
	uuid_make(c->file.id);
	(void)snprintf(c->team_id, sizeof c->team_id, "%s", from->team_id);
	(void)snprintf(c->sandbox_id, sizeof c->sandbox_id, "%s", from->sandbox_id);
	(void)crypto_hash_sha256_init(&c->sha);
	add_query(&c->target, path, from->user);
	loop_job_for(book->config.loop, c->team_id, open_file, opened, c);
}

/* ---- patterns ---- */

bool collect_is_pattern(struct str path)
{
	for (size_t i = 0; i < path.n; i++)
		if (strchr("*?[", path.p[i]))
			return true;
	return false;
}

struct entry_in {
	struct str path, name, type;
};
static const struct json_field entry_fields[] = {
	JSON_FIELD(struct entry_in, path, "path", JSON_STR),
	JSON_FIELD(struct entry_in, name, "name", JSON_STR),
	JSON_FIELD(struct entry_in, type, "type", JSON_STR),
};
static const struct json_shape entry_shape =
	JSON_SHAPE(struct entry_in, entry_fields, .ignore_unknown = true);

struct entries_in {
	struct json_list entries;
};
static const struct json_field entries_fields[] = {
	JSON_FIELD(struct entries_in, entries, "entries", JSON_OBJECTS, .shape = &entry_shape),
};
static const struct json_shape entries_shape =
	JSON_SHAPE(struct entries_in, entries_fields, .ignore_unknown = true);

struct listing {
	struct execution_book *book;
	char team_id[SANDBOX_TEAM_SIZE], sandbox_id[SANDBOX_ID_SIZE], user[EXECUTION_NAME_SIZE];
	struct glob pattern; /* the last part of the path */
	struct buf json;     /* the question */
	collect_list_fn each;
	done_fn done;
	void *arg;
};

static void listing_end(struct listing *l, int r, const struct err *e)
{
	l->done(l->arg, r, e);
	buf_done(&l->json);
	free(l);
}

/* A guest may say much, and a hostile one says it so that it takes long: a job understands it. */
struct sifting {
	struct listing *listing;
	struct buf words;
	struct arena *arena;
	struct str *paths; /* of those that match */
	size_t n;
};

static bool is_wanted(const struct listing *l, const struct entry_in *v)
{
	return str_is(v->type, "FILE_TYPE_FILE") && v->name.p && v->path.p &&
	       glob_matches(&l->pattern, v->name);
}

static int sift(void *arg, struct err *e)
{
	struct sifting *s = arg;
	struct entries_in in = { 0 };
	const struct entry_in *v;
	int r;

	s->arena = arena_new(LIST_ARENA_BYTES);
	r = json_decode(s->arena, buf_str(&s->words), &entries_shape, &in, e);
	if (r < 0 || in.entries.n == 0)
		return r;
	v = in.entries.v;
	s->paths = arena_alloc(s->arena, in.entries.n * sizeof *s->paths);
	if (!s->paths)
		return err_set(e, -ENOMEM, "out of memory");
	for (size_t i = 0; i < in.entries.n; i++)
		if (is_wanted(s->listing, &v[i]))
			s->paths[s->n++] = v[i].path;
	return 0;
}

static void sifted(void *arg, int r, const struct err *e)
{
	struct sifting *s = arg;

	for (size_t i = 0; r >= 0 && i < s->n; i++)
		s->listing->each(s->listing->arg, s->paths[i]);
	listing_end(s->listing, r, e);
	(void)arena_free(s->arena);
	buf_done(&s->words);
	free(s);
}

static void listed(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct listing *l = arg;
	struct sifting *s;
	struct err mine;

	if (r < 0) {
		listing_end(l, r, e);
		return;
	}
	if (status != 200) {
		r = err_set(&mine, status == 404 ? -ENOENT : -EINVAL,
			status == 404 ? "there is no such directory" : "it cannot be listed");
		listing_end(l, r, &mine);
		return;
	}
	s = XNEW(struct sifting);
	s->listing = l;
	s->words = BUF_INIT(body.n + 1);
	(void)buf_add_str(&s->words, body);
	loop_job_for(l->book->config.loop, l->team_id, sift, sifted, s);
}

static void list_dialled(void *arg, int fd, const struct err *e)
{
	struct listing *l = arg;
	char token[SANDBOX_TOKEN_SIZE], user[EXECUTION_NAME_SIZE + 1];
	char basic[2 * EXECUTION_NAME_SIZE] = "", headers[512];
	struct http_request request = { .method = "POST",
		.target = "/filesystem.Filesystem/ListDir",
		.headers = headers,
		.body = buf_str(&l->json),
		.max_bytes = LIST_BYTES,
		.timeout_ms = LIST_MS };

	if (fd < 0) {
		listing_end(l, fd, e);
		return;
	}
	sandbox_token(l->book->config.sandboxes, l->sandbox_id, token);
	(void)snprintf(user, sizeof user, "%s:", l->user);
	if (l->user[0])
		base64_encode(user, strlen(user), basic);
	(void)snprintf(headers, sizeof headers,
		"X-Access-Token: %s\r\nContent-Type: application/json\r\n%s%s%s", token,
		basic[0] ? "Authorization: Basic " : "", basic, basic[0] ? "\r\n" : "");
	http_request(l->book->config.loop, fd, &request, listed, l);
}

void collect_list(struct execution_book *book, const struct collect_from *from, struct str pattern,
	collect_list_fn each, done_fn done, void *arg)
{
	struct listing *l = XNEW(struct listing);
	const struct sandbox *sb =
		sandbox_find(book->config.sandboxes, NULL, str_of(from->sandbox_id));
	size_t cut = pattern.n;
	struct err e = { 0 };
	struct jsonw w;
	int r;

	l->book = book;
	l->each = each;
	l->done = done;
	l->arg = arg;
	(void)snprintf(l->team_id, sizeof l->team_id, "%s", from->team_id);
	(void)snprintf(l->sandbox_id, sizeof l->sandbox_id, "%s", from->sandbox_id);
	(void)snprintf(l->user, sizeof l->user, "%s", from->user);
	while (cut > 0 && pattern.p[cut - 1] != '/')
		cut--;
	r = glob_compile(&l->pattern, str_from(pattern, cut));
	l->json = BUF_INIT(32 << 10);
	jsonw_init(&w, &l->json);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "path", cut > 1 ? str_make(pattern.p, cut - 1) : str_make(pattern.p, cut));
	jsonw_int(&w, "depth", 1);
	jsonw_end_object(&w);
	if (r < 0 || l->json.failed)
		listing_end(l, err_set(&e, -EINVAL, "the pattern is too long"), &e);
	else if (!sb)
		listing_end(l, err_set(&e, -ENOENT, "the sandbox has ended"), &e);
	else
		sandbox_dial(book->config.sandboxes, sb, RUNTIME_GUEST_PORT, list_dialled, l);
}
