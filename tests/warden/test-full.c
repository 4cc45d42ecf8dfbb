/* A warden whose disk gets full: who writes is held, however slowly, and nobody else; what is held
 * stands still until it is let go. Needs root. */
#include "warden/harness.h"

#include "test.h"

#include <signal.h>
#include <sys/statvfs.h>

enum {
	DISK_MIB = 1200, /* less than half of it may be taken for unwritten data of the host */
	LEFT_MIB = 160,  /* too little, and enough to save a disk */
	TRIES = 600,
	TRY_US = 50000,
	SAVES = 20,
};

#define START(h, more)                                                               \
	CLEANUP(harness_stop)                                                        \
	struct harness h = { .option = (more), .disk_mib = DISK_MIB, .fd = -EBADF }; \
	do {                                                                         \
		struct err start_e = { 0 };                                          \
		if (harness_start(&(h), "none", 0, &start_e) == -EPERM)              \
			TEST_SKIP("needs root and a built warden");                  \
		if (start_e.code < 0)                                                \
			TEST_FAIL("start: %s", start_e.msg);                         \
	} while (0)

static void name_filler(const struct harness *h, char ret[80])
{
	(void)snprintf(ret, 80, "%s/filler", h->dir);
}

static int fill_up(const struct harness *h)
{
	struct statvfs st;
	char path[80];
	cleanup_close int fd = -EBADF;

	name_filler(h, path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || fstatvfs(fd, &st) < 0)
		return -errno;
	return fallocate(fd, 0, 0, (off_t)(st.f_bavail * st.f_frsize) - ((off_t)LEFT_MIB << 20)) < 0
		       ? -errno
		       : 0;
}

static int empty(const struct harness *h)
{
	char path[80];

	name_filler(h, path);
	return unlink(path);
}

static struct warden_host host_of(struct harness *h)
{
	struct warden_request q = harness_request(h, WARDEN_HOST, "");
	struct warden_reply reply = { 0 };

	(void)harness_ask(h, &q, -EBADF, &reply);
	return reply.host;
}

static bool wait_held(struct harness *h, uint32_t n)
{
	for (int i = 0; i < TRIES && host_of(h).held != n; i++)
		(void)usleep(TRY_US);
	return host_of(h).held == n;
}

static bool wait_short(struct harness *h, bool is_short)
{
	for (int i = 0; i < TRIES && host_of(h).is_short != is_short; i++)
		(void)usleep(TRY_US);
	return host_of(h).is_short == is_short;
}

static uint64_t send_save(struct harness *h, const char *id, int number)
{
	struct warden_request q = harness_request(h, WARDEN_SAVE, id);

	(void)snprintf(q.image_name, sizeof q.image_name, "image%d", number);
	return harness_send(h, &q, -EBADF) < 0 ? 0 : q.tag;
}

/* A few KiB at a time fill a disk as well as a flood does. */
TEST(one_that_writes_slowly_is_held_too)
{
	START(h, NULL);
	ASSERT_EQ(harness_create(&h, "slow"), 0);
	ASSERT_EQ(harness_create(&h, "quiet"), 0);
	ASSERT_STR(harness_inside(&h, "slow", "drip 16"), "0");
	ASSERT_EQ(fill_up(&h), 0);
	ASSERT(wait_held(&h, 1));
	ASSERT_STR(harness_inside(&h, "quiet", "write /etc/mine x"), "0");
	ASSERT_EQ(empty(&h), 0);
	ASSERT(wait_held(&h, 0));
}

/* One that has a disk of 200 MiB, of which it has written half. */
static int create_large(struct harness *h, const char *id)
{
	struct warden_request q = harness_request(h, WARDEN_CREATE, id);
	cleanup_close int fd = harness_settings();
	struct warden_reply reply = { 0 };
	int r;

	q.disk_bytes = 200 << 20;
	r = harness_ask(h, &q, fd, &reply);
	return r < 0 || strcmp(harness_inside(h, id, "fill 100"), "0") == 0 ? r : -EIO;
}

/* Room comes back some time after one has ended, and is waited for. */
TEST(of_those_that_are_held_only_one_ends_at_a_time)
{
	int n = 2;

	START(h, "--hold-seconds=5");
	ASSERT_EQ(create_large(&h, "one"), 0);
	ASSERT_EQ(create_large(&h, "two"), 0);
	ASSERT_STR(harness_inside(&h, "one", "drip 1024"), "0");
	ASSERT_STR(harness_inside(&h, "two", "drip 1024"), "0");
	ASSERT_EQ(fill_up(&h), 0);
	ASSERT(wait_held(&h, 2));
	for (int i = 0; i < TRIES && n == 2; i++) {
		(void)usleep(TRY_US);
		n = harness_count(&h, WARDEN_LIST, NULL);
	}
	(void)usleep(10 * TRY_US);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 1);
	ASSERT_EQ(empty(&h), 0);
	ASSERT(wait_held(&h, 0));
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 1);
}

/* What took the room is not theirs. */
TEST(nobody_ends_whose_end_would_give_back_too_little)
{
	START(h, "--hold-seconds=1");
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(create_large(&h, "two"), 0);
	ASSERT_STR(harness_inside(&h, "one", "drip 1024"), "0");
	ASSERT_STR(harness_inside(&h, "two", "drip 1024"), "0");
	ASSERT_EQ(fill_up(&h), 0);
	ASSERT(wait_held(&h, 2));
	(void)usleep(100 * TRY_US);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 2);
	ASSERT_EQ(empty(&h), 0);
	ASSERT(wait_held(&h, 0));
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine x"), "0");
}

/* Nothing may change on a disk that is being copied. */
TEST(what_is_held_and_saved_stands_still_until_it_is_saved)
{
	struct warden_reply reply = { 0 };
	uint64_t tag;

	START(h, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "drip 1024"), "0");
	ASSERT_EQ(fill_up(&h), 0);
	ASSERT(wait_held(&h, 1));
	ASSERT(harness_signal_workers(&h, SIGSTOP) > 0);
	tag = send_save(&h, "one", 0);
	ASSERT_EQ(empty(&h), 0);
	ASSERT(wait_short(&h, false));
	ASSERT_EQ(host_of(&h).held, 1);
	ASSERT(harness_signal_workers(&h, SIGCONT) > 0);
	while (reply.kind != WARDEN_REPLY || reply.tag != tag)
		ASSERT_EQ(harness_receive(&h, &reply), 0);
	ASSERT_EQ(reply.e.code, 0);
	ASSERT(wait_held(&h, 0));
}

/* One that is saved is not stopped meanwhile, since the worker lets it go again: but then it is. */
TEST(to_be_saved_again_and_again_keeps_nobody_from_being_held)
{
	struct warden_reply reply = { 0 };
	int n_before = 0;
	bool held = false;

	START(h, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "drip 1024"), "0");
	ASSERT(harness_signal_workers(&h, SIGSTOP) > 0);
	for (int i = 0; i < SAVES; i++)
		ASSERT(send_save(&h, "one", i) > 0);
	ASSERT_EQ(fill_up(&h), 0);
	(void)usleep(10 * TRY_US);
	ASSERT(harness_signal_workers(&h, SIGCONT) > 0);
	while (!held && harness_receive(&h, &reply) >= 0) {
		n_before += reply.kind == WARDEN_REPLY;
		held = reply.kind == WARDEN_HELD && reply.count == 1;
	}
	ASSERT(held);
	ASSERT(n_before < SAVES / 2);
}

/* What may be promised is a limit for all, whichever warden made them. */
TEST(what_was_promised_is_known_to_the_next_warden)
{
	struct warden_reply reply = { 0 };
	cleanup_close int fd = harness_settings();
	struct warden_request q;
	struct err e = { 0 };

	START(h, NULL);
	q = harness_request(&h, WARDEN_CREATE, "large");
	q.disk_bytes = 512 << 20;
	ASSERT_EQ(harness_ask(&h, &q, fd, &reply), 0);
	ASSERT_EQ(host_of(&h).promised_bytes, 512 << 20);
	harness_kill_warden(&h);
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(host_of(&h).promised_bytes, 512 << 20);
}

TEST(one_that_is_held_and_paused_stays_paused)
{
	struct err e = { 0 };
	int n_frozen = 0;

	START(h, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "drip 1024"), "0");
	ASSERT_EQ(fill_up(&h), 0);
	ASSERT(wait_held(&h, 1));
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	harness_kill_warden(&h);
	ASSERT_EQ(empty(&h), 0);
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &n_frozen), 1);
	ASSERT_EQ(n_frozen, 1);
	ASSERT_EQ(harness_do(&h, WARDEN_THAW, "one", ""), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine x"), "0");
}
