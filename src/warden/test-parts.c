/* What can be looked at without a sandbox: texts, messages, files. */
#include "warden/meter.h"
#include "warden/locks.h"
#include "warden/net.h"
#include "warden/netlink.h"
#include "warden/host.h"
#include "warden/proto.h"
#include "warden/space.h"
#include "warden/state.h"
#include "warden/tcp.h"

#include "test.h"

#include <linux/rtnetlink.h>
#include <sys/stat.h>
#include <sys/wait.h>

TEST(networks_are_parsed_and_numbers_fit_into_them)
{
	static const struct {
		const char *text;
		int want, max;
	} cases[] = {
		{ "10.199.0.0/16", 0, NET_MAX_NUMBER },
		{ "10.199.0.0/24", 0, 127 },
		{ "10.199.0.8/29", 0, 3 },
		{ "none", 0, NET_MAX_NUMBER },
		{ "10.199.0.1/16", -EINVAL, 0 },
		{ "10.199.0.0/31", -EINVAL, 0 },
		{ "10.199.0.0", -EINVAL, 0 },
		{ "10.199.0/16", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ "255.255.255.255.255/16", -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct network net = { 0 };

		ASSERT_EQ(net_parse(cases[i].text, &net, NULL), cases[i].want);
		if (cases[i].want == 0)
			ASSERT_EQ(net.max_number, cases[i].max);
	}
}

TEST(the_resolver_is_an_address_that_no_sandbox_has)
{
	struct network net = NETWORK_INIT;
	char text[NET_CONF_SIZE];

	ASSERT_EQ(net_parse("10.199.0.0/16", &net, NULL), 0);
	net_resolv_conf(&net, text);
	ASSERT_STR(text, "nameserver 10.199.0.1\n");
	ASSERT_EQ(net_address(&net, 1), 0x0ac70003);
	ASSERT_EQ(net_parse("none", &net, NULL), 0);
	net_resolv_conf(&net, text);
	ASSERT(!strstr(text, "nameserver"));
	ASSERT_EQ(net_address(&net, 1), 0);
}

/* A process that holds the lock as another warden does, until it is told to end. */
static pid_t start_other(const struct network *net, int wait_fd, int ready_fd)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
	pid_t pid = fork();
	struct stat st;
	char c = 0;

	if (pid != 0)
		return pid;
	if (fstat(net->own_ns_fd, &st) == 0) {
		lock.l_start = (off_t)st.st_ino;
		(void)fcntl(net->table_fd, F_SETLK, &lock);
	}
	(void)!write(ready_fd, &c, 1);
	(void)close(ready_fd);
	(void)!read(wait_fd, &c, 1);
	_exit(0);
}

TEST(another_warden_of_the_same_network_is_noticed_and_not_forgotten)
{
	struct network net = NETWORK_INIT;
	int hold[2], ready[2];
	pid_t pid;
	char c;

	net.own_ns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	net.table_fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ASSERT(net.own_ns_fd >= 0 && net.table_fd >= 0);
	ASSERT(pipe2(hold, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
	net_look_for_others(&net);
	ASSERT(!net.is_shared);
	pid = start_other(&net, hold[0], ready[1]);
	ASSERT_EQ(read(ready[0], &c, 1), 1);
	net_look_for_others(&net);
	ASSERT(net.is_shared);
	ASSERT_EQ(write(hold[1], "", 1), 1);
	ASSERT_EQ(waitpid(pid, NULL, 0), pid);
	net_look_for_others(&net);
	ASSERT(net.is_shared); /* it may have had any number */
	for (int i = 0; i < 2; i++) {
		(void)close(hold[i]);
		(void)close(ready[i]);
	}
	(void)close(net.own_ns_fd);
	(void)close(net.table_fd);
}

TEST(the_shared_rules_take_redirected_packets_before_they_drop)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(16384);
	const char *taken, *dropped;

	ASSERT_EQ(net_rules(false, &text), 0);
	taken = strstr(strstr(text.p, "chain host"), "ct status dnat");
	dropped = strstr(strstr(text.p, "chain host"), "\t\tdrop");
	ASSERT(taken && dropped && taken < dropped);
	ASSERT(strstr(text.p, "19900-19999"));
}

TEST(netlink_lengths_follow_what_is_added)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct ifinfomsg head = { 0 };
	struct nlmsghdr first, second;
	size_t outer, inner, at;

	netlink_begin(&b, RTM_NEWLINK, NLM_F_CREATE, &head, sizeof head);
	netlink_add_str(&b, IFLA_IFNAME, "abc");  /* 4 + 4 */
	outer = netlink_nest(&b, IFLA_LINKINFO);  /* 4 */
	inner = netlink_nest(&b, IFLA_INFO_DATA); /* 4 */
	netlink_add_u32(&b, 1, 7);                /* 8 */
	netlink_nest_end(&b, inner);
	netlink_nest_end(&b, outer);
	at = b.n;
	netlink_begin(&b, RTM_NEWLINK, 0, &head, sizeof head);
	memcpy(&first, b.data, sizeof first);
	memcpy(&second, b.data + at, sizeof second);
	ASSERT_EQ(first.nlmsg_len, sizeof first + sizeof head + 8 + 4 + 4 + 8);
	ASSERT_EQ(first.nlmsg_len, at);
	ASSERT_EQ(second.nlmsg_len, sizeof second + sizeof head);
	ASSERT_EQ(second.nlmsg_seq, 2);
	ASSERT_EQ(b.requests, 2);
}

TEST(a_state_file_comes_back_as_it_was_written)
{
	char dir[] = "/tmp/atoll-state-XXXXXX";
	struct state s = { .key = "abcdefghij012345",
		.pid = 4711,
		.start_time = 123456789,
		.number = 7,
		.loop = -1,
		.engine = WARDEN_GVISOR };
	struct state got = { 0 };
	cleanup_close int fd = -EBADF;
	int r = -EPERM;

	ASSERT(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_EQ(state_write(fd, &s, NULL), 0);
	if (geteuid() == 0)
		r = state_read(fd, &got, NULL);
	(void)dir_remove_tree(AT_FDCWD, dir, NULL);
	if (geteuid() != 0)
		TEST_SKIP("only root's state files count");
	ASSERT_EQ(r, 0);
	ASSERT_STR(got.key, s.key);
	ASSERT_EQ(got.pid, s.pid);
	ASSERT_EQ(got.start_time, s.start_time);
	ASSERT_EQ(got.number, s.number);
	ASSERT_EQ(got.loop, s.loop);
	ASSERT_EQ(got.engine, s.engine);
}

TEST(a_state_file_from_before_there_were_engines_is_locals)
{
	static const char old[] =
		"atoll-slot 1\nkey abcdefghij012345\npid 5\nstart 1\nnumber 1\nloop 1\n";
	struct state got = { .engine = WARDEN_CRUN };

	ASSERT_EQ(state_parse(str_of(old), &got), 0);
	ASSERT_EQ(got.engine, WARDEN_LOCAL);
}

TEST(state_files_of_any_other_form_are_refused)
{
	static const char *const bad[] = { "", "atoll-slot 1\n",
		"atoll-slot 2\nkey abcdefghij012345\npid 5\nstart 1\nnumber 1\nloop 1\n",
		"atoll-slot 1\nkey ../../../../etc/x\npid 5\nstart 1\nnumber 1\nloop 1\n",
		"atoll-slot 1\nkey abcdefghij012345\npid 1\nstart 1\nnumber 1\nloop 1\n",
		"atoll-slot 1\nkey abcdefghij012345\npid 5\nstart 1\nnumber 0\nloop 1\n",
		"atoll-slot 1\nkey abcdefghij012345\npid 5\nstart 1\nnumber 99999\nloop 1\n",
		"atoll-slot 1\nkey abcdefghij012345\npid 5\nstart 1\nnumber 1\nloop 1\nmore\n",
		"atoll-slot 1\nkey abcdefghij012345\npid 5\nstart 1\nnumber 1\nloop 1\nengine 9\n",
		("atoll-slot 1\nkey abcdefghij012345\npid 5\nstart 1\nnumber 1\nloop 1\nengine 1\n"
		 "more\n") };
	struct state got;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT_EQ(state_parse(str_of(bad[i]), &got), -EINVAL);
}

TEST(paths_do_not_leave_their_directory)
{
	cleanup_close int dir = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int fine = open_beneath(dir, "sys", O_PATH);

	ASSERT(fine >= 0);
	ASSERT(open_beneath(dir, "self", O_PATH) < 0);
	ASSERT(open_beneath(dir, "../etc", O_PATH) < 0);
	ASSERT(open_beneath(dir, "/etc", O_PATH) < 0);
}

TEST(the_less_room_the_sooner_it_is_looked_at)
{
	const uint64_t mib = SPACE_MIB, line = SPACE_RESERVE_MIB + SPACE_MARGIN_MIB;
	struct space s = { .free_bytes = 100000 * mib, .total_bytes = 200000 * mib };
	int64_t far_ms = space_next_look_ms(&s);

	ASSERT(!space_is_short(&s) && space_is_back(&s));
	s.free_bytes = (line + 100) * mib;
	ASSERT(!space_is_short(&s));
	ASSERT(space_next_look_ms(&s) < far_ms);
	/* What will be written soon counts as if it were. */
	s.dirty_bytes = 200 * mib;
	ASSERT(space_is_short(&s));
	s.free_bytes = (line + 200 + SPACE_MARGIN_MIB) * mib;
	ASSERT(space_is_back(&s));
	/* But all that the host has unwritten is not more than a small disk has room for. */
	s = (struct space){ 600 * mib, 1000 * mib, 9000 * mib };
	ASSERT(space_is_short(&s));
	s.free_bytes = 900 * mib;
	ASSERT(!space_is_short(&s));
}

TEST(few_sandboxes_do_not_get_all_process_numbers)
{
	ASSERT_EQ(cgroups_pids_of_one(4194304 / 4 * 3, 4096), 4096);
	ASSERT_EQ(cgroups_pids_of_one(32768 / 4 * 3, 4096), 1536);
	ASSERT_EQ(cgroups_pids_of_one(32768 / 4 * 3, 64), 64);
	ASSERT_EQ(cgroups_pids_of_one(1000, 4096), 512); /* fewer are no use to anybody */
}

TEST(a_lock_names_its_owner)
{
	ASSERT_EQ(lock_owner(STR("12: POSIX  ADVISORY  WRITE 4711 00:2d:42 0 EOF")), 4711);
	ASSERT_EQ(lock_owner(STR("12: -> FLOCK  ADVISORY  READ 7 00:2d:42 0 0")), 7);
	ASSERT_EQ(lock_owner(STR("1: OFDLCK ADVISORY  WRITE -1 00:2d:42 0 0")), 0);
	ASSERT_EQ(lock_owner(STR("1: POSIX")), 0);
	ASSERT_EQ(lock_owner(STR("")), 0);
}

TEST(what_tcp_holds_is_read_from_the_line_of_tcp)
{
	struct tcp_host host;

	tcp_read_host(STR("sockets: used 30\n"
			  "TCP: inuse 1 orphan 7 tw 0 alloc 46 mem 2\n"
			  "UDP: inuse 0 mem 148\n"),
		&host);
	ASSERT_EQ(host.n_closed, 7);
	ASSERT_EQ(host.bytes, 46 * TCP_SOCKET_BYTES + 2 * sysconf(_SC_PAGESIZE));
	tcp_read_host(STR("TCP: orphan"), &host);
	ASSERT_EQ(host.n_closed, 0);
	ASSERT_EQ(host.bytes, 0);
}

TEST(the_kernels_counters_are_read)
{
	struct str old = STR("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
		   new = STR("low 0\nhigh 0\nmax 9\noom 5\noom_kill 4\noom_group_kill 0\n");

	ASSERT_EQ(meter_parse(old, WARDEN_LIMIT_MEMORY), 4);
	ASSERT_EQ(meter_parse(new, WARDEN_LIMIT_MEMORY), 4);
	ASSERT_EQ(meter_parse(STR("max 12\n"), WARDEN_LIMIT_PIDS), 12);
	ASSERT_EQ(meter_parse(STR_NONE, WARDEN_LIMIT_PIDS), 0);
}
