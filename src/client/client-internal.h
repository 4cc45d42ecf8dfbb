/* What client.c (the multi handle on the loop) and call.c (one transfer) share. */
#pragma once

#include "client/client.h"

#include <curl/curl.h>

struct client {
	struct loop *loop;
	CURLM *multi;
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
