/* policy - what a sandbox may reach: its rules as data, and the questions asked of them.
 * Owns:   the network object's grammar and its meaning: ranges, names, header rules.
 * Uses:   base, json.
 * Never:  opens a socket, resolves a name or touches the kernel: the runtime and the egress act.
 *
 * Three kinds of rules, and one order: what is never reachable (private networks, this host,
 * neighbours), then what is allowed, then what is denied; the rest is allowed. */
#pragma once

#include "base/base.h"
#include "json/json.h"

enum {
	POLICY_MAX_RANGES = 1024,
	POLICY_MAX_NAMES = 256,
	POLICY_MAX_RULES = 10,   /* hosts with header rules */
	POLICY_MAX_HEADERS = 20, /* of one host */
};

/* IPv4, host byte order. Sandboxes have no IPv6 way out. */
struct policy_range {
	uint32_t address;
	uint32_t bits; /* of the prefix: 0 to 32 */
	bool allow;    /* else deny */
};

struct policy_header {
	struct str name, value; /* the value may hold ${e2b.secrets.NAME} */
};

struct policy_rule {     /* for requests to one host over TLS */
	struct str host; /* lower case; *.example.com matches below it, not itself */
	struct policy_header *headers;
	size_t n_headers;
};

struct policy {
	struct policy_range *ranges;
	size_t n_ranges;
	struct str *names; /* allowed; lower case; "*.example.com" and "*" match as they look */
	size_t n_names;
	struct policy_rule *rules;
	size_t n_rules;
	bool is_open; /* nothing is denied and nothing changed: no rule needs to be laid */
};

/* How the members of the network object are called: E2B's allowOut is allow_out in /api/v1. What is
 * kept, and what the rooms below the API see, is spelled as E2B does. */
enum policy_spelling {
	POLICY_CAMEL,
	POLICY_SNAKE,
};
/* The network object (empty: none) and whether there is internet at all, as the API takes them.
 * Members that are not about the way out are the caller's to check. Everything is kept in the
 * arena. -EINVAL: e says what is wrong in the words of the field. */
int policy_read(struct arena *arena, struct str network, enum policy_spelling spelling,
	struct json_bool internet, struct policy *ret, struct err *e);
/* The same of one that was kept: what an earlier server took is still understood. A check that is
 * new belongs to policy_read alone, or sandboxes made before it are closed and never resumed. */
int policy_parse(struct arena *arena, struct str network, struct json_bool internet,
	struct policy *ret, struct err *e);

/* Needs the proxy: rules by name, or of headers. */
static inline bool policy_by_name(const struct policy *policy)
{
	return policy->n_names > 0 || policy->n_rules > 0;
}

/* Addresses that no rule opens: private, shared, link-local, loopback, multicast, reserved. Only
 * the operator does (base/private.h). */
bool policy_is_private(uint32_t address);
/* By address alone, as the kernel decides for what does not pass the proxy. */
bool policy_allows_address(const struct policy *policy, uint32_t address);
/* The same by its rules alone, for a private address that the operator has opened. */
bool policy_grants_address(const struct policy *policy, uint32_t address);
/* By name alone: whether one of the names matches; an address literal never does. */
bool policy_allows_name(const struct policy *policy, struct str host);
/* Everything is denied that is not allowed. */
bool policy_denies_rest(const struct policy *policy);
/* Whether the name may be asked for at all: what is closed must not talk through name servers. */
bool policy_may_resolve(const struct policy *policy, struct str host);
/* NULL: nothing to change for this host. */
const struct policy_rule *policy_rule_for(const struct policy *policy, struct str host);
/* Cuts a header's value into text and the name of the secret behind it (p NULL: none): begin with
 * *rest at the value; false when nothing is left. */
bool policy_next_secret(struct str *rest, struct str *ret_text, struct str *ret_name);
