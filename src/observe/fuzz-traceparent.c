/* An accepted traceparent begins with its own ids, which are lower-case hex and not zero; and it is
 * accepted whatever a later version puts behind it. */
#include "observe/observe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *id, size_t n)
{
	assert(strlen(id) == n && strspn(id, "0123456789abcdef") == n && strspn(id, "0") < n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = str_make(data, size);
	struct observe_parent parent = { 0 };

	if (observe_parent_read(text, &parent) < 0)
		return 0;
	check(parent.trace_id, 32);
	check(parent.span_id, 16);
	assert(memcmp(text.p + 3, parent.trace_id, 32) == 0);
	assert(memcmp(text.p + 36, parent.span_id, 16) == 0);
	assert(text.n == 55 || memcmp(text.p, "00", 2) != 0);
	return 0;
}
