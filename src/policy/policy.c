#include "policy/policy-internal.h"
#include "base/private.h"

#include <arpa/inet.h>

struct network_in {
	struct json_strs allow_out, deny_out;
	struct json_map rules;
};
/* The rest of the object is about the way in, and the API's. */
#define NETWORK_SHAPE(prefix, allow, deny)                                                      \
	static const struct json_field prefix##_fields[] = {                                    \
		JSON_FIELD(struct network_in, allow_out, allow, JSON_STRS, .flags = JSON_LAX,   \
			.max = POLICY_MAX_RANGES),                                              \
		JSON_FIELD(struct network_in, deny_out, deny, JSON_STRS, .flags = JSON_LAX,     \
			.max = POLICY_MAX_RANGES),                                              \
		JSON_FIELD(struct network_in, rules, "rules", JSON_RAW_MAP, .flags = JSON_LAX), \
	};                                                                                      \
	static const struct json_shape prefix##_shape =                                         \
		JSON_SHAPE(struct network_in, prefix##_fields, .ignore_unknown = true)
NETWORK_SHAPE(camel, "allowOut", "denyOut");
NETWORK_SHAPE(snake, "allow_out", "deny_out");

static const struct spelling {
	const struct json_shape *shape;
	const char *allow, *deny;
} spellings[] = {
	[POLICY_CAMEL] = { &camel_shape, "allowOut", "denyOut" },
	[POLICY_SNAKE] = { &snake_shape, "allow_out", "deny_out" },
};

/* One object on its way to a policy. */
struct reading {
	struct arena *arena;
	struct policy *policy;
	const struct spelling *words;
	struct err *e;
};

/* ---- ranges ---- */

enum range_kind {
	RANGE_NOT,
	RANGE_V4,
	RANGE_V6, /* understood and without effect: there is no IPv6 way out */
};

static enum range_kind address_kind(struct str text, struct in6_addr *ret)
{
	char address[INET6_ADDRSTRLEN];

	if (text.n >= sizeof address)
		return RANGE_NOT;
	(void)snprintf(address, sizeof address, "%.*s", STR_ARG(text));
	if (strlen(address) != text.n)
		return RANGE_NOT;
	if (inet_pton(AF_INET, address, ret) == 1)
		return RANGE_V4;
	return inet_pton(AF_INET6, address, ret) == 1 ? RANGE_V6 : RANGE_NOT;
}

static uint32_t mask_of(uint32_t bits)
{
	return bits == 0 ? 0 : UINT32_MAX << (32 - bits);
}

static bool is_unspecified(enum range_kind kind, const struct in6_addr *address)
{
	static const struct in6_addr zero;

	return memcmp(address, &zero, kind == RANGE_V4 ? 4 : 16) == 0;
}

/* An address or a range of either family; *ret_unspecified: 0.0.0.0 or ::, with any length but that
 * of 0.0.0.0/0, which stands for everything. */
static enum range_kind range_parse(struct str text, struct policy_range *ret, bool *ret_unspecified)
{
	ptrdiff_t slash = str_find(text, '/');
	struct str host = slash < 0 ? text : str_make(text.p, (size_t)slash);
	struct in6_addr address = { 0 };
	enum range_kind kind = address_kind(host, &address);
	int64_t max = kind == RANGE_V4 ? 32 : 128, bits = max;
	uint32_t v4;

	if (kind == RANGE_NOT)
		return RANGE_NOT;
	if (slash >= 0 && str_to_int(str_from(text, (size_t)slash + 1), 0, max, &bits) < 0)
		return RANGE_NOT;
	*ret_unspecified = is_unspecified(kind, &address) && !str_is(text, "0.0.0.0/0");
	if (kind == RANGE_V4) {
		memcpy(&v4, &address, sizeof v4);
		ret->bits = (uint32_t)bits;
		ret->address = ntohl(v4) & mask_of(ret->bits);
	}
	return kind;
}

static int add_range(const struct reading *r, const struct policy_range *range, const char *field)
{
	struct policy *policy = r->policy;

	if (policy->n_ranges >= POLICY_MAX_RANGES)
		return err_set(r->e, -EINVAL,
			"network.%s: at most %d addresses and ranges in all are possible", field,
			POLICY_MAX_RANGES);
	policy->ranges[policy->n_ranges++] = *range;
	return 0;
}

/* ---- the two lists ---- */

static int add_name(const struct reading *r, struct str text)
{
	struct policy *policy = r->policy;
	const char *field = r->words->allow;
	struct str name, bare;

	if (policy->n_names >= POLICY_MAX_NAMES)
		return err_set(r->e, -EINVAL, "network.%s: at most %d domain names are possible",
			field, POLICY_MAX_NAMES);
	name = name_normal(r->arena, text);
	if (!name.p)
		return err_set(r->e, -ENOBUFS, "network.%s: too large", field);
	bare = str_has_prefix(name, STR("*.")) ? str_from(name, 2) : name;
	if (!str_is(name, "*") && !name_is_valid(bare))
		return err_set(r->e, -EINVAL,
			"network.%s: each entry must be an address, a range or a domain name",
			field);
	policy->names[policy->n_names++] = name;
	return 0;
}

static int add_entry(const struct reading *r, struct str text, bool allow)
{
	const char *field = allow ? r->words->allow : r->words->deny;
	struct policy_range range = { .allow = allow };
	bool unspecified = false;
	enum range_kind kind = range_parse(text, &range, &unspecified);

	if (kind == RANGE_NOT && allow)
		return add_name(r, text);
	if (kind == RANGE_NOT)
		return err_set(r->e, -EINVAL,
			"network.%s: each entry must be an address or a range", field);
	if (unspecified)
		return err_set(r->e, -EINVAL,
			"network.%s: the unspecified address is only allowed as 0.0.0.0/0", field);
	return kind == RANGE_V4 ? add_range(r, &range, field) : 0;
}

bool policy_denies_rest(const struct policy *policy)
{
	for (size_t i = 0; i < policy->n_ranges; i++)
		if (policy->ranges[i].bits == 0 && !policy->ranges[i].allow)
			return true;
	return false;
}

/* is_closed: nothing outside is reached but what is allowed. */
static int add_lists(const struct reading *r, const struct network_in *in, bool is_closed)
{
	int ret = 0;

	for (size_t i = 0; ret >= 0 && i < in->deny_out.n; i++)
		ret = add_entry(r, in->deny_out.v[i], false);
	for (size_t i = 0; ret >= 0 && i < in->allow_out.n; i++)
		ret = add_entry(r, in->allow_out.v[i], true);
	if (ret >= 0 && r->policy->n_names > 0 && !is_closed && !policy_denies_rest(r->policy))
		ret = err_set(r->e, -EINVAL, "network.%s: domain names need 0.0.0.0/0 in %s",
			r->words->allow, r->words->deny);
	return ret;
}

static bool any_denied(const struct policy *policy)
{
	for (size_t i = 0; i < policy->n_ranges; i++)
		if (!policy->ranges[i].allow)
			return true;
	return false;
}

static int parse(struct arena *arena, struct str network, enum policy_spelling spelling,
	struct json_bool internet, struct policy *ret, struct err *e)
{
	static const struct policy_range everything = { 0 };
	const struct spelling *words = &spellings[spelling];
	struct network_in in = { 0 };
	struct policy policy = { 0 };
	const struct reading reading = { arena, &policy, words, e };
	bool is_closed = internet.is_set && !internet.value;
	int r = 0;

	if (network.n)
		r = json_decode(arena, network, words->shape, &in, e);
	if (r < 0)
		return err_wrap(e, r, "network");
	policy.ranges =
		arena_alloc(arena, (in.allow_out.n + in.deny_out.n + 1) * sizeof(everything));
	policy.names = arena_alloc(arena, (in.allow_out.n + 1) * sizeof *policy.names);
	if (!policy.ranges || !policy.names)
		return err_set(e, -ENOBUFS, "network: too large");
	r = add_lists(&reading, &in, is_closed);
	if (r >= 0)
		r = rules_parse(arena, &in.rules, &policy, e);
	if (r >= 0 && is_closed && !policy_denies_rest(&policy))
		r = add_range(&reading, &everything, words->deny);
	if (r < 0)
		return r;
	policy.is_open = !any_denied(&policy) && policy.n_rules == 0;
	*ret = policy;
	return 0;
}

int policy_read(struct arena *arena, struct str network, enum policy_spelling spelling,
	struct json_bool internet, struct policy *ret, struct err *e)
{
	struct policy policy;
	int r = parse(arena, network, spelling, internet, &policy, e);

	if (r >= 0)
		r = rules_check_new(&policy, e);
	if (r >= 0)
		*ret = policy;
	return r;
}

int policy_parse(struct arena *arena, struct str network, struct json_bool internet,
	struct policy *ret, struct err *e)
{
	return parse(arena, network, POLICY_CAMEL, internet, ret, e);
}

/* ---- the questions ---- */

static bool is_in(const struct policy_range *range, uint32_t address)
{
	return (address & mask_of(range->bits)) == range->address;
}

bool policy_is_private(uint32_t address)
{
	return private_is(address);
}

bool policy_grants_address(const struct policy *policy, uint32_t address)
{
	bool denied = false;

	for (size_t i = 0; i < policy->n_ranges; i++) {
		if (!is_in(&policy->ranges[i], address))
			continue;
		if (policy->ranges[i].allow)
			return true;
		denied = true;
	}
	return !denied;
}

bool policy_allows_address(const struct policy *policy, uint32_t address)
{
	return !policy_is_private(address) && policy_grants_address(policy, address);
}

static struct str without_last_dot(struct str host)
{
	if (host.n > 1 && host.p[host.n - 1] == '.')
		host.n--;
	return host;
}

bool policy_allows_name(const struct policy *policy, struct str host)
{
	host = without_last_dot(host);
	if (!name_is_valid(host))
		return false;
	for (size_t i = 0; i < policy->n_names; i++)
		if (name_matches(policy->names[i], host))
			return true;
	return false;
}

bool policy_may_resolve(const struct policy *policy, struct str host)
{
	return !policy_denies_rest(policy) || policy_allows_name(policy, host);
}

/* The name itself before a pattern, and of patterns the longest. */
const struct policy_rule *policy_rule_for(const struct policy *policy, struct str host)
{
	const struct policy_rule *best = NULL;

	host = without_last_dot(host);
	if (!name_is_valid(host))
		return NULL;
	for (size_t i = 0; i < policy->n_rules; i++) {
		const struct policy_rule *rule = &policy->rules[i];

		if (str_eq_nocase(rule->host, host))
			return rule;
		if (name_matches(rule->host, host) && (!best || rule->host.n > best->host.n))
			best = rule;
	}
	return best;
}
