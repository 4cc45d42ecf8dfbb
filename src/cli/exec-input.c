/* What goes to the command: stdin in pieces, one under way at a time, so that a command that does
 * not read holds us back too; signals; the window's size; and the sandbox's longer life. */
#include "cli/exec-internal.h"
#include "cli/terminal.h"

enum {
	PIECE = 128 << 10,
	MESSAGE_MAX = 256 << 10,
	SIGNAL_TIMEOUT_MS = 5000,
	IMPATIENCE_MS = 3000, /* a second Ctrl+C within this time means it */
};

void session_message(struct session *s, struct buf *body, struct jsonw *w)
{
	jsonw_init(w, body);
	jsonw_object(w, NULL);
	jsonw_object(w, "process");
	jsonw_int(w, "pid", s->pid);
	jsonw_end_object(w);
}

/* ---- stdin ---- */

static void read_on(struct session *s);

static void input_answered(struct session *s, int r, int status, struct str body)
{
	(void)body;
	if (r < 0 && !s->is_ended)
		session_fail(s, r, "stdin: the connection to the sandbox broke");
	/* A refusal means that nobody reads any more: what `yes | true` meets, and as harmless. */
	if (r < 0 || status != 200)
		session_input_stop(s);
	else
		read_on(s);
	session_settle(s);
}

static void closed_answered(struct session *s, int r, int status, struct str body)
{
	(void)r;
	(void)status;
	(void)body;
	session_settle(s);
}

static void send_piece(struct session *s, struct str bytes)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(MESSAGE_MAX);
	struct jsonw w;

	s->result.input_bytes += bytes.n;
	session_message(s, &body, &w);
	jsonw_object(&w, "input");
	jsonw_base64(&w, s->request->tty ? "pty" : "stdin", bytes);
	jsonw_end_object(&w);
	jsonw_end_object(&w);
	(void)session_rpc(s, &s->input, "SendInput", &body, 0, input_answered);
}

static void send_end(struct session *s)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(MESSAGE_MAX);
	struct jsonw w;

	session_input_stop(s);
	session_message(s, &body, &w);
	if (s->request->tty) { /* a terminal has no end of file, only the key for it */
		jsonw_object(&w, "input");
		jsonw_base64(&w, "pty", STR("\004"));
		jsonw_end_object(&w);
	}
	jsonw_end_object(&w);
	(void)session_rpc(s, &s->input, s->request->tty ? "SendInput" : "CloseStdin", &body, 0,
		closed_answered);
}

static void read_piece(struct session *s)
{
	ssize_t n;

	if (!s->stdin_open || s->input.call)
		return;
	n = read(s->request->stdin_fd, s->stdin_bytes, PIECE);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (s->stdin_io.loop)
		loop_io_set(&s->stdin_io, 0); /* until this piece has arrived */
	if (n > 0)
		send_piece(s, str_make(s->stdin_bytes, (size_t)n));
	else
		send_end(s); /* an error too: a terminal that hung up will say nothing more */
}

static void stdin_ready(void *arg, uint32_t events)
{
	(void)events;
	read_piece(arg);
}

static void stdin_next(void *arg)
{
	read_piece(arg);
}

static void read_on(struct session *s)
{
	if (s->stdin_io.loop)
		loop_io_set(&s->stdin_io, EPOLLIN);
	else if (s->stdin_open)
		loop_defer(s->cli->loop, &s->stdin_task, stdin_next, s);
}

void session_input_start(struct session *s)
{
	int r;

	if (s->request->stdin_fd < 0)
		return;
	s->stdin_open = true;
	s->stdin_bytes = xcalloc(1, PIECE);
	r = loop_io_add(s->cli->loop, &s->stdin_io, s->request->stdin_fd, EPOLLIN, stdin_ready, s,
		NULL);
	if (r < 0)
		read_on(s); /* -EPERM: a regular file, which is always ready */
}

void session_input_stop(struct session *s)
{
	s->stdin_open = false;
	loop_io_remove(&s->stdin_io);
	loop_task_cancel(&s->stdin_task);
}

/* ---- signals ---- */

static void signal_answered(struct session *s, int r, int status, struct str body)
{
	(void)body;
	/* E2B's own guest knows only TERM and KILL, and a shell at a terminal ignores the first. */
	if (r == 0 && status != 200 && status != 404 &&
		strcmp(s->signal_name, "SIGNAL_SIGTERM") != 0 &&
		strcmp(s->signal_name, "SIGNAL_SIGKILL") != 0)
		session_send_signal(s, s->request->tty ? "SIGNAL_SIGKILL" : "SIGNAL_SIGTERM");
	session_settle(s);
}

void session_send_signal(struct session *s, const char *name)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(MESSAGE_MAX);
	struct jsonw w;

	session_message(s, &body, &w);
	jsonw_strz(&w, "signal", name);
	jsonw_bool(&w, "group", true); /* what it has started ends with it */
	jsonw_end_object(&w);
	if (session_rpc(s, &s->control, "SendSignal", &body, SIGNAL_TIMEOUT_MS, signal_answered))
		s->signal_name = name;
}

static void resized(struct session *s, int r, int status, struct str body)
{
	(void)r;
	(void)status;
	(void)body;
	if (s->resize_again && !s->is_ended) {
		s->resize_again = false;
		session_signal(s, SIGWINCH);
	}
	session_settle(s);
}

static void resize(struct session *s)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(MESSAGE_MAX);
	struct terminal_size size = terminal_size();
	struct jsonw w;

	if (!s->request->tty || s->pid == 0)
		return;
	session_message(s, &body, &w);
	jsonw_object(&w, "pty");
	jsonw_object(&w, "size");
	jsonw_int(&w, "cols", size.columns);
	jsonw_int(&w, "rows", size.rows);
	jsonw_end_object(&w);
	jsonw_end_object(&w);
	jsonw_end_object(&w);
	if (!session_rpc(s, &s->resize, "Update", &body, CLI_CALL_TIMEOUT_MS, resized))
		s->resize_again = true; /* the last size counts, not each on the way */
}

static const char *name_of(int signo)
{
	switch (signo) {
	case SIGINT:
		return "SIGNAL_SIGINT";
	case SIGHUP:
		return "SIGNAL_SIGHUP";
	case SIGQUIT:
		return "SIGNAL_SIGQUIT";
	default:
		return "SIGNAL_SIGTERM";
	}
}

/* The first goes to the command; the second within a moment kills it; the third only leaves. In a
 * terminal Ctrl+C is a key like others, so a signal means that our own terminal is going away: the
 * command hears of it as from any terminal, and a shell passes it on to its jobs. What is to stay
 * is what was told apart from it on purpose (nohup, setsid). */
void session_signal(void *arg, int signo)
{
	struct session *s = arg;
	int64_t now_ms = time_now_ms();

	if (signo == SIGWINCH) {
		resize(s);
		return;
	}
	if (now_ms - s->last_signal_ms > IMPATIENCE_MS)
		s->signals = 0;
	s->last_signal_ms = now_ms;
	s->signals++;
	if (s->pid == 0 || s->signals > 2 || s->request->tty)
		s->leaving_signo = signo;
	if (s->pid != 0 && s->signals <= 2)
		session_send_signal(s, s->signals == 2   ? "SIGNAL_SIGKILL"
				       : s->request->tty ? "SIGNAL_SIGHUP"
							 : name_of(signo));
	session_settle(s);
}

/* ---- a longer life for the sandbox ---- */

static void extended(struct session *s, int r, int status, struct str body)
{
	(void)r; /* one that fails is repeated; if the sandbox ends, its stream says so */
	(void)status;
	(void)body;
	loop_timer_set(&s->extend_timer,
		loop_now_ms(s->cli->loop) + s->request->keep_alive_s * 1000 / 4);
}

static void extend_now(void *arg)
{
	struct session *s = arg;
	struct cli *cli = s->cli;
	char url[CONFIG_VALUE + CLI_ID + 32], body[48], key[CONFIG_VALUE + 16];
	const char *const headers[] = { "Content-Type: application/json", key, NULL };
	struct client_request request = { .method = "POST",
		.url = url,
		.headers = headers,
		.timeout_ms = CLI_CALL_TIMEOUT_MS };

	(void)snprintf(url, sizeof url, "%s/sandboxes/%s/refreshes", cli->config.api_url,
		s->request->target->id);
	(void)snprintf(key, sizeof key, "X-API-Key: %s", cli->config.api_key);
	(void)snprintf(body, sizeof body, "{\"duration\":%" PRId64 "}", s->request->keep_alive_s);
	request.body = str_of(body);
	s->extend = (struct rpc){ .session = s, .answered = extended };
	s->extend.call =
		client_fetch(cli->client, &request, MESSAGE_MAX, session_rpc_done, &s->extend);
}

void session_extend_start(struct session *s)
{
	loop_timer_init(&s->extend_timer, s->cli->loop, extend_now, s);
	if (s->request->keep_alive_s > 0)
		extended(s, 0, 0, STR_NONE);
}
