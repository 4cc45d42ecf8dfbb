/* What is asked of a sandbox's own API: over the data door, with its token, as any client would. */
#include "api/v1/guest.h"
#include "observe/observe.h"

#include <errno.h>

enum {
	ANSWER_BYTES = 32 << 20,
	CALL_MS = 60 * 1000,
	MAX_PATH = 4095,
	MAX_USER = 64,
};

/* ---- errors ---- */

static const struct {
	int code, status;
	const char *word, *hint;
} errors[] = {
	{ ENOENT, 404, "file_not_found", "list the directory above it" },
	{ ENOTDIR, 422, "not_a_directory", NULL },
	{ EISDIR, 422, "is_a_directory", "list it, or name a file in it" },
	{ EINVAL, 422, "invalid_path", NULL },
	{ ENAMETOOLONG, 422, "invalid_path", NULL },
	{ EACCES, 422, "permission_denied", "name another user by ?user=" },
	{ EPERM, 422, "permission_denied", "name another user by ?user=" },
	{ EROFS, 422, "read_only", NULL },
	{ EFBIG, 413, "file_too_large", NULL },
	{ ENOSPC, 507, "no_space", "delete files, or make a sandbox with a larger disk_mb" },
	{ EKEYREJECTED, 422, "unknown_user", NULL },
};

void v1_guest_fail(struct api_call *call, const struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (-e->code == errors[i].code) {
			if (e->code == -ENOSPC)
				call->origin = "agent"; /* it has filled its own disk */
			api_fail_as(call, errors[i].status, errors[i].word, e->msg, errors[i].hint);
			return;
		}
	api_fail(call, e);
}

struct message_in {
	struct str message, code;
};
static const struct json_field message_fields[] = {
	JSON_FIELD(struct message_in, message, "message", JSON_STR),
	JSON_FIELD(struct message_in, code, "code", JSON_RAW),
};
static const struct json_shape message_shape =
	JSON_SHAPE(struct message_in, message_fields, .ignore_unknown = true);

static int code_of(int status, const char *name, struct str word)
{
	static const struct {
		const char *name;
		int code;
	} names[] = { { "ENOENT", -ENOENT }, { "ENOTDIR", -ENOTDIR }, { "EISDIR", -EISDIR },
		{ "EINVAL", -EINVAL }, { "ENAMETOOLONG", -ENAMETOOLONG }, { "EACCES", -EACCES },
		{ "EPERM", -EPERM }, { "EROFS", -EROFS }, { "EFBIG", -EFBIG },
		{ "ENOSPC", -ENOSPC }, { "EDQUOT", -ENOSPC }, { "\"not_found\"", -ENOENT },
		{ "\"invalid_argument\"", -EINVAL }, { "\"resource_exhausted\"", -E2BIG },
		{ "\"unauthenticated\"", -EKEYREJECTED } };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i].name) == 0 || str_is(word, names[i].name))
			return names[i].code;
	return status == 404   ? -ENOENT
	       : status == 401 ? -EKEYREJECTED
	       : status == 507 ? -ENOSPC
	       : status == 400 ? -EINVAL
			       : -EIO;
}

int v1_guest_error(struct api_call *call, int status, const char *errno_name, struct str body,
	struct err *e)
{
	struct message_in in = { 0 };
	int code;

	(void)json_decode(http_arena(call->x), body, &message_shape, &in, NULL);
	code = code_of(status, errno_name, in.code);
	return err_set(e, code, "%.*s", (int)MIN(in.message.p ? in.message.n : 0, (size_t)200),
		in.message.p ? in.message.p : "");
}

/* ---- heads ---- */

const char *v1_guest_headers(struct api_call *call, const struct sandbox *sb, struct str user,
	const char *more)
{
	CLEANUP(buf_done) struct buf login = BUF_INIT(512);
	struct arena *arena = http_arena(call->x);
	char token[SANDBOX_TOKEN_SIZE], encoded[256] = "";

	sandbox_token(call->api->config.sandboxes, sb->id, token);
	(void)buf_printf(&login, "%.*s:", (int)MIN(user.n, (size_t)64), user.p ? user.p : "");
	base64_encode(login.p, login.n, encoded);
	encoded[base64_size(login.n)] = '\0';
	if (!user.n)
		return arena_printf(arena, "X-Access-Token: %s\r\n%s", token, more);
	return arena_printf(arena, "X-Access-Token: %s\r\nAuthorization: Basic %s\r\n%s", token,
		encoded, more);
}

const char *v1_guest_file_target(struct api_call *call, struct str path, struct str user,
	struct str mode)
{
	CLEANUP(buf_done) struct buf target = BUF_INIT(32 << 10);

	(void)buf_adds(&target, "/files?path=");
	(void)percent_encode(path, &target);
	if (user.n) {
		(void)buf_adds(&target, "&username=");
		(void)percent_encode(user, &target);
	}
	if (mode.n)
		(void)buf_printf(&target, "&mode=%.*s", STR_ARG(mode));
	return target.failed ? NULL : arena_dup(http_arena(call->x), buf_str(&target));
}

/* ---- one request with a small answer ---- */

struct guest_call { /* lives in the exchange's arena */
	struct api_call *call;
	struct http_request request;
	v1_guest_fn fn;
	void *arg;
};

static void answered(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct guest_call *g = arg;
	struct err own = { 0 };

	if (r < 0)
		(void)err_set(&own, r == -ENOMEM || r == -EMSGSIZE ? -E2BIG : -EAGAIN,
			"the sandbox did not answer: %s", e->msg);
	else if (status >= 300)
		(void)v1_guest_error(g->call, status, "", body, &own);
	g->fn(g->arg, own.code, body, &own);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct guest_call *g = arg;

	if (fd < 0)
		answered(g, fd, 0, STR_NONE, e);
	else
		http_request(g->call->api->config.loop, fd, &g->request, answered, g);
}

int v1_guest_call(struct api_call *call, const struct sandbox *sb,
	const struct http_request *request, v1_guest_fn fn, void *arg)
{
	struct guest_call *g = arena_alloc(http_arena(call->x), sizeof *g);

	if (!g)
		return -E2BIG;
	*g = (struct guest_call){ call, *request, fn, arg };
	g->request.host = "localhost";
	g->request.max_bytes = ANSWER_BYTES;
	g->request.timeout_ms = CALL_MS;
	sandbox_dial(call->api->config.sandboxes, sb, RUNTIME_GUEST_PORT, dialled, g);
	return 0;
}

struct write_call {
	done_fn done;
	void *arg;
};

static void written(void *arg, int r, struct str body, const struct err *e)
{
	struct write_call *w = arg;

	(void)body;
	w->done(w->arg, r, e);
}

int v1_guest_write(struct api_call *call, const struct sandbox *sb, const struct v1_file *file,
	done_fn done, void *arg)
{
	struct write_call *w = arena_alloc(http_arena(call->x), sizeof *w);
	struct http_request request = { .method = "POST",
		.target = v1_guest_file_target(call, file->path, file->user, file->mode),
		.headers = v1_guest_headers(call, sb, STR_NONE,
			"Content-Type: application/octet-stream\r\n"),
		.body = file->bytes };

	if (!w || !request.target || !request.headers)
		return -E2BIG;
	*w = (struct write_call){ done, arg };
	return v1_guest_call(call, sb, &request, written, w);
}

/* ---- what the handlers of files share ---- */

int v1_file_names(struct api_call *call, struct str *ret_path, struct str *ret_user)
{
	*ret_path = http_query_value(call->x, "path");
	*ret_user = http_query_value(call->x, "user");
	if (ret_path->n && ret_path->n <= MAX_PATH && ret_user->n <= MAX_USER)
		return 0;
	api_fail_status(call, 400,
		"validation error: path must be 1 to 4095 bytes, and user at most 64");
	return -EINVAL;
}

void v1_file_event(const struct api_call *call, const char *id, const char *kind, struct str path,
	int64_t size)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(16 << 10);
	const struct sandbox *sb = sandbox_find_tenant(call->api->config.sandboxes, id);
	struct observe_event event = { .actor = call->actor,
		.kind = kind,
		.subject = id,
		.team_id = sb ? sb->team_id : call->key.team_id,
		.agent_id = sb ? sb->agent_id : call->key.agent_id,
		.task_id = sb ? sb->task_id : NULL };
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "path", path);
	if (size >= 0)
		jsonw_int(&w, "size", size);
	jsonw_strz(&w, "request_id", call->request_id);
	jsonw_end_object(&w);
	event.data = buf_str(&data);
	observe_event(call->api->config.events, &event);
}
