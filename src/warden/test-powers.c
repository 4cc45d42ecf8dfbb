/* What is refused to the warden is refused to sandboxes too, so the rest must stay. */
#include "warden/powers.h"

#include "filter-rig.h"
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

static int errno_of(int64_t number, int64_t a, int64_t b)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	size_t n = powers_build(filter);

	return errno_under(filter, n, number, a, b);
}

TEST(the_kernels_memory_modules_and_clock_are_out_of_reach)
{
	static const int64_t numbers[] = { SYS_init_module, SYS_finit_module, SYS_delete_module,
		SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_bpf,
		SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_open_by_handle_at,
		SYS_clock_settime, SYS_syslog, SYS_pidfd_getfd };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		ASSERT_EQ(errno_of(numbers[i], 0, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_keyctl, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(SYS_socket, AF_ALG, SOCK_SEQPACKET), EAFNOSUPPORT);
}

TEST(what_sandboxes_and_their_making_need_gets_through)
{
	ASSERT_EQ(errno_of(SYS_ptrace, -1, 0), ESRCH); /* debuggers work in sandboxes */
	ASSERT_EQ(errno_of(SYS_clone, SIGCHLD, 0), 0);
	ASSERT_EQ(errno_of(SYS_clone3, 0, 0), EINVAL);
	ASSERT_EQ(errno_of(SYS_execve, 0, 0), EFAULT);
	ASSERT_EQ(errno_of(SYS_setns, -1, 0), EBADF);
	ASSERT_EQ(errno_of(SYS_socket, AF_UNIX, SOCK_STREAM), 0);
	ASSERT_EQ(errno_of(SYS_socket, AF_NETLINK, SOCK_RAW), 0);
	ASSERT(errno_of(SYS_landlock_create_ruleset, 0, 0) != EPERM);
	ASSERT(errno_of(462, -1, 0) != EPERM); /* mseal */
}
