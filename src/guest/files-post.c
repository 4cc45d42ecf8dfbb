/* POST /files: an upload of any size in constant memory. The body passes through, as needed,
 * inflate, the multipart parser, and ends in one `save` at a time. After a failure the rest of the
 * body is read and dropped, so that the client gets to see the answer. */
#include "guest/guest.h"

#include "guest/auth.h"
#include "guest/files.h"
#include "guest/inflate.h"
#include "guest/metadata.h"
#include "guest/multipart.h"
#include "guest/path.h"
#include "guest/save.h"

enum {
	UPLOAD_MAX_REPLY = 16 << 20,
	UPLOAD_MAX_PATHS = 16 << 20, /* bytes of the names of one upload */
	UPLOAD_MAX_METADATA = 64,
};

struct upload {
	struct guest *guest;
	struct http_exchange *x;
	struct user user;
	struct str path; /* the query's; p NULL: the parts name themselves */
	struct json_map metadata;
	struct json_pair pairs[UPLOAD_MAX_METADATA];

	struct inflate *inflate;    /* NULL: comes as it is */
	struct multipart multipart; /* when is_multipart */
	bool is_multipart;
	struct save save; /* fd >= 0: a part named "file" is open */
	struct buf paths; /* terminated paths so far: no two may be the same */
	struct buf reply;
	struct jsonw w;
	struct err failed; /* code < 0: the answer */
};

static void upload_free(struct upload *u)
{
	save_done(&u->save);
	multipart_done(&u->multipart);
	u->inflate = inflate_free(u->inflate);
	buf_done(&u->paths);
	buf_done(&u->reply);
	free(u);
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
	char path[PATH_MAX];
	int r = guest_resolve(u->guest, &u->user, name, path, e);

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
	return save_open(&u->save, path, &u->user, e);
}

static int file_close(struct upload *u, struct err *e)
{
	char path[PATH_MAX];
	int r;

	memcpy(path, u->save.path, sizeof path);
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

	return u->save.fd >= 0 ? save_write(&u->save, bytes, e) : 0;
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

	return u->is_multipart ? multipart_feed(&u->multipart, bytes, e)
			       : save_write(&u->save, bytes, e);
}

static int finish(struct upload *u, struct err *e)
{
	int r = u->inflate ? inflate_finish(u->inflate, e) : 0;

	if (r < 0)
		return r;
	if (!u->is_multipart)
		return file_close(u, e);
	return multipart_finish(&u->multipart, e);
}

/* ---- the body ---- */

static void answer(struct upload *u)
{
	/* What was written is visible to a poll that comes right behind the answer. */
	watch_set_drain(&u->guest->watches);
	if (u->failed.code < 0) {
		reply_fail(u->x, status_of(u->failed.code), "%s", u->failed.msg);
	} else {
		jsonw_end_array(&u->w);
		http_reply(u->x, 200, "application/json", buf_str(&u->reply));
	}
	upload_free(u);
}

static void on_chunk(void *arg, int r, struct str bytes)
{
	struct upload *u = arg;
	struct err *e = &u->failed;

	if (r < 0) { /* the client left, or what it sent is no HTTP: nobody to answer */
		http_abort(u->x);
		upload_free(u);
		return;
	}
	if (bytes.n == 0) {
		if (e->code == 0)
			(void)finish(u, e);
		answer(u);
		return;
	}
	if (e->code < 0)
		return;
	r = u->inflate ? inflate_feed(u->inflate, bytes, e) : on_plain(u, bytes, e);
	if (r < 0) { /* a half-written file is closed at once, its space may be needed */
		e->code = r;
		save_done(&u->save);
	}
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
	struct arena *a = http_arena(u->x);
	struct str name, value;

	u->metadata.v = u->pairs;
	for (size_t i = 0; http_header_at(u->x, i, &name, &value); i++) {
		char *key;

		if (!is_media(name, prefix) || name.n == prefix.n)
			continue;
		if (u->metadata.n == UPLOAD_MAX_METADATA)
			return err_set(e, -EINVAL, "more than %d metadata keys",
				UPLOAD_MAX_METADATA);
		key = arena_dup(a, str_from(name, prefix.n));
		if (!key)
			return err_set(e, -EINVAL, "metadata is too large");
		for (char *c = key; *c; c++)
			if (*c >= 'A' && *c <= 'Z')
				*c = (char)(*c + ('a' - 'A'));
		u->pairs[u->metadata.n++] = (struct json_pair){ str_of(key), value };
	}
	return metadata_check(&u->metadata, e) < 0 ? err_wrap(e, -EINVAL, "invalid metadata") : 0;
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
	return file_open(u, u->path, e);
}

void files_post(struct guest *g, struct http_exchange *x)
{
	struct upload *u;
	struct user user;
	struct str path;
	int r;

	if (!files_admit(g, x, "write", &user, &path))
		return;
	u = XNEW(struct upload);
	*u = (struct upload){ .guest = g,
		.x = x,
		.user = user,
		.path = path,
		.save = SAVE_INIT,
		.paths = BUF_INIT(UPLOAD_MAX_PATHS),
		.reply = BUF_INIT(UPLOAD_MAX_REPLY) };
	jsonw_init(&u->w, &u->reply);
	jsonw_array(&u->w, NULL);
	r = read_encoding(u, &u->failed);
	if (r == 0)
		r = read_metadata(u, &u->failed);
	if (r == 0)
		r = read_type(u, &u->failed);
	if (r < 0)
		u->failed.code = r;
	http_stream_body(x, on_chunk, u);
}
