/* Disks that are used again: nothing of the sandbox before is on them, and what it left too much on
 * is never one. Needs root. */
#include "warden/harness.h"

#include "test.h"

#include <sys/stat.h>

enum {
	ROUNDS = 40,
	PAUSE_US = 50000,  /* what ended is removed behind the answer */
	IDLE_US = 3000000, /* a disk waits a second for another sandbox, then it goes */
};

#define START(h)                                                                          \
	CLEANUP(harness_stop) struct harness h = { .option = "--no-pool", .fd = -EBADF }; \
	do {                                                                              \
		struct err start_e = { 0 };                                               \
		if (harness_start(&(h), "none", 2, &start_e) == -EPERM)                   \
			TEST_SKIP("needs root and a built warden");                       \
		if (start_e.code < 0)                                                     \
			TEST_FAIL("start: %s", start_e.msg);                              \
	} while (0)

/* Files of the disks that the sandbox had, one after the other. */
struct images {
	int64_t v[ROUNDS];
	int n;
};

/* When the file that is the disk of the sandbox was made, in ns: its number may be a removed one's.
 * The sandbox's state says by what key it is named. */
static int64_t disk_of(const struct harness *h, const char *id)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char path[160], key[32] = "";
	struct statx st;

	(void)snprintf(path, sizeof path, "%s/run/%s/state", h->dir, id);
	if (file_read(AT_FDCWD, path, &text, NULL) < 0 ||
		sscanf(buf_str(&text).p, "atoll-slot 1\nkey %31[a-z0-9]", key) != 1)
		return 0;
	(void)snprintf(path, sizeof path, "%s/images/%s.ext4", h->dir, key);
	return statx(AT_FDCWD, path, 0, STATX_BTIME, &st) < 0
		       ? 0
		       : st.stx_btime.tv_sec * INT64_C(1000000000) + st.stx_btime.tv_nsec;
}

/* Whether it was an earlier one's. */
static bool note(struct images *images, int64_t disk)
{
	bool found = false;

	for (int i = 0; i < images->n; i++)
		found |= images->v[i] == disk;
	images->v[images->n++] = disk;
	return found;
}

TEST(nothing_of_the_one_before_is_on_a_disk_that_is_used_again)
{
	struct images images = { 0 };
	int again = 0;

	START(h);
	for (int i = 0; i < ROUNDS; i++) {
		ASSERT_EQ(harness_create(&h, "one"), 0);
		ASSERT(disk_of(&h, "one") != 0);
		again += note(&images, disk_of(&h, "one"));
		/* Neither what it wrote nor what it did to the root itself. */
		ASSERT_STR(harness_inside(&h, "one", "read /etc/mine"), "-2");
		ASSERT_STR(harness_inside(&h, "one", "read /etc/hostname"), "atoll\n");
		ASSERT_STR(harness_inside(&h, "one", "stat /"), "40755 0 0");
		ASSERT_STR(harness_inside(&h, "one", "write /etc/mine hello"), "0");
		ASSERT_STR(harness_inside(&h, "one", "write /etc/hostname changed"), "0");
		ASSERT_STR(harness_inside(&h, "one", "chmod / 700"), "0");
		ASSERT_EQ(harness_destroy(&h, "one"), 0);
		(void)usleep(PAUSE_US);
	}
	ASSERT(again > 0);
}

/* The disks of those that lived are gone while others of the same size are used again. */
static int again_after(struct harness *h, const char *command)
{
	struct images images = { 0 };
	int again = 0;

	for (int i = 0; i < ROUNDS / 4; i++) {
		if (harness_create(h, "one") != 0)
			return -1;
		again += note(&images, disk_of(h, "one"));
		if (strcmp(harness_inside(h, "one", command), "0") != 0)
			return -1;
		(void)harness_destroy(h, "one");
		(void)usleep(PAUSE_US);
	}
	return again;
}

TEST(what_much_was_left_on_is_not_used_again)
{
	START(h);
	ASSERT_EQ(again_after(&h, "litter 600 10"), 0); /* too many files */
	ASSERT_EQ(again_after(&h, "litter 40 1000000"), 0);
	/* Those without names may be gone with their processes before anybody looks. */
	ASSERT(again_after(&h, "orphans 600") >= 0);
}

TEST(what_was_saved_is_not_used_again)
{
	struct images images = { 0 };
	char image[16];
	int again = 0;

	START(h);
	for (int i = 0; i < ROUNDS / 4; i++) {
		(void)snprintf(image, sizeof image, "image%d", i);
		ASSERT_EQ(harness_create(&h, "one"), 0);
		again += note(&images, disk_of(&h, "one"));
		ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", image), 0);
		ASSERT_EQ(harness_destroy(&h, "one"), 0);
		(void)usleep(PAUSE_US);
	}
	ASSERT_EQ(again, 0);
}

TEST(idle_disks_are_given_back)
{
	struct census before;

	START(h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	(void)usleep(IDLE_US);
	before = census_at_rest(&h);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(harness_create(&h, "one"), 0);
		ASSERT_EQ(harness_destroy(&h, "one"), 0);
	}
	ASSERT_EQ(census_wait(&h, &before), 0);
}
