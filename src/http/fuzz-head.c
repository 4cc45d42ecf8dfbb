/* Property: where a head ends and what it says does not depend on how its bytes were split. */
#include "http/http-internal.h"

enum {
	MAX_HEAD = 2048,
	MAX_FIELDS = 16
};

struct outcome {
	int found; /* as head_find_end */
	size_t end;
};

static struct outcome find(struct str in, size_t step)
{
	struct head_scan scan = { 0 };
	struct outcome o = { 0 };

	for (size_t n = MIN(step, in.n); o.found == 0; n += MIN(step, in.n - n)) {
		o.found = head_find_end(str_make(in.p, n), MAX_HEAD, &scan, &o.end);
		if (n == in.n)
			break;
	}
	return o;
}

/* What was accepted must be clean: these are the bytes that requests are smuggled with. */
static void check_fields(const struct head *h, struct str text)
{
	for (uint32_t i = 0; i < h->n_fields; i++) {
		struct str name = head_name(h, i), value = head_value(h, i);

		assert(name.p >= text.p && value.p + value.n <= text.p + text.n);
		assert(is_token(name) && is_field_value(value));
	}
	assert(!(h->chunked && h->length >= 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str in = str_make(data, size);
	struct outcome whole = find(in, SIZE_MAX), bytes = find(in, 1), sevens = find(in, 7);
	struct field fields[MAX_FIELDS];
	struct head head;

	assert(whole.found == bytes.found && whole.end == bytes.end);
	assert(whole.found == sevens.found && whole.end == sevens.end);
	if (whole.found <= 0 || whole.end == 2)
		return 0;
	in.n = whole.end;
	if (head_parse_request(in, fields, MAX_FIELDS, &head) == 0) {
		check_fields(&head, in);
		assert(head.method_n > 0 && head.target_n > 0);
		assert(head.minor == 0 || head.has_host);
	}
	if (head_parse_response(in, fields, MAX_FIELDS, &head) == 0) {
		check_fields(&head, in);
		assert(head.status >= 100 && head.status <= 999);
	}
	return 0;
}
