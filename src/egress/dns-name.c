#include "egress/dns.h"

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c - 'A' + 'a') : c;
}

static bool is_letter(uint8_t c)
{
	return lower(c) >= 'a' && lower(c) <= 'z';
}

static bool is_plain(uint8_t c)
{
	return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

int dns_name_text(const struct dns_name *name, char out[DNS_TEXT_SIZE])
{
	size_t n = 0;

	for (size_t at = 0; at < name->n && name->p[at] > 0; at += name->p[at] + 1u) {
		if (n > 0)
			out[n++] = '.';
		for (size_t i = 1; i <= name->p[at]; i++) {
			if (!is_plain(name->p[at + i]))
				return -EINVAL;
			out[n++] = (char)lower(name->p[at + i]);
		}
	}
	out[n] = '\0';
	return n > 0 ? 0 : -EINVAL;
}

int dns_name_parse(struct str text, struct dns_name *ret)
{
	struct dns_name name = { 0 };
	struct str rest = text, label;

	if (text.n == 0 || text.n > DNS_NAME_MAX - 2)
		return -EINVAL;
	while (str_split(&rest, '.', &label)) {
		if (label.n == 0 || label.n > 63)
			return -EINVAL;
		name.p[name.n++] = (uint8_t)label.n;
		memcpy(name.p + name.n, label.p, label.n);
		name.n = (uint8_t)(name.n + label.n);
	}
	name.p[name.n++] = 0;
	*ret = name;
	return 0;
}

/* The lengths are below 64 and so not letters: comparing all bytes alike is right. */
bool dns_name_equal(const struct dns_name *a, const struct dns_name *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (lower(a->p[i]) != lower(b->p[i]))
			return false;
	return true;
}

void dns_mix_case(struct dns_name *name)
{
	uint8_t coins[DNS_NAME_MAX / 8 + 1];

	random_bytes(coins, sizeof coins);
	for (size_t i = 0; i < name->n; i++)
		if (is_letter(name->p[i]) && (coins[i / 8] >> (i % 8) & 1))
			name->p[i] ^= 0x20;
}
