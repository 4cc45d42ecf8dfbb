/* The real warden, the real kernel, a probe guest. Needs root. */
#include "warden/owner.h"
#include "warden/run.h"
#include "warden/harness.h"

#include "test.h"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NETWORK "10.198.0.0/16" /* counted by census_take */

#define START(h, network, pool) START_WITH(h, network, pool, NULL)
#define START_WITH(h, network, pool, more)                                           \
	CLEANUP(harness_stop) struct harness h = { .option = (more), .fd = -EBADF }; \
	do {                                                                         \
		struct err start_e = { 0 };                                          \
		if (harness_start(&(h), network, pool, &start_e) == -EPERM)          \
			TEST_SKIP("needs root and a built warden");                  \
		if (start_e.code < 0)                                                \
			TEST_FAIL("start: %s", start_e.msg);                         \
	} while (0)

TEST(a_sandbox_is_a_machine_of_its_own)
{
	START(h, NETWORK, 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/self/status"), "NSpid:\t1\n"));
	ASSERT_STR(harness_inside(&h, "one", "read /proc/sys/kernel/hostname"), "atoll\n");
	ASSERT_STR(harness_inside(&h, "one", "read /etc/hostname"), "atoll\n");
	ASSERT(strstr(harness_inside(&h, "one", "read /etc/hosts"), "localhost"));
	ASSERT(harness_inside(&h, "one", "read /etc/resolv.conf")[0] != '-');
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/self/cgroup"), ":/\n"));
	ASSERT(!strstr(harness_inside(&h, "one", "read /proc/self/cgroup"), "atoll"));
	ASSERT_EQ(strlen(harness_inside(&h, "one", "list /")), strlen("sys\nproc\ndev\netc\n"));
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
}

TEST(root_inside_is_nobody_outside)
{
	struct stat st;
	char path[128];

	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/self/status"), "Uid:\t0\t0\t0\t0"));
	/* The map: 0 inside, far away outside. */
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/self/uid_map"), " 18"));
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine hello"), "0");
	ASSERT_STR(harness_inside(&h, "one", "stat /etc/mine"), "100644 0 0");
	ASSERT_STR(harness_inside(&h, "one", "read /etc/mine"), "hello");
	/* The template below stays as it was. */
	(void)snprintf(path, sizeof path, "%s/templates/empty/rootfs/etc/mine", h.dir);
	ASSERT(stat(path, &st) < 0);
}

TEST(devices_and_mounts_are_what_linux_expects)
{
	static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };

	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		char command[64];

		(void)snprintf(command, sizeof command, "stat /dev/%s", devices[i]);
		ASSERT(strncmp(harness_inside(&h, "one", command), "20666 ", 6) == 0);
	}
	ASSERT_STR(harness_inside(&h, "one", "write /dev/null x"), "0");
	ASSERT_STR(harness_inside(&h, "one", "write /dev/full x"), "-28");
	ASSERT_STR(harness_inside(&h, "one", "stat /dev/shm"), "41777 0 0");
	ASSERT(strncmp(harness_inside(&h, "one", "stat /dev/ptmx"), "20666 ", 6) == 0);
	ASSERT_STR(harness_inside(&h, "one", "write /dev/shm/x y"), "0");
	ASSERT_STR(harness_inside(&h, "one", "write /sys/x y"), "-30");
	ASSERT(!strstr(harness_inside(&h, "one", "read /proc/self/mountinfo"), h.dir));
	ASSERT_EQ(strlen(harness_inside(&h, "one", "list /proc/acpi")) > 4, 0);
}

TEST(the_kernels_own_files_are_masked)
{
	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT(strncmp(harness_inside(&h, "one", "stat /proc/keys"), "100", 3) != 0);
	ASSERT(strncmp(harness_inside(&h, "one", "stat /proc/timer_list"), "100", 3) != 0);
	ASSERT(strncmp(harness_inside(&h, "one", "stat /proc/kcore"), "100", 3) != 0);
	ASSERT_STR(harness_inside(&h, "one", "write /proc/sys/kernel/hostname x"), "-13");
	ASSERT_STR(harness_inside(&h, "one", "write /proc/sys/net/ipv4/ip_forward 1"), "-13");
	ASSERT_STR(harness_inside(&h, "one", "list /sys/firmware"), "");
}

TEST(nothing_tells_of_disks_and_file_systems_of_others)
{
	static const char *const empty[] = { "list /sys/block", "list /sys/dev/block",
		"list /sys/class/block", "list /sys/module", "list /proc/fs", "list /proc/pressure",
		"read /proc/diskstats", "read /proc/partitions", "read /proc/locks",
		"read /proc/swaps", "read /proc/interrupts" };
	static const char *const absent[] = { "list /sys/fs/ext4", "list /sys/fs/xfs",
		"list /sys/devices/virtual/block", "list /sys/devices/virtual/bdi",
		"list /sys/kernel/slab", "list /sys/kernel/debug" };

	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(empty); i++)
		ASSERT_STR(harness_inside(&h, "one", empty[i]), "");
	for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
		ASSERT_STR(harness_inside(&h, "one", absent[i]), "-2");
	/* What programs size themselves by is there. */
	ASSERT(strstr(harness_inside(&h, "one", "list /sys/devices/system/cpu"), "cpu0\n"));
	ASSERT(strstr(harness_inside(&h, "one", "list /sys/class/net"), "lo\n"));
	ASSERT(strstr(harness_inside(&h, "one", "read /sys/class/net/lo/mtu"), "65536"));
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/meminfo"), "MemTotal"));
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/cpuinfo"), "processor"));
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/stat"), "cpu0"));
}

TEST(system_calls_and_capabilities_are_a_containers)
{
	static const struct {
		const char *call, *want;
	} cases[] = {
		{ "call unshare-user", "-1" },
		{ "call unshare-files", "0" },
		{ "call clone-user", "-1" },
		{ "call clone3", "-38" },
		{ "call keyctl", "-1" },
		{ "call bpf", "-1" },
		{ "call perf", "-1" },
		{ "call userfaultfd", "-1" },
		{ "call io-uring", "-1" },
		{ "call setns", "-1" },
		{ "call mount", "-1" },
		{ "call unknown", "-38" },
		{ "call x32-getpid", "-38" },
		{ "call socket-inet", "0" },
		{ "call socket-alg", "-97" },
		{ "call socket-vsock", "-97" },
	};
	const char *status;

	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_STR(harness_inside(&h, "one", cases[i].call), cases[i].want);
	status = harness_inside(&h, "one", "read /proc/self/status");
	ASSERT(strstr(status, "CapEff:\t00000000a80425fb"));
	ASSERT(strstr(status, "CapBnd:\t00000000a80425fb"));
	ASSERT(strstr(status, "CapInh:\t0000000000000000"));
	ASSERT(strstr(status, "NoNewPrivs:\t0"));
	ASSERT(strstr(status, "Seccomp:\t2"));
}

TEST(limits_are_in_force)
{
	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "alloc 64"), "0");
	ASSERT_STR(harness_inside(&h, "one", "alloc 256"), "9");
	ASSERT_STR(harness_inside(&h, "one", "fork 200"), "63");
	ASSERT_STR(harness_inside(&h, "one", "fill 20"), "0");
	ASSERT_STR(harness_inside(&h, "one", "fill 100"), "-28");
	ASSERT(str_to_int(str_of(harness_inside(&h, "one", "disk")), 40, 64, &(int64_t){ 0 }) == 0);
}

static int lines_of(const char *text)
{
	int n = 0;

	while ((text = strchr(text, '\n'))) {
		text++;
		n++;
	}
	return n;
}

TEST(no_descriptor_of_the_host_is_open_inside)
{
	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	/* 0-2, the listening socket, the settings, this connection, the directory being read, the
	 * files of enum guest_meter, three of enum cover_file, and what tells its use. */
	ASSERT_EQ(lines_of(harness_inside(&h, "one", "list /proc/self/fd")), 15);
}

TEST(the_network_reaches_neither_host_nor_neighbour)
{
	START(h, NETWORK, 2);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	ASSERT(strstr(harness_inside(&h, "one", "read /proc/net/dev"), "eth0"));
	ASSERT_STR(harness_inside(&h, "one", "connect 127.0.0.1 9"), "-111");
	ASSERT_STR(harness_inside(&h, "one", "connect 169.254.169.254 80"), "-111");
	ASSERT_STR(harness_inside(&h, "one", "connect 10.198.0.2 22"), "-111");
	ASSERT_STR(harness_inside(&h, "one", "connect 10.198.0.5 9"), "-111");
}

/* The world outside: a namespace of its own behind a pair of interfaces, with one greeting server
 * on an address that is nobody's (TEST-NET-3). It knows no way to a sandbox's address, so an answer
 * that arrives went through NAT. */
static void run_world(int ready_fd, int go_fd)
{
	static const char *const address[] = { "ip", "addr", "add", "203.0.113.2/30", "dev", "in0",
		NULL };
	static const char *const up[] = { "ip", "link", "set", "in0", "up", NULL };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(7777) };
	int fd;
	char byte;

	if (unshare(CLONE_NEWNET) < 0 || fd_write_all(ready_fd, "", 1) < 0 ||
		read(go_fd, &byte, 1) != 1)
		_exit(1);
	if (run_program(address, STR_NONE, AT_FDCWD, NULL) < 0 ||
		run_program(up, STR_NONE, AT_FDCWD, NULL) < 0)
		_exit(1);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 8) < 0 ||
		fd_write_all(ready_fd, "", 1) < 0)
		_exit(1);
	for (;;)
		(void)close(accept(fd, NULL, NULL));
}

static int start_world(pid_t *ret)
{
	char pid_text[16], byte;
	const char *const pair[] = { "ip", "link", "add", "tstout0", "type", "veth", "peer", "name",
		"in0", "netns", pid_text, NULL };
	static const char *const address[] = { "ip", "addr", "add", "203.0.113.1/30", "dev",
		"tstout0", NULL };
	static const char *const up[] = { "ip", "link", "set", "tstout0", "up", NULL };
	int ready[2], go[2], r = 0;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		(void)close(go[1]);
		run_world(ready[1], go[0]);
	}
	(void)close(ready[1]);
	(void)close(go[0]);
	(void)snprintf(pid_text, sizeof pid_text, "%d", (int)pid);
	if (read(ready[0], &byte, 1) != 1 || run_program(pair, STR_NONE, AT_FDCWD, NULL) < 0 ||
		run_program(address, STR_NONE, AT_FDCWD, NULL) < 0 ||
		run_program(up, STR_NONE, AT_FDCWD, NULL) < 0 || fd_write_all(go[1], "", 1) < 0 ||
		read(ready[0], &byte, 1) != 1)
		r = -EIO;
	(void)close(ready[0]);
	(void)close(go[1]);
	*ret = pid;
	return r;
}

TEST(the_network_reaches_the_world_through_nat)
{
	pid_t world = 0;
	int r;
	char connected[16] = "";

	if (!run_finds("ip"))
		TEST_SKIP("needs iproute2");
	START(h, NETWORK, 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	r = start_world(&world);
	for (int i = 0; r >= 0 && i < 10 && strcmp(connected, "0") != 0; i++)
		(void)snprintf(connected, sizeof connected, "%s",
			harness_inside(&h, "one", "connect 203.0.113.2 7777"));
	(void)kill(world, SIGKILL); /* its interfaces go with it */
	(void)waitpid(world, NULL, 0);
	ASSERT_EQ(r, 0);
	ASSERT_STR(connected, "0");
}

static int dial(struct harness *h, const char *id, int which, int port)
{
	struct warden_request q = harness_request(h, WARDEN_SOCKET, id);
	struct sockaddr_in v4 = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
		.sin6_port = htons((uint16_t)port),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct warden_reply reply = { 0 };
	cleanup_close int one = -EBADF, two = -EBADF;
	struct pollfd p = { .events = POLLIN };
	char text[8] = "";
	int r;

	if (harness_send(h, &q, -EBADF) < 0 || harness_receive_two(h, &reply, &one, &two) < 0)
		return -EPIPE;
	if (reply.e.code < 0)
		return reply.e.code;
	p.fd = which == 4 ? one : two;
	r = which == 4 ? connect(one, (struct sockaddr *)&v4, sizeof v4)
		       : connect(two, (struct sockaddr *)&v6, sizeof v6);
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, 2000) != 1)
		return -ETIMEDOUT;
	if (read(p.fd, text, sizeof text) != 5)
		return -errno;
	return strcmp(text, "hello") == 0 ? 0 : -EPROTO;
}

TEST(dialled_sockets_reach_servers_on_the_loopback_inside)
{
	START(h, "none", 1);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "listen 4 8080"), "0");
	ASSERT_STR(harness_inside(&h, "one", "listen 6 8081"), "0");
	ASSERT_EQ(dial(&h, "one", 4, 8080), 0);
	ASSERT_EQ(dial(&h, "one", 6, 8081), 0);
	ASSERT_EQ(dial(&h, "one", 4, 8082), -ECONNREFUSED);
	ASSERT_EQ(dial(&h, "nobody", 4, 8080), -ENOENT);
}

TEST(bad_requests_are_refused_and_nothing_is_lost)
{
	struct warden_reply reply = { 0 };
	struct warden_request q;
	cleanup_close int fd = harness_settings(), null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	START(h, "none", 1);
	q = harness_request(&h, WARDEN_CREATE, "one");
	(void)snprintf(q.template_name, sizeof q.template_name, "missing");
	ASSERT_EQ(harness_ask(&h, &q, fd, &reply), -ENOENT);
	q = harness_request(&h, WARDEN_CREATE, "one");
	ASSERT_EQ(harness_ask(&h, &q, null, &reply), -EINVAL);
	q = harness_request(&h, WARDEN_CREATE, "..");
	ASSERT_EQ(harness_ask(&h, &q, fd, &reply), -EINVAL);
	ASSERT_EQ(harness_destroy(&h, "one"), -ENOENT);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "one"), -EEXIST);
	ASSERT(strcmp(harness_inside(&h, "one", "stat /dev/null"), "") != 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), -ENOENT);
}

TEST(a_guest_that_ends_by_itself_is_reported_and_removed)
{
	struct warden_reply reply = { 0 };
	struct census before;

	START(h, NETWORK, 0);
	before = census_take(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	(void)harness_inside(&h, "one", "exit 3");
	ASSERT_EQ(harness_receive(&h, &reply), 0);
	ASSERT_EQ(reply.kind, WARDEN_EXITED);
	ASSERT_STR(reply.id, "one");
	ASSERT_STR(reply.e.msg, "the guest exited with status 3");
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(destroying_leaves_nothing)
{
	struct census before;
	char id[16];

	START(h, NETWORK, 0);
	ASSERT_EQ(harness_create(&h, "first"), 0); /* which makes the blank image */
	ASSERT_EQ(harness_destroy(&h, "first"), 0);
	(void)usleep(200000);
	before = census_take(&h);
	for (int i = 0; i < 5; i++) {
		(void)snprintf(id, sizeof id, "s%d", i);
		ASSERT_EQ(harness_create(&h, id), 0);
	}
	for (int i = 0; i < 5; i++) {
		(void)snprintf(id, sizeof id, "s%d", i);
		ASSERT_EQ(harness_destroy(&h, id), 0);
	}
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(sandboxes_outlive_a_killed_warden_and_the_next_one_takes_over)
{
	struct warden_reply reply = { 0 };
	struct warden_request q;
	struct err e = { 0 };

	START(h, NETWORK, 2);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	(void)usleep(100000); /* let some slots be half-made */
	harness_kill_warden(&h);
	ASSERT(strcmp(harness_inside(&h, "one", "stat /dev/null"), "") != 0);
	(void)harness_inside(&h, "two", "exit 0"); /* while nobody looks */
	(void)usleep(50000);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 0, &e), 0);
	q = harness_request(&h, WARDEN_LIST, "");
	ASSERT_EQ(harness_send(&h, &q, -EBADF), 0);
	ASSERT_EQ(harness_receive(&h, &reply), 0);
	ASSERT_EQ(reply.kind, WARDEN_LISTED);
	ASSERT_STR(reply.id, "one");
	ASSERT_EQ(harness_receive(&h, &reply), 0);
	ASSERT_EQ(reply.kind, WARDEN_REPLY);
	ASSERT_EQ(harness_destroy(&h, "two"), -ENOENT);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_create(&h, "two"), 0);
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
}

TEST(two_wardens_do_not_share_a_data_directory)
{
	struct harness second = { .fd = -EBADF };
	struct err e = { 0 };

	START(h, "none", 0);
	memcpy(second.dir, h.dir, sizeof second.dir);
	ASSERT_EQ(harness_start_warden(&second, "none", 0, &e), -EBUSY);
	second.dir[0] = '\0';
	harness_stop(&second);
}

TEST(a_warden_that_leaves_takes_its_prepared_slots_along)
{
	struct census before, after;

	START(h, NETWORK, 3);
	before = (struct census){ .files = census_take(&h).files };
	for (int i = 0; i < 4; i++) {
		char id[16];

		(void)snprintf(id, sizeof id, "s%d", i);
		ASSERT_EQ(harness_create(&h, id), 0);
		ASSERT_EQ(harness_destroy(&h, id), 0);
	}
	ASSERT_EQ(harness_stop_warden(&h), 0);
	after = census_take(&h);
	before.files = after.files;
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(directories_serve_where_there_are_no_loop_devices)
{
	struct census before;

	START_WITH(h, "none", 0, "--plain-layers");
	before = census_take(&h);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(census_take(&h).loops, 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine hello"), "0");
	ASSERT_STR(harness_inside(&h, "one", "stat /etc/mine"), "100644 0 0");
	ASSERT_STR(harness_inside(&h, "one", "read /etc/hostname"), "atoll\n");
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(older_kernels_take_layers_by_path)
{
	struct census before;

	START_WITH(h, "none", 1, "--attach-layers");
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /etc/mine hello"), "0");
	ASSERT_STR(harness_inside(&h, "one", "stat /etc/mine"), "100644 0 0");
	ASSERT(!strstr(harness_inside(&h, "one", "read /proc/self/mountinfo"), "loop"));
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	before = (struct census){ .files = census_take(&h).files };
	ASSERT_EQ(census_wait(&h, &before), 0);
}

/* Requests on the way, then SIGKILL at some moment, again and again on the same directory. */
static int kill_once(struct harness *h, int round)
{
	struct err e = { 0 };
	int r = harness_start_warden(h, NETWORK, 2, &e);

	for (int i = 0; r >= 0 && i < 3; i++) {
		cleanup_close int fd = harness_settings();
		struct warden_request q;
		char id[16];

		(void)snprintf(id, sizeof id, "r%d", i);
		q = harness_request(h, WARDEN_DESTROY, id);
		(void)harness_send(h, &q, -EBADF);
		(void)snprintf(id, sizeof id, "r%dx%d", i, round);
		q = harness_request(h, WARDEN_CREATE, id);
		(void)harness_send(h, &q, fd);
	}
	(void)usleep((useconds_t)(round * 1700 % 30000));
	harness_kill_warden(h);
	return r;
}

TEST(a_warden_killed_at_any_moment_leaks_nothing)
{
	struct census before;
	struct err e = { 0 };

	START(h, NETWORK, 0);
	harness_kill_warden(&h);
	for (int round = 1; round <= 18; round++)
		ASSERT_EQ(kill_once(&h, round), 0);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 0, &e), 0);
	harness_stop_sandboxes(&h);
	ASSERT_EQ(harness_stop_warden(&h), 0);
	before = (struct census){ .files = census_take(&h).files };
	ASSERT_EQ(census_wait(&h, &before), 0);
	/* The directory, run with its lock, images, the template, and a pool if need be. */
	ASSERT_EQ(before.files, harness_has_pool(&h) ? 9 : 8);
}

static enum owner_fate judge(const char *instance, struct cgroups *cg, struct owner *ret)
{
	cgroups_close_found(cg);
	return cgroups_open_found(cg, instance, NULL) < 0 ? OWNER_UNKNOWN : owner_judge(cg, ret);
}

/* A worker of the warden before holds the lock for as long as the kernel keeps it. */
TEST(a_warden_labels_at_once_and_locks_when_it_can)
{
	CLEANUP(cgroups_close_found) struct cgroups held = CGROUPS_INIT, seen = CGROUPS_INIT;
	struct owner owner, stale = { .path = "/stale" };
	enum owner_fate fate = OWNER_LIVES;
	uint8_t digest[SHA256_SIZE];
	struct err e = { 0 };
	char instance[9];

	START(h, "none", 0);
	sha256(h.dir, strlen(h.dir), digest);
	hex_encode(digest, 4, instance);
	ASSERT_EQ(harness_create(&h, "one"), 0);
	ASSERT_EQ(judge(instance, &held, &owner), OWNER_LIVES);
	ASSERT_STR(owner.path, h.dir);
	harness_kill_warden(&h);
	for (int i = 0; i < 1000 && fate == OWNER_LIVES; i++) {
		(void)usleep(20000);
		fate = judge(instance, &held, &owner);
	}
	ASSERT_EQ(fate, OWNER_AWAY); /* from here on the lock is ours */
	ASSERT_EQ(owner_label(&held, &stale, &e), 0);
	ASSERT_EQ(harness_start_warden(&h, "none", 0, &e), 0);
	ASSERT_EQ(judge(instance, &seen, &owner), OWNER_LIVES);
	ASSERT_STR(owner.path, h.dir);
	cgroups_close_found(&held);
	fate = OWNER_AWAY;
	for (int i = 0; i < 1000 && fate != OWNER_LIVES; i++) {
		cgroups_close_found(&seen);
		(void)usleep(20000);
		fate = judge(instance, &seen, &owner);
	}
	ASSERT_EQ(fate, OWNER_LIVES);
}
