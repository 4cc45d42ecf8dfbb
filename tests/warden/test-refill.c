/* How the warden prepares what the next request will want, and what it does when it cannot. */
#include "warden/harness.h"

#include <dirent.h>
#include <sys/stat.h>

#include "test.h"

enum {
	SIZES = 40, /* more than are kept */
	KEPT = 33,  /* those, and the usual one */
};

static int create_sized(struct harness *h, const char *id, uint64_t mib, struct warden_request *ret)
{
	struct warden_request q = harness_request(h, WARDEN_CREATE, id);
	cleanup_close int fd = harness_settings();

	q.disk_bytes = mib << 20;
	*ret = q;
	return harness_send(h, &q, fd);
}

/* The next answer to a request, whatever else is told meanwhile. */
static int next_answer(struct harness *h, struct warden_reply *ret)
{
	int r;

	do
		r = harness_receive(h, ret);
	while (r >= 0 && ret->kind != WARDEN_REPLY);
	return r;
}

TEST(a_size_that_is_new_keeps_nobody_else_waiting)
{
	CLEANUP(harness_stop) struct harness h = { 0 };
	struct warden_request large, again, usual;
	struct warden_reply reply;
	struct err e = { 0 };
	int r = harness_start(&h, "none", 1, &e);

	if (r == -EPERM)
		TEST_SKIP("needs root and a built warden");
	ASSERT_EQ(r, 0);
	ASSERT_EQ(harness_create(&h, "first"), 0); /* whose size is not the warden's own either */
	/* Many tables: it takes a while to write them. */
	ASSERT_EQ(create_sized(&h, "large", 1 << 20, &large), 0);
	ASSERT_EQ(create_sized(&h, "again", 1 << 20, &again), 0);
	ASSERT_EQ(create_sized(&h, "usual", 64, &usual), 0);
	ASSERT_EQ(next_answer(&h, &reply), 0);
	ASSERT_EQ(reply.tag, usual.tag);
	ASSERT_EQ(reply.e.code, 0);
	/* One blank is made for both who wait. */
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(next_answer(&h, &reply), 0);
		ASSERT(reply.tag == large.tag || reply.tag == again.tag);
		ASSERT_EQ(reply.e.code, 0);
	}
	ASSERT_STR(harness_inside(&h, "large", "write /etc/mine hello"), "0");
	ASSERT_EQ(harness_destroy(&h, "large"), 0);
}

TEST(one_that_ends_while_its_disk_is_made_is_gone)
{
	CLEANUP(harness_stop) struct harness h = { 0 };
	struct warden_request q;
	struct warden_reply reply;
	struct census before;
	struct err e = { 0 };
	int r = harness_start(&h, "none", 0, &e);

	if (r == -EPERM)
		TEST_SKIP("needs root and a built warden");
	ASSERT_EQ(r, 0);
	before = census_take(&h);
	ASSERT_EQ(create_sized(&h, "one", 1 << 20, &q), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
	ASSERT_EQ(create_sized(&h, "one", 1 << 20, &q), 0);
	ASSERT_EQ(next_answer(&h, &reply), 0);
	ASSERT_EQ(reply.e.code, 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
}

/* The usual one has more inodes than those of requests that say nothing of them. */
static int count_blanks(const struct harness *h, int *ret_usual)
{
	struct dirent *entry;
	char path[128];
	int n = 0;
	DIR *dir;

	*ret_usual = 0;
	(void)snprintf(path, sizeof path, "%s/images", h->dir);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		n += strncmp(entry->d_name, "blank-", 6) == 0;
		*ret_usual += strncmp(entry->d_name, "blank-64-4096-", 14) == 0;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

TEST(few_sizes_are_kept_and_the_usual_one_always)
{
	CLEANUP(harness_stop) struct harness h = { .option = "--no-pool" };
	struct warden_request q;
	struct warden_reply reply;
	struct err e = { 0 };
	int r = harness_start(&h, "none", 0, &e), usual, n = 0;

	if (r == -EPERM)
		TEST_SKIP("needs root and a built warden");
	ASSERT_EQ(r, 0);
	ASSERT_EQ(count_blanks(&h, &usual), 1);
	for (uint64_t i = 0; i < SIZES; i++) {
		ASSERT_EQ(create_sized(&h, "one", 64 + i, &q), 0);
		ASSERT_EQ(next_answer(&h, &reply), 0);
		ASSERT_EQ(reply.e.code, 0);
		ASSERT_EQ(harness_destroy(&h, "one"), 0);
	}
	n = count_blanks(&h, &usual);
	ASSERT_EQ(n, KEPT);
	ASSERT_EQ(usual, 1);
}

static int count_in_log(const char *path, const char *what)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(8 << 20);
	int n = 0;

	(void)file_read(AT_FDCWD, path, &text, NULL);
	for (const char *at = text.p ? strstr(text.p, what) : NULL; at; at = strstr(at + 1, what))
		n++;
	return n;
}

TEST(guests_that_die_at_once_are_not_made_again_and_again)
{
	char log[] = "/tmp/atoll-refill-XXXXXX";
	CLEANUP(harness_stop) struct harness h = { .guest = "/bin/true", .log = log };
	struct err e = { 0 };
	int fd = mkstemp(log), r = harness_start(&h, "none", 4, &e), died, paused;

	(void)close(fd);
	(void)usleep(1300000);
	died = count_in_log(log, "slot.died");
	paused = count_in_log(log, "refill.pause");
	(void)unlink(log);
	if (r == -EPERM)
		TEST_SKIP("needs root and a built warden");
	ASSERT_EQ(r, 0);
	ASSERT(died >= 1);
	ASSERT(died <= 16); /* without a pause it is one every few milliseconds */
	ASSERT(paused >= 1 && paused <= 2);
}
