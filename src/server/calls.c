/* The server parses all that comes from outside: whoever should get hold of it finds a process that
 * starts no other, looks into none, becomes nobody else, and reaches no part of the kernel that
 * serving does not need.
 *
 * What is refused is named, all else that is known is allowed, and what is newer than our knowledge
 * does not exist. Since the known calls are a closed set, this is as strict as naming what is
 * allowed, and a libc that tomorrow uses another harmless call goes on working. For the same reason
 * a refused call fails with EPERM and does not end the server. */
#include "server/calls.h"

#include <sys/syscall.h>

#define NO(name)                          \
	{                                 \
		SYS_##name, FILTER_REFUSE \
	}

static const struct filter_rule rules[] = {
/* Other processes, other users, other namespaces. The sanitizers look for leaks from a process
 * that traces this one, and say what they found through another program. */
#ifndef ATOLL_SANITIZED
	NO(execve),
	NO(execveat),
	NO(ptrace),
	{ SYS_clone, FILTER_THREAD },
#else
	{ SYS_clone, FILTER_CLONE },
#endif
	{ SYS_clone3, FILTER_UNKNOWN }, /* its flags lie in memory, where a filter cannot look */
	NO(process_vm_readv),
	NO(process_vm_writev),
	NO(process_madvise),
	NO(process_mrelease),
	NO(kcmp),
	NO(pidfd_getfd),
	NO(setuid),
	NO(setgid),
	NO(setreuid),
	NO(setregid),
	NO(setresuid),
	NO(setresgid),
	NO(setfsuid),
	NO(setfsgid),
	NO(setgroups),
	NO(capset),
	NO(setns),
	NO(unshare),
	NO(personality),
	NO(chroot),
	NO(pivot_root),
	/* Mounts, devices, files without a path. */
	NO(mount),
	NO(umount2),
	NO(open_tree),
	NO(move_mount),
	NO(fsopen),
	NO(fsconfig),
	NO(fsmount),
	NO(fspick),
	NO(mount_setattr),
	{ 457, FILTER_REFUSE }, /* statmount */
	{ 458, FILTER_REFUSE }, /* listmount */
	NO(mknodat),
	NO(name_to_handle_at),
	NO(open_by_handle_at),
	NO(fanotify_init),
	NO(fanotify_mark),
	NO(quotactl),
	NO(quotactl_fd),
	NO(acct),
	NO(swapon),
	NO(swapoff),
	/* Terminals: one may be the operator's. */
	{ SYS_ioctl, FILTER_IOCTL },
	NO(vhangup),
	/* Parts of the kernel in which most of its holes were found. */
	NO(bpf),
	NO(perf_event_open),
	NO(userfaultfd),
	NO(io_uring_setup),
	NO(io_uring_enter),
	NO(io_uring_register),
	NO(keyctl),
	NO(add_key),
	NO(request_key),
	NO(seccomp),
	{ SYS_socket, FILTER_SOCKET },
	{ SYS_socketpair, FILTER_SOCKET },
	NO(remap_file_pages),
	NO(mbind),
	NO(set_mempolicy),
	NO(get_mempolicy),
	NO(migrate_pages),
	NO(move_pages),
	{ 459, FILTER_REFUSE }, /* lsm_get_self_attr */
	{ 460, FILTER_REFUSE }, /* lsm_set_self_attr */
	{ 461, FILTER_REFUSE }, /* lsm_list_modules */
	/* The machine. */
	NO(init_module),
	NO(finit_module),
	NO(delete_module),
	NO(kexec_load),
	NO(kexec_file_load),
	NO(reboot),
	NO(syslog),
	NO(sethostname),
	NO(setdomainname),
	NO(settimeofday),
	NO(clock_settime),
	NO(clock_adjtime),
	NO(adjtimex),
	NO(nfsservctl),
	NO(lookup_dcookie),
#if defined(__x86_64__)
#ifndef ATOLL_SANITIZED
	NO(fork),
	NO(vfork),
#endif
	NO(mknod),
	NO(modify_ldt),
	NO(iopl),
	NO(ioperm),
	NO(uselib),
	NO(ustat),
	NO(sysfs),
	NO(_sysctl),
	NO(create_module),
	NO(get_kernel_syms),
	NO(query_module),
	NO(vserver),
#endif
};

size_t calls_build(struct sock_filter out[FILTER_MAX_INSNS])
{
	return filter_build(rules, ARRAY_SIZE(rules), out);
}

int calls_limit(struct err *e)
{
	struct sock_filter filter[FILTER_MAX_INSNS];

	return filter_load(filter, calls_build(filter), e);
}
