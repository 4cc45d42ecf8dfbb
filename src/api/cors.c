/* Pages in browsers: any origin may ask, since what opens the API is a key in a header, never a
 * cookie that a browser would add by itself. */
#include "api/api-internal.h"

/* What the SDKs send, to the control plane and to a guest: with one URL for both (E2B_SANDBOX_URL)
 * a preflight does not say which of them is meant, because it carries none of the headers that
 * would.
 */
static const char allowed_headers[] =
	"Accept, Authorization, Content-Encoding, Content-Type, Origin, User-Agent, X-API-Key, "
	"X-Team-ID, X-Admin-Token, X-Access-Token, X-Requested-With, browser, lang, lang_version, "
	"machine, os, package_version, processor, publisher, release, sdk_runtime, system, "
	"E2b-Sandbox-Id, E2b-Sandbox-Port, E2b-Traffic-Access-Token, Connect-Protocol-Version, "
	"Connect-Timeout-Ms, Connect-Accept-Encoding, Connect-Content-Encoding, Range, "
	"Keepalive-Ping-Interval, Last-Event-ID, Idempotency-Key, If-Range, X-Request-Id, "
	"traceparent, tracestate, baggage";

static bool is_preflight(const struct http_exchange *x)
{
	return str_is(http_method(x), "OPTIONS") &&
	       http_header(x, "Access-Control-Request-Method").p;
}

bool cors_handle(struct http_exchange *x)
{
	if (!http_header(x, "Origin").p)
		return false;
	http_add_header(x, "Access-Control-Allow-Origin", STR("*"));
	if (!is_preflight(x)) {
		http_add_header(x, "Access-Control-Expose-Headers",
			STR("X-Next-Token, X-Total-Running, Retry-After, X-Request-Id, ETag, "
			    "Content-Range, Idempotent-Replayed"));
		return false;
	}
	http_add_header(x, "Access-Control-Allow-Methods",
		STR("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
	http_add_header(x, "Access-Control-Allow-Headers", str_of(allowed_headers));
	http_add_header(x, "Access-Control-Max-Age", STR("7200"));
	http_reply(x, 204, NULL, STR_NONE);
	return true;
}
