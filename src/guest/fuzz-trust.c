/* Certificates in a text from outside: each that is found is a whole one, in its place behind the
 * one before, and the same is found in what was found. */
#include "guest/trust.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct trust_certificate *c)
{
	static const struct str begin = { "-----BEGIN CERTIFICATE-----", 27 };
	static const struct str end = { "-----END CERTIFICATE-----", 25 };
	struct trust_certificate again;
	struct str text = c->pem;
	size_t n = strlen(c->hash);

	assert(n == 0 || (n == TRUST_HASH_CHARS && strspn(c->hash, "0123456789abcdef") == n));
	assert(memmem(c->pem.p, c->pem.n, begin.p, begin.n));
	assert(memmem(c->pem.p, c->pem.n, end.p, end.n));
	assert(trust_next(&text, &again));
	assert(str_eq(again.pem, c->pem) || again.pem.n < c->pem.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = str_make(data, size), rest = text;
	struct trust_certificate c;
	const char *from = text.p;

	while (trust_next(&rest, &c)) {
		assert(c.pem.p >= from && c.pem.p + c.pem.n <= text.p + text.n);
		from = c.pem.p + c.pem.n;
		check(&c);
	}
	return 0;
}
