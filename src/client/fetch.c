#include "client/client.h"

struct fetch {
	struct client_call *call;
	struct buf body;
	client_response_fn fn;
	void *arg;
	bool is_too_long;
};

static void on_data(void *arg, struct client_call *call, struct str bytes)
{
	struct fetch *fetch = arg;

	if (buf_add_str(&fetch->body, bytes) == 0)
		return;
	fetch->is_too_long = true;
	client_cancel(call);
}

static void on_done(void *arg, int r, const struct err *e)
{
	struct fetch *fetch = arg;
	struct err too_long = { 0 };

	if (fetch->is_too_long) {
		r = err_set(&too_long, -ENOBUFS, "the response is longer than %zu bytes",
			fetch->body.max);
		e = &too_long;
	}
	fetch->fn(fetch->arg, r, fetch->call, buf_str(&fetch->body), e);
	buf_done(&fetch->body);
	free(fetch);
}

struct client_call *client_fetch(struct client *client, const struct client_request *request,
	size_t max_bytes, client_response_fn fn, void *arg)
{
	struct fetch *fetch = XNEW(struct fetch);
	const struct client_handlers handlers = { .data = on_data, .done = on_done, .arg = fetch };

	assert(!request->source); /* its arg would be ours */
	fetch->body = BUF_INIT(max_bytes);
	fetch->fn = fn;
	fetch->arg = arg;
	fetch->call = client_start(client, request, &handlers);
	return fetch->call;
}
