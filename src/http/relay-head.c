/* Heads rewritten on their way through. What concerns one connection only stays behind; framing and
 * Connection are always written anew, from what the parser understood. */
#include "http/http-internal.h"

static bool is_hop_by_hop(struct str name)
{
	static const char *const names[] = { "Connection", "Keep-Alive", "Proxy-Connection",
		"Proxy-Authenticate", "Proxy-Authorization", "TE", "Transfer-Encoding",
		"Content-Length", "Upgrade" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq_nocase(name, str_of(names[i])))
			return true;
	return false;
}

static bool has_token(struct str list, struct str token)
{
	struct str one;

	while (str_split(&list, ',', &one))
		if (str_eq_nocase(str_trim(one), token))
			return true;
	return false;
}

static bool named_by_connection(const struct head *h, struct str name)
{
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (str_eq_nocase(head_name(h, i), STR("Connection")) &&
			has_token(head_value(h, i), name))
			return true;
	return false;
}

/* Whether `lines` ("Name: value\r\n...") has a field of this name. */
static bool named_by_lines(const char *lines, struct str name)
{
	struct str rest = str_of(lines), line;

	while (str_split(&rest, '\n', &line)) {
		ptrdiff_t colon = str_find(line, ':');

		if (colon > 0 && str_eq_nocase(str_make(line.p, (size_t)colon), name))
			return true;
	}
	return false;
}

static void add_field(struct buf *out, struct str name, struct str value)
{
	(void)buf_add_str(out, name);
	(void)buf_add(out, ": ", 2);
	(void)buf_add_str(out, value);
	(void)buf_add(out, "\r\n", 2);
}

static void add_upgrade(struct buf *out, const struct head *h)
{
	(void)buf_adds(out, "Connection: Upgrade\r\n");
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (str_eq_nocase(head_name(h, i), STR("Upgrade")))
			add_field(out, STR("Upgrade"), head_value(h, i));
}

bool relay_wants_only(const struct head *h, const char *protocol)
{
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (str_eq_nocase(head_name(h, i), STR("Upgrade")) &&
			!str_eq_nocase(str_trim(head_value(h, i)), str_of(protocol)))
			return false;
	return true;
}

/* What whoever asked for the relay makes of it. */
static void pass_field(struct buf *out, struct str name, struct str value, http_field_fn fn,
	void *arg)
{
	if (fn)
		value = fn(arg, name, value);
	if (value.p && is_field_value(value))
		add_field(out, name, value);
}

static void add_request_fields(struct buf *out, const struct head *h,
	const struct http_relay_options *options)
{
	const char *added = options->add_headers;

	for (uint32_t i = 0; i < h->n_fields; i++) {
		struct str name = head_name(h, i);

		if (is_hop_by_hop(name) || str_eq_nocase(name, STR("Host")) ||
			str_eq_nocase(name, STR("Trailer")) || /* they stay behind */
			named_by_connection(h, name) || (added && named_by_lines(added, name)))
			continue;
		pass_field(out, name, head_value(h, i), options->request_field, options->arg);
	}
}

int relay_request_head(struct http_exchange *x, const struct http_relay_options *options)
{
	struct buf *out = &x->conn->server->head;
	const struct head *h = &x->head;
	struct str host = options->host;

	if (host.n == 0)
		host = h->has_host ? head_value(h, h->host) : STR("localhost");
	buf_clear(out);
	(void)buf_add_str(out, http_method(x));
	(void)buf_addc(out, ' ');
	(void)buf_add_str(out, http_target(x));
	(void)buf_adds(out, " HTTP/1.1\r\n");
	add_field(out, STR("Host"), host);
	add_request_fields(out, h, options);
	if (options->add_headers)
		(void)buf_adds(out, options->add_headers);
	if (h->chunked)
		(void)buf_adds(out, "Transfer-Encoding: chunked\r\n");
	else if (h->length >= 0)
		(void)buf_printf(out, "Content-Length: %" PRId64 "\r\n", h->length);
	if (h->upgrade)
		add_upgrade(out, h);
	else
		(void)buf_adds(out, "Connection: close\r\n");
	(void)buf_add(out, "\r\n", 2);
	return out->failed ? -ENOBUFS : 0;
}

static void add_status_line(struct buf *out, const struct head *reply)
{
	buf_clear(out);
	(void)buf_printf(out, "HTTP/1.1 %d ", reply->status);
	if (reply->reason_n > 0)
		(void)buf_add(out, reply->base + reply->reason, reply->reason_n);
	else
		(void)buf_adds(out, status_text(reply->status));
	(void)buf_add(out, "\r\n", 2);
}

static void add_reply_fields(struct buf *out, const struct head *reply,
	const struct http_relay *relay)
{
	for (uint32_t i = 0; i < reply->n_fields; i++) {
		struct str name = head_name(reply, i);

		if (!is_hop_by_hop(name) && !named_by_connection(reply, name))
			pass_field(out, name, head_value(reply, i), relay->reply_field, relay->arg);
	}
}

int relay_interim_head(struct http_exchange *x, const struct head *reply)
{
	struct buf *out = &x->conn->server->head;

	add_status_line(out, reply);
	add_reply_fields(out, reply, x->relay);
	(void)buf_add(out, "\r\n", 2);
	return out->failed ? -ENOBUFS : 0;
}

static void decide_framing(struct http_exchange *x, const struct head *reply)
{
	bool empty = reply->status == 204 || reply->status == 304;
	bool tunnel = reply->status == 101;

	x->no_body = empty || tunnel || str_is(http_method(x), "HEAD");
	x->chunked = !x->no_body && reply->length < 0 && x->head.minor > 0;
	x->reply_left = x->no_body && !tunnel ? 0 : reply->length;
	x->keep = reply_may_keep(x) && !tunnel && (x->no_body || x->chunked || reply->length >= 0);
}

int relay_tunnel_head(struct http_exchange *x)
{
	static const struct head reply = { .status = 101, .length = -1 };
	struct buf *out = &x->conn->server->head;

	decide_framing(x, &reply);
	add_status_line(out, &reply);
	add_upgrade(out, &x->head);
	(void)buf_add(out, "\r\n", 2);
	return out->failed ? -ENOBUFS : 0;
}

int relay_reply_head(struct http_exchange *x, const struct head *reply)
{
	struct buf *out = &x->conn->server->head;

	decide_framing(x, reply);
	add_status_line(out, reply);
	add_reply_fields(out, reply, x->relay);
	if (x->relay->reply_lines)
		(void)buf_adds(out, x->relay->reply_lines(x->relay->arg));
	if (reply->length >= 0 && reply->status != 204 && reply->status != 101)
		(void)buf_printf(out, "Content-Length: %" PRId64 "\r\n", reply->length);
	if (x->chunked)
		(void)buf_adds(out, "Transfer-Encoding: chunked\r\n");
	if (reply->status == 101)
		add_upgrade(out, reply);
	else if (!x->keep)
		(void)buf_adds(out, "Connection: close\r\n");
	else if (x->head.minor == 0)
		(void)buf_adds(out, "Connection: keep-alive\r\n");
	(void)buf_add(out, "\r\n", 2);
	return out->failed ? -ENOBUFS : 0;
}
