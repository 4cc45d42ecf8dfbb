/* What exec.c (the stream and its end) and exec-input.c (what goes the other way) share. */
#pragma once

#include "cli/events.h"
#include "cli/exec.h"
#include "cli/outlet.h"

#include <signal.h>

struct session;

/* A unary call about our process that is under way. */
struct rpc {
	struct session *session;
	struct client_call *call; /* NULL: none */
	void (*answered)(struct session *s, int r, int status, struct str body);
};

struct session {
	struct cli *cli;
	const struct exec_request *request;
	struct exec_result result;
	const char *const *unary_headers;
	struct event_stream events;
	struct client_call *stream;
	struct buf refusal; /* body of an answer that is not a stream */
	struct outlet out, err_out;
	struct outlet *err_to; /* &out when both are the same pipe or terminal */
	int64_t pid;           /* 0: not started */
	int64_t started_us;
	bool is_ended;   /* the end event was seen */
	bool is_over;    /* the stream's call is done */
	bool is_closing; /* only the ends of cut calls are awaited */

	struct loop_io stdin_io;
	struct loop_task stdin_task; /* for files, which no epoll watches */
	bool stdin_open;
	char *stdin_bytes;
	struct rpc input, control, resize, extend;
	bool resize_again;
	struct loop_timer extend_timer;

	int signals; /* that asked the command to end */
	int64_t last_signal_ms;
	const char *signal_name; /* the one under way */
	int leaving_signo;       /* we go, whatever the command does */
	struct err e;            /* code < 0: our failure */
};

/* Ends the loop once nothing is left to do. */
void session_settle(struct session *s);
void session_fail(struct session *s, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* One call of the process service; false when the slot is taken. timeout_ms 0: none. */
bool session_rpc(struct session *s, struct rpc *slot, const char *method, const struct buf *body,
	int64_t timeout_ms, void (*answered)(struct session *, int, int, struct str));
void session_rpc_done(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e);
/* Opens the message and names our process in it. */
void session_message(struct session *s, struct buf *body, struct jsonw *w);

void session_input_start(struct session *s); /* the process is there */
void session_input_stop(struct session *s);
void session_signal(void *arg, int signo);
void session_send_signal(struct session *s, const char *name);
void session_extend_start(struct session *s);
