/* Calls of the control plane. The program does one thing at a time, so a call runs the loop until
 * its answer is there. */
#include "cli/cli-internal.h"

enum {
	REPLY_MAX = 16 << 20,
	PATH_MAX_BYTES = 64 << 10,
	MAX_PAGES = 1000,
};

struct waiting {
	struct cli *cli;
	struct api_reply *reply;
	struct err *e;
	int r;
};

int cli_api_open(struct cli *cli, struct err *e)
{
	int r;

	if (cli->client)
		return 0;
	r = cli_load_config(cli, e);
	if (r == 0)
		r = loop_new(&cli->loop, e);
	if (r == 0)
		r = client_new(cli->loop, &cli->client, e);
	if (r == 0 && cli->config.ca_file[0])
		client_trust(cli->client, cli->config.ca_file);
	return r;
}

int cli_api_code_of(int status)
{
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 502: /* the edge's word for a sandbox that is gone */
		return -ENOENT;
	case 409:
		return -EBUSY;
	case 429:
		return -EDQUOT;
	case 503:
	case 504:
		return -EAGAIN;
	case 507:
		return -ENOSPC;
	default:
		return status < 500 ? -EBADMSG : -EIO;
	}
}

void cli_api_message(struct cli *cli, int status, struct str body, struct err *e)
{
	struct message {
		struct str text, hint;
	} message;
	static const struct json_field fields[] = {
		JSON_FIELD(struct message, text, "message", JSON_STR, .flags = JSON_LAX),
		JSON_FIELD(struct message, hint, "hint", JSON_STR, .flags = JSON_LAX),
	};
	static const struct json_shape shape =
		JSON_SHAPE(struct message, fields, .ignore_unknown = true);

	if (json_decode(cli->arena, body, &shape, &message, NULL) < 0 || !message.text.n) {
		(void)err_set(e, cli_api_code_of(status), "the server answered with status %d",
			status);
		return;
	}
	(void)err_set(e, cli_api_code_of(status), "%.*s", STR_ARG(message.text));
	if (message.hint.n && !cli->hint[0])
		out_clean(message.hint, cli->hint, sizeof cli->hint);
}

static void on_response(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e)
{
	struct waiting *w = arg;
	char *copy = NULL;

	loop_stop(w->cli->loop);
	w->r = r;
	if (r < 0) {
		(void)err_set(w->e, r, "%s: %s", w->cli->config.api_url,
			r == -ECONNREFUSED ? "no server answers there" : e->msg);
		return;
	}
	copy = arena_dup(w->cli->arena, body);
	w->reply->status = client_status(call);
	w->reply->body = str_make(copy, copy ? body.n : 0);
	body = client_header(call, "x-next-token");
	w->reply->next = str_make(arena_dup(w->cli->arena, body), body.n);
	if (!copy || !w->reply->next.p)
		w->r = err_set(w->e, -ENOMEM, "the answers do not fit into memory");
}

static const char *const *api_headers(struct cli *cli, const struct api_request *request)
{
	size_t n = 0, n_more = 0;
	const char **lines;

	while (request->more_headers && request->more_headers[n_more])
		n_more++;
	lines = arena_alloc(cli->arena, (4 + n_more) * sizeof *lines);
	if (!lines)
		return NULL;
	lines[n++] = "User-Agent: atoll/" ATOLL_VERSION;
	for (size_t i = 0; i < n_more; i++)
		lines[n++] = request->more_headers[i];
	if (request->admin_token)
		lines[n++] = arena_printf(cli->arena, "X-Admin-Token: %s", request->admin_token);
	else if (cli->config.api_key[0])
		lines[n++] = arena_printf(cli->arena, "X-API-Key: %s", cli->config.api_key);
	if (request->body.p)
		lines[n++] = "Content-Type: application/json";
	return lines;
}

int cli_api_call(struct cli *cli, const struct api_request *request, struct api_reply *ret,
	struct err *e)
{
	struct api_reply reply = { 0 };
	struct waiting w = { .cli = cli, .reply = &reply, .e = e };
	struct client_request http = { .method = request->method, .body = request->body };
	int r = cli_api_open(cli, e);

	if (r < 0)
		return r;
	http.url = arena_printf(cli->arena, "%s%s", cli->config.api_url, request->path);
	http.headers = api_headers(cli, request);
	http.timeout_ms = request->timeout_ms ? request->timeout_ms : CLI_CALL_TIMEOUT_MS;
	(void)client_fetch(cli->client, &http, REPLY_MAX, on_response, &w);
	r = loop_run(cli->loop, e);
	if (r < 0 || w.r < 0)
		return r < 0 ? r : w.r;
	if (reply.status >= 300) {
		cli_api_message(cli, reply.status, reply.body, e);
		return e->code;
	}
	*ret = reply;
	return 0;
}

/* ---- lists ---- */

static const char *page_path(struct cli *cli, const char *path, struct str next)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(PATH_MAX_BYTES);

	(void)buf_adds(&text, path);
	if (next.n) {
		(void)buf_adds(&text, "&nextToken=");
		(void)percent_encode(next, &text);
	}
	return arena_dup(cli->arena, buf_str(&text));
}

int cli_api_each_page(struct cli *cli, const char *path, const struct json_shape *shape,
	cli_page_fn fn, void *arg, struct err *e)
{
	struct api_request request = { .method = "GET" };
	struct api_reply reply = { 0 };
	int r = 0;

	for (int page = 0; r == 0 && (page == 0 || reply.next.n); page++) {
		struct json_list rows;

		request.path = page_path(cli, path, reply.next);
		if (page == MAX_PAGES)
			return err_set(e, -EPROTO, "the list does not end: %s", path);
		if (!request.path)
			return err_set(e, -ENOMEM, "the answers do not fit into memory");
		r = cli_api_call(cli, &request, &reply, e);
		if (r == 0 && json_decode_list(cli->arena, reply.body, shape, &rows, e) < 0)
			r = err_wrap(e, -EPROTO, "%s", path);
		if (r == 0)
			r = fn(arg, &rows, e);
	}
	return r;
}
