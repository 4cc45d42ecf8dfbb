/* The filter, on a real process. Children run it, since there is no way back. */
#include "guest/seccomp.h"

#include "filter-rig.h"
#include "test.h"

#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/shm.h>
#include <sys/socket.h>

#if defined(__x86_64__)
static const uint32_t native_arch = AUDIT_ARCH_X86_64;
#else
static const uint32_t native_arch = AUDIT_ARCH_AARCH64;
#endif

static const struct seccomp_kind plain = { 0 }, with_volumes = { .has_volumes = true },
				 nested = { .is_nested = true };

/* What a call under the filter fails with; 0: it got through to the kernel and worked. What is
 * asked for fails with ENOSYS, since nobody listens. */
static int errno_of_four(int64_t number, int64_t a, int64_t b, int64_t c, int64_t d)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	struct sock_fprog program = { .filter = filter };
	int status = 0;
	pid_t pid;

	program.len = (unsigned short)seccomp_build(&plain, filter);
	pid = fork();
	if (pid == 0) {
		/* A test may run as anybody, so this one process gives up its privileges instead.
		 */
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
			syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
			_exit(255);
		_exit(syscall(number, a, b, c, d, 0, 0) < 0 ? errno : 0);
	}
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int errno_of(int64_t number, int64_t a, int64_t b)
{
	return errno_of_four(number, a, b, 0, 0);
}

enum {
	ASKED = ENOSYS,
};

TEST(ordinary_calls_get_through)
{
	ASSERT_EQ(errno_of(SYS_getpid, 0, 0), 0);
	ASSERT_EQ(errno_of(SYS_socket, AF_INET, SOCK_STREAM), 0);
	ASSERT_EQ(errno_of(SYS_socket, AF_UNIX, SOCK_STREAM), 0);
	ASSERT_EQ(errno_of(SYS_unshare, CLONE_FILES, 0), 0);
	ASSERT_EQ(errno_of(SYS_personality, UINT32_MAX, 0), 0);
	ASSERT_EQ(errno_of(SYS_personality, ADDR_NO_RANDOMIZE, 0), 0);
	ASSERT_EQ(errno_of(SYS_clone, SIGCHLD, 0), 0);
	ASSERT_EQ(errno_of(SYS_futex_waitv, 0, 0), EINVAL);
}

TEST(what_concerns_the_host_is_refused)
{
	static const int64_t numbers[] = { SYS_mount, SYS_umount2, SYS_pivot_root, SYS_setns,
		SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_add_key, SYS_request_key,
		SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_kexec_load,
		SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_swapon,
		SYS_syslog, SYS_open_by_handle_at, SYS_sethostname, SYS_clock_settime,
		SYS_settimeofday, SYS_fsopen, SYS_fsmount, SYS_move_mount, SYS_open_tree,
		SYS_mount_setattr, SYS_pidfd_getfd, SYS_acct, SYS_quotactl, SYS_move_pages,
		SYS_fanotify_init };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (errno_of(numbers[i], 0, 0) != EPERM)
			TEST_FAIL("call %" PRId64 " is not refused", numbers[i]);
}

TEST(namespaces_cannot_be_made)
{
	static const int64_t flags[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID,
		CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		ASSERT_EQ(errno_of(SYS_unshare, flags[i], 0), EPERM);
		ASSERT_EQ(errno_of(SYS_clone, flags[i] | SIGCHLD, 0), EPERM);
	}
	/* In memory, where a filter cannot look: libc falls back to clone. */
	ASSERT_EQ(errno_of(SYS_clone3, 0, 0), ENOSYS);
}

TEST(address_families_with_a_bad_record_are_not_there)
{
	static const int64_t families[] = { AF_ALG, AF_VSOCK, AF_KEY, AF_TIPC, AF_CAN, AF_BLUETOOTH,
		AF_XDP, AF_KCM, AF_RDS, AF_SMC };

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		ASSERT_EQ(errno_of(SYS_socket, families[i], SOCK_DGRAM), EAFNOSUPPORT);
		ASSERT_EQ(errno_of(SYS_socketpair, families[i], SOCK_DGRAM), EAFNOSUPPORT);
	}
	/* An allowed one gets as far as its missing array. */
	ASSERT_EQ(errno_of(SYS_socketpair, AF_UNIX, SOCK_STREAM), EFAULT);
}

TEST(sockets_whose_memory_nobody_is_charged_for_are_asked_for)
{
	static const struct {
		int family, type, protocol, error;
	} sockets[] = {
		{ AF_UNIX, SOCK_DGRAM, 0, 0 }, { AF_INET, SOCK_STREAM, 0, 0 },
		{ AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP, 0 },
		{ AF_INET, SOCK_DGRAM, 0, ASKED },
		{ AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP, ASKED },
		{ AF_INET, SOCK_DGRAM, IPPROTO_ICMP, ASKED },
		{ AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6, ASKED },
		{ AF_INET, SOCK_RAW, IPPROTO_RAW, ASKED }, { AF_PACKET, SOCK_RAW, 0, ASKED },
		{ AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, ASKED },
		{ AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG, ASKED },
		{ AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK, EPROTONOSUPPORT },
		{ AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER, EPROTONOSUPPORT },
		{ AF_NETLINK, SOCK_RAW, NETLINK_GENERIC, EPROTONOSUPPORT },
		{ AF_NETLINK, SOCK_RAW, NETLINK_AUDIT, EPROTONOSUPPORT },
		{ AF_INET, SOCK_STREAM, IPPROTO_SCTP, EPROTONOSUPPORT },
		{ AF_INET, SOCK_STREAM, IPPROTO_MPTCP, EPROTONOSUPPORT },
		{ AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE, EPROTONOSUPPORT },
		{ AF_INET, SOCK_DCCP, IPPROTO_DCCP, EPROTONOSUPPORT },
		{ AF_INET, SOCK_PACKET, 3, EPROTONOSUPPORT }, /* AF_PACKET's old name */
	};

	for (size_t i = 0; i < ARRAY_SIZE(sockets); i++)
		if (errno_of_four(SYS_socket, sockets[i].family, sockets[i].type,
			    sockets[i].protocol, 0) != sockets[i].error)
			TEST_FAIL("family %d, type %d, protocol %d: %d", sockets[i].family,
				sockets[i].type, sockets[i].protocol,
				errno_of_four(SYS_socket, sockets[i].family, sockets[i].type,
					sockets[i].protocol, 0));
}

TEST(options_that_take_memory_outside_of_limits_are_not_there)
{
	static const struct {
		int level, option, error;
	} options[] = {
		{ SOL_SOCKET, SO_ATTACH_FILTER, ENOPROTOOPT },
		{ SOL_SOCKET, SO_ATTACH_BPF, ENOPROTOOPT },
		{ SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, ENOPROTOOPT },
		{ SOL_SOCKET, SO_TIMESTAMPING_OLD, ENOPROTOOPT },
		{ SOL_SOCKET, SO_TIMESTAMPING_NEW, ENOPROTOOPT },
		{ IPPROTO_TCP, TCP_MD5SIG, ENOPROTOOPT },
		{ IPPROTO_TCP, TCP_MD5SIG_EXT, ENOPROTOOPT },
		{ IPPROTO_TCP, 38, ENOPROTOOPT }, /* TCP_AO_ADD_KEY */
		{ IPPROTO_IPV6, IPV6_2292PKTOPTIONS, ENOPROTOOPT },
		{ IPPROTO_IP, IP_RECVERR, ASKED },
		{ IPPROTO_IPV6, IPV6_RECVERR, ASKED },
		{ SOL_SOCKET, SO_RCVBUF, 0 }, /* of no socket: it is not made */
		{ SOL_PACKET, PACKET_RX_RING, ENOPROTOOPT },
		{ SOL_PACKET, PACKET_TX_RING, ENOPROTOOPT },
		{ SOL_PACKET, PACKET_ADD_MEMBERSHIP, ENOPROTOOPT },
		{ IPPROTO_IPV6, IPV6_JOIN_GROUP, ENOPROTOOPT },
		{ SOL_SOCKET, SO_SNDBUF, EBADF }, /* these get to the kernel */
		{ SOL_SOCKET, SO_REUSEADDR, EBADF },
		{ SOL_PACKET, PACKET_AUXDATA, EBADF },
		{ IPPROTO_TCP, SO_ATTACH_FILTER, EBADF },
		{ IPPROTO_TCP, TCP_NODELAY, EBADF },
		{ SOL_SOCKET, SO_TIMESTAMP, EBADF },
		{ IPPROTO_IPV6, IPV6_V6ONLY, EBADF },
		{ IPPROTO_IP, IP_ADD_MEMBERSHIP, EBADF },
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (errno_of_four(SYS_setsockopt, -1, options[i].level, options[i].option, 0) !=
			options[i].error)
			TEST_FAIL("option %d of level %d", options[i].option, options[i].level);
}

TEST(huge_pages_are_none_and_cores_are_not_scheduled)
{
	ASSERT_EQ(errno_of_four(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS), 0);
	ASSERT_EQ(errno_of_four(SYS_mmap, 0, 2 << 20, PROT_READ,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB),
		ENOMEM);
	ASSERT_EQ(errno_of(SYS_memfd_create, 0, MFD_HUGETLB), EINVAL);
	ASSERT_EQ(errno_of(SYS_memfd_create, 0, 0), EFAULT);
	ASSERT_EQ(errno_of_four(SYS_shmget, IPC_PRIVATE, 2 << 20, SHM_HUGETLB | 0600, 0), EPERM);
	ASSERT_EQ(errno_of_four(SYS_prctl, PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, 0), EINVAL);
	ASSERT_EQ(errno_of(SYS_prctl, PR_GET_DUMPABLE, 0), 0);
}

/* 447: memfd_secret */
TEST(the_kernels_map_of_memory_is_left_whole)
{
	ASSERT_EQ(errno_of(447, 0, 0), ENOSYS);
}

TEST(with_volumes_room_is_taken_by_writing_alone)
{
	static const struct {
		int64_t number;
		uint64_t second;
		uint32_t answer;
	} calls[] = {
		{ SYS_fallocate, 0, SECCOMP_RET_ERRNO | EOPNOTSUPP },
		{ SYS_fallocate, FALLOC_FL_KEEP_SIZE, SECCOMP_RET_ERRNO | EOPNOTSUPP },
		{ SYS_fallocate, FALLOC_FL_ZERO_RANGE, SECCOMP_RET_ERRNO | EOPNOTSUPP },
		{ SYS_fallocate, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SECCOMP_RET_ALLOW },
		{ SYS_ioctl, 0x40305828, SECCOMP_RET_ERRNO | EOPNOTSUPP }, /* FS_IOC_RESVSP */
		{ SYS_ioctl, 0x4030582a, SECCOMP_RET_ERRNO | EOPNOTSUPP }, /* ... RESVSP64 */
		{ SYS_ioctl, 0x40305839, SECCOMP_RET_ERRNO | EOPNOTSUPP }, /* ... ZERO_RANGE */
		{ SYS_ioctl, FS_IOC_FSSETXATTR, SECCOMP_RET_ERRNO | EOPNOTSUPP },
		{ SYS_ioctl, FIONREAD, SECCOMP_RET_ALLOW },
		{ SYS_ftruncate, 0, SECCOMP_RET_ALLOW },
	};
	struct sock_filter with[FILTER_MAX_INSNS], without[FILTER_MAX_INSNS];
	size_t n_with = seccomp_build(&with_volumes, with),
	       n_without = seccomp_build(&plain, without);

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct seccomp_data call = { .nr = (int)calls[i].number,
			.arch = native_arch,
			.args = { 1, calls[i].second } };

		ASSERT_EQ(filter_answer(with, n_with, &call), calls[i].answer);
		ASSERT_EQ(filter_answer(without, n_without, &call), SECCOMP_RET_ALLOW);
	}
	ASSERT(n_with < 370);
}

/* Of 32-bit programs, on either processor, and of one that is neither. */
TEST(calls_by_another_table_end_who_makes_them)
{
	static const uint32_t others[] = { AUDIT_ARCH_I386, AUDIT_ARCH_ARM, 0 };
	struct sock_filter filter[FILTER_MAX_INSNS];
	size_t n = seccomp_build(&plain, filter);

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		for (int number = 0; number < 512; number++) {
			struct seccomp_data call = { .nr = number, .arch = others[i] };

			ASSERT_EQ(filter_answer(filter, n, &call), SECCOMP_RET_TRAP);
		}
}

TEST(locks_without_an_owner_are_not_there)
{
	ASSERT_EQ(errno_of(SYS_fcntl, -1, F_OFD_SETLK), EINVAL);
	ASSERT_EQ(errno_of(SYS_fcntl, -1, F_OFD_SETLKW), EINVAL);
	ASSERT_EQ(errno_of(SYS_fcntl, -1, F_SETLK), EBADF);
	ASSERT_EQ(errno_of(SYS_fcntl, 0, F_GETFD), 0);
}

TEST(own_filters_are_asked_for)
{
	ASSERT_EQ(errno_of(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER), ASKED);
	ASSERT_EQ(errno_of(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0), ASKED);
	ASSERT_EQ(errno_of(SYS_prctl, PR_GET_SECCOMP, 0), 0);
}

TEST(sync_is_answered_and_not_made)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	size_t n = seccomp_build(&plain, filter);
	struct seccomp_data call = { .nr = SYS_sync, .arch = native_arch };

	ASSERT_EQ(filter_answer(filter, n, &call), SECCOMP_RET_ERRNO);
	call.nr = SYS_syncfs;
	ASSERT_EQ(filter_answer(filter, n, &call), SECCOMP_RET_ALLOW);
	call.nr = SYS_fsync;
	ASSERT_EQ(filter_answer(filter, n, &call), SECCOMP_RET_ALLOW);
	ASSERT_EQ(errno_of(SYS_sync, 0, 0), 0);
}

TEST(unknown_numbers_are_not_implemented)
{
	ASSERT_EQ(errno_of(SYS_io_setup, 1, 0), ENOSYS); /* nor is what one could take from all */
	ASSERT_EQ(errno_of(467, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(9999, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(INT64_C(0x40000000) | SYS_getpid, 0, 0), ENOSYS); /* x32 */
	ASSERT_EQ(errno_of(UINT32_MAX, 0, 0), ENOSYS);
}

/* ---- nested ---- */

static uint32_t nested_answer(int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
	uint64_t f)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	size_t n = seccomp_build(&nested, filter);
	struct seccomp_data call = { .nr = (int)number,
		.arch = native_arch,
		.args = { a, b, c, d, 0, f } };

	return filter_answer(filter, n, &call) & SECCOMP_RET_ACTION_FULL;
}

TEST(nested_namespaces_can_be_made_and_filled)
{
	static const int64_t numbers[] = { SYS_unshare, SYS_clone, SYS_clone3, SYS_setns,
		SYS_umount2, SYS_pivot_root, SYS_sethostname, SYS_open_tree, SYS_move_mount,
		SYS_mount_setattr };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (nested_answer(numbers[i], CLONE_NEWUSER | CLONE_NEWNET, 0, 0, 0, 0) !=
			SECCOMP_RET_ALLOW)
			TEST_FAIL("call %" PRId64 " is refused", numbers[i]);
}

TEST(nested_file_systems_are_asked_for)
{
	ASSERT_EQ(nested_answer(SYS_mount, 0, 0, 0, MS_BIND | MS_REC, 0), SECCOMP_RET_ALLOW);
	ASSERT_EQ(nested_answer(SYS_mount, 0, 0, 0, MS_REMOUNT, 0), SECCOMP_RET_ALLOW);
	ASSERT_EQ(nested_answer(SYS_mount, 0, 0, 0, MS_PRIVATE | MS_REC, 0), SECCOMP_RET_ALLOW);
	ASSERT_EQ(nested_answer(SYS_mount, 0, 0, 0, MS_NOSUID, 0), SECCOMP_RET_USER_NOTIF);
	ASSERT_EQ(nested_answer(SYS_mount, 0, 0, 0, 0, FILTER_OWN_MOUNT), SECCOMP_RET_ALLOW);
	/* By no other way. */
	ASSERT_EQ(nested_answer(SYS_fsopen, 0, 0, 0, 0, 0), SECCOMP_RET_ERRNO);
	ASSERT_EQ(nested_answer(SYS_fsmount, 0, 0, 0, 0, 0), SECCOMP_RET_ERRNO);
}

TEST(nested_rulers_of_a_network_get_no_more_than_others)
{
	static const struct {
		int level, option;
	} options[] = { { SOL_SOCKET, SO_RCVBUFFORCE }, { SOL_SOCKET, SO_SNDBUFFORCE },
		{ IPPROTO_IP, 64 }, { IPPROTO_IP, 65 }, { IPPROTO_IPV6, 64 }, { IPPROTO_IP, 96 },
		{ IPPROTO_IP, 128 }, { SOL_PACKET, PACKET_RX_RING }, { SOL_SOCKET, SO_ATTACH_BPF },
		{ SOL_SOCKET, SO_RCVBUF } };

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (nested_answer(SYS_setsockopt, 0, (uint64_t)options[i].level,
			    (uint64_t)options[i].option, 0, 0) != SECCOMP_RET_ERRNO)
			TEST_FAIL("level %d, option %d gets through", options[i].level,
				options[i].option);
	ASSERT_EQ(nested_answer(SYS_setsockopt, 0, IPPROTO_TCP, TCP_NODELAY, 0, 0),
		SECCOMP_RET_ALLOW);
	ASSERT_EQ(nested_answer(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER, 0, 0),
		SECCOMP_RET_ERRNO);
}

TEST(nested_is_as_strict_with_the_rest)
{
	static const int64_t numbers[] = { SYS_bpf, SYS_perf_event_open, SYS_keyctl, SYS_add_key,
		SYS_request_key, SYS_userfaultfd, SYS_io_uring_setup, SYS_kexec_load,
		SYS_init_module, SYS_finit_module, SYS_reboot, SYS_swapon, SYS_syslog,
		SYS_open_by_handle_at, SYS_clock_settime, SYS_pidfd_getfd, SYS_quotactl,
		SYS_fanotify_init, SYS_acct };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (nested_answer(numbers[i], 0, 0, 0, 0, 0) != SECCOMP_RET_ERRNO)
			TEST_FAIL("call %" PRId64 " is not refused", numbers[i]);
}

TEST(the_filter_is_small)
{
	struct sock_filter filter[FILTER_MAX_INSNS];

	ASSERT(seccomp_build(&plain, filter) < 350);
	ASSERT(seccomp_build(&nested, filter) < 400);
}
