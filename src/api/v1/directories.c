/* Directories of a sandbox, and deleting in them: unary calls of the guest's filesystem service. */
#include "api/v1/guest.h"

enum {
	MAX_DEPTH = 32,
	LISTING_ARENA_BYTES = 64 << 20,
};

struct rpc_call {
	struct api_call *call;
	char id[SANDBOX_ID_SIZE];
	struct str path, user;
};

/* A unary call of envd's filesystem service, as JSON. */
static void ask(struct rpc_call *rc, const struct sandbox *sb, const char *target, int64_t depth,
	v1_guest_fn fn)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct api_call *call = rc->call;
	struct http_request request = { .method = "POST", .target = target };
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "path", rc->path);
	if (depth > 0)
		jsonw_int(&w, "depth", depth);
	jsonw_end_object(&w);
	request.body = str_make(arena_dup(http_arena(call->x), buf_str(&body)), body.n);
	request.headers = v1_guest_headers(call, sb, rc->user,
		"Content-Type: application/json\r\nConnect-Protocol-Version: 1\r\n"
		"Atoll-Recorded: 1\r\n");
	if (!request.body.p || !request.headers || v1_guest_call(call, sb, &request, fn, rc) < 0)
		api_fail_status(call, 413, "the path is too long");
}

static struct rpc_call *rpc_new(struct api_call *call, const struct sandbox *sb, struct str path,
	struct str user)
{
	struct rpc_call *rc = arena_alloc(http_arena(call->x), sizeof *rc);

	if (!rc) {
		api_fail_status(call, 500, "out of memory");
		return NULL;
	}
	rc->call = call;
	memcpy(rc->id, sb->id, sizeof rc->id);
	rc->path = path;
	rc->user = user;
	return rc;
}

struct listed {
	struct str name, type, path, permissions, owner, group, modified, target;
	struct json_int size, mode;
};
static const struct json_field listed_fields[] = {
	JSON_FIELD(struct listed, name, "name", JSON_STR),
	JSON_FIELD(struct listed, type, "type", JSON_STR),
	JSON_FIELD(struct listed, path, "path", JSON_STR),
	JSON_FIELD(struct listed, permissions, "permissions", JSON_STR),
	JSON_FIELD(struct listed, owner, "owner", JSON_STR),
	JSON_FIELD(struct listed, group, "group", JSON_STR),
	JSON_FIELD(struct listed, modified, "modifiedTime", JSON_STR),
	JSON_FIELD(struct listed, target, "symlinkTarget", JSON_STR),
	JSON_FIELD(struct listed, size, "size", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct listed, mode, "mode", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape listed_shape =
	JSON_SHAPE(struct listed, listed_fields, .ignore_unknown = true);

struct listing {
	struct json_list entries;
};
static const struct json_field listing_fields[] = {
	JSON_FIELD(struct listing, entries, "entries", JSON_OBJECTS, .flags = JSON_LAX,
		.shape = &listed_shape),
};
static const struct json_shape listing_shape =
	JSON_SHAPE(struct listing, listing_fields, .ignore_unknown = true);

static void write_listed(struct jsonw *w, const struct listed *l)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "path", l->path);
	jsonw_str(w, "name", l->name);
	jsonw_strz(w, "type",
		str_is(l->type, "FILE_TYPE_FILE")        ? "file"
		: str_is(l->type, "FILE_TYPE_DIRECTORY") ? "directory"
							 : "other");
	jsonw_int(w, "size", l->size.value);
	jsonw_str(w, "permissions", l->permissions);
	jsonw_str(w, "owner", l->owner);
	jsonw_str(w, "group", l->group);
	if (l->modified.n)
		jsonw_str(w, "modified_at", l->modified);
	else
		jsonw_null(w, "modified_at");
	if (l->target.n)
		jsonw_str(w, "link_target", l->target);
	else
		jsonw_null(w, "link_target");
	jsonw_end_object(w);
}

/* The guest's words may be long, and a hostile one's are: understood, and said anew, by a job. */
struct retelling {
	struct api_call *call;
	struct buf words, text;
};

static int retell(void *arg, struct err *e)
{
	struct arena *arena = arena_new(LISTING_ARENA_BYTES);
	struct retelling *t = arg;
	struct listing in = { 0 };
	struct jsonw w;
	int r = json_decode(arena, buf_str(&t->words), &listing_shape, &in, e);

	jsonw_init(&w, &t->text);
	v1_page_begin(&w);
	for (size_t i = 0; r >= 0 && i < in.entries.n; i++)
		write_listed(&w, &((const struct listed *)in.entries.v)[i]);
	v1_page_end(&w, NULL);
	(void)arena_free(arena);
	return r;
}

static void retold(void *arg, int r, const struct err *e)
{
	struct retelling *t = arg;

	(void)e;
	if (r >= 0)
		api_reply_json(t->call, 200, &t->text);
	else
		api_fail_as(t->call, 413, "too_large", "the directory has too many entries to list",
			"list with a smaller depth, or a directory further down");
	buf_done(&t->words);
	buf_done(&t->text);
	free(t);
}

static void listed(void *arg, int r, struct str body, const struct err *e)
{
	struct rpc_call *rc = arg;
	struct api_call *call = rc->call;
	struct retelling *t;

	if (r < 0) {
		v1_guest_fail(call, e);
		return;
	}
	t = XNEW(struct retelling);
	t->call = call;
	t->words = BUF_INIT(body.n + 1);
	t->text = BUF_INIT(API_ANSWER_BYTES);
	(void)buf_add_str(&t->words, body);
	loop_job_for(call->api->config.loop, call->key.team_id, retell, retold, t);
}

void v1_files_list(struct api_call *call)
{
	const struct sandbox *sb;
	struct rpc_call *rc;
	struct str path, user;
	int64_t depth = 1;

	if (v1_file_names(call, &path, &user) < 0 ||
		api_query_int(call, "depth", 1, MAX_DEPTH, &depth) < 0)
		return;
	sb = v1_running(call);
	rc = sb ? rpc_new(call, sb, path, user) : NULL;
	if (rc)
		ask(rc, sb, "/filesystem.Filesystem/ListDir", depth, listed);
}

/* ---- deleting ---- */

static void removed(void *arg, int r, struct str body, const struct err *e)
{
	struct rpc_call *rc = arg;

	(void)body;
	if (r < 0) {
		v1_guest_fail(rc->call, e);
		return;
	}
	v1_file_event(rc->call, rc->id, "file.deleted", rc->path, -1);
	api_reply_empty(rc->call, 204);
}

/* envd removes what is not there without a word; here the client is told. */
static void seen(void *arg, int r, struct str body, const struct err *e)
{
	struct rpc_call *rc = arg;
	struct api_call *call = rc->call;
	const struct sandbox *sb;

	(void)body;
	if (r < 0) {
		v1_guest_fail(call, e);
		return;
	}
	sb = v1_running(call);
	if (sb)
		ask(rc, sb, "/filesystem.Filesystem/Remove", 0, removed);
}

void v1_files_delete(struct api_call *call)
{
	const struct sandbox *sb;
	struct rpc_call *rc;
	struct str path, user;

	if (v1_file_names(call, &path, &user) < 0)
		return;
	sb = v1_running(call);
	rc = sb ? rpc_new(call, sb, path, user) : NULL;
	if (rc)
		ask(rc, sb, "/filesystem.Filesystem/Stat", 0, seen);
}
