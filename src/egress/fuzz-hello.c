/* A name is plain text within its limits; more bytes never change what was decided, and neither
 * does the way a hello is cut into records. */
#include "egress/egress-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const char *name)
{
	struct dns_name wire;

	if (name[0])
		assert(dns_name_parse(str_of(name), &wire) == 0);
	for (const char *c = name; *c; c++)
		assert(*c == '.' || *c == '-' || *c == '_' || (*c >= 'a' && *c <= 'z') ||
			(*c >= '0' && *c <= '9'));
}

/* The same message in records of `step` bytes, and then what else was there. */
static void recut(struct str body, size_t step, struct buf *out)
{
	while (body.n > 0) {
		size_t n = MIN(body.n, step);
		const char head[5] = { 22, 3, 1, (char)(n >> 8), (char)n };

		(void)buf_add(out, head, sizeof head);
		(void)buf_add(out, body.p, n);
		body = str_from(body, n);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf other = BUF_INIT(1 << 20);
	char name[DNS_TEXT_SIZE], again[DNS_TEXT_SIZE];
	struct str bytes = str_make(data, size);
	enum sniffed what, prefix;

	what = hello_parse(bytes, name);
	check_name(name);
	for (size_t n = 0; n < MIN(size, 64); n++) {
		prefix = hello_parse(str_make(data, n), again);
		assert(prefix == SNIFF_MORE || (prefix == what && strcmp(name, again) == 0));
	}
	/* A message of its own, made of all bytes but the first: cut in two ways, read as one. */
	if (size < 6 || size > 12000)
		return 0;
	recut(str_from(bytes, 1), 12000, &other);
	what = hello_parse(buf_str(&other), name);
	buf_clear(&other);
	recut(str_from(bytes, 1), data[0] % 40 + 5u, &other);
	prefix = hello_parse(buf_str(&other), again);
	assert(what == prefix && strcmp(name, again) == 0);
	return 0;
}
