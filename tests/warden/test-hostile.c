/* A server in the wrong hands: whatever it sends, the warden makes nothing of it that it should
 * not, keeps nothing back, and serves the next request. Needs root. */
#include "warden/harness.h"

#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
	FLOOD = 20000,
	LOOKS = 6,
	LOOK_PAUSE_US = 50000,
	ENOUGH_WAITERS = 64, /* the warden's ceiling for one sandbox */
	DESTROYS = 100,
	MANY_FDS = 40,
	ROUNDS = 2000,
	HOSTILE_KINDS = 11,
	SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE,
};

#define START(h)                                                        \
	CLEANUP(harness_stop) struct harness h = { .fd = -EBADF };      \
	do {                                                            \
		struct err start_e = { 0 };                             \
		if (harness_start(&(h), "none", 1, &start_e) == -EPERM) \
			TEST_SKIP("needs root and a built warden");     \
		if (start_e.code < 0)                                   \
			TEST_FAIL("start: %s", start_e.msg);            \
	} while (0)

static int count_fds(const struct harness *h)
{
	char path[64];
	DIR *dir;
	int n = 0;

	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)h->warden);
	dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		(void)closedir(dir);
	return n;
}

/* Its slots are prepared a few at a time, and an emptied disk waits a second for another sandbox.
 */
static int count_fds_at_rest(const struct harness *h)
{
	int n = count_fds(h), same = 0;

	for (int i = 0; i < 1000 && same < 100; i++) {
		int now;

		(void)usleep(20000);
		now = count_fds(h);
		same = now == n ? same + 1 : 0;
		n = now;
	}
	return n;
}

/* As many as before, once what was begun is removed; the last number if that never comes. */
static int count_fds_again(const struct harness *h, int before)
{
	int n = count_fds(h);

	for (int i = 0; i < 1000 && n != before; i++) {
		(void)usleep(20000);
		n = count_fds(h);
	}
	return n;
}

/* What is sent in between arrives in one go. */
static void hold(const struct harness *h)
{
	(void)kill(h->warden, SIGSTOP);
}

static void let_go(const struct harness *h)
{
	(void)kill(h->warden, SIGCONT);
}

static uint64_t send_one(struct harness *h, enum warden_op op, const char *id, const char *image)
{
	struct warden_request q = harness_request(h, op, id);
	cleanup_close int fd = op == WARDEN_CREATE ? harness_settings() : -EBADF;

	(void)snprintf(q.image_name, sizeof q.image_name, "%s", image);
	return harness_send(h, &q, fd) < 0 ? 0 : q.tag;
}

/* The codes of the answers to n requests whose tags follow each other from `first`. */
static int receive_codes(struct harness *h, uint64_t first, int n, int *codes)
{
	struct warden_reply reply = { 0 };
	int got = 0;

	while (got < n) {
		int r = harness_receive(h, &reply);

		if (r < 0)
			return r;
		if (reply.kind != WARDEN_REPLY)
			continue;
		if (reply.tag < first || reply.tag >= first + (uint64_t)n)
			return -EPROTO;
		codes[reply.tag - first] = reply.e.code;
		got++;
	}
	return 0;
}

static bool is_well(struct harness *h)
{
	return harness_count(h, WARDEN_LIST, NULL) == 0 && harness_create(h, "after") == 0 &&
	       harness_destroy(h, "after") == 0;
}

/* ---- descriptors ---- */

static int sealed(size_t size, unsigned seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	(void)!ftruncate(fd, (off_t)size);
	(void)fcntl(fd, F_ADD_SEALS, seals);
	return fd;
}

static int half_a_pipe(void)
{
	int pair[2];

	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	(void)close(pair[1]);
	return pair[0];
}

static int hostile_fd(int kind)
{
	switch (kind) {
	case 0:
		return sealed(2, 0);
	case 1: /* whoever has mapped it writable goes on writing */
		return sealed(2, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	case 2:
		return sealed(2, F_SEAL_SEAL | F_SEAL_WRITE);
	case 3:
		return sealed(5 << 20, SEALS);
	case 4:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 5:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case 6:
		return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	case 7:
		return open("/etc/shadow", O_PATH | O_CLOEXEC);
	case 8:
		return half_a_pipe();
	case 9:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	default:
		return epoll_create1(EPOLL_CLOEXEC);
	}
}

TEST(settings_are_a_sealed_file_in_memory_or_nothing)
{
	struct warden_reply reply = { 0 };
	int before;

	START(h);
	before = count_fds_at_rest(&h);
	for (int kind = 0; kind < HOSTILE_KINDS; kind++) {
		struct warden_request q = harness_request(&h, WARDEN_CREATE, "one");
		cleanup_close int fd = hostile_fd(kind);

		ASSERT(fd >= 0);
		ASSERT(harness_ask(&h, &q, fd, &reply) < 0);
	}
	ASSERT_EQ(count_fds_again(&h, before), before);
	ASSERT(is_well(&h));
}

static int send_policy(struct harness *h, const struct warden_range *range, size_t size,
	unsigned seals)
{
	struct warden_request q = harness_request(h, WARDEN_POLICY, "one");
	cleanup_close int fd = memfd_create("ranges", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct warden_reply reply = { 0 };

	q.n_ranges = 1;
	(void)fd_write_all(fd, range, sizeof *range);
	(void)!ftruncate(fd, (off_t)size);
	(void)fcntl(fd, F_ADD_SEALS, seals);
	return harness_ask(h, &q, fd, &reply);
}

TEST(ranges_that_may_change_or_mean_two_things_are_refused)
{
	static const struct warden_range good = { .address = 0x0a000000, .bits = 8 },
					 deep = { .address = 0x0a000000, .bits = 33 },
					 below = { .address = 0x0a000001, .bits = 8 },
					 more = { .address = 0x0a000000, .bits = 8, .allow = 2 },
					 full = { .address = 0x0a000000, .bits = 8, .zero = 1 };

	START(h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(send_policy(&h, &good, sizeof good, SEALS), 0);
	ASSERT_EQ(send_policy(&h, &good, sizeof good, 0), -EINVAL);
	ASSERT_EQ(send_policy(&h, &good, sizeof good - 1, SEALS), -EINVAL);
	ASSERT_EQ(send_policy(&h, &good, 2 * sizeof good, SEALS), -EINVAL);
	ASSERT_EQ(send_policy(&h, &deep, sizeof deep, SEALS), -EINVAL);
	ASSERT_EQ(send_policy(&h, &below, sizeof below, SEALS), -EINVAL);
	ASSERT_EQ(send_policy(&h, &more, sizeof more, SEALS), -EINVAL);
	ASSERT_EQ(send_policy(&h, &full, sizeof full, SEALS), -EINVAL);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT(is_well(&h));
}

/* More than fit: fd_send refuses to, as the server's own would. */
static int send_raw(const struct harness *h, const void *p, size_t n, const int *fds, size_t n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * MANY_FDS)] = { 0 };
	union {
		const void *in;
		void *out;
	} bytes = { .in = p };
	struct iovec iov = { bytes.out, n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (n_fds) {
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	return sendmsg(h->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

TEST(descriptors_nobody_asked_for_are_closed)
{
	cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	cleanup_free char *large = XNEW_N(char, 1 << 16);
	struct warden_request q;
	int fds[MANY_FDS], before;

	START(h);
	before = count_fds_at_rest(&h);
	for (size_t i = 0; i < MANY_FDS; i++)
		fds[i] = null;
	q = harness_request(&h, WARDEN_LIST, "");
	for (size_t n = 1; n <= MANY_FDS; n++)
		ASSERT_EQ(send_raw(&h, &q, sizeof q, fds, n), 0);
	ASSERT_EQ(send_raw(&h, &q, sizeof q - 1, fds, 3), 0);
	ASSERT_EQ(send_raw(&h, large, 1 << 16, fds, 3), 0);
	ASSERT_EQ(count_fds_again(&h, before), before);
	ASSERT(is_well(&h));
}

/* ---- order ---- */

TEST(of_two_with_one_name_there_is_one)
{
	int codes[2] = { 0 };
	uint64_t first;

	START(h);
	hold(&h);
	first = send_one(&h, WARDEN_CREATE, "one", "");
	(void)send_one(&h, WARDEN_CREATE, "one", "");
	let_go(&h);
	ASSERT_EQ(receive_codes(&h, first, 2, codes), 0);
	ASSERT_EQ(codes[0], 0);
	ASSERT_EQ(codes[1], -EEXIST);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	hold(&h);
	first = send_one(&h, WARDEN_SAVE, "one", "image");
	(void)send_one(&h, WARDEN_SAVE, "two", "image");
	let_go(&h);
	ASSERT_EQ(receive_codes(&h, first, 2, codes), 0);
	ASSERT_EQ(codes[0], 0);
	ASSERT_EQ(codes[1], -EEXIST);
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "image"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
	ASSERT(is_well(&h));
}

TEST(what_is_not_running_takes_no_other_orders)
{
	static const enum warden_op ops[] = { WARDEN_FREEZE, WARDEN_THAW, WARDEN_SAVE,
		WARDEN_SOCKET, WARDEN_POLICY };
	int codes[ARRAY_SIZE(ops) + 1] = { 0 };
	uint64_t first;

	START(h);
	hold(&h);
	first = send_one(&h, WARDEN_CREATE, "one", "");
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		(void)send_one(&h, ops[i], "one", ops[i] == WARDEN_SAVE ? "image" : "");
	let_go(&h);
	ASSERT_EQ(receive_codes(&h, first, ARRAY_SIZE(codes), codes), 0);
	ASSERT_EQ(codes[0], 0);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		ASSERT_EQ(codes[i + 1], -ENOENT);
	hold(&h);
	first = send_one(&h, WARDEN_DESTROY, "one", "");
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		(void)send_one(&h, ops[i], "one", ops[i] == WARDEN_SAVE ? "image" : "");
	let_go(&h);
	ASSERT_EQ(receive_codes(&h, first, ARRAY_SIZE(codes), codes), 0);
	ASSERT_EQ(codes[0], 0);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		ASSERT_EQ(codes[i + 1], -ENOENT);
	ASSERT_EQ(harness_count(&h, WARDEN_IMAGES, NULL), 0);
	ASSERT(is_well(&h));
}

/* ---- amount ---- */

TEST(who_does_not_read_the_answers_is_not_listened_to)
{
	struct warden_request q;
	struct warden_reply reply;
	int sent = 0, last = -1;

	START(h);
	q = harness_request(&h, WARDEN_LIST, "");
	for (int looks = 0; looks < LOOKS && sent < FLOOD; looks = last == sent ? looks + 1 : 0) {
		last = sent;
		while (sent < FLOOD && send_raw(&h, &q, sizeof q, NULL, 0) == 0)
			sent++;
		(void)usleep(LOOK_PAUSE_US);
	}
	/* Two socket buffers full: the warden's own memory holds none of it. */
	ASSERT(sent < FLOOD);
	for (int i = 0; i < sent; i++)
		ASSERT_EQ(harness_receive(&h, &reply), 0);
	ASSERT(is_well(&h));
}

TEST(not_everybody_can_wait_for_one_end)
{
	int codes[DESTROYS] = { 0 }, done = 0, busy = 0;
	uint64_t first = 0;

	START(h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	hold(&h);
	for (int i = 0; i < DESTROYS; i++) {
		uint64_t tag = send_one(&h, WARDEN_DESTROY, "one", "");

		first = i ? first : tag;
	}
	let_go(&h);
	ASSERT_EQ(receive_codes(&h, first, DESTROYS, codes), 0);
	for (int i = 0; i < DESTROYS; i++) {
		done += codes[i] == 0;
		busy += codes[i] == -EBUSY || codes[i] == -ENOENT;
	}
	ASSERT(done >= 1 && done <= ENOUGH_WAITERS);
	ASSERT_EQ(done + busy, DESTROYS);
	ASSERT(is_well(&h));
}

TEST(a_server_that_goes_in_the_middle_leaves_nothing_but_sandboxes)
{
	struct census before;
	struct err e = { 0 };

	START(h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	harness_stop_sandboxes(&h);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	before = census_take(&h);
	ASSERT_EQ(harness_start_warden(&h, "none", 1, &e), 0);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	hold(&h);
	(void)send_one(&h, WARDEN_CREATE, "two", "");
	(void)send_one(&h, WARDEN_SAVE, "one", "image");
	(void)send_one(&h, WARDEN_CREATE, "three", "");
	(void)send_one(&h, WARDEN_DESTROY, "two", "");
	let_go(&h);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	ASSERT_EQ(harness_start_warden(&h, "none", 1, &e), 0);
	harness_stop_sandboxes(&h);
	(void)harness_do(&h, WARDEN_DISCARD, "", "image");
	ASSERT(is_well(&h));
	ASSERT_EQ(harness_stop_warden(&h), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

/* ---- anything ---- */

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* A proper request with a few bytes of it changed, of any length, with any descriptors. */
static void send_anything(struct harness *h, uint32_t *seed)
{
	struct warden_message m = { .request = harness_request(h,
					    (enum warden_op)(next(seed) % (WARDEN_DENIALS + 2)),
					    "one") };
	size_t n = next(seed) % 4 ? sizeof m.request : next(seed) % (sizeof m + 1);
	int fds[4], n_fds = (int)(next(seed) % ARRAY_SIZE(fds));

	for (uint32_t i = next(seed) % 6 + 1; i > 0; i--)
		((uint8_t *)&m)[next(seed) % (n ? n : 1)] = (uint8_t)next(seed);
	if (n == 0) /* which says goodbye */
		n = 1;
	for (int i = 0; i < n_fds; i++)
		fds[i] = next(seed) % 2 ? harness_settings()
					: hostile_fd((int)(next(seed) % HOSTILE_KINDS));
	(void)send_raw(h, &m, n, fds, (size_t)n_fds);
	while (n_fds > 0)
		(void)close(fds[--n_fds]);
}

static void drain(const struct harness *h)
{
	struct warden_reply reply;
	int fds[FD_MAX_PASS], n_fds = 0;

	while (recv(h->fd, &reply, 1, MSG_PEEK | MSG_DONTWAIT) > 0 &&
		fd_recv(h->fd, &reply, sizeof reply, fds, &n_fds) > 0)
		while (n_fds > 0)
			(void)close(fds[--n_fds]);
}

TEST(anything_at_all_leaves_it_as_it_was)
{
	uint32_t seed = 1;
	int before;

	START(h);
	ASSERT(is_well(&h));
	before = count_fds_at_rest(&h);
	for (int i = 0; i < ROUNDS; i++) {
		send_anything(&h, &seed);
		drain(&h);
	}
	harness_stop_sandboxes(&h);
	ASSERT(is_well(&h));
	ASSERT_EQ(count_fds_again(&h, before), before);
}
