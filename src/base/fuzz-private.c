/* The operator's list: what is taken opens private addresses alone, none that is never opened, and
 * is read back as it was written. */
#include "base/base.h"
#include "base/private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t never[] = { 0, 0x08080808, 0x646464c8, 0x7f000001, 0xa83f8110,
		0xa9fea9fe, 0xc00000c0, 0xe0000001, 0xffffffff };
	CLEANUP(buf_done) struct buf text = BUF_INIT(PRIVATE_MAX_OPENED * PRIVATE_TEXT_SIZE);
	CLEANUP(buf_done) struct buf twice = BUF_INIT(PRIVATE_MAX_OPENED * PRIVATE_TEXT_SIZE);
	struct private_list list = { 0 }, again = { 0 };

	if (private_list_add(&list, str_make(data, size), NULL) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		assert(!private_list_has(&list, never[i], 0));
	for (size_t i = 0; i < list.n; i++)
		assert(private_is(list.v[i].address) &&
			!private_is_closed(&list, list.v[i].address, list.v[i].port));
	private_list_write(&list, &text);
	assert(!text.failed && private_list_add(&again, buf_str(&text), NULL) == 0);
	private_list_write(&again, &twice);
	assert(again.n == list.n && str_eq(buf_str(&text), buf_str(&twice)));
	return 0;
}
