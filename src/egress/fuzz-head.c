/* What the first bytes are does not change when more of them come, and is always known in the end.
 */
#include "egress/egress-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char most[SNIFF_MAX_BYTES];
	char name[DNS_TEXT_SIZE], again[DNS_TEXT_SIZE];
	enum sniffed what = sniff(str_make(data, size), name), other;

	for (size_t n = 0; n < size && n < 300; n++) {
		other = sniff(str_make(data, n), again);
		assert(other == SNIFF_MORE || (other == what && strcmp(name, again) == 0));
	}
	assert(what == SNIFF_TLS || name[0] == '\0');
	if (what == SNIFF_HTTP)
		assert(memchr(data, '\n', size) && memmem(data, size, " HTTP/1.", 8));
	memcpy(most, data, MIN(size, sizeof most));
	assert(sniff(str_make(most, sizeof most), name) != SNIFF_MORE);
	return 0;
}
