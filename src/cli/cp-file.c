/* One file, streamed through GET and POST /files; and the sandbox's own word about a path. */
#include "cli/cp.h"
#include "cli/outlet.h"
#include "cli/progress.h"

#include <poll.h>
#include <signal.h>

enum {
	IDLE_MS = 60 * 1000,
	ANSWER_MAX = 1 << 20,
};

struct transfer {
	struct cli *cli;
	struct client_call *call;
	struct progress progress;
	struct buf answer; /* of an upload, or of what went wrong */
	int status;
	struct err e;
	int signo;

	int fd; /* up: read from it */
	int64_t left;
	struct loop_io io;
	struct outlet to; /* down */
};

/* ---- both ways ---- */

static void settle(struct transfer *t)
{
	if (!t->call && !outlet_is_full(&t->to))
		loop_stop(t->cli->loop);
}

static void on_signal(void *arg, int signo)
{
	struct transfer *t = arg;

	if (signo == SIGWINCH)
		return;
	t->signo = signo;
	if (t->call)
		client_cancel(t->call);
	else
		loop_stop(t->cli->loop);
}

static void on_head(void *arg, struct client_call *call)
{
	struct transfer *t = arg;

	t->status = client_status(call);
}

static void on_done(void *arg, int r, const struct err *e)
{
	struct transfer *t = arg;

	t->call = NULL;
	if (r < 0 && t->e.code == 0)
		t->e = *e;
	settle(t);
}

static void on_drained(void *arg)
{
	struct transfer *t = arg;

	if (t->to.error < 0) {
		(void)err_sys(&t->e, t->to.error, "write");
		if (t->call)
			client_cancel(t->call);
	} else if (t->call) {
		client_resume(t->call);
	}
	settle(t);
}

static void on_data(void *arg, struct client_call *call, struct str bytes)
{
	struct transfer *t = arg;

	if (t->fd >= 0 || t->status != 200) {
		(void)buf_add_str(&t->answer, bytes);
		return;
	}
	t->progress.bytes += bytes.n;
	if (outlet_write(&t->to, bytes) < 0)
		on_drained(t);
	else if (outlet_is_full(&t->to))
		client_pause(call);
}

static int run_transfer(struct transfer *t, const struct target *target,
	struct client_request *http, const char *path, struct err *e)
{
	static const char *const type[] = { "Content-Type: application/octet-stream", NULL };
	const struct client_handlers handlers = { on_head, on_data, on_done, t };
	CLEANUP(buf_done) struct buf url = BUF_INIT(64 << 10);
	const char *user = args_value(&t->cli->args, "user");
	int r = cli_catch_signals(t->cli, e);

	if (r < 0)
		return r;
	(void)buf_printf(&url, "%s/files?path=", t->cli->config.sandbox_url);
	(void)percent_encode(str_of(path), &url);
	if (user) {
		(void)buf_adds(&url, "&username=");
		(void)percent_encode(str_of(user), &url);
	}
	http->url = url.p;
	http->headers = cli_sandbox_headers(t->cli, target, NULL, http->source ? type : NULL);
	http->idle_timeout_ms = IDLE_MS;
	t->cli->on_signal = on_signal;
	t->cli->signal_arg = t;
	t->call = client_start(t->cli->client, http, &handlers);
	r = loop_run(t->cli->loop, e);
	t->cli->on_signal = NULL;
	progress_stop(&t->progress);
	t->cli->signal_seen = t->signo;
	if (r < 0 || t->signo)
		return r < 0 ? r : err_set(e, -EINTR, "interrupted");
	if (t->e.code == 0 && t->status != 200)
		cli_api_message(t->cli, t->status, buf_str(&t->answer), &t->e);
	*e = t->e;
	return t->e.code;
}

static void transfer_init(struct transfer *t, struct cli *cli)
{
	*t = (struct transfer){ .cli = cli, .fd = -EBADF, .answer = BUF_INIT(ANSWER_MAX) };
	t->to.own_fd = -EBADF;
}

static void transfer_done(struct transfer *t)
{
	loop_io_remove(&t->io);
	outlet_done(&t->to);
	buf_done(&t->answer);
}

/* ---- up ---- */

static void on_readable(void *arg, uint32_t events)
{
	struct transfer *t = arg;

	(void)events;
	loop_io_remove(&t->io);
	if (t->call)
		client_more(t->call);
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static ssize_t source(void *arg, char *p, size_t n)
{
	struct transfer *t = arg;
	ssize_t got;

	if (!is_readable(t->fd)) {
		if (!t->io.loop && loop_io_add(t->cli->loop, &t->io, t->fd, EPOLLIN, on_readable, t,
					   &t->e) < 0)
			return t->e.code;
		return -EAGAIN;
	}
	if (t->left >= 0)
		n = (size_t)MIN((int64_t)n, t->left);
	got = n ? read(t->fd, p, n) : 0;
	if (got < 0)
		return err_sys(&t->e, -errno, "read");
	if (got == 0 && t->left > 0)
		return err_set(&t->e, -EIO, "the file became shorter while it was read");
	t->progress.bytes += (uint64_t)got;
	if (t->left >= 0)
		t->left -= got;
	return got;
}

int cp_upload(struct cli *cli, const struct target *target, int fd, int64_t size_bytes,
	const char *path, struct cp_sum *sum, struct err *e)
{
	struct client_request http = { .method = "POST",
		.source = source,
		.source_length = size_bytes };
	struct transfer t;
	int r;

	transfer_init(&t, cli);
	t.fd = fd;
	t.left = size_bytes;
	progress_start(&t.progress, cli, path, size_bytes);
	r = run_transfer(&t, target, &http, path, e);
	sum->bytes += t.progress.bytes;
	transfer_done(&t);
	return r;
}

/* ---- down ---- */

int cp_download(struct cli *cli, const struct target *target, const struct cp_entry *from, int fd,
	struct cp_sum *sum, struct err *e)
{
	struct client_request http = { .method = "GET" };
	const char *path = arena_dup(cli->arena, from->path);
	struct transfer t;
	int r;

	transfer_init(&t, cli);
	outlet_init(&t.to, cli->loop, fd, on_drained, &t);
	progress_start(&t.progress, cli, path, from->size_bytes);
	r = run_transfer(&t, target, &http, path, e);
	sum->bytes += t.progress.bytes;
	transfer_done(&t);
	return r;
}

/* ---- what is there ---- */

struct entry {
	struct str type, path;
	struct json_int size, mode;
};
struct entry_answer {
	struct entry entry;
};
static const struct json_field entry_fields[] = {
	JSON_FIELD(struct entry, type, "type", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct entry, path, "path", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct entry, size, "size", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct entry, mode, "mode", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape entry_shape =
	JSON_SHAPE(struct entry, entry_fields, .ignore_unknown = true);
static const struct json_field answer_fields[] = {
	JSON_FIELD(struct entry_answer, entry, "entry", JSON_OBJECT, .flags = JSON_REQUIRED,
		.shape = &entry_shape),
};
static const struct json_shape answer_shape =
	JSON_SHAPE(struct entry_answer, answer_fields, .ignore_unknown = true);

struct asking {
	struct cli *cli;
	int r, status;
	struct buf body;
	struct err e;
};

static void on_answer(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e)
{
	struct asking *a = arg;

	a->r = r;
	if (r < 0)
		a->e = *e;
	else
		a->status = client_status(call);
	(void)buf_add_str(&a->body, body);
	loop_stop(a->cli->loop);
}

static int decode_entry(struct cli *cli, struct str body, struct cp_entry *ret, struct err *e)
{
	struct entry_answer answer;
	int r = json_decode(cli->arena, body, &answer_shape, &answer, e);

	if (r < 0)
		return err_wrap(e, -EPROTO, "answer about a path");
	*ret = (struct cp_entry){ .exists = true,
		.is_directory = str_is(answer.entry.type, "FILE_TYPE_DIRECTORY"),
		.path = answer.entry.path,
		.mode = (uint32_t)answer.entry.mode.value & 0777,
		.size_bytes = answer.entry.size.is_set ? answer.entry.size.value : -1 };
	return 0;
}

/* One unary call of the sandbox's file service. */
static int ask(struct cli *cli, const struct target *target, const char *method, const char *path,
	struct cp_entry *ret, struct err *e)
{
	static const char *const type[] = { "Content-Type: application/json",
		"Connect-Protocol-Version: 1", NULL };
	CLEANUP(buf_done) struct buf body = BUF_INIT(64 << 10);
	struct asking a = { .cli = cli, .body = BUF_INIT(ANSWER_MAX) };
	char url[CONFIG_VALUE + 64];
	struct client_request http = { .method = "POST",
		.url = url,
		.timeout_ms = CLI_CALL_TIMEOUT_MS };
	struct jsonw w;
	int r;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "path", path);
	jsonw_end_object(&w);
	(void)snprintf(url, sizeof url, "%s/filesystem.Filesystem/%s", cli->config.sandbox_url,
		method);
	http.body = buf_str(&body);
	http.headers = cli_sandbox_headers(cli, target, args_value(&cli->args, "user"), type);
	(void)client_fetch(cli->client, &http, ANSWER_MAX, on_answer, &a);
	r = loop_run(cli->loop, e);
	if (r == 0 && a.r < 0)
		*e = a.e;
	else if (r == 0 && a.status != 200)
		cli_api_message(cli, a.status, buf_str(&a.body), e);
	else if (r == 0)
		(void)decode_entry(cli, buf_str(&a.body), ret, e);
	buf_done(&a.body);
	return r < 0 ? r : e->code;
}

int cp_stat(struct cli *cli, const struct target *target, const char *path, struct cp_entry *ret,
	struct err *e)
{
	struct err why = { 0 };
	int r = ask(cli, target, "Stat", path, ret, &why);

	if (r == -ENOENT) {
		*ret = (struct cp_entry){ 0 };
		return 0;
	}
	if (r < 0)
		*e = why;
	return r;
}

int cp_make_directory(struct cli *cli, const struct target *target, const char *path,
	struct cp_entry *ret, struct err *e)
{
	struct err why = { 0 };
	int r = ask(cli, target, "MakeDir", path, ret, &why);

	if (r == -EBUSY) /* already there */
		return cp_stat(cli, target, path, ret, e);
	if (r < 0)
		*e = why;
	return r;
}
