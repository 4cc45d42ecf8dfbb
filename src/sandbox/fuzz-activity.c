/* Property: whatever a guest says, what is made of it is bounded, valid, in order, and without the
 * secret. */
#include "sandbox/activity-read.h"

DEFINE_CLEANUP(struct arena, arena_free)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct str secret = { "hunter2-hunter2", 15 };

static void check(const struct activity_record *record, struct mask_needles *needles)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(ACTIVITY_DATA_BYTES);

	activity_write(record, needles, &out);
	assert(record->source.n < ACTIVITY_SOURCE_SIZE);
	if (out.failed)
		return;
	assert(json_check(buf_str(&out), 1000, NULL) == 0);
	assert(str_is_utf8(buf_str(&out)));
	assert(!memmem(out.p, out.n, secret.p, secret.n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *needles = mask_needles_new();
	CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
	struct activity_page page;
	int64_t seq = 0;

	if (size > ACTIVITY_ANSWER_BYTES ||
		activity_read(arena, str_make(data, size), &page, NULL) < 0)
		return 0;
	assert(mask_needles_add(needles, STR("KEY"), secret, NULL) == 0);
	assert(page.epoch[0] && page.n <= ACTIVITY_MAX_RECORDS);
	for (size_t i = 0; i < page.n; i++) {
		assert(page.v[i].seq > seq && page.v[i].seq <= page.last);
		seq = page.v[i].seq;
		check(&page.v[i], needles);
		check(&page.v[i], NULL);
	}
	return 0;
}
