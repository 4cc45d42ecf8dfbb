/* The network object: checked, stored and returned (e2b-wire §2.9). */
#include "api/e2b/e2b.h"

#include <arpa/inet.h>

struct proxy_in {
	struct str address, username, password;
};
static const struct json_field proxy_fields[] = {
	JSON_FIELD(struct proxy_in, address, "address", JSON_STR, .flags = JSON_REQUIRED,
		.max = 255),
	JSON_FIELD(struct proxy_in, username, "username", JSON_STR, .flags = JSON_LAX, .max = 255),
	JSON_FIELD(struct proxy_in, password, "password", JSON_STR, .flags = JSON_LAX, .max = 255),
};
static const struct json_shape proxy_shape = JSON_SHAPE(struct proxy_in, proxy_fields);

struct network_in {
	struct json_strs allow_out, deny_out;
	struct str rules, mask_host, https_ports;
	struct proxy_in proxy;
	bool has_proxy;
	struct json_bool public_traffic, internet;
};
static const struct json_field network_fields[] = {
	JSON_FIELD(struct network_in, allow_out, "allowOut", JSON_STRS, .flags = JSON_LAX,
		.max = 1024),
	JSON_FIELD(struct network_in, deny_out, "denyOut", JSON_STRS, .flags = JSON_LAX,
		.max = 1024),
	JSON_FIELD(struct network_in, rules, "rules", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct network_in, proxy, "egressProxy", JSON_OBJECT, .flags = JSON_LAX,
		.present = offsetof(struct network_in, has_proxy) + 1, .shape = &proxy_shape),
	JSON_FIELD(struct network_in, public_traffic, "allowPublicTraffic", JSON_BOOL,
		.flags = JSON_LAX),
	JSON_FIELD(struct network_in, mask_host, "maskRequestHost", JSON_STR, .flags = JSON_LAX,
		.max = 255),
	JSON_FIELD(struct network_in, https_ports, "httpsPorts", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct network_in, internet, "allow_internet_access", JSON_BOOL,
		.flags = JSON_LAX),
};
static const struct json_shape network_shape =
	JSON_SHAPE(struct network_in, network_fields, .ignore_unknown = true);

/* An address or a range, of either family. */
static bool is_range(struct str text)
{
	char address[64];
	struct in6_addr parsed;
	ptrdiff_t slash = str_find(text, '/');
	struct str host = slash < 0 ? text : (struct str){ text.p, (size_t)slash };
	int64_t bits;
	bool v6;

	if (host.n >= sizeof address)
		return false;
	(void)snprintf(address, sizeof address, "%.*s", STR_ARG(host));
	v6 = inet_pton(AF_INET6, address, &parsed) == 1;
	if (!v6 && inet_pton(AF_INET, address, &parsed) != 1)
		return false;
	return slash < 0 ||
	       str_to_int(str_from(text, (size_t)slash + 1), 0, v6 ? 128 : 32, &bits) == 0;
}

static bool is_domain(struct str text)
{
	if (str_is(text, "*"))
		return true;
	if (str_has_prefix(text, STR("*.")))
		text = str_from(text, 2);
	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '-' || (c == '.' && i > 0 && text.p[i - 1] != '.')))
			return false;
	}
	return text.n > 0 && text.n <= 253 && str_find(text, '.') > 0;
}

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

static const char *check(const struct network_in *in)
{
	bool names = false, denies_all = false;

	if (!is_host_mask(in->mask_host))
		return "network.maskRequestHost: must be host or host:port, with ${PORT} if wanted";

	for (size_t i = 0; i < in->deny_out.n; i++) {
		if (!is_range(in->deny_out.v[i]))
			return "network.denyOut: each entry must be an address or a range";
		if (str_has_prefix(in->deny_out.v[i], STR("0.0.0.0"))) {
			if (!str_is(in->deny_out.v[i], "0.0.0.0/0"))
				return "network.denyOut: the unspecified address is only allowed "
				       "as 0.0.0.0/0";
			denies_all = true;
		}
	}
	for (size_t i = 0; i < in->allow_out.n; i++) {
		if (is_range(in->allow_out.v[i]))
			continue;
		if (!is_domain(in->allow_out.v[i]))
			return "network.allowOut: each entry must be an address, a range or a "
			       "domain name";
		names = true;
	}
	if (names && !denies_all)
		return "network.allowOut: domain names need 0.0.0.0/0 in denyOut";
	return NULL;
}

int e2b_network_read(struct api_call *call, struct str raw, struct e2b_network *ret)
{
	struct network_in in;
	struct err e = { 0 };
	const char *problem;

	if (json_decode(http_arena(call->x), raw, &network_shape, &in, &e) < 0) {
		(void)err_wrap(&e, -EINVAL, "validation error: network");
		api_fail_status(call, 400, e.msg);
		return -EINVAL;
	}
	problem = check(&in);
	if (problem) {
		api_fail_status(call, 400, problem);
		return -EINVAL;
	}
	if (in.has_proxy) { /* its password would have to be kept: only together with the proxy
			       itself */
		api_fail_status(call, 403, "egressProxy is not offered by this server");
		return -EPERM;
	}
	*ret = (struct e2b_network){ .is_private =
					     in.public_traffic.is_set && !in.public_traffic.value,
		.mask_host = in.mask_host,
		.internet = in.internet };
	return 0;
}

/* PUT /sandboxes/{id}/network: the whole egress part anew; what is left out is cleared. */
void e2b_network_put(struct api_call *call)
{
	struct str body = call->body.n ? call->body : STR("{}"), id;
	struct e2b_network network;

	if (e2b_id(call, &id) < 0 || e2b_network_read(call, body, &network) < 0)
		return;
	if (!str_is_utf8(body)) {
		api_fail_status(call, 400, "validation error: network: not UTF-8");
		return;
	}
	sandbox_set_network(call->api->config.sandboxes, call->key.team_id, id, network.internet,
		str_is(str_trim(body), "{}") ? STR("") : body, api_done_empty, call);
}
