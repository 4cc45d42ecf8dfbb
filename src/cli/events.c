#include "cli/events.h"

#include "json/json.h"

#include <signal.h>

enum {
	FRAME_MAX = 4 << 20, /* the guest sends at most 32 KiB of output in one */
	EXIT_OF_SIGNAL = 128,
};

/* ---- the messages ---- */

struct started {
	struct json_int pid;
};
struct data {
	struct str out, err, pty;
};
struct ended {
	struct json_int exit_code;
	struct json_bool exited;
	struct str status, error;
};
struct event {
	bool has_start, has_data, has_end, has_alive;
	struct started start;
	struct data data;
	struct ended end;
	struct started alive; /* its fields, if it ever gets any, are not for us */
};
struct message {
	struct event event;
};

static const struct json_field started_fields[] = {
	JSON_FIELD(struct started, pid, "pid", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape started_shape =
	JSON_SHAPE(struct started, started_fields, .ignore_unknown = true);
static const struct json_field data_fields[] = {
	JSON_FIELD(struct data, out, "stdout", JSON_BYTES, .flags = JSON_LAX),
	JSON_FIELD(struct data, err, "stderr", JSON_BYTES, .flags = JSON_LAX),
	JSON_FIELD(struct data, pty, "pty", JSON_BYTES, .flags = JSON_LAX),
};
static const struct json_shape data_shape =
	JSON_SHAPE(struct data, data_fields, .ignore_unknown = true);
static const struct json_field ended_fields[] = {
	JSON_FIELD(struct ended, exit_code, "exitCode", JSON_INT, .alias = "exit_code",
		.flags = JSON_LAX, .min = -1, .max = 255),
	JSON_FIELD(struct ended, exited, "exited", JSON_BOOL, .flags = JSON_LAX),
	JSON_FIELD(struct ended, status, "status", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct ended, error, "error", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape ended_shape =
	JSON_SHAPE(struct ended, ended_fields, .ignore_unknown = true);
static const struct json_field event_fields[] = {
	JSON_FIELD(struct event, start, "start", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &started_shape, .present = offsetof(struct event, has_start) + 1),
	JSON_FIELD(struct event, data, "data", JSON_OBJECT, .flags = JSON_LAX, .shape = &data_shape,
		.present = offsetof(struct event, has_data) + 1),
	JSON_FIELD(struct event, end, "end", JSON_OBJECT, .flags = JSON_LAX, .shape = &ended_shape,
		.present = offsetof(struct event, has_end) + 1),
	JSON_FIELD(struct event, alive, "keepalive", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &started_shape, .present = offsetof(struct event, has_alive) + 1),
};
static const struct json_shape event_shape =
	JSON_SHAPE(struct event, event_fields, .ignore_unknown = true);
static const struct json_field message_fields[] = {
	JSON_FIELD(struct message, event, "event", JSON_OBJECT, .flags = JSON_REQUIRED,
		.shape = &event_shape),
};
static const struct json_shape message_shape =
	JSON_SHAPE(struct message, message_fields, .ignore_unknown = true);

struct failure {
	struct str code, message;
};
struct closing {
	struct failure error;
};
static const struct json_field failure_fields[] = {
	JSON_FIELD(struct failure, code, "code", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct failure, message, "message", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape failure_shape =
	JSON_SHAPE(struct failure, failure_fields, .ignore_unknown = true);
static const struct json_field closing_fields[] = {
	JSON_FIELD(struct closing, error, "error", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &failure_shape),
};
static const struct json_shape closing_shape =
	JSON_SHAPE(struct closing, closing_fields, .ignore_unknown = true);

/* ---- how a process ended ---- */

int process_signal_of(struct str words)
{
	static const struct {
		int signo;
		const char *words;
	} table[] = {
		{ SIGHUP, "hangup" },
		{ SIGINT, "interrupt" },
		{ SIGQUIT, "quit" },
		{ SIGILL, "illegal instruction" },
		{ SIGTRAP, "trace/breakpoint trap" },
		{ SIGABRT, "aborted" },
		{ SIGBUS, "bus error" },
		{ SIGFPE, "floating point exception" },
		{ SIGKILL, "killed" },
		{ SIGUSR1, "user defined signal 1" },
		{ SIGSEGV, "segmentation fault" },
		{ SIGUSR2, "user defined signal 2" },
		{ SIGPIPE, "broken pipe" },
		{ SIGALRM, "alarm clock" },
		{ SIGTERM, "terminated" },
		{ SIGSTKFLT, "stack fault" },
		{ SIGXCPU, "CPU time limit exceeded" },
		{ SIGXFSZ, "file size limit exceeded" },
		{ SIGVTALRM, "virtual timer expired" },
		{ SIGPROF, "profiling timer expired" },
		{ SIGIO, "I/O possible" },
		{ SIGPWR, "power failure" },
		{ SIGSYS, "bad system call" },
	};
	static const struct str core = STR(" (core dumped)"), number = STR("signal ");
	int64_t signo;

	if (words.n > core.n && str_eq(str_make(words.p + words.n - core.n, core.n), core))
		words.n -= core.n;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (str_is(words, table[i].words))
			return table[i].signo;
	if (str_has_prefix(words, number) &&
		str_to_int(str_from(words, number.n), 1, 127, &signo) == 0)
		return (int)signo;
	return 0;
}

static void describe_end(const struct ended *end, struct process_event *event)
{
	static const struct str by_signal = STR("signal: ");

	event->kind = PROCESS_ENDED;
	event->exit_code = (int)end->exit_code.value;
	/* It repeats the status of whatever has failed. */
	if (!str_eq(end->error, end->status))
		event->cause = end->error;
	if (end->exit_code.value >= 0)
		return;
	if (str_has_prefix(end->status, by_signal))
		event->signo = process_signal_of(str_from(end->status, by_signal.n));
	/* A signal nobody has a word for: the command did not succeed, and that is all we know. */
	event->exit_code = event->signo ? EXIT_OF_SIGNAL + event->signo : 1;
}

/* ---- the stream ---- */

static int describe(const struct event *in, struct process_event *out, struct err *e)
{
	if (in->has_start + in->has_data + in->has_end + in->has_alive != 1)
		return err_set(e, -EPROTO, "an event of the command is not one of the known ones");
	if (in->has_start) {
		*out = (struct process_event){ .kind = PROCESS_STARTED,
			.pid = in->start.pid.value };
	} else if (in->has_end) {
		describe_end(&in->end, out);
	} else if (in->has_alive) {
		out->kind = PROCESS_ALIVE;
	} else {
		out->kind = in->data.err.p ? PROCESS_STDERR : PROCESS_STDOUT;
		out->bytes = in->data.err.p   ? in->data.err
			     : in->data.out.p ? in->data.out
					      : in->data.pty;
	}
	return 0;
}

static int check_order(struct event_stream *s, const struct process_event *event, struct err *e)
{
	bool is_start = event->kind == PROCESS_STARTED;

	if (s->is_closed || s->is_ended || is_start == s->is_started)
		return err_set(e, -EPROTO, "the events of the command are out of order");
	s->is_started = true;
	s->is_ended = event->kind == PROCESS_ENDED;
	return 0;
}

/* Output in its usual spelling, which is nearly all of a long stream, needs no JSON parser: base64
 * has no escapes, and what it does not recognise goes the long way. */
static bool is_plain_output(struct event_stream *s, struct str payload, struct process_event *event)
{
	static const struct {
		struct str start;
		enum process_event_kind kind;
	} spellings[] = {
		{ STR("{\"event\":{\"data\":{\"stdout\":\""), PROCESS_STDOUT },
		{ STR("{\"event\":{\"data\":{\"stderr\":\""), PROCESS_STDERR },
		{ STR("{\"event\":{\"data\":{\"pty\":\""), PROCESS_STDOUT },
	};
	static const struct str end = STR("\"}}}");

	for (size_t i = 0; i < ARRAY_SIZE(spellings); i++) {
		struct str start = spellings[i].start, text = str_from(payload, start.n);

		if (!str_has_prefix(payload, start) || text.n < end.n ||
			!str_eq(str_from(text, text.n - end.n), end))
			continue;
		buf_clear(&s->bytes);
		if (base64_decode(str_make(text.p, text.n - end.n), &s->bytes) < 0)
			return false;
		*event = (struct process_event){ .kind = spellings[i].kind,
			.bytes = buf_str(&s->bytes) };
		return true;
	}
	return false;
}

static int on_message(struct event_stream *s, struct arena *arena, struct str payload,
	struct err *e)
{
	struct process_event event = { 0 };
	struct message message;
	int r = 0;

	if (!is_plain_output(s, payload, &event)) {
		r = json_decode(arena, payload, &message_shape, &message, e);
		if (r < 0)
			return err_wrap(e, -EPROTO, "event of the command");
		r = describe(&message.event, &event, e);
	}
	if (r == 0)
		r = check_order(s, &event, e);
	return r < 0 ? r : s->fn(s->arg, &event, e);
}

static int on_close(struct event_stream *s, struct arena *arena, struct str payload, struct err *e)
{
	struct process_event event = { .kind = PROCESS_CLOSED };
	struct closing closing;

	if (s->is_closed || json_decode(arena, payload, &closing_shape, &closing, e) < 0)
		return err_set(e, -EPROTO, "the command's stream has no proper end");
	s->is_closed = true;
	event.code = closing.error.code;
	event.message = closing.error.message;
	return s->fn(s->arg, &event, e);
}

static int on_frame(void *arg, unsigned flags, struct str payload, struct err *e)
{
	struct event_stream *s = arg;
	struct arena *arena = arena_new(FRAME_MAX);
	int r = flags & CONNECT_FLAG_END ? on_close(s, arena, payload, e)
					 : on_message(s, arena, payload, e);

	(void)arena_free(arena);
	return r;
}

void event_stream_init(struct event_stream *s, process_event_fn fn, void *arg)
{
	*s = (struct event_stream){ .fn = fn, .arg = arg, .bytes = BUF_INIT(FRAME_MAX) };
	connect_reader_init(&s->reader, FRAME_MAX);
}

void event_stream_done(struct event_stream *s)
{
	connect_reader_done(&s->reader);
	buf_done(&s->bytes);
}

int event_stream_feed(struct event_stream *s, struct str bytes, struct err *e)
{
	return connect_reader_feed(&s->reader, bytes, on_frame, s, e);
}

int event_stream_finish(const struct event_stream *s, struct err *e)
{
	int r = connect_reader_finish(&s->reader, e);

	if (r == 0 && !s->is_closed)
		r = err_set(e, -EPROTO, "the command's stream broke off");
	return r;
}
