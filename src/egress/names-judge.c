#include "egress/names.h"

/* They mean something to this host or to its network only, and are nobody's out there. */
static bool is_of_host(struct str name)
{
	static const char *const zones[] = { ".localhost", ".local", ".internal", ".home.arpa",
		".ip6.arpa" };

	if (str_find(name, '.') < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(zones); i++) {
		struct str zone = str_of(zones[i]);

		if (str_eq(name, str_from(zone, 1)) ||
			(name.n > zone.n && str_eq(str_from(name, name.n - zone.n), zone)))
			return true;
	}
	return false;
}

/* 1.0.168.192.in-addr.arpa asks who 192.168.0.1 is. */
static bool is_private_reverse(struct str name)
{
	static const struct str zone = { ".in-addr.arpa", 13 };
	struct str rest, label;
	uint32_t address = 0;
	int64_t byte;
	int n = 0;

	if (name.n <= zone.n || !str_eq(str_from(name, name.n - zone.n), zone))
		return false;
	for (rest = str_make(name.p, name.n - zone.n); str_split(&rest, '.', &label); n++) {
		if (n == 4 || str_to_int(label, 0, 255, &byte) < 0)
			return true; /* nothing that could be asked for */
		address |= (uint32_t)byte << 8 * n;
	}
	return policy_is_private(address << 8 * (4 - n));
}

bool names_is_hidden(struct str name)
{
	return is_of_host(name) || is_private_reverse(name);
}

/* Of a network that the operator has opened a part of; never this machine's own. */
static bool is_inside(struct str name)
{
	static const struct str own = { ".localhost", 10 }, reverse = { ".arpa", 5 };
	struct str end = str_from(name, name.n - MIN(name.n, own.n));

	return !str_is(name, "localhost") && !str_eq(end, own) &&
	       !str_eq(str_from(name, name.n - MIN(name.n, reverse.n)), reverse);
}

/* Who asks for both kinds gives up when one of them says that there is no such name. */
static bool asks_address(const struct dns_question *question)
{
	return question->type == DNS_A || question->type == DNS_AAAA;
}

int names_judge(const struct policy *policy, const struct dns_question *question, bool asks_inside,
	char text[DNS_TEXT_SIZE])
{
	struct str name;

	text[0] = '\0';
	if (question->class != DNS_CLASS_IN || question->type == DNS_OPT || question->type == 0 ||
		(question->type >= DNS_FIRST_META && question->type <= DNS_LAST_META))
		return DNS_REFUSED;
	if (dns_name_text(&question->name, text) < 0) {
		text[0] = '\0';
		return policy_denies_rest(policy) ? JUDGED_DENY : DNS_NXDOMAIN;
	}
	name = str_of(text);
	if (names_is_hidden(name) && !(asks_inside && is_inside(name) && asks_address(question)))
		return DNS_NXDOMAIN;
	if (!policy_may_resolve(policy, name))
		return JUDGED_DENY;
	/* No IPv6 leads out, and what HTTPS records offer would hide the name of the next hello. */
	if (question->type == DNS_AAAA || question->type == DNS_HTTPS || question->type == DNS_SVCB)
		return DNS_OK;
	return JUDGED_ASK;
}
