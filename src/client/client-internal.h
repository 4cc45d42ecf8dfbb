/* What the files of this room share.
 *
 *   client.c   the multi handle on the loop
 *   call.c     one transfer           fetch.c    with its body in one piece
 *   tunnel.c   a connection of bytes  upgrade.c  the heads it begins with */
#pragma once

#include "client/client.h"

#include <curl/curl.h>

struct client {
	struct loop *loop;
	CURLM *multi;
	char *ca_file; /* NULL: the system's */
	struct loop_timer timer;
	struct list calls;
};

struct client_call {
	struct list node;
	struct client *client;
	CURL *easy;
	struct curl_slist *headers;
	struct client_handlers handlers;
	client_source_fn source;
	void (*connected)(void *arg); /* of a tunnel: nothing is transferred, the call goes on */
	struct loop_task task; /* everything that must not happen inside one of curl's callbacks */
	struct loop_timer idle;
	int64_t idle_timeout_ms, last_ms;
	int source_error; /* what the source ended the call with */
	bool is_added, is_canceled, is_idle_over, has_head;
	bool recv_paused, recv_held; /* asked for by the owner; known to curl */
	bool send_held, send_more;   /* curl waits for the source; the source has more */
	struct err setup;            /* code < 0: the request itself is wrong */
	char curl_error[CURL_ERROR_SIZE];
};

/* Ends the call: out of curl, done, freed. */
void client_call_finish(struct client_call *call, CURLcode result);
/* Gives finished transfers their done. Never from inside a callback of curl. */
void client_reap(struct client *client);

/* ---- upgrade.c ---- */
/* The head of a request for an upgrade. */
int upgrade_request(const struct client_request *request, const char *protocol, struct buf *out,
	struct err *e);
struct upgrade_answer {
	int status;     /* 101, or from 200 on: interim answers before it are passed over */
	int64_t length; /* of the body that follows; -1: not said */
	size_t head_n;
};
/* 1: the head of the answer is whole. 0: more is needed. -EPROTO: it is none. */
int upgrade_answer(struct str bytes, struct upgrade_answer *ret);
