/* The multi handle on the loop: curl says which sockets it waits for and when it wants to be woken,
 * the loop says when that has come. */
#include "client/client-internal.h"

struct watch {
	struct loop_io io;
	struct client *client;
	curl_socket_t fd;
};

static void act(struct client *client, curl_socket_t fd, int bits)
{
	int running;

	(void)curl_multi_socket_action(client->multi, fd, bits, &running);
	client_reap(client);
}

static void on_ready(void *arg, uint32_t events)
{
	struct watch *watch = arg;
	int bits = 0;

	/* An error or hang-up is found by reading and writing; curl's own error bit would hide
	 * which. */
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		bits |= CURL_CSELECT_IN;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		bits |= CURL_CSELECT_OUT;
	act(watch->client, watch->fd, bits); /* may free the watch */
}

static void on_timer(void *arg)
{
	act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int want_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct client *client = arg;

	(void)multi;
	if (timeout_ms < 0)
		loop_timer_cancel(&client->timer);
	else
		loop_timer_set(&client->timer, loop_now_ms(client->loop) + timeout_ms);
	return 0;
}

static uint32_t events_of(int what)
{
	return (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct client *client = arg;
	struct watch *watch = socket_arg;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (watch)
			loop_io_remove(&watch->io);
		free(watch);
		return 0;
	}
	if (watch) {
		loop_io_set(&watch->io, events_of(what));
		return 0;
	}
	watch = XNEW(struct watch);
	watch->client = client;
	watch->fd = fd;
	if (loop_io_add(client->loop, &watch->io, fd, events_of(what), on_ready, watch, NULL) < 0) {
		free(watch);
		return -1;
	}
	(void)curl_multi_assign(client->multi, fd, watch);
	return 0;
}

void client_reap(struct client *client)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(client->multi, &left))) {
		CURLcode result = msg->data.result;
		struct client_call *call;
		char *private = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &private);
		call = (void *)private; /* msg is gone from here on */
		if (call->connected && result == CURLE_OK)
			call->connected(call->handlers.arg);
		else
			client_call_finish(call, result);
	}
}

int client_new(struct loop *loop, struct client **ret, struct err *e)
{
	struct client *client;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, -ENOMEM, "libcurl does not start");
	client = XNEW(struct client);
	client->loop = loop;
	list_init(&client->calls);
	loop_timer_init(&client->timer, loop, on_timer, client);
	client->multi = curl_multi_init();
	if (!client->multi) {
		(void)client_free(client);
		return err_set(e, -ENOMEM, "libcurl has no memory");
	}
	(void)curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
	(void)curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
	(void)curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, want_timer);
	(void)curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
	*ret = client;
	return 0;
}

void client_trust(struct client *client, const char *ca_file)
{
	free(client->ca_file);
	client->ca_file = xstrdup(ca_file);
}

struct client *client_free(struct client *client)
{
	if (!client)
		return NULL;
	while (!list_empty(&client->calls)) {
		struct client_call *call =
			container_of(client->calls.next, struct client_call, node);

		call->is_canceled = true;
		client_call_finish(call, CURLE_OK);
	}
	if (client->multi)
		(void)curl_multi_cleanup(client->multi);
	loop_timer_cancel(&client->timer);
	free(client->ca_file);
	free(client);
	curl_global_cleanup();
	return NULL;
}
