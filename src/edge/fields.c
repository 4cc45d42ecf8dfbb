/* Heads on their way through the edge. What opens the server stays outside of sandboxes, whatever
 * header it comes in; and what a service says in its reply counts for its own host, never for the
 * parent domain or for the server's own origin. */
#include "edge/edge-internal.h"

static bool is_one_of(struct str name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq_nocase(name, str_of(names[i])))
			return true;
	return false;
}

/* ---- requests ---- */

static bool same(const char *token, struct str word)
{
	return word.n == strlen(token) && mem_equal_ct(token, word.p, word.n);
}

/* Tokens of this sandbox and of volumes, and all keys. Whose another sandbox's is cannot be told
 * without trying every one. */
static bool is_ours(void *arg, struct str word)
{
	const struct edge_call *call = arg;
	const struct edge_config *config = &call->edge->config;
	char token[SANDBOX_TOKEN_SIZE], traffic[SANDBOX_TOKEN_SIZE];
	bool found;

	if (!credential_is_token(word))
		return access_is_key(config->access, word);
	sandbox_token(config->sandboxes, call->id, token);
	sandbox_traffic_token(config->sandboxes, call->id, traffic);
	found = same(token, word) || same(traffic, word) || volume_is_token(config->volumes, word);
	explicit_bzero(token, sizeof token);
	explicit_bzero(traffic, sizeof traffic);
	return found;
}

static bool is_key(void *arg, struct str word)
{
	const struct edge_call *call = arg;

	return !credential_is_token(word) && access_is_key(call->edge->config.access, word);
}

/* Compared by digest, as where it opens something. */
static bool is_admin_token(const struct edge_call *call, struct str value)
{
	const char *wanted = call->edge->config.admin_token;
	uint8_t a[SHA256_SIZE], b[SHA256_SIZE];
	struct str rest = value, scheme;

	if (!wanted)
		return false;
	if (str_split(&rest, ' ', &scheme) && str_eq_nocase(scheme, STR("Bearer")))
		value = str_trim(rest);
	sha256(value.p, value.n, a);
	sha256(wanted, strlen(wanted), b);
	return mem_equal_ct(a, b, sizeof a);
}

static bool stays_outside(struct edge_call *call, struct str name, struct str value)
{
	static const char *const admin[] = { "X-Admin-Token", "Authorization" };
	/* The server's own word to a guest. */
	static const char *const own[] = { "Atoll-Source", "Atoll-Recorded" };

	if (call->port == RUNTIME_GUEST_PORT && is_one_of(name, own, ARRAY_SIZE(own)))
		return true;
	if (str_eq_nocase(name, STR("E2b-Traffic-Access-Token")) ||
		(call->is_shared && str_eq_nocase(name, STR("Cookie"))))
		return true;
	if (str_eq_nocase(name, STR("X-Access-Token"))) /* it opens the guest, and nothing else */
		return call->port == RUNTIME_GUEST_PORT
			       ? credential_within(value, is_key, call)
			       : credential_is_token(value) ||
					 credential_within(value, is_ours, call);
	if (is_one_of(name, admin, ARRAY_SIZE(admin)) && is_admin_token(call, value))
		return true;
	return credential_within(value, is_ours, call) ||
	       (str_eq_nocase(name, STR("Authorization")) &&
		       credential_in_login(value, is_ours, call));
}

struct str fields_request(void *arg, struct str name, struct str value)
{
	return stays_outside(arg, name, value) ? STR_NONE : value;
}

/* ---- replies ---- */

static struct str host_only(struct edge_call *call, struct str cookie)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	char *kept;

	cookie_host_only(cookie, &text);
	kept = text.failed ? NULL : arena_dup(http_arena(call->x), buf_str(&text));
	return str_of(kept);
}

/* A proxy in front of the server would take these for the server's own word, and send a file or
 * another of its upstreams in place of the reply. */
static const char *const for_proxies[] = { "X-Accel-Redirect", "X-Sendfile", "X-Sendfile2",
	"X-LIGHTTPD-Send-File", "X-Reproxy-URL", "X-Reproxy-File" };

/* On its own host a service is its own master; but these reach beyond it, to the whole domain. */
static struct str own_field(struct edge_call *call, struct str name, struct str value)
{
	static const char *const beyond[] = { "Set-Cookie2", "Clear-Site-Data" };

	if (str_eq_nocase(name, STR("Set-Cookie")))
		return host_only(call, value);
	return is_one_of(name, beyond, ARRAY_SIZE(beyond)) ? STR_NONE : value;
}

/* What would change the state that a browser or a cache keeps for the server's own origin, and what
 * shared_lines says instead. */
static const char *const not_on_shared[] = { "Set-Cookie", "Set-Cookie2", "Clear-Site-Data",
	"Strict-Transport-Security", "Alt-Svc", "Service-Worker-Allowed", "Cache-Control",
	"Expires", "Pragma", "Age", "CDN-Cache-Control", "Cloudflare-CDN-Cache-Control",
	"Surrogate-Control", "X-Accel-Expires", "NEL", "Report-To", "Reporting-Endpoints",
	"Refresh", "Link", "Accept-CH", "Critical-CH", "Speculation-Rules",
	"Content-Security-Policy", "Content-Security-Policy-Report-Only",
	"X-Content-Type-Options" };

/* Headers of ours address it only from scripts; a signed URL is opened like any link, by a browser
 * that asks for passwords, say, where it is told to (WWW-Authenticate). So what a file's reply
 * needs is all that passes. */
static struct str signed_field(struct str name, struct str value)
{
	static const char *const needed[] = { "Accept-Ranges", "Allow", "Content-Encoding",
		"Content-Range", "Date", "ETag", "Last-Modified", "Retry-After", "Vary" };
	static const struct str cors = { "Access-Control-", 15 };

	if (str_eq_nocase(name, STR("Content-Type")))
		return http_inert_type(value);
	if (name.n > cors.n && str_eq_nocase(str_make(name.p, cors.n), cors))
		return value;
	return is_one_of(name, needed, ARRAY_SIZE(needed)) ? value : STR_NONE;
}

static struct str shared_field(struct edge_call *call, struct str name, struct str value)
{
	if (str_eq_nocase(name, STR("Content-Disposition"))) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);

		http_attachment(value, &text);
		call->disposition = arena_dup(http_arena(call->x), buf_str(&text));
		return STR_NONE;
	}
	if (call->is_signed)
		return signed_field(name, value);
	return is_one_of(name, not_on_shared, ARRAY_SIZE(not_on_shared)) ? STR_NONE : value;
}

struct str fields_reply(void *arg, struct str name, struct str value)
{
	struct edge_call *call = arg;

	if (is_one_of(name, for_proxies, ARRAY_SIZE(for_proxies)))
		return STR_NONE;
	return call->is_shared ? shared_field(call, name, value) : own_field(call, name, value);
}

const char *fields_lines(void *arg)
{
	struct edge_call *call = arg;
	const char *lines;

	if (!call->is_shared)
		return "";
	lines = arena_printf(http_arena(call->x),
		"%sCache-Control: no-store\r\nContent-Disposition: %s\r\n", http_inert_lines,
		call->disposition ? call->disposition : "attachment");
	return lines ? lines : http_inert_lines;
}
