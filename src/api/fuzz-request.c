/* What is taken of a request's head is what the next one would take too, and nothing else is in it.
 */
#include "api/api-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char trace[SANDBOX_TRACE_SIZE], again[SANDBOX_TRACE_SIZE];
	struct str text = str_make(data, size);

	if (request_trace(text, trace)) {
		assert(strlen(trace) == SANDBOX_TRACE_SIZE - 1);
		assert(request_trace(str_of(trace), again));
		assert(strcmp(trace, again) == 0);
		for (const char *c = trace; *c; c++)
			assert(*c == '-' || (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'f'));
	} else {
		assert(!trace[0]);
	}
	if (request_id_is_sane(text))
		for (size_t i = 0; i < size; i++)
			assert(data[i] > ' ' && data[i] < 0x7f && data[i] != '"' && data[i] != '=');
	return 0;
}
