/* Pausing, saving and starting from what was saved: the real warden, the real kernel, a probe
 * guest. Needs root. */
#include "warden/freezer.h"
#include "warden/owner.h"
#include "warden/run.h"
#include "warden/harness.h"

#include "test.h"

#include <signal.h>
#include <sys/stat.h>

#define START(h, pool, more)                                                         \
	CLEANUP(harness_stop) struct harness h = { .option = (more), .fd = -EBADF }; \
	do {                                                                         \
		struct err start_e = { 0 };                                          \
		if (harness_start(&(h), "none", pool, &start_e) == -EPERM)           \
			TEST_SKIP("needs root and a built warden");                  \
		if (start_e.code < 0)                                                \
			TEST_FAIL("start: %s", start_e.msg);                         \
	} while (0)

static int64_t number_inside(struct harness *h, const char *id, const char *command)
{
	int64_t n = -1;

	return str_to_int(str_of(harness_inside(h, id, command)), 0, INT64_MAX, &n) < 0 ? -1 : n;
}

/* How many of the first n records are whole. */
static int64_t verify(struct harness *h, const char *id, int64_t n)
{
	char command[64];

	(void)snprintf(command, sizeof command, "verify /scribble %" PRId64, n);
	return number_inside(h, id, command);
}

TEST(a_frozen_sandbox_stands_still_and_goes_on)
{
	int frozen = 0;

	START(h, 1, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "tick"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 1);
	ASSERT_EQ(frozen, 1);
	(void)usleep(400000);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0); /* again is fine */
	ASSERT_EQ(harness_do(&h, WARDEN_THAW, "one", ""), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_THAW, "one", ""), 0);
	(void)usleep(20000);
	ASSERT(number_inside(&h, "one", "pause") >= 390);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 1);
	ASSERT_EQ(frozen, 0);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "nobody", ""), -ENOENT);
}

TEST(a_frozen_sandbox_can_be_destroyed)
{
	struct census before;

	START(h, 0, NULL);
	before = census_take(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "tick"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(a_frozen_sandbox_outlives_a_killed_warden_frozen)
{
	struct err e = { 0 };
	int frozen = 0;

	START(h, 1, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	harness_kill_warden(&h);
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 2);
	ASSERT_EQ(frozen, 1);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "kept"), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 2);
	ASSERT_EQ(frozen, 1); /* saving does not wake it */
	ASSERT_EQ(harness_do(&h, WARDEN_THAW, "one", ""), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine hello"), "0");
}

TEST(a_saved_image_has_all_that_was_written_before)
{
	int64_t before, later;

	START(h, 1, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "tick"), "0");
	ASSERT_STR(harness_inside(&h, "one", "scribble /scribble"), "0");
	before = number_inside(&h, "one", "written");
	for (int i = 0; i < 600 && before <= 100; i++) {
		(void)usleep(100000);
		before = number_inside(&h, "one", "written");
	}
	ASSERT(before > 100);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "first"), 0);
	ASSERT_EQ(harness_create_from(&h, "two", "first"), 0);
	ASSERT_EQ(verify(&h, "two", before), before);
	/* The original went on meanwhile, and stood still for no longer than nobody would notice.
	 */
	later = number_inside(&h, "one", "written");
	ASSERT(later > before);
	ASSERT_EQ(verify(&h, "one", later), later);
	ASSERT(number_inside(&h, "one", "pause") < 500);
	/* Each has its own disk from now on. */
	ASSERT_STR(harness_inside(&h, "two", "write /etc/mine two"), "0");
	ASSERT_STR(harness_inside(&h, "one", "read /etc/mine"), "-2");
}

TEST(a_sandbox_from_an_image_is_like_any_other)
{
	START(h, 1, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine one"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "first"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_create_from(&h, "two", "first"), 0);
	ASSERT_STR(harness_inside(&h, "two", "read /etc/mine"), "one");
	ASSERT_STR(harness_inside(&h, "two", "stat /etc/mine"), "100644 0 0");
	ASSERT_STR(harness_inside(&h, "two", "read /etc/hostname"), "atoll\n");
	ASSERT_STR(harness_inside(&h, "two", "fill 100"), "-28");
	ASSERT_STR(harness_inside(&h, "two", "alloc 256"), "9");
	/* And so on, from one to the next. */
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "two", "second"), 0);
	ASSERT_EQ(harness_create_from(&h, "three", "second"), 0);
	ASSERT_STR(harness_inside(&h, "three", "read /etc/mine"), "one");
}

TEST(images_stay_until_they_are_discarded)
{
	struct err e = { 0 };

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine one"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "first"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "first"), -EEXIST);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "second"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "nobody", "third"), -ENOENT);
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 2);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 2);
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "second"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "second"), -ENOENT);
	ASSERT_EQ(harness_create_from(&h, "one", "second"), -ENOENT);
	ASSERT_EQ(harness_create_from(&h, "one", "first"), 0);
	/* In use or not: a copy needs no original. */
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "first"), 0);
	ASSERT_STR(harness_inside(&h, "one", "read /etc/mine"), "one");
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 0);
}

TEST(requests_for_one_sandbox_wait_their_turn)
{
	static const enum warden_op ops[] = { WARDEN_SAVE, WARDEN_FREEZE, WARDEN_SAVE, WARDEN_THAW,
		WARDEN_SAVE, WARDEN_FREEZE };
	struct warden_reply reply = { 0 };
	int frozen = 0;

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct warden_request q = harness_request(&h, ops[i], "one");

		if (ops[i] == WARDEN_SAVE)
			(void)snprintf(q.image_name, sizeof q.image_name, "image%zu", i);
		ASSERT_EQ(harness_send(&h, &q, -EBADF), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		ASSERT_EQ(harness_receive(&h, &reply), 0);
		ASSERT_EQ(reply.e.code, 0);
		ASSERT_EQ(reply.tag, h.tag - ARRAY_SIZE(ops) + 1 + i);
	}
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 1);
	ASSERT_EQ(frozen, 1);
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 3);
}

TEST(a_sandbox_destroyed_while_it_is_saved_leaves_nothing)
{
	struct census before;

	START(h, 0, NULL);
	before = census_take(&h);
	for (int i = 0; i < 6; i++) {
		struct warden_reply reply = { 0 };
		struct warden_request q;

		ASSERT_EQ(harness_create(&h, "one"), 0);
		ASSERT_STR(harness_inside(&h, "one", "fill 20"), "0");
		q = harness_request(&h, WARDEN_SAVE, "one");
		(void)snprintf(q.image_name, sizeof q.image_name, "image");
		ASSERT_EQ(harness_send(&h, &q, -EBADF), 0);
		(void)usleep((useconds_t)i * 1500);
		q = harness_request(&h, WARDEN_DESTROY, "one");
		ASSERT_EQ(harness_ask(&h, &q, -EBADF, &reply), 0);
		(void)harness_do(&h, WARDEN_DISCARD, "", "image");
	}
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(a_birth_can_be_cancelled)
{
	struct census before;

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	before = census_at_rest(&h);
	for (int i = 0; i < 6; i++) {
		cleanup_close int fd = harness_settings();
		struct warden_request q = harness_request(&h, WARDEN_CREATE, "two");

		(void)snprintf(q.image_name, sizeof q.image_name, "image");
		ASSERT_EQ(harness_send(&h, &q, fd), 0);
		/* The name is taken from the first moment on. */
		ASSERT_EQ(harness_create(&h, "two"), -EEXIST);
		(void)usleep((useconds_t)i * 500);
		ASSERT_EQ(harness_destroy(&h, "two"), 0);
	}
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(hosts_without_a_pool_copy_the_long_way)
{
	char path[160];
	const char *const fsck[] = { "e2fsck", "-fn", path, NULL };
	struct census before;
	struct err e = { 0 };
	int64_t written;

	START(h, 0, "--no-pool");
	before = census_take(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "scribble /scribble"), "0");
	(void)usleep(200000);
	written = number_inside(&h, "one", "written");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), 0);
	(void)snprintf(path, sizeof path, "%s/images/saved/image.ext4", h.dir);
	if (run_program(fsck, STR_NONE, AT_FDCWD, &e) < 0)
		TEST_FAIL("%s", e.msg);
	ASSERT_EQ(harness_create_from(&h, "two", "image"), 0);
	ASSERT_EQ(verify(&h, "two", written), written);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "image"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(hosts_without_loop_devices_say_that_they_cannot)
{
	START(h, 0, "--plain-layers");
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), -EOPNOTSUPP);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_THAW, "one", ""), 0);
	ASSERT_EQ(harness_create_from(&h, "two", "image"), -EOPNOTSUPP);
}

/* What was made before there was a pool lives on where it is. */
TEST(a_pool_can_come_later)
{
	struct err e = { 0 };

	START(h, 0, "--no-pool");
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine one"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "old"), 0);
	harness_kill_warden(&h);
	h.option = NULL;
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "new"), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 2);
	ASSERT_EQ(harness_create_from(&h, "two", "old"), 0);
	ASSERT_EQ(harness_create_from(&h, "three", "new"), 0);
	ASSERT_STR(harness_inside(&h, "two", "read /etc/mine"), "one");
	ASSERT_STR(harness_inside(&h, "three", "read /etc/mine"), "one");
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "old"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
	ASSERT_EQ(harness_destroy(&h, "three"), 0);
}

TEST(the_pool_goes_with_its_last_user)
{
	struct census none = { 0 };
	struct err e = { 0 };

	START(h, 2, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	ASSERT_STR(harness_inside(&h, "one", "fill 5"), "0"); /* without a warden */
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
		/* The sandbox's and the pool's, once. */
		ASSERT_EQ(census_take(&h).loops, harness_has_pool(&h) ? 2 : 1);
		ASSERT_EQ(harness_stop_warden(&h), 0);
	}
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	none.files = census_take(&h).files;
	ASSERT_EQ(census_wait(&h, &none), 0);
}

TEST(removed_images_give_their_space_back)
{
	struct stat full, empty;
	char path[128];

	START(h, 0, NULL);
	if (!harness_has_pool(&h))
		TEST_SKIP("the data directory needs no pool");
	(void)snprintf(path, sizeof path, "%s/images/pool.xfs", h.dir);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "fill 40"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), 0);
	ASSERT_EQ(stat(path, &full), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "image"), 0);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(stat(path, &empty), 0);
		if (full.st_blocks - empty.st_blocks > (30 << 20) / 512)
			return;
		(void)usleep(100000);
	}
	TEST_FAIL("%jd blocks before, %jd after", (intmax_t)full.st_blocks,
		(intmax_t)empty.st_blocks);
}

/* Requests on the way, then SIGKILL after `us`. What was promised is there afterwards, runs, and
 * can be saved and started from. */
static int kill_at(struct harness *h, int round, useconds_t us, bool birth)
{
	struct err e = { 0 };
	cleanup_close int fd = harness_settings();
	struct warden_request q;
	int frozen = 0;

	q = birth ? harness_request(h, WARDEN_CREATE, "two")
		  : harness_request(h, WARDEN_SAVE, "one");
	(void)snprintf(q.image_name, sizeof q.image_name, birth ? "base" : "round%d", round);
	if (harness_send(h, &q, birth ? fd : -EBADF) < 0)
		return 1;
	(void)usleep(us);
	harness_kill_warden(h);
	if (harness_start_warden(h, "none", 1, &e) < 0)
		return 2;
	if (harness_count(h, WARDEN_LIST, &frozen) < 1 || frozen)
		return 3;
	if (number_inside(h, "one", "written") < 0)
		return 4;
	if (harness_do(h, WARDEN_DISCARD, "", q.image_name) < 0 && birth)
		return 5;
	if (harness_do(h, WARDEN_SAVE, "one", birth ? "base" : "other") < 0)
		return 6;
	if (!birth && harness_do(h, WARDEN_DISCARD, "", "other") < 0)
		return 7;
	(void)harness_destroy(h, "two");
	return 0;
}

TEST(a_warden_killed_while_it_saves_or_copies_harms_nobody)
{
	struct census none = { 0 };
	int64_t written;

	START(h, 1, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "scribble /scribble"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "base"), 0);
	for (int round = 0; round < 20; round++) {
		ASSERT_EQ(kill_at(&h, round, (useconds_t)round * 400, false), 0);
		ASSERT_EQ(kill_at(&h, round, (useconds_t)round * 1000, true), 0);
	}
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 1);
	written = number_inside(&h, "one", "written");
	ASSERT_EQ(verify(&h, "one", written), written);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	none.files = census_take(&h).files;
	/* The directory, run with its lock, images, the template, and the pool or the image. */
	ASSERT_EQ(none.files, 9);
	ASSERT_EQ(census_wait(&h, &none), 0);
}

/* The server goes while its sandbox is being saved: what was begun is finished first. */
TEST(a_warden_that_leaves_finishes_what_it_saves)
{
	struct err e = { 0 };
	int frozen = 0;

	START(h, 1, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	for (int i = 0; i < 4; i++) {
		struct warden_request q = harness_request(&h, WARDEN_SAVE, "one");

		(void)snprintf(q.image_name, sizeof q.image_name, "image%d", i);
		ASSERT_STR(harness_inside(&h, "one", "fill 10"), "0");
		ASSERT_EQ(harness_send(&h, &q, -EBADF), 0);
		(void)usleep(1000);
		ASSERT_EQ(harness_stop_warden(&h), 0);
		ASSERT_STR(harness_inside(&h, "one", "write /etc/mine x"), "0");
		ASSERT_EQ(harness_start_warden(&h, "none", 1, &e), 0);
		ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), i + 1);
		ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 1);
		ASSERT_EQ(frozen, 0);
	}
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
}

/* ---- a worker that does not say what came of its order ---- */

struct sight {
	struct cgroups cg;
	struct freezer freezer; /* of the only sandbox */
	char key[64];
	int n_keys;
};

static void note_key(void *arg, const char *key)
{
	struct sight *s = arg;

	s->n_keys += strcmp(key, s->key) != 0;
	(void)snprintf(s->key, sizeof s->key, "%s", key);
}

static int look(const struct harness *h, struct sight *s)
{
	uint8_t digest[SHA256_SIZE];
	char instance[9];

	sha256(h->dir, strlen(h->dir), digest);
	hex_encode(digest, 4, instance);
	if (cgroups_open_found(&s->cg, instance, NULL) < 0)
		return -ENOENT;
	cgroup_each(&s->cg, note_key, s);
	return s->n_keys == 1 ? freezer_open(&s->cg, s->key, &s->freezer, NULL) : -ESRCH;
}

static void look_away(struct sight *s)
{
	freezer_close(&s->freezer);
	cgroups_close_found(&s->cg);
}
#define SIGHT_INIT                                           \
	{                                                    \
		.cg = CGROUPS_INIT, .freezer = FREEZER_INIT, \
	}

/* The order is carried out, and its worker dies before it can say so. */
static int lose_answer(struct harness *h, const struct sight *s, enum warden_op op)
{
	struct warden_request q = harness_request(h, op, "one");
	struct warden_reply reply = { 0 };
	int r;

	if (harness_signal_workers(h, SIGSTOP) < 1 || harness_send(h, &q, -EBADF) < 0)
		return -ESRCH;
	r = harness_count(h, WARDEN_LIST, NULL); /* it has been told */
	if (r >= 0)
		r = freezer_order(&s->freezer, op == WARDEN_FREEZE);
	(void)harness_signal_workers(h, SIGKILL);
	if (r >= 0 && harness_receive(h, &reply) < 0)
		r = -ETIMEDOUT;
	/* The next order must not go to one that is dead already. */
	for (int i = 0; i < 1000 && harness_signal_workers(h, 0) > 0; i++)
		(void)usleep(10000);
	return r < 0 ? r : reply.e.code;
}

TEST(a_sandbox_goes_on_when_its_stop_was_not_reported)
{
	CLEANUP(look_away) struct sight s = SIGHT_INIT;
	int frozen = -1;

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(look(&h, &s), 0);
	ASSERT_EQ(lose_answer(&h, &s, WARDEN_FREEZE), -EIO);
	ASSERT(!freezer_is_ordered(&s.freezer));
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 1);
	ASSERT_EQ(frozen, 0);
	ASSERT_STR(harness_inside(&h, "one", "tick"), "0");
}

TEST(a_sandbox_is_stopped_again_when_its_going_on_was_not_reported)
{
	CLEANUP(look_away) struct sight s = SIGHT_INIT;
	int frozen = -1;

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(look(&h, &s), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	ASSERT_EQ(lose_answer(&h, &s, WARDEN_THAW), -EIO);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, &frozen), 1);
	ASSERT_EQ(frozen, 0);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	ASSERT(freezer_is_ordered(&s.freezer));
	ASSERT_EQ(harness_do(&h, WARDEN_THAW, "one", ""), 0);
	ASSERT(!freezer_is_ordered(&s.freezer));
}

/* One of the warden before, which the kernel has kept, does what it was at before it dies, and lets
 * the lock go. */
TEST(what_an_old_worker_stops_late_goes_on)
{
	CLEANUP(look_away) struct sight s = SIGHT_INIT;
	enum owner_fate fate = OWNER_LIVES;
	struct owner owner;
	struct err e = { 0 };

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(look(&h, &s), 0);
	harness_kill_warden(&h);
	for (int i = 0; i < 1000 && fate == OWNER_LIVES; i++) {
		(void)usleep(20000);
		fate = owner_judge(&s.cg, &owner);
	}
	ASSERT_EQ(fate, OWNER_AWAY); /* from here on the lock is ours */
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(freezer_order(&s.freezer, true), 0);
	cgroups_close_found(&s.cg);
	for (int i = 0; i < 1000 && freezer_is_ordered(&s.freezer); i++)
		(void)usleep(20000);
	ASSERT(!freezer_is_ordered(&s.freezer));
	ASSERT_STR(harness_inside(&h, "one", "tick"), "0");
}

/* What the old freezer holds does not die, as in the kernel's own waits. */
struct ice {
	char dir[320];
};

static int ice_write(const struct ice *ice, const char *file, const char *text)
{
	char path[400];

	(void)snprintf(path, sizeof path, "%s/%s", ice->dir, file);
	return file_write(AT_FDCWD, path, str_of(text), NULL);
}

static int ice_take(struct ice *ice, const struct harness *h)
{
	struct cgroups cg = CGROUPS_INIT;
	pid_t pids[16];
	char text[24];
	int n, r = cgroups_find_roots(&cg, NULL);

	if (r < 0 || !cg.roots[CGROUP_FREEZER][0] || !cg.roots[CGROUP_CONTROLLERS][0])
		return -EOPNOTSUPP;
	(void)snprintf(ice->dir, sizeof ice->dir, "%s/atoll-ice-%d", cg.roots[CGROUP_FREEZER],
		(int)getpid());
	if (mkdir(ice->dir, 0700) < 0)
		return -errno;
	n = harness_workers(h, pids, ARRAY_SIZE(pids));
	for (int i = 0; r >= 0 && i < n; i++) {
		(void)snprintf(text, sizeof text, "%d", (int)pids[i]);
		r = ice_write(ice, "cgroup.procs", text);
	}
	return r < 0 ? r : ice_write(ice, "freezer.state", "FROZEN");
}

/* Those that live go back to where they were. */
static void ice_leave(const struct ice *ice)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char path[400], pid[24];
	struct str rest, line;

	(void)snprintf(path, sizeof path, "%s/cgroup.procs", ice->dir);
	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		(void)snprintf(pid, sizeof pid, "%.*s", STR_ARG(line));
		(void)ice_write(ice, "../cgroup.procs", pid);
	}
}

static void ice_melt(struct ice *ice)
{
	if (!ice->dir[0])
		return;
	(void)ice_write(ice, "freezer.state", "THAWED");
	for (int i = 0; i < 500 && rmdir(ice->dir) < 0; i++) {
		ice_leave(ice);
		(void)usleep(20000);
	}
	ice->dir[0] = '\0';
}

TEST(what_a_worker_that_was_given_up_stops_late_goes_on)
{
	CLEANUP(look_away) struct sight s = SIGHT_INIT;
	struct warden_reply reply = { 0 };
	struct warden_request q;
	int r = -ETIMEDOUT;

	START(h, 0, NULL);
	CLEANUP(ice_melt) struct ice ice = { 0 };
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(look(&h, &s), 0);
	if (ice_take(&ice, &h) == -EOPNOTSUPP)
		TEST_SKIP("needs the old freezer beside the unified hierarchy");
	q = harness_request(&h, WARDEN_FREEZE, "one");
	ASSERT_EQ(harness_send(&h, &q, -EBADF), 0);
	for (int i = 0; i < 10 && r < 0; i++) /* it has a minute */
		r = harness_receive(&h, &reply);
	ASSERT_EQ(r, 0);
	ASSERT_EQ(reply.e.code, -ETIMEDOUT);
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), -EBUSY);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), -EBUSY);
	ASSERT_EQ(freezer_order(&s.freezer, true), 0); /* in its stead */
	ice_melt(&ice);
	for (int i = 0; i < 1000 && freezer_is_ordered(&s.freezer); i++)
		(void)usleep(20000);
	ASSERT(!freezer_is_ordered(&s.freezer));
	ASSERT_STR(harness_inside(&h, "one", "tick"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_FREEZE, "one", ""), 0);
	ASSERT(freezer_is_ordered(&s.freezer));
}
