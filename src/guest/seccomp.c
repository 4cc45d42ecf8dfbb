/* The filter is an allow-list of ranges. The model is Docker's default profile without any extra
 * capability. What is absent from the table fails with EPERM; calls newer than this table fail with
 * ENOSYS, so that a libc falls back to what it knows. That includes the x32 numbers, which begin at
 * 0x40000000. */
#include "guest/seccomp.h"

#include <sys/syscall.h>

struct range {
	uint32_t first, last;
};

#if defined(__x86_64__)
static const struct range allowed[] = {
	{ SYS_read, SYS_getuid },
	/* syslog */
	{ SYS_getgid, SYS_mknod },
	/* uselib */
	{ SYS_personality, SYS_personality },
	/* ustat */
	{ SYS_statfs, SYS_fstatfs },
	/* sysfs */
	{ SYS_getpriority, SYS_munlockall },
	/* vhangup */
	{ SYS_modify_ldt, SYS_modify_ldt },
	/* pivot_root, _sysctl */
	{ SYS_prctl, SYS_sync },
	/* acct, settimeofday, mount, umount2, swapon, swapoff, reboot, sethostname, setdomainname,
	 * iopl, ioperm, modules, quotactl, nfsservctl, unused numbers */
	{ SYS_gettid, SYS_get_thread_area },
	/* lookup_dcookie */
	{ SYS_epoll_create, SYS_epoll_create }, { SYS_remap_file_pages, SYS_timer_delete },
	/* clock_settime */
	{ SYS_clock_gettime, SYS_utimes },
	/* vserver, mbind, set_mempolicy, get_mempolicy */
	{ SYS_mq_open, SYS_mq_getsetattr },
	/* kexec_load */
	{ SYS_waitid, SYS_waitid },
	/* add_key, request_key, keyctl */
	{ SYS_ioprio_set, SYS_inotify_rm_watch },
	/* migrate_pages */
	{ SYS_openat, SYS_vmsplice },
	/* move_pages */
	{ SYS_utimensat, SYS_rt_tgsigqueueinfo },
	/* perf_event_open */
	{ SYS_recvmmsg, SYS_recvmmsg },
	/* fanotify_init */
	{ SYS_fanotify_mark, SYS_name_to_handle_at },
	/* open_by_handle_at, clock_adjtime */
	{ SYS_syncfs, SYS_sendmmsg },
	/* setns */
	{ SYS_getcpu, SYS_process_vm_writev },
	/* kcmp, finit_module */
	{ SYS_sched_setattr, SYS_memfd_create },
	/* kexec_file_load, bpf */
	{ SYS_execveat, SYS_execveat },
	/* userfaultfd */
	{ SYS_membarrier, SYS_rseq },
#elif defined(__aarch64__)
static const struct range allowed[] = {
	{ SYS_io_setup, SYS_getcwd },
	/* lookup_dcookie */
	{ SYS_eventfd2, SYS_renameat },
	/* umount2, mount, pivot_root, nfsservctl */
	{ SYS_statfs, SYS_close },
	/* vhangup */
	{ SYS_pipe2, SYS_pipe2 },
	/* quotactl */
	{ SYS_getdents64, SYS_utimensat },
	/* acct */
	{ SYS_capget, SYS_setitimer },
	/* kexec_load, modules */
	{ SYS_timer_create, SYS_timer_delete },
	/* clock_settime */
	{ SYS_clock_gettime, SYS_clock_nanosleep },
	/* syslog */
	{ SYS_ptrace, SYS_getpriority },
	/* reboot */
	{ SYS_setregid, SYS_uname },
	/* sethostname, setdomainname */
	{ SYS_getrlimit, SYS_gettimeofday },
	/* settimeofday */
	{ SYS_adjtimex, SYS_mremap },
	/* add_key, request_key, keyctl */
	{ SYS_clone, SYS_fadvise64 },
	/* swapon, swapoff */
	{ SYS_mprotect, SYS_remap_file_pages },
	/* mbind, get_mempolicy, set_mempolicy, migrate_pages, move_pages */
	{ SYS_rt_tgsigqueueinfo, SYS_rt_tgsigqueueinfo },
	/* perf_event_open */
	{ SYS_accept4, SYS_recvmmsg }, { SYS_wait4, SYS_prlimit64 },
	/* fanotify_init */
	{ SYS_fanotify_mark, SYS_name_to_handle_at },
	/* open_by_handle_at, clock_adjtime */
	{ SYS_syncfs, SYS_syncfs },
	/* setns */
	{ SYS_sendmmsg, SYS_process_vm_writev },
	/* kcmp, finit_module */
	{ SYS_sched_setattr, SYS_memfd_create },
	/* bpf */
	{ SYS_execveat, SYS_execveat },
	/* userfaultfd */
	{ SYS_membarrier, SYS_rseq },
/* kexec_file_load */
#else
#error "seccomp.c has no table for this architecture"
#endif
	/* From here on the numbers are the same on every architecture. */
	{ SYS_pidfd_send_signal, SYS_pidfd_send_signal },
	/* io_uring_*, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick */
	{ SYS_pidfd_open, SYS_openat2 },
	/* pidfd_getfd */
	{ SYS_faccessat2, SYS_faccessat2 },
	/* process_madvise */
	{ SYS_epoll_pwait2, SYS_epoll_pwait2 },
	/* mount_setattr, quotactl_fd */
	{ SYS_landlock_create_ruleset, SYS_futex_waitv },
	/* set_mempolicy_home_node */
	{ 451, 456 }, /* cachestat, fchmodat2, map_shadow_stack, futex_wake, futex_wait,
			 futex_requeue */
	/* statmount, listmount, lsm_* */
	{ 462, 466 }, /* mseal, setxattrat, getxattrat, listxattrat, removexattrat */
};

/* Calls inside the ranges whose arguments matter, by rising number. */
static const struct filter_rule specials[] = {
#if defined(__x86_64__)
	{ SYS_mmap, FILTER_MAP }, { SYS_ioctl, FILTER_PLACE_IOCTL }, { SYS_shmget, FILTER_SEGMENT },
	{ SYS_socket, FILTER_OWN_SOCKET }, { SYS_socketpair, FILTER_PAIR },
	{ SYS_setsockopt, FILTER_SOCKET_OPTION }, { SYS_clone, FILTER_CLONE },
	{ SYS_fcntl, FILTER_FILE }, { SYS_personality, FILTER_PERSONALITY },
	{ SYS_prctl, FILTER_PRCTL },
	{ SYS_sync, FILTER_NOTHING },     /* it would wait for everybody's disks */
	{ SYS_io_setup, FILTER_UNKNOWN }, /* all of a host share one number of requests */
	{ SYS_unshare, FILTER_UNSHARE }, { SYS_fallocate, FILTER_PLACE },
	{ SYS_seccomp, FILTER_OWN_FILTER }, { SYS_memfd_create, FILTER_MEMORY_FILE },
#else
	{ SYS_io_setup, FILTER_UNKNOWN }, { SYS_fcntl, FILTER_FILE },
	{ SYS_ioctl, FILTER_PLACE_IOCTL }, { SYS_fallocate, FILTER_PLACE },
	{ SYS_sync, FILTER_NOTHING }, { SYS_personality, FILTER_PERSONALITY },
	{ SYS_unshare, FILTER_UNSHARE }, { SYS_prctl, FILTER_PRCTL },
	{ SYS_shmget, FILTER_SEGMENT }, { SYS_socket, FILTER_OWN_SOCKET },
	{ SYS_socketpair, FILTER_PAIR }, { SYS_setsockopt, FILTER_SOCKET_OPTION },
	{ SYS_clone, FILTER_CLONE }, { SYS_mmap, FILTER_MAP }, { SYS_seccomp, FILTER_OWN_FILTER },
	{ SYS_memfd_create, FILTER_MEMORY_FILE },
#endif
	/* Its flags lie in memory, where a filter cannot look. */
	{ SYS_clone3, FILTER_UNKNOWN },
	/* Each of its pages is taken out of the map in which the kernel has all memory: the map is
	 * left in small pieces for good, and everybody is slower. */
	{ 447, FILTER_UNKNOWN }, /* memfd_secret */
};

/* In a sandbox that may have namespaces inside, besides: what makes them and what fills them. A new
 * file system comes by mount(2) alone, whose type PID 1 can look at (nest.h): programs that find no
 * fsopen use that. */
static const struct filter_rule nested[] = {
	{ SYS_clone, FILTER_ALLOW },
	{ SYS_clone3, FILTER_ALLOW },
	{ SYS_unshare, FILTER_ALLOW },
	{ SYS_setns, FILTER_ALLOW },
	{ SYS_mount, FILTER_NESTED_MOUNT },
	{ SYS_umount2, FILTER_ALLOW },
	{ SYS_pivot_root, FILTER_ALLOW },
	{ SYS_sethostname, FILTER_ALLOW },
	{ SYS_setdomainname, FILTER_ALLOW },
	{ SYS_setsockopt, FILTER_NESTED_OPTION },
	{ SYS_open_tree, FILTER_ALLOW },
	{ SYS_move_mount, FILTER_ALLOW },
	{ SYS_mount_setattr, FILTER_ALLOW },
	{ SYS_fsopen, FILTER_UNKNOWN },
	{ SYS_fspick, FILTER_UNKNOWN },
	{ SYS_fsconfig, FILTER_UNKNOWN },
	{ SYS_fsmount, FILTER_UNKNOWN },
};

/* A volume lies on the host's disk, beside everybody's. One call could take all of that, faster
 * than anybody can look; what is written can be seen coming. */
static enum filter_verdict verdict_of(const struct filter_rule *rule,
	const struct seccomp_kind *kind)
{
	bool takes_room = rule->verdict == FILTER_PLACE || rule->verdict == FILTER_PLACE_IOCTL;

	return takes_room && !kind->has_volumes ? FILTER_ALLOW : rule->verdict;
}

static void fill_verdicts(const struct seccomp_kind *kind,
	enum filter_verdict verdicts[FILTER_LAST_KNOWN + 1])
{
	for (size_t i = 0; i <= FILTER_LAST_KNOWN; i++)
		verdicts[i] = FILTER_REFUSE;
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		for (uint32_t n = allowed[i].first; n <= allowed[i].last; n++)
			verdicts[n] = FILTER_ALLOW;
	for (size_t i = 0; i < ARRAY_SIZE(specials); i++)
		verdicts[specials[i].number] = verdict_of(&specials[i], kind);
	for (size_t i = 0; kind->is_nested && i < ARRAY_SIZE(nested); i++)
		verdicts[nested[i].number] = nested[i].verdict;
}

size_t seccomp_build(const struct seccomp_kind *kind, struct sock_filter out[FILTER_MAX_INSNS])
{
	enum filter_verdict verdicts[FILTER_LAST_KNOWN + 1];
	struct filter_start starts[FILTER_MAX_STARTS];
	size_t n = 0;

	fill_verdicts(kind, verdicts);
	for (uint32_t i = 0; i <= FILTER_LAST_KNOWN; i++) {
		if (n && starts[n - 1].verdict == verdicts[i])
			continue;
		assert(n < FILTER_MAX_STARTS - 1);
		starts[n++] = (struct filter_start){ i, verdicts[i] };
	}
	starts[n++] = (struct filter_start){ FILTER_LAST_KNOWN + 1, FILTER_UNKNOWN };
	return filter_assemble(starts, n, out);
}

int seccomp_load(const struct seccomp_kind *kind, int *ret_asked_fd, struct err *e)
{
	struct sock_filter filter[FILTER_MAX_INSNS];

	return filter_load_asking(filter, seccomp_build(kind, filter), ret_asked_fd, e);
}
