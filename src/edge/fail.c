/* What the edge answers when a request reaches no service: JSON for programs, and a page for a
 * person who opened a link in a browser. Both say the same. */
#include "edge/edge-internal.h"
#include "json/json.h"

#define TOKEN_HEADER "e2b-traffic-access-token"

struct words {
	int status;
	const char *title; /* of the page */
	const char *message;
	const char *advice; /* what to do about it */
};

/* E2B's clients and their users know these titles and messages. */
static const struct words words_of[] = {
	[EDGE_GONE] = { 502, "Sandbox Not Found", "The sandbox was not found",
		"It may have ended, or its time was up. Start a new one, or check the address." },
	[EDGE_PORT_CLOSED] = { 502, "Closed Port", "The sandbox is running but port is not open",
		"Start one there, then reload this page." },
	[EDGE_TOKEN_MISSING] = { 403, "Missing Traffic Access Token",
		"Sandbox is secured with traffic access token. Token header '" TOKEN_HEADER
		"' is missing",
		"Its owner has the token: send it in the header '" TOKEN_HEADER "'." },
	[EDGE_TOKEN_WRONG] = { 403, "Invalid Traffic Access Token",
		"Sandbox is secured with traffic access token. Provided token in header "
		"'" TOKEN_HEADER "' is invalid",
		"The token that was sent is another sandbox's, or misspelt." },
	[EDGE_MAY_NOT_WAKE] = { 403, "Sandbox Is Paused",
		"This sandbox can't be resumed with the credentials provided. Check your access "
		"token "
		"and try again.",
		"It is paused, and only who has its access token or a signed link may wake it." },
	[EDGE_BUSY] = { 409, "Sandbox Is Changing",
		"The sandbox is still transitioning. Try again in a moment.", "Reload this page." },
	[EDGE_TOO_MANY] = { 429, "Sandbox Limit Reached", "Sandbox limit reached",
		"The team of this sandbox runs as many at once as it may. End one, then reload "
		"this "
		"page." },
	[EDGE_TOO_BUSY] = { 429, "Connection Limit Reached",
		"The sandbox has as many connections at once as it may",
		"Close one of them, or wait a moment, then reload this page." },
	[EDGE_NO_TUNNEL] = { 403, "No Tunnel",
		"A tunnel to a port needs the sandbox's access token in the header "
		"'X-Access-Token'",
		"Its owner has the token." },
	[EDGE_NO_WORKER] = { 403, "No Service Worker",
		"A service worker is taken from the sandbox's own host (PORT-ID.DOMAIN) only",
		"Use the sandbox's own address." },
	[EDGE_RESERVED] = { 404, "Reserved Route",
		"This endpoint is reserved for the E2B control plane and is not reachable through "
		"the "
		"sandbox URL",
		"It belongs to the server itself." },
};

/* ---- who asks ---- */

static bool contains(struct str text, const char *wanted)
{
	size_t n = strlen(wanted);

	for (size_t i = 0; i + n <= text.n; i++)
		if (str_eq_nocase(str_make(text.p + i, n), str_make(wanted, n)))
			return true;
	return false;
}

/* A script in a page sends the browser's User-Agent as well, and is about to parse JSON. */
static bool is_script(const struct http_exchange *x)
{
	static const char *const modes[] = { "cors", "no-cors", "same-origin", "websocket" };
	struct str mode = http_header(x, "Sec-Fetch-Mode");

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (str_eq_nocase(mode, str_of(modes[i])))
			return true;
	return !str_eq_nocase(mode, STR("navigate")) && http_header(x, "X-Requested-With").n;
}

bool edge_wants_page(const struct http_exchange *x)
{
	static const char *const browsers[] = { "mozilla", "chrome", "safari", "firefox", "edge",
		"opera", "msie" };
	struct str accept = http_header(x, "Accept"), agent = http_header(x, "User-Agent");

	if (contains(accept, "application/json") && !contains(accept, "text/html"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(browsers); i++)
		if (contains(agent, browsers[i]))
			return !is_script(x);
	return false;
}

/* ---- the page ---- */

void edge_escape(struct buf *out, struct str text)
{
	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
			(void)buf_printf(out, "&#%d;", c);
		else
			(void)buf_add(out, &c, 1);
	}
}

/* It begins with <html and ends with </html>: clients' tests look for both. */
static void write_page(struct buf *page, const struct words *w, const struct edge_failure *f)
{
	(void)buf_printf(page,
		"<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title>"
		"<meta name=\"viewport\" content=\"width=device-width\"><style>"
		"body{font:16px/1.5 system-ui,sans-serif;color-scheme:light dark;"
		"max-width:36rem;margin:15vh auto;padding:0 1rem}"
		"h1{font-size:1.4rem}code{font-family:ui-monospace,monospace;"
		"overflow-wrap:anywhere}</style></head><body><main><h1>%s</h1><p>",
		w->title, w->title);
	edge_escape(page, str_of(f->message ? f->message : w->message));
	(void)buf_adds(page, "</p><p>");
	if (f->kind == EDGE_PORT_CLOSED)
		(void)buf_printf(page, "There is no service running on port %d of it. ", f->port);
	edge_escape(page, str_of(w->advice));
	(void)buf_adds(page, "</p>");
	if (f->id.n) {
		(void)buf_adds(page, "<p>Sandbox <code>");
		edge_escape(page, f->id);
		(void)buf_adds(page, "</code></p>");
	}
	(void)buf_printf(page, "<p>HTTP %d</p></main></body></html>", w->status);
}

static void reply_page(struct http_exchange *x, const struct words *w, const struct edge_failure *f)
{
	CLEANUP(buf_done) struct buf page = BUF_INIT(16 << 10);

	write_page(&page, w, f);
	http_add_header(x, "Content-Security-Policy",
		STR("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action "
		    "'none'"));
	http_add_header(x, "X-Content-Type-Options", STR("nosniff"));
	http_add_header(x, "Cache-Control", STR("no-store"));
	http_reply(x, w->status, "text/html; charset=utf-8", buf_str(&page));
}

/* ---- both ---- */

/* A page in a browser may read why it failed, as it may read what the guest answers. */
void edge_allow_any_origin(struct http_exchange *x)
{
	if (http_header(x, "Origin").p)
		http_add_header(x, "Access-Control-Allow-Origin", STR("*"));
}

void edge_fail(struct http_exchange *x, const struct edge_failure *f)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(512 << 10);
	const struct words *w = &words_of[f->kind];
	struct jsonw json;

	edge_allow_any_origin(x);
	if (w->status == 429)
		http_add_header(x, "Retry-After", STR("1"));
	if (edge_wants_page(x)) {
		reply_page(x, w, f);
		return;
	}
	jsonw_init(&json, &body);
	jsonw_object(&json, NULL);
	if (f->kind != EDGE_RESERVED)
		jsonw_str(&json, "sandboxId", f->id);
	jsonw_strz(&json, "message", f->message ? f->message : w->message);
	if (f->kind == EDGE_PORT_CLOSED)
		jsonw_int(&json, "port", f->port);
	if (f->kind == EDGE_RESERVED)
		jsonw_str(&json, "path", http_path(x));
	jsonw_int(&json, "code", w->status);
	jsonw_end_object(&json);
	http_add_inert(x);
	http_reply(x, w->status, "application/json; charset=utf-8", buf_str(&body));
}
