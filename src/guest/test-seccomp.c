/* The filter, on a real process. Children run it, since there is no way back. */
#include "guest/seccomp.h"

#include "test.h"

#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* What a call under the filter fails with; 0: it got through to the kernel and worked. */
static int errno_of(int64_t number, int64_t a, int64_t b)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	struct sock_fprog program = { .filter = filter };
	int status = 0;
	pid_t pid;

	program.len = (unsigned short)seccomp_build(filter);
	pid = fork();
	if (pid == 0) {
		/* A test may run as anybody, so this one process gives up its privileges instead.
		 */
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
			syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
			_exit(255);
		_exit(syscall(number, a, b, 0, 0, 0, 0) < 0 ? errno : 0);
	}
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

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
	static const int64_t families[] = { AF_ALG, AF_VSOCK, AF_KEY, AF_TIPC, AF_CAN,
		AF_BLUETOOTH };

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		ASSERT_EQ(errno_of(SYS_socket, families[i], SOCK_DGRAM), EAFNOSUPPORT);
		ASSERT_EQ(errno_of(SYS_socketpair, families[i], SOCK_DGRAM), EAFNOSUPPORT);
	}
	/* An allowed one gets as far as its missing array. */
	ASSERT_EQ(errno_of(SYS_socketpair, AF_UNIX, SOCK_STREAM), EFAULT);
}

TEST(unknown_numbers_are_not_implemented)
{
	ASSERT_EQ(errno_of(SYS_io_setup, 1, 0), ENOSYS); /* nor is what one could take from all */
	ASSERT_EQ(errno_of(467, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(9999, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(INT64_C(0x40000000) | SYS_getpid, 0, 0), ENOSYS); /* x32 */
	ASSERT_EQ(errno_of(UINT32_MAX, 0, 0), ENOSYS);
}

TEST(the_filter_is_small)
{
	struct sock_filter filter[FILTER_MAX_INSNS];

	ASSERT(seccomp_build(filter) < 250);
}
