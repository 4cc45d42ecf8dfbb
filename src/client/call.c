/* One transfer. What the owner asks for (start, resume, cancel) is only noted, and done by a task
 * at the end of the turn: curl refuses most calls from inside its own callbacks, and the owner must
 * not see its handlers called from inside its own. */
#include "client/client-internal.h"

#include <arpa/inet.h>

enum {
	CONNECT_TIMEOUT_MS = 5000,
	BUFFER_BYTES =
		128 << 10, /* large files move in few turns; curl allocates it once a handle */
};

/* ---- what curl calls ---- */

static void touch(struct client_call *call)
{
	call->last_ms = loop_now_ms(call->client->loop);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct client_call *call = arg;

	touch(call);
	if (call->is_canceled || call->has_head || n != 2 || memcmp(p, "\r\n", 2) != 0)
		return size * n;
	if (client_status(call) < 200)
		return size * n; /* an interim response: the real one follows */
	call->has_head = true;
	if (call->handlers.head)
		call->handlers.head(call->handlers.arg, call);
	return size * n;
}

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
	struct client_call *call = arg;

	touch(call);
	if (call->is_canceled)
		return 0;
	if (call->recv_paused) {
		call->recv_held = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	if (call->handlers.data)
		call->handlers.data(call->handlers.arg, call, str_make(p, size * n));
	return size * n;
}

static size_t on_read(char *p, size_t size, size_t n, void *arg)
{
	struct client_call *call = arg;
	ssize_t got;

	if (call->is_canceled)
		return CURL_READFUNC_ABORT;
	call->send_more = false;
	got = call->source(call->handlers.arg, p, size * n);
	if (got == -EAGAIN) {
		call->send_held = true;
		return CURL_READFUNC_PAUSE;
	}
	touch(call);
	if (got >= 0)
		return (size_t)got;
	call->source_error = (int)got;
	return CURL_READFUNC_ABORT;
}

/* ---- setting up ---- */

static bool is_loopback(const char *host)
{
	struct in_addr address;
	size_t n = strlen(host);

	return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
	       (n > 10 && strcasecmp(host + n - 10, ".localhost") == 0) ||
	       (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

/* 1: a loopback host, 0: another one, -EINVAL: not a URL for us. */
static int check_url(const char *url, struct err *e)
{
	CURLU *parsed = curl_url();
	char *host = NULL, *scheme = NULL;
	int r = -EINVAL;

	if (parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
		curl_url_get(parsed, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
		(strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0))
		r = is_loopback(host);
	curl_free(host);
	curl_free(scheme);
	curl_url_cleanup(parsed);
	return r < 0 ? err_set(e, r, "not an http or https URL: '%s'", url) : r;
}

static int add_header(struct client_call *call, const char *line)
{
	struct curl_slist *more = curl_slist_append(call->headers, line);

	if (!more)
		return -ENOMEM;
	call->headers = more;
	return 0;
}

static int set_headers(struct client_call *call, const struct client_request *request,
	struct err *e)
{
	bool has_type = false;
	/* Waiting for "100 Continue" costs a second with servers that do not know it. */
	int r = add_header(call, "Expect:");

	for (const char *const *line = request->headers; line && *line && r == 0; line++) {
		if (strpbrk(*line, "\r\n"))
			return err_set(e, -EINVAL, "a request header holds a line break");
		has_type = has_type || strncasecmp(*line, "Content-Type:", 13) == 0;
		r = add_header(call, *line);
	}
	if (r == 0 && !has_type)
		r = add_header(call, "Content-Type:"); /* or curl would call every body a form */
	if (r < 0)
		return err_set(e, r, "request headers: out of memory");
	(void)curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
	return 0;
}

static bool method_has_body(const char *method)
{
	return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
	       strcmp(method, "PATCH") == 0;
}

static CURLcode set_body(struct client_call *call, const struct client_request *request)
{
	CURL *easy = call->easy;

	if (call->source) {
		(void)curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		(void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
		(void)curl_easy_setopt(easy, CURLOPT_READDATA, call);
		(void)curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
			(curl_off_t)request->source_length);
	} else if (request->body.p || method_has_body(request->method)) {
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
			(curl_off_t)request->body.n);
		if (curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS,
			    request->body.n ? request->body.p : "") != CURLE_OK)
			return CURLE_OUT_OF_MEMORY;
	} else if (strcmp(request->method, "HEAD") == 0) {
		(void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	}
	return curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static void set_callbacks(struct client_call *call)
{
	CURL *easy = call->easy;

	(void)curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->curl_error);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
	(void)curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER_BYTES);
}

static int set_up(struct client_call *call, const struct client_request *request, struct err *e)
{
	CURL *easy = call->easy;
	const char *ca_file = request->ca_file ? request->ca_file : call->client->ca_file;
	CURLcode result = CURLE_OK;
	int loopback = check_url(request->url, e);

	if (loopback < 0)
		return loopback;
	set_callbacks(call);
	(void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
		(long)(request->connect_timeout_ms ? request->connect_timeout_ms
						   : CONNECT_TIMEOUT_MS));
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
	result = curl_easy_setopt(easy, CURLOPT_URL, request->url);
	if (result == CURLE_OK && request->unix_socket)
		result = curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
	if (result == CURLE_OK && ca_file)
		result = curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
	if (result == CURLE_OK && ca_file) /* or the system's would be trusted besides */
		result = curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	if (result == CURLE_OK && (request->unix_socket || loopback))
		result = curl_easy_setopt(easy, CURLOPT_PROXY, "");
	if (result == CURLE_OK)
		result = set_body(call, request);
	if (result != CURLE_OK)
		return err_set(e, -EINVAL, "request: %s", curl_easy_strerror(result));
	return set_headers(call, request, e);
}

/* ---- the task at the end of the turn ---- */

static void on_idle(void *arg)
{
	struct client_call *call = arg;
	int64_t at_ms = call->last_ms + call->idle_timeout_ms;

	if (call->recv_held || call->send_held) /* then we are the ones who wait */
		at_ms = loop_now_ms(call->client->loop) + call->idle_timeout_ms;
	if (at_ms > loop_now_ms(call->client->loop)) {
		loop_timer_set(&call->idle, at_ms);
		return;
	}
	call->is_idle_over = true;
	client_call_finish(call, CURLE_OPERATION_TIMEDOUT);
}

static void begin(struct client_call *call)
{
	if (call->setup.code < 0) {
		client_call_finish(call, CURLE_BAD_FUNCTION_ARGUMENT);
		return;
	}
	touch(call);
	if (call->idle_timeout_ms > 0)
		loop_timer_set(&call->idle, call->last_ms + call->idle_timeout_ms);
	call->is_added = true;
	if (curl_multi_add_handle(call->client->multi, call->easy) != CURLM_OK)
		client_call_finish(call, CURLE_OUT_OF_MEMORY);
}

static void proceed(struct client_call *call)
{
	struct client *client = call->client;

	if (call->send_held && call->send_more)
		call->send_held = call->send_more = false;
	if (!call->recv_paused)
		call->recv_held = false;
	touch(call);
	(void)curl_easy_pause(call->easy,
		(call->recv_held ? CURLPAUSE_RECV : 0) | (call->send_held ? CURLPAUSE_SEND : 0));
	client_reap(client);
}

static void work(void *arg)
{
	struct client_call *call = arg;

	if (call->is_canceled)
		client_call_finish(call, CURLE_OK);
	else if (!call->is_added)
		begin(call);
	else if ((call->recv_held && !call->recv_paused) || (call->send_held && call->send_more))
		proceed(call);
}

static void later(struct client_call *call)
{
	loop_defer(call->client->loop, &call->task, work, call);
}

/* ---- the end ---- */

static int code_of(const struct client_call *call, CURLcode result)
{
	switch ((int)result) {
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_URL_MALFORMAT:
		return -EINVAL;
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
		return -ECONNRESET;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return -EKEYREJECTED;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_ABORTED_BY_CALLBACK:
		return call->source_error ? call->source_error : -EIO;
	default: /* TLS, and answers that are not HTTP */
		return -EPROTO;
	}
}

static void tell(struct client_call *call, CURLcode result)
{
	struct err e = { 0 };
	int r = 0;

	if (call->is_canceled)
		r = err_set(&e, -ECANCELED, "the request was cancelled");
	else if (call->setup.code < 0)
		r = err_set(&e, call->setup.code, "%s", call->setup.msg);
	else if (call->is_idle_over)
		r = err_set(&e, -ETIMEDOUT, "no byte moved for %" PRId64 " s",
			call->idle_timeout_ms / 1000);
	else if (result != CURLE_OK)
		r = err_set(&e, code_of(call, result), "%s",
			call->curl_error[0] ? call->curl_error : curl_easy_strerror(result));
	call->handlers.done(call->handlers.arg, r, &e);
}

void client_call_finish(struct client_call *call, CURLcode result)
{
	loop_task_cancel(&call->task);
	loop_timer_cancel(&call->idle);
	list_remove(&call->node);
	if (call->is_added)
		(void)curl_multi_remove_handle(call->client->multi, call->easy);
	tell(call, result);
	loop_task_cancel(&call->task); /* done may have asked for something */
	curl_easy_cleanup(call->easy);
	curl_slist_free_all(call->headers);
	free(call);
}

/* ---- the door ---- */

struct client_call *client_start(struct client *client, const struct client_request *request,
	const struct client_handlers *handlers)
{
	struct client_call *call = XNEW(struct client_call);

	call->client = client;
	call->handlers = *handlers;
	call->source = request->source;
	call->idle_timeout_ms = request->idle_timeout_ms;
	loop_timer_init(&call->idle, client->loop, on_idle, call);
	list_append(&client->calls, &call->node);
	call->easy = curl_easy_init();
	if (!call->easy)
		(void)err_set(&call->setup, -ENOMEM, "libcurl has no memory");
	else
		(void)set_up(call, request, &call->setup);
	later(call);
	return call;
}

void client_cancel(struct client_call *call)
{
	call->is_canceled = true;
	later(call);
}

void client_pause(struct client_call *call)
{
	call->recv_paused = true;
}

void client_resume(struct client_call *call)
{
	call->recv_paused = false;
	if (call->recv_held)
		later(call);
}

void client_more(struct client_call *call)
{
	call->send_more = true;
	if (call->send_held)
		later(call);
}

int client_status(const struct client_call *call)
{
	long status = 0;

	if (call->easy)
		(void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	return (int)status;
}

struct str client_header(const struct client_call *call, const char *name)
{
	struct curl_header *header;

	if (!call->has_head ||
		curl_easy_header(call->easy, name, 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
		return STR_NONE;
	return str_of(header->value);
}
