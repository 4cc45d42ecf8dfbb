/* The warden's workers: what waits for a disk keeps nobody else waiting. A worker that does not
 * move stands for one that the kernel keeps in a sandbox's file system. Needs root. */
#include "warden/harness.h"

#include "test.h"

#include <dirent.h>
#include <signal.h>

enum {
	CREATES = 6,
	ORPHANS = 200,
	PLACES = 60,                  /* so many workers die, each in another moment */
	SPARE_US = 3000000,           /* a disk waits a second for another sandbox, then it goes */
	LAST_ORPHAN_AT = 1024 + 0xe8, /* in an ext4 image */
};

#define START(h, pool, more)                                                         \
	CLEANUP(harness_stop) struct harness h = { .option = (more), .fd = -EBADF }; \
	do {                                                                         \
		struct err start_e = { 0 };                                          \
		if (harness_start(&(h), "none", pool, &start_e) == -EPERM)           \
			TEST_SKIP("needs root and a built warden");                  \
		if (start_e.code < 0)                                                \
			TEST_FAIL("start: %s", start_e.msg);                         \
	} while (0)

static int send_save(struct harness *h, const char *id, const char *image, uint64_t *ret_tag)
{
	struct warden_request q = harness_request(h, WARDEN_SAVE, id);

	(void)snprintf(q.image_name, sizeof q.image_name, "%s", image);
	*ret_tag = q.tag;
	return harness_send(h, &q, -EBADF);
}

TEST(one_that_hangs_in_a_disk_keeps_nobody_else_waiting)
{
	struct warden_reply reply = { 0 };
	struct census before;
	uint64_t tag;

	START(h, 0, NULL);
	before = census_take(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	ASSERT(harness_signal_workers(&h, SIGSTOP) > 0);
	ASSERT_EQ(send_save(&h, "one", "image", &tag), 0);
	/* Neither those that are made nor those that end meet one that hangs for good. */
	for (int i = 0; i < CREATES; i++) {
		ASSERT_EQ(harness_create(&h, "more"), 0);
		ASSERT_EQ(harness_destroy(&h, "more"), 0);
	}
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine x"), "0");
	/* As at its deadline: the request ends in an error, its sandbox goes on. */
	ASSERT(harness_signal_workers(&h, SIGKILL) > 0);
	ASSERT_EQ(harness_receive(&h, &reply), 0);
	ASSERT_EQ(reply.tag, tag);
	ASSERT_EQ(reply.e.code, -EIO);
	ASSERT_STR(harness_inside(&h, "one", "read /etc/mine"), "x");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "again"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "again"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

/* Killed is killed, whatever becomes of its disk. */
TEST(an_end_is_answered_before_its_disk_is_removed)
{
	struct census before;

	START(h, 0, NULL);
	before = census_take(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT(harness_signal_workers(&h, SIGSTOP) > 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), -ENOENT);
	ASSERT_STR(harness_inside(&h, "one", "read /etc/hostname"), "");
	/* The name is free again, at once. */
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT(harness_signal_workers(&h, SIGCONT) > 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

static int64_t last_orphan(const struct harness *h, const char *image)
{
	char path[160];
	uint32_t number = 0;
	cleanup_close int fd = -EBADF;

	(void)snprintf(path, sizeof path, "%s/images/saved/%s.ext4", h->dir, image);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && pread(fd, &number, sizeof number, LAST_ORPHAN_AT) == sizeof number
		       ? (int64_t)number
		       : -1;
}

/* Files that are open and have no name: each sandbox that starts from the copy would have to remove
 * them, while it is mounted. */
TEST(what_is_saved_has_nothing_left_to_clean_up)
{
	char command[32];

	START(h, 0, "--no-pool");
	(void)snprintf(command, sizeof command, "orphans %d", ORPHANS);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", command), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), 0);
	ASSERT_EQ(last_orphan(&h, "image"), 0);
	ASSERT_EQ(harness_create_from(&h, "two", "image"), 0);
	ASSERT_STR(harness_inside(&h, "two", "read /etc/hostname"), "atoll\n");
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
}

enum {
	CHURNERS = 24,
	CHURNS = 600,
	ENDING_MANY = 4 * CHURNERS,
};

static int send_create_from(struct harness *h, int number)
{
	cleanup_close int fd = harness_settings();
	struct warden_request q;
	char id[16];

	(void)snprintf(id, sizeof id, "churn%d", number);
	q = harness_request(h, WARDEN_CREATE, id);
	(void)snprintf(q.image_name, sizeof q.image_name, "image");
	q.tag = (uint64_t)number << 32 | 1;
	return harness_send(h, &q, fd);
}

static int send_destroy(struct harness *h, int number)
{
	struct warden_request q;
	char id[16];

	(void)snprintf(id, sizeof id, "churn%d", number);
	q = harness_request(h, WARDEN_DESTROY, id);
	q.tag = (uint64_t)number << 32;
	return harness_send(h, &q, -EBADF);
}

static int ask_ending(struct harness *h)
{
	struct warden_request q = harness_request(h, WARDEN_HOST, "");

	q.tag = UINT64_MAX;
	return harness_send(h, &q, -EBADF);
}

/* Each is made from the image, ended and made again. The most that were on their way out at once.
 */
static int churn(struct harness *h)
{
	struct warden_reply reply = { 0 };
	int most = 0, made = 0, r = 0;

	for (int i = 0; i < CHURNERS && r >= 0; i++)
		r = send_create_from(h, i);
	while (r >= 0 && made < CHURNS && (r = harness_receive(h, &reply)) >= 0) {
		if (reply.kind != WARDEN_REPLY)
			continue;
		if (reply.tag == UINT64_MAX)
			most = MAX(most, (int)reply.host.ending);
		else if ((reply.tag & 1) == 0)
			r = send_create_from(h, (int)(reply.tag >> 32));
		else if (++made % CHURNERS == 0)
			r = ask_ending(h);
		if (r >= 0 && reply.tag != UINT64_MAX && reply.tag & 1)
			r = reply.e.code < 0 ? reply.e.code
					     : send_destroy(h, (int)(reply.tag >> 32));
	}
	return r < 0 ? r : most;
}

/* Else their disks, addresses and cgroups would add up while others are made. */
TEST(what_ends_is_removed_while_others_are_made)
{
	int most;

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), 0);
	most = churn(&h);
	printf("# at most %d were ending\n", most);
	ASSERT(most >= 0 && most < ENDING_MANY);
}

static int count_images(const struct harness *h)
{
	char path[80];
	struct dirent *entry;
	DIR *dir;
	int n = 0;

	(void)snprintf(path, sizeof path, "%s/images", h->dir);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		(void)closedir(dir);
	return n;
}

/* Waits for the copy to be begun. */
static void await_copy(struct harness *h, int before)
{
	for (int i = 0; i < 10000 && count_images(h) == before; i++)
		(void)usleep(1000);
}

TEST(of_a_copy_that_was_cut_short_nothing_is_left)
{
	struct warden_reply reply = { 0 };
	struct census before;
	int n_failed = 0;

	START(h, 0, "--no-pool");
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "fill 48"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "image"), 0);
	before = census_take(&h);
	for (int i = 0; i < 20 && n_failed < 2; i++) {
		int images = count_images(&h);

		ASSERT_EQ(send_create_from(&h, i), 0);
		await_copy(&h, images);
		ASSERT(harness_signal_workers(&h, SIGKILL) > 0);
		ASSERT_EQ(harness_receive(&h, &reply), 0);
		while (reply.kind != WARDEN_REPLY)
			ASSERT_EQ(harness_receive(&h, &reply), 0);
		n_failed += reply.e.code < 0;
		if (reply.e.code >= 0)
			ASSERT_EQ(send_destroy(&h, i), 0);
		ASSERT_EQ(census_wait(&h, &before), 0);
	}
	ASSERT(n_failed > 0);
	/* Nor is it finished for nobody. */
	ASSERT_EQ(send_create_from(&h, 0), 0);
	await_copy(&h, 1);
	ASSERT_EQ(send_destroy(&h, 0), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

enum {
	NAMES = 5,
	REQUESTS = 400,
	KILLED_EACH = 7,
};

static int send_anything(struct harness *h)
{
	static const enum warden_op ops[] = { WARDEN_CREATE, WARDEN_CREATE, WARDEN_DESTROY,
		WARDEN_SAVE, WARDEN_FREEZE, WARDEN_THAW, WARDEN_DISCARD };
	enum warden_op op = ops[random() % (int64_t)ARRAY_SIZE(ops)];
	cleanup_close int fd = op == WARDEN_CREATE ? harness_settings() : -EBADF;
	struct warden_request q;
	char id[16];

	(void)snprintf(id, sizeof id, "any%d", (int)(random() % NAMES));
	q = harness_request(h, op, op == WARDEN_DISCARD ? "" : id);
	if (op == WARDEN_SAVE || op == WARDEN_DISCARD || (op == WARDEN_CREATE && random() % 2))
		(void)snprintf(q.image_name, sizeof q.image_name, "image%d",
			(int)(random() % NAMES));
	return harness_send(h, &q, fd);
}

/* Answers to all of them, in whatever order. */
static int receive_answers(struct harness *h, int *open)
{
	struct warden_reply reply = { 0 };
	int r = harness_receive(h, &reply);

	*open -= r >= 0 && reply.kind == WARDEN_REPLY;
	return r;
}

/* Requests about sandboxes whose disks are being made, copied or removed by workers that die. */
TEST(workers_that_die_at_any_moment_leave_nothing)
{
	struct census before;
	char image[16];
	int open = 0;

	START(h, 1, NULL);
	harness_stop_sandboxes(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	(void)usleep(SPARE_US);
	before = census_take(&h);
	for (int i = 0; i < REQUESTS; i++) {
		ASSERT_EQ(send_anything(&h), 0);
		open++;
		if (random() % KILLED_EACH == 0)
			(void)harness_signal_workers(&h, SIGKILL);
		while (open > NAMES)
			ASSERT_EQ(receive_answers(&h, &open), 0);
	}
	while (open > 0)
		ASSERT_EQ(receive_answers(&h, &open), 0);
	harness_stop_sandboxes(&h);
	for (int i = 0; i < NAMES; i++) {
		(void)snprintf(image, sizeof image, "image%d", i);
		(void)harness_do(&h, WARDEN_DISCARD, "", image);
	}
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

/* A place has a process that is the warden's child, whoever made it. */
TEST(workers_that_die_making_places_leave_no_process)
{
	struct warden_request q;
	struct warden_reply reply;
	struct census before;
	int left = 1;

	START(h, 0, NULL);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	before = census_at_rest(&h);
	for (int i = 0; i < PLACES; i++) {
		cleanup_close int fd = harness_settings();

		q = harness_request(&h, WARDEN_CREATE, "one");
		ASSERT_EQ(harness_send(&h, &q, fd), 0);
		(void)usleep((useconds_t)(i * 50));
		(void)harness_signal_makers(&h, SIGKILL);
		do
			ASSERT_EQ(harness_receive(&h, &reply), 0);
		while (reply.kind != WARDEN_REPLY || reply.tag != q.tag);
		if (reply.e.code == 0)
			ASSERT_EQ(harness_destroy(&h, "one"), 0);
	}
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	for (int i = 0; i < 400 && left; i++) {
		(void)usleep(50000);
		left = harness_zombies(&h);
	}
	ASSERT_EQ(left, 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}
