/* The network object: checked, put into the one form in which it is kept, and shown again. E2B's
 * surface and /api/v1 spell its members differently and mean the same (e2b-wire §2.9). A member
 * that is not known is refused: a rule that nobody enforces must not look like one that holds. */
#include "api/api-internal.h"
#include "policy/policy.h"

enum {
	MAX_HTTPS_PORTS = 100,
	MEMBERS = 6, /* of the kept form */
};

struct proxy_in {
	struct str address, username, password;
};
static const struct json_field proxy_fields[] = {
	JSON_FIELD(struct proxy_in, address, "address", JSON_STR, .flags = JSON_REQUIRED,
		.max = 255),
	JSON_FIELD(struct proxy_in, username, "username", JSON_STR, .flags = JSON_NULLABLE,
		.max = 255),
	JSON_FIELD(struct proxy_in, password, "password", JSON_STR, .flags = JSON_NULLABLE,
		.max = 255),
};
static const struct json_shape proxy_shape = JSON_SHAPE(struct proxy_in, proxy_fields);

/* The values as they were given; those about the way out are the policy's to read. */
struct network_in {
	struct str allow_out, deny_out, rules;
	struct str mask_host, https_ports;
	struct json_bool public_traffic, internet;
	struct proxy_in proxy;
	bool has_proxy;
};
#define FIELD(member, name, kind, ...) \
	JSON_FIELD(struct network_in, member, name, kind, .flags = JSON_NULLABLE, __VA_ARGS__)
#define WAY_OUT(allow, deny, egress_proxy)                                     \
	FIELD(allow_out, allow, JSON_RAW), FIELD(deny_out, deny, JSON_RAW),    \
		FIELD(rules, "rules", JSON_RAW),                               \
		FIELD(proxy, egress_proxy, JSON_OBJECT,                        \
			.present = offsetof(struct network_in, has_proxy) + 1, \
			.shape = &proxy_shape)
#define WAY_IN(traffic, host, ports)                                                             \
	FIELD(public_traffic, traffic, JSON_BOOL), FIELD(mask_host, host, JSON_STR, .max = 255), \
		FIELD(https_ports, ports, JSON_RAW)

static const struct json_field camel_create[] = { WAY_OUT("allowOut", "denyOut", "egressProxy"),
	WAY_IN("allowPublicTraffic", "maskRequestHost", "httpsPorts") };
static const struct json_field camel_update[] = { WAY_OUT("allowOut", "denyOut", "egressProxy"),
	FIELD(internet, "allow_internet_access", JSON_BOOL) };
static const struct json_field snake_create[] = { WAY_OUT("allow_out", "deny_out", "egress_proxy"),
	WAY_IN("allow_public_traffic", "mask_request_host", "https_ports") };
static const struct json_field snake_update[] = { WAY_OUT("allow_out", "deny_out", "egress_proxy"),
	FIELD(internet, "internet", JSON_BOOL) };

/* How a surface spells them. */
static const struct surface {
	struct json_shape create, update;
	enum policy_spelling spelling;
	const char *proxy, *mask, *ports;
} surfaces[] = {
	{ JSON_SHAPE(struct network_in, camel_create), JSON_SHAPE(struct network_in, camel_update),
		POLICY_CAMEL, "egressProxy", "maskRequestHost", "httpsPorts" },
	{ JSON_SHAPE(struct network_in, snake_create), JSON_SHAPE(struct network_in, snake_update),
		POLICY_SNAKE, "egress_proxy", "mask_request_host", "https_ports" },
};

/* The kept form has E2B's names, in this order. Whatever else an earlier server kept was never
 * enforced, and is not shown. */
static const struct json_shape kept_shape =
	JSON_SHAPE(struct network_in, camel_create, .ignore_unknown = true);
static const struct json_rename kept_to_camel[MEMBERS] = { { "allowOut", "allowOut" },
	{ "denyOut", "denyOut" }, { "rules", "rules" },
	{ "allowPublicTraffic", "allowPublicTraffic" }, { "maskRequestHost", "maskRequestHost" },
	{ "httpsPorts", "httpsPorts" } };
static const struct json_rename kept_to_snake[MEMBERS] = { { "allowOut", "allow_out" },
	{ "denyOut", "deny_out" }, { "rules", "rules" },
	{ "allowPublicTraffic", "allow_public_traffic" },
	{ "maskRequestHost", "mask_request_host" }, { "httpsPorts", "https_ports" } };

/* ---- checks ---- */

/* It becomes a header's value: letters, digits and what host[:port] and ${PORT} need, nothing else.
 */
static bool is_host_mask(struct str text)
{
	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    strchr("-._:[]${}", c)))
			return false;
	}
	return true;
}

/* "[80,443]": the text is compact, so whole numbers between commas are all it may hold. */
static bool are_ports(struct str ports)
{
	struct str one;
	int64_t port;
	int n = 0;

	if (!ports.n || str_is(ports, "[]"))
		return true;
	if (ports.p[0] != '[')
		return false;
	ports = str_make(ports.p + 1, ports.n - 2);
	while (str_split(&ports, ',', &one))
		if (str_to_int(one, 1, 65535, &port) < 0 || port == RUNTIME_GUEST_PORT ||
			++n > MAX_HTTPS_PORTS)
			return false;
	return true;
}

static int check(struct arena *arena, struct str raw, const struct surface *s,
	const struct network_in *in, struct err *e)
{
	struct policy policy;

	if (!is_host_mask(in->mask_host))
		return err_set(e, -EINVAL,
			"network.%s: must be host or host:port, with ${PORT} if wanted", s->mask);
	if (!are_ports(in->https_ports))
		return err_set(e, -EINVAL,
			"network.%s: must be up to %d ports, and not that of envd", s->ports,
			MAX_HTTPS_PORTS);
	return policy_read(arena, raw, s->spelling, in->internet, &policy, e);
}

/* ---- the kept form ---- */

static void write_way_out(struct jsonw *w, const struct network_in *in)
{
	if (in->allow_out.p)
		jsonw_raw(w, "allowOut", in->allow_out);
	if (in->deny_out.p)
		jsonw_raw(w, "denyOut", in->deny_out);
	if (in->rules.p)
		jsonw_raw(w, "rules", in->rules);
}

static void write_way_in(struct jsonw *w, const struct network_in *in)
{
	if (in->public_traffic.is_set)
		jsonw_bool(w, "allowPublicTraffic", in->public_traffic.value);
	if (in->mask_host.p)
		jsonw_str(w, "maskRequestHost", in->mask_host);
	if (in->https_ports.p)
		jsonw_raw(w, "httpsPorts", in->https_ports);
}

/* In the arena; empty when nothing is said. p NULL: too large. */
static struct str keep(struct arena *arena, const struct network_in *out,
	const struct network_in *in)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(SANDBOX_NETWORK_BYTES);
	struct jsonw w;

	jsonw_init(&w, &text);
	jsonw_object(&w, NULL);
	write_way_out(&w, out);
	write_way_in(&w, in);
	jsonw_end_object(&w);
	if (text.failed)
		return STR_NONE;
	if (str_is(buf_str(&text), "{}"))
		return STR("");
	return str_make(arena_dup(arena, buf_str(&text)), text.n);
}

/* ---- the doors ---- */

/* In the rules' text after it was decoded: an escape does not hide it. */
static bool names_secret(struct str rules)
{
	return rules.n && memmem(rules.p, rules.n, "${e2b.secrets.", 14);
}

/* internet: of a new sandbox, for which it is said beside the object; NULL: an update, which says
 * it in there. Answers 400 or 403 itself. */
static int decode(struct api_call *call, struct str raw, const struct json_bool *internet,
	struct network_in *in)
{
	const struct surface *s = &surfaces[call->is_v1];
	struct err e = { 0 };

	if (raw.n > SANDBOX_NETWORK_BYTES) {
		api_fail_status(call, 400, "validation error: network: too large");
		return -EINVAL;
	}
	if (json_decode(http_arena(call->x), raw, internet ? &s->create : &s->update, in, &e) < 0) {
		(void)err_wrap(&e, -EINVAL, "validation error: network");
		api_fail_status(call, 400, e.msg);
		return -EINVAL;
	}
	if (internet)
		in->internet = *internet;
	if (check(http_arena(call->x), raw, s, in, &e) < 0) {
		api_fail_status(call, 400, e.msg);
		return -EINVAL;
	}
	if (in->has_proxy) { /* its password would have to be kept: only together with the proxy
				itself */
		api_fail_as(call, 403, "not_supported",
			arena_printf(http_arena(call->x), "%s is not offered by this server",
				s->proxy),
			"leave it out");
		return -EPERM;
	}
	if (!api_may(call, ACCESS_SECRETS_USE) && names_secret(in->rules)) {
		api_fail_as(call, 403, "missing_scope",
			"network.rules name a secret, and this key lacks the scope secrets:use",
			NULL);
		return -EPERM;
	}
	return 0;
}

static int too_large(struct api_call *call)
{
	api_fail_status(call, 400, "validation error: network: too large");
	return -E2BIG;
}

int api_network_read(struct api_call *call, struct str raw, struct sandbox_options *options)
{
	struct network_in in;

	if (!raw.n)
		return 0;
	if (decode(call, raw, &options->internet, &in) < 0)
		return -EINVAL;
	options->network = keep(http_arena(call->x), &in, &in);
	options->is_private = in.public_traffic.is_set && !in.public_traffic.value;
	options->mask_host = in.mask_host;
	options->https_ports = in.https_ports;
	return options->network.p ? 0 : too_large(call);
}

int api_network_update(struct api_call *call, struct str raw, struct str now, struct str *ret,
	struct json_bool *ret_internet)
{
	struct arena *arena = http_arena(call->x);
	struct network_in in, old = { 0 };

	if (decode(call, raw, NULL, &in) < 0)
		return -EINVAL;
	if (now.n && json_decode(arena, now, &kept_shape, &old, NULL) < 0)
		return too_large(call);
	*ret = keep(arena, &in, &old);
	*ret_internet = in.internet;
	return ret->p ? 0 : too_large(call);
}

/* ---- of /api/v1: in part, and by members ---- */

/* The texts as they were given, null too. */
struct patch_in {
	struct str v[5];
};
static const struct json_field patch_fields[] = {
#define PATCH_FIELD(i, name) JSON_FIELD(struct patch_in, v[i], name, JSON_RAW)
	PATCH_FIELD(0, "allow_out"), PATCH_FIELD(1, "deny_out"), PATCH_FIELD(2, "rules"),
	PATCH_FIELD(3, "egress_proxy"), PATCH_FIELD(4, "internet")
};
static const struct json_shape patch_shape = JSON_SHAPE(struct patch_in, patch_fields);

int api_network_merge(struct api_call *call, struct str raw, const struct sandbox_options *now,
	struct str *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(2 * SANDBOX_NETWORK_BYTES);
	struct arena *arena = http_arena(call->x);
	struct network_in old = { 0 };
	struct patch_in in, kept;
	struct err e = { 0 };
	struct jsonw w;

	if (json_decode(arena, raw, &patch_shape, &in, &e) < 0) {
		(void)err_wrap(&e, -EINVAL, "validation error: network");
		api_fail_status(call, 400, e.msg);
		return -EINVAL;
	}
	if (now->network.n && json_decode(arena, now->network, &kept_shape, &old, NULL) < 0)
		return too_large(call);
	kept = (struct patch_in){ { old.allow_out, old.deny_out, old.rules } };
	if (now->internet.is_set)
		kept.v[4] = now->internet.value ? STR("true") : STR("false");
	jsonw_init(&w, &text);
	jsonw_object(&w, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(kept.v); i++) {
		struct str value = in.v[i].p ? in.v[i] : kept.v[i];

		if (value.p && !str_is(value, "null"))
			jsonw_raw(&w, patch_fields[i].name, value);
	}
	jsonw_end_object(&w);
	if (text.failed)
		return too_large(call);
	*ret = str_make(arena_dup(arena, buf_str(&text)), text.n);
	return ret->p ? 0 : too_large(call);
}

static void raw_or_null(struct jsonw *w, const char *key, struct str value)
{
	jsonw_raw(w, key, value.p ? value : STR("null"));
}

void api_network_members(struct api_call *call, struct jsonw *w, struct str network)
{
	struct network_in in = { 0 };

	if (network.n && json_decode(http_arena(call->x), network, &kept_shape, &in, NULL) < 0)
		in = (struct network_in){ 0 }; /* cannot be: it was kept */
	raw_or_null(w, "allow_out", in.allow_out);
	raw_or_null(w, "deny_out", in.deny_out);
	raw_or_null(w, "rules", in.rules);
	if (in.public_traffic.is_set)
		jsonw_bool(w, "allow_public_traffic", in.public_traffic.value);
	else
		jsonw_null(w, "allow_public_traffic");
	jsonw_strz(w, "mask_request_host", in.mask_host.p);
	raw_or_null(w, "https_ports", in.https_ports);
}

void api_network_write(const struct api_call *call, struct jsonw *w, const char *key,
	struct str network)
{
	jsonw_members(w, key, network, call->is_v1 ? kept_to_snake : kept_to_camel, MEMBERS);
}
