/* The answer to an upgrade: what is said of it does not change when more comes, and a whole head
 * lies within what came. */
#include "client/client-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct upgrade_answer whole = { 0 }, part;
	int r = upgrade_answer(str_make(data, size), &whole);

	if (r == 1) {
		assert(whole.head_n >= 4 && whole.head_n <= size);
		assert(whole.status == 101 || (whole.status >= 200 && whole.status <= 599));
		assert(whole.length >= -1);
		assert(upgrade_answer(str_make(data, whole.head_n), &part) == 1);
		assert(part.status == whole.status && part.length == whole.length);
	}
	for (size_t n = 0; n < MIN(size, (size_t)256); n++) {
		int early = upgrade_answer(str_make(data, n), &part);

		assert(early == 0 || early == r);
		assert(early != 1 || part.head_n == whole.head_n);
	}
	return 0;
}
