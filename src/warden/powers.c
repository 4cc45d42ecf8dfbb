/* The warden must be able to mount, to make namespaces and interfaces, and to own files of any
 * user: with CAP_SYS_ADMIN that is most of root. What it never needs is given up all the same, so
 * that a mistake in it does not reach the kernel's memory, its modules or its clock.
 *
 * Helpers (nft, mkfs) and sandboxes inherit the filter, so it must allow whatever a sandbox may do,
 * tracing among it. The capabilities are theirs as well, except inside a sandbox: a new user
 * namespace begins with its own set. no_new_privs is not set, since it would be inherited too, and
 * sudo must work in sandboxes. */
#include "warden/powers.h"
#include "base/confine.h"

#include <linux/capability.h>
#include <sys/syscall.h>

#define CAP(name) (UINT64_C(1) << CAP_##name)

/* SYS_PTRACE: opens the namespaces of a process that has not yet executed its guest. MKNOD,
 * SETFCAP, FSETID: an overlay does what a sandbox does with the powers of who mounted it. NET_RAW:
 * iptables. SYS_RESOURCE: PID 1 of a sandbox is the last to go when memory runs out. */
static const uint64_t kept_caps = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) |
				  CAP(KILL) | CAP(SETGID) | CAP(SETUID) | CAP(NET_ADMIN) |
				  CAP(NET_RAW) | CAP(SYS_ADMIN) | CAP(SYS_PTRACE) | CAP(MKNOD) |
				  CAP(SETFCAP) | CAP(SYS_RESOURCE);

#define NO(name)                          \
	{                                 \
		SYS_##name, FILTER_REFUSE \
	}

static const struct filter_rule rules[] = {
	NO(init_module),
	NO(finit_module),
	NO(delete_module),
	NO(kexec_load),
	NO(kexec_file_load),
	NO(reboot),
	NO(swapon),
	NO(swapoff),
	NO(acct),
	NO(syslog),
	NO(settimeofday),
	NO(clock_settime),
	NO(clock_adjtime),
	NO(bpf),
	NO(perf_event_open),
	NO(userfaultfd),
	NO(io_uring_setup),
	NO(io_uring_enter),
	NO(io_uring_register),
	NO(open_by_handle_at),
	NO(fanotify_init),
	NO(kcmp),
	NO(pidfd_getfd),
	NO(quotactl),
	NO(quotactl_fd),
	NO(vhangup),
	NO(nfsservctl),
	NO(lookup_dcookie),
	/* Engines want a keyring of their own, and go on where the kernel has none. */
	{ SYS_keyctl, FILTER_UNKNOWN },
	{ SYS_add_key, FILTER_UNKNOWN },
	{ SYS_request_key, FILTER_UNKNOWN },
	{ SYS_socket, FILTER_SOCKET },
	{ SYS_socketpair, FILTER_SOCKET },
#if defined(__x86_64__)
	NO(iopl),
	NO(ioperm),
	NO(uselib),
	NO(ustat),
	NO(sysfs),
	NO(_sysctl),
#endif
};

size_t powers_build(struct sock_filter out[FILTER_MAX_INSNS])
{
	return filter_build(rules, ARRAY_SIZE(rules), out);
}

int powers_drop(struct err *e)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	int r = filter_load(filter, powers_build(filter), e);

	confine_memory();
	return r < 0 ? r : confine_capabilities(kept_caps, e);
}
