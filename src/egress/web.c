/* HTTP requests of sandboxes, looked at one by one: each says anew whom it is for, and goes over a
 * connection of its own to what that name means to us. Requests to a host with a header rule come
 * here out of TLS that ended with us, and leave over TLS again. */
#include "egress/egress-internal.h"
#include "tls/tls.h"

#include <arpa/inet.h>

struct web {
	struct http_carriage carriage; /* first: the HTTP server frees it with the connection */
	struct list node;              /* in tenant->webs */
	struct tenant *tenant;
	uint32_t source, address; /* of the sandbox; where it was meant to go */
	uint32_t reached;         /* where the request went; 0: nowhere yet */
	bool by_name;             /* and not because of the address */
	uint16_t port;
	char hello[DNS_TEXT_SIZE]; /* the name that TLS began with; empty: plain HTTP */
	char name[DNS_TEXT_SIZE];  /* of the request under way, or of the last one */
	struct http_exchange *x;   /* until it is passed on; then one of these is under way */
	struct headers *headers;
	struct dial *dial;
	struct stream *secured;
	char *added; /* the headers to add, in the arena of x and gone with it; NULL: none */
};

static struct web *web_of(struct http_exchange *x)
{
	return container_of(http_carriage(x), struct web, carriage);
}

/* What it waits for is not waited for any more. */
static void quiet(struct web *w)
{
	headers_cancel(TAKE(w->headers));
	dial_cancel(TAKE(w->dial));
	tls_connect_cancel(TAKE(w->secured));
}

static void on_gone(struct http_carriage *carriage)
{
	struct web *w = container_of(carriage, struct web, carriage);

	quiet(w);
	list_remove(&w->node);
	w->tenant->egress->n_flows--;
	tenant_give_back(w->tenant, SHARE_FLOWS);
	(void)tenant_unref(w->tenant);
	free(w);
}

/* They hold secrets, and are of this request only. */
static void wipe_added(struct web *w)
{
	if (w->added)
		explicit_bzero(w->added, strlen(w->added));
	w->added = NULL;
}

/* ---- answers of our own ---- */

static void fail(struct http_exchange *x, int status, const char *what, const char *whom)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1024);

	(void)buf_printf(&text, "%s%s%s\n", what, whom[0] ? ": " : "", whom);
	http_reply(x, status, "text/plain; charset=utf-8", buf_str(&text));
}

/* The request under way comes to nothing. */
static void give_up(struct web *w, int status, const char *what, const char *whom)
{
	wipe_added(w);
	fail(TAKE(w->x), status, what, whom);
}

static void refuse(struct web *w, struct http_exchange *x, int status, const char *what)
{
	tenant_deny(w->tenant, DENIED_NAME, w->name, w->port);
	fail(x, status, what, w->name[0] ? w->name : "(no host)");
}

/* ---- passing on ---- */

static void on_refused(void *arg, struct http_exchange *x, int r)
{
	struct web *w = arg;

	(void)r;
	fail(x, 502, "the connection was refused by the host", w->name);
}

/* Inside h2c or TLS each request would name its host where we do not look; a WebSocket is for the
 * host of the request that asked for it. */
static void pass_on(struct web *w, int fd, struct http_carriage *carriage)
{
	struct http_exchange *x = TAKE(w->x);
	struct http_relay_options options = { .arg = w,
		.add_headers = w->added,
		.upgrade = "websocket",
		.carriage = carriage };

	(void)http_relay(x, fd, &options, on_refused);
	wipe_added(w);
}

static void on_secured(void *arg, int fd, const struct err *e)
{
	struct web *w = arg;
	struct stream *secured = TAKE(w->secured);

	if (fd >= 0)
		pass_on(w, fd, tls_connect_carriage(secured));
	else
		give_up(w, 502, e->msg, "");
}

static void on_dialled(void *arg, int fd)
{
	struct web *w = arg;

	w->dial = NULL;
	w->reached = fd < 0 ? 0 : dial_peer(fd);
	if (fd < 0)
		give_up(w, 502,
			fd == -ENOENT ? "the name has no address that may be reached"
				      : "the host was not reached",
			w->name);
	else if (w->hello[0])
		w->secured = tls_server_connect(w->tenant->egress->tls, fd, w->name, on_secured, w);
	else
		pass_on(w, fd, NULL);
}

static void dial(struct web *w)
{
	const char *name = w->by_name ? w->name : NULL;

	w->dial = dial_start(w->tenant, name, w->address, w->port, on_dialled, w);
}

/* The exchange's own copy: it is wiped once it is on its way. */
static void on_headers(void *arg, const char *text, const struct err *e)
{
	struct web *w = arg;

	w->headers = NULL;
	if (text)
		w->added = arena_dup(http_arena(w->x), str_of(text));
	if (w->added)
		dial(w);
	else
		give_up(w, 502, e ? e->msg : "the headers of the rule are too large", "");
}

/* ---- one request ---- */

/* "example.com:80" is example.com; an address in brackets is no name, nor is an empty text. */
static void read_host(struct web *w, struct str host)
{
	ptrdiff_t colon = str_find(host, ':');
	struct dns_name wire;

	if (colon >= 0)
		host.n = (size_t)colon;
	if (host.n > 1 && host.p[host.n - 1] == '.')
		host.n--;
	if (dns_name_parse(host, &wire) < 0 || dns_name_text(&wire, w->name) < 0)
		w->name[0] = '\0';
}

static void begin(struct web *w, struct http_exchange *x, enum verdict verdict)
{
	const struct policy_rule *rule = NULL;

	w->x = x;
	w->by_name = w->hello[0] || verdict == VERDICT_NAME;
	w->reached = w->by_name ? 0 : w->address;
	if (w->hello[0])
		rule = policy_rule_for(&w->tenant->policy, str_of(w->name));
	if (rule && str_is(http_method(x), "TRACE")) /* which asks for its own headers back */
		give_up(w, 405, "not to a host with a header rule", w->name);
	else if (rule)
		w->headers = headers_start(w->tenant, rule, on_headers, w);
	else
		dial(w);
}

void web_on_request(void *arg, struct http_exchange *x)
{
	struct web *w = web_of(x);
	struct egress *egress = arg;
	enum verdict verdict = VERDICT_REFUSE;

	read_host(w, http_header(x, "Host"));
	if (tenant_find(egress, w->source) == w->tenant) /* and its policy is the one of now */
		verdict = verdict_of(w->tenant, w->name, w->address, w->port);
	if (w->hello[0] && strcmp(w->hello, w->name) != 0)
		refuse(w, x, 421, "the connection was made for another host");
	else if (verdict == VERDICT_REFUSE)
		refuse(w, x, 403, "blocked by the sandbox's network policy");
	else
		begin(w, x, verdict);
}

/* ---- connections ---- */

void web_take(const struct web_connection *c)
{
	const struct sockaddr_in *in4 = (const void *)c->peer;
	struct egress *egress = c->tenant->egress;
	struct web *w;

	if (!tenant_take(c->tenant, SHARE_FLOWS, egress->n_flows, egress->max_flows)) {
		close_hard(c->fd);
		return;
	}
	w = XNEW(struct web);
	egress->n_flows++;
	w->tenant = tenant_ref(c->tenant);
	w->carriage = (struct http_carriage){ .peer = *c->peer, .n_refs = 1, .gone = on_gone };
	w->source = ntohl(in4->sin_addr.s_addr);
	w->address = c->address;
	w->port = c->port;
	list_append(&c->tenant->webs, &w->node);
	if (c->hello) {
		(void)snprintf(w->hello, sizeof w->hello, "%s", c->hello);
		tls_server_take_connection(egress->tls, c->fd, &w->carriage,
			egress->config.authority, w->hello);
	} else {
		http_server_take_connection(egress->http, c->fd, &w->carriage);
	}
	(void)http_carriage_unref(&w->carriage);
}

/* A request that was not passed on yet must not be any more: it would wait for its connection and
 * go out after all. */
static void cut(struct web *w)
{
	if (!w->x) {
		http_carriage_cut(&w->carriage);
		return;
	}
	quiet(w);
	wipe_added(w);
	http_abort(TAKE(w->x));
}

/* One that has asked for nothing yet is looked at when it does. */
void web_recheck(struct tenant *t, bool all)
{
	LIST_EACH(&t->webs, node)
	{
		struct web *w = container_of(node, struct web, node);

		if (all || (w->name[0] && !verdict_holds(t, w->by_name ? w->name : NULL, w->reached,
						  w->port)))
			cut(w);
	}
}

void web_quiet_all(struct tenant *t)
{
	LIST_EACH(&t->webs, node)
	quiet(container_of(node, struct web, node));
}
