/* What a server that serves may still ask the kernel for. */
#include "server/calls.h"

#include "filter-rig.h"
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int errno_of(int64_t number, int64_t a, int64_t b)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	size_t n = calls_build(filter);

	return errno_under(filter, n, number, a, b);
}

TEST(what_serving_needs_gets_through)
{
	ASSERT_EQ(errno_of(SYS_getpid, 0, 0), 0);
	ASSERT_EQ(errno_of(SYS_epoll_create1, 0, 0), 0);
	ASSERT_EQ(errno_of(SYS_socket, AF_INET, SOCK_STREAM), 0);
	ASSERT_EQ(errno_of(SYS_socket, AF_UNIX, SOCK_STREAM), 0);
	ASSERT_EQ(errno_of(SYS_splice, -1, 0), 0); /* of nothing */
	ASSERT_EQ(errno_of(SYS_openat2, -1, 0), EINVAL);
	ASSERT_EQ(errno_of(SYS_fchownat, -1, 0), EFAULT);
	ASSERT_EQ(errno_of(SYS_ioctl, -1, TIOCGWINSZ), EBADF);
	ASSERT_EQ(errno_of(SYS_clone, CLONE_THREAD, 0), EINVAL);
}

TEST(it_starts_no_program_and_looks_into_none)
{
#ifdef ATOLL_SANITIZED
	TEST_SKIP("the sanitizers do both");
#else
	ASSERT_EQ(errno_of(SYS_execve, 0, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_execveat, -1, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_ptrace, 0, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_clone, SIGCHLD, 0), EPERM);
#endif
}

TEST(it_becomes_nobody_else_and_leaves_its_namespaces_for_no_others)
{
	static const int64_t numbers[] = { SYS_setuid, SYS_setresuid, SYS_setgroups, SYS_capset,
		SYS_setns, SYS_unshare, SYS_chroot, SYS_pivot_root, SYS_process_vm_readv,
		SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		ASSERT_EQ(errno_of(numbers[i], 0, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_clone3, 0, 0), ENOSYS);
}

TEST(the_kernels_larger_parts_are_out_of_reach)
{
	static const int64_t numbers[] = { SYS_mount, SYS_umount2, SYS_fsopen, SYS_open_tree,
		SYS_move_mount, SYS_mount_setattr, SYS_mknodat, SYS_open_by_handle_at, SYS_bpf,
		SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
		SYS_keyctl, SYS_init_module, SYS_finit_module, SYS_kexec_load, SYS_kexec_file_load,
		SYS_reboot, SYS_syslog, SYS_clock_settime, SYS_fanotify_init };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		ASSERT_EQ(errno_of(numbers[i], 0, 0), EPERM);
	ASSERT_EQ(errno_of(SYS_socket, AF_ALG, SOCK_SEQPACKET), EAFNOSUPPORT);
	ASSERT_EQ(errno_of(SYS_socket, AF_VSOCK, SOCK_STREAM), EAFNOSUPPORT);
}

TEST(it_does_not_type_into_its_operators_terminal)
{
	ASSERT_EQ(errno_of(SYS_ioctl, 0, TIOCSTI), EPERM);
	ASSERT_EQ(errno_of(SYS_ioctl, 0, TIOCLINUX), EPERM);
}
