/* The network object: checked, stored and returned (e2b-wire §2.9). */
#include "api/e2b/e2b.h"
#include "policy/policy.h"

enum {
	MAX_HTTPS_PORTS = 100
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

/* What is about the way out is the policy's to read. */
struct network_in {
	struct str mask_host, https_ports;
	struct proxy_in proxy;
	bool has_proxy;
	struct json_bool public_traffic, internet;
};
static const struct json_field network_fields[] = {
	JSON_FIELD(struct network_in, proxy, "egressProxy", JSON_OBJECT, .flags = JSON_NULLABLE,
		.present = offsetof(struct network_in, has_proxy) + 1, .shape = &proxy_shape),
	JSON_FIELD(struct network_in, public_traffic, "allowPublicTraffic", JSON_BOOL,
		.flags = JSON_NULLABLE),
	JSON_FIELD(struct network_in, mask_host, "maskRequestHost", JSON_STR,
		.flags = JSON_NULLABLE, .max = 255),
	JSON_FIELD(struct network_in, https_ports, "httpsPorts", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct network_in, internet, "allow_internet_access", JSON_BOOL,
		.flags = JSON_NULLABLE),
};
static const struct json_shape network_shape =
	JSON_SHAPE(struct network_in, network_fields, .ignore_unknown = true);

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

static int check(struct arena *arena, struct str raw, const struct network_in *in, struct err *e)
{
	struct policy policy;

	if (!is_host_mask(in->mask_host))
		return err_set(e, -EINVAL,
			"network.maskRequestHost: must be host or host:port, with ${PORT} if "
			"wanted");
	if (!are_ports(in->https_ports))
		return err_set(e, -EINVAL,
			"network.httpsPorts: must be up to %d ports, and not that of envd",
			MAX_HTTPS_PORTS);
	return policy_parse(arena, raw, in->internet, &policy, e);
}

struct rules_in {
	struct str rules;
};

/* In the value's own text after it was decoded: an escape does not hide it. */
static bool names_secret(struct arena *arena, struct str raw)
{
	static const struct json_field fields[] = { JSON_FIELD(struct rules_in, rules, "rules",
		JSON_RAW, .flags = JSON_NULLABLE) };
	static const struct json_shape shape =
		JSON_SHAPE(struct rules_in, fields, .ignore_unknown = true);
	struct rules_in in = { 0 };

	return json_decode(arena, raw, &shape, &in, NULL) < 0 ||
	       (in.rules.n && memmem(in.rules.p, in.rules.n, "${e2b.secrets.", 14));
}

int e2b_network_read(struct api_call *call, struct str raw, struct e2b_network *ret)
{
	struct network_in in;
	struct err e = { 0 };

	if (raw.n > SANDBOX_NETWORK_BYTES) {
		api_fail_status(call, 400, "validation error: network: too large");
		return -EINVAL;
	}
	if (json_decode(http_arena(call->x), raw, &network_shape, &in, &e) < 0) {
		(void)err_wrap(&e, -EINVAL, "validation error: network");
		api_fail_status(call, 400, e.msg);
		return -EINVAL;
	}
	if (check(http_arena(call->x), raw, &in, &e) < 0) {
		api_fail_status(call, 400, e.msg);
		return -EINVAL;
	}
	if (in.has_proxy) { /* its password would have to be kept: only together with the proxy
			       itself */
		api_fail_status(call, 403, "egressProxy is not offered by this server");
		return -EPERM;
	}
	if (!api_may(call, ACCESS_SECRETS_USE) && names_secret(http_arena(call->x), raw)) {
		api_fail_as(call, 403, "missing_scope",
			"network.rules name a secret, and this key lacks the scope secrets:use",
			NULL);
		return -EPERM;
	}
	*ret = (struct e2b_network){ .is_private =
					     in.public_traffic.is_set && !in.public_traffic.value,
		.mask_host = in.mask_host,
		.https_ports = in.https_ports,
		.internet = in.internet };
	return 0;
}

/* The object's members as they were given. */
struct members {
	struct str out[3], in[3];
};
static const struct json_field member_fields[] = {
	JSON_FIELD(struct members, out[0], "allowOut", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct members, out[1], "denyOut", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct members, out[2], "rules", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct members, in[0], "allowPublicTraffic", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct members, in[1], "maskRequestHost", JSON_RAW, .flags = JSON_NULLABLE),
	JSON_FIELD(struct members, in[2], "httpsPorts", JSON_RAW, .flags = JSON_NULLABLE),
};
static const struct json_shape member_shape =
	JSON_SHAPE(struct members, member_fields, .ignore_unknown = true);

/* The way in as it is, the way out as asked for now; empty when nothing is said of either. */
static int merge(struct arena *arena, struct str now, struct str asked, struct buf *out)
{
	struct members old = { 0 }, new;
	struct jsonw w;
	size_t n = 0;

	if ((now.n && json_decode(arena, now, &member_shape, &old, NULL) < 0) ||
		json_decode(arena, asked, &member_shape, &new, NULL) < 0)
		return -EINVAL;
	memcpy(new.in, old.in, sizeof new.in);
	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(member_fields); i++) {
		const struct str *value =
			(const void *)((const char *)&new + member_fields[i].offset);

		if (value->p)
			jsonw_raw(&w, member_fields[i].name, *value);
		n += value->p != NULL;
	}
	jsonw_end_object(&w);
	if (n == 0)
		buf_clear(out);
	return out->failed ? -E2BIG : 0;
}

/* PUT /sandboxes/{id}/network: the whole egress part anew; what is left out is cleared. */
void e2b_network_put(struct api_call *call)
{
	CLEANUP(buf_done) struct buf merged = BUF_INIT(SANDBOX_NETWORK_BYTES);
	struct str body = call->body.n ? call->body : STR("{}"), id;
	const struct sandbox *sb;
	struct e2b_network network;

	if (e2b_id(call, &id) < 0 || e2b_network_read(call, body, &network) < 0)
		return;
	sb = sandbox_find_any(call->api->config.sandboxes, &call->owner, id);
	if (merge(http_arena(call->x), sb ? sb->options.network : STR_NONE, body, &merged) < 0)
		api_fail_status(call, 400, "validation error: network: too large");
	else
		sandbox_set_network(call->api->config.sandboxes, &call->owner, id, network.internet,
			buf_str(&merged), api_done_empty, call);
}
