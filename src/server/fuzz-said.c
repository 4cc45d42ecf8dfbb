/* What tar prints: the same is understood however it is cut into pieces. */
#include "server/said.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int kind = SAID_READING; kind <= SAID_NAMES; kind++) {
		struct said whole = { .kind = (enum said_kind)kind }, cut = whole;
		const char *p = (const char *)data;

		said_feed(&whole, p, size);
		for (size_t at = 0, n; at < size; at += n) {
			n = MIN((size_t)(data[at] % 7 + 1), size - at);
			said_feed(&cut, p + at, n);
		}
		assert(whole.lost.n == cut.lost.n && whole.n == cut.n);
		assert(strcmp(whole.lost.first, cut.lost.first) == 0);
		assert(strcmp(whole.cause, cut.cause) == 0);
	}
	return 0;
}
