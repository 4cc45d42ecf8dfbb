/* What is accepted stays within the limits, and the questions agree with each other: nothing
 * private is ever allowed, an open policy denies nothing public, and names need everything else
 * denied. */
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rules(const struct policy *p)
{
	assert(p->n_rules <= POLICY_MAX_RULES);
	for (size_t i = 0; i < p->n_rules; i++) {
		const struct policy_rule *rule = &p->rules[i];

		assert(rule->n_headers > 0 && rule->n_headers <= POLICY_MAX_HEADERS);
		for (size_t k = 0; k < rule->n_headers; k++) {
			struct str rest = rule->headers[k].value, text, name;

			assert(!memchr(rule->headers[k].name.p, '\n', rule->headers[k].name.n));
			assert(!rest.n || !memchr(rest.p, '\r', rest.n));
			for (int n = 0; policy_next_secret(&rest, &text, &name); n++)
				assert(n < 64 && (!name.p || name.n > 0));
		}
		if (rule->host.p[0] != '*')
			assert(policy_rule_for(p, rule->host) == rule);
	}
}

static void check_names(const struct policy *p)
{
	assert(p->n_names <= POLICY_MAX_NAMES && (p->n_names == 0 || policy_denies_rest(p)));
	for (size_t i = 0; i < p->n_names; i++)
		if (p->names[i].p[0] != '*')
			assert(policy_allows_name(p, p->names[i]) &&
				policy_may_resolve(p, p->names[i]));
	assert(!policy_allows_name(p, STR("127.0.0.1")) && !policy_allows_name(p, STR("[::1]")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t probes[] = { 0x7f000001, 0x0a000001, 0xa9fea9fe, 0x08080808,
		0x5db8d822, 0xffffffff, 0 };
	struct json_bool internet = { size > 0 && (data[0] & 1), size > 0 && (data[0] & 2) };
	struct arena *arena = arena_new(4 << 20);
	struct policy p;

	if (size > 0 &&
		policy_read(arena, str_make(data + 1, size - 1),
			data[0] & 4 ? POLICY_SNAKE : POLICY_CAMEL, internet, &p, NULL) == 0) {
		assert(p.n_ranges <= POLICY_MAX_RANGES);
		for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
			bool allowed = policy_allows_address(&p, probes[i]);

			assert(!allowed || !policy_is_private(probes[i]));
			assert(allowed || !p.is_open || policy_is_private(probes[i]));
		}
		check_names(&p);
		check_rules(&p);
	}
	(void)arena_free(arena);
	return 0;
}
