/* Volumes hold files of whatever uids the users of sandboxes have, with whatever modes; on disk
 * they are all of the server's block. Whoever reads and removes them must be root for this block,
 * and for nothing else. That is what a user namespace is: outside of its map the capabilities kept
 * here count for nothing, and a stolen server is still nobody on this host. No capability is kept
 * that would make namespaces, mounts or networks: those would open more of the kernel than they are
 * worth. */
#include "server/block.h"
#include "base/userns.h"
#include "warden/proto.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const uint32_t kept_caps = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER;

static int drop_caps(struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { kept_caps, kept_caps, 0 }, { 0 } };

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if ((cap >= 32 || !(kept_caps >> cap & 1)) &&
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_sys(e, -errno, "drop capability %d", cap);
	if (syscall(SYS_capset, &head, data) < 0)
		return err_sys(e, -errno, "capset");
	return 0;
}

int block_enter(struct err *e)
{
	cleanup_close int fd = userns_make(0, WARDEN_FIRST_UID, WARDEN_UID_BLOCK, e);

	if (fd < 0)
		return fd;
	if (setgroups(0, NULL) < 0)
		return err_sys(e, -errno, "give up groups");
	if (setns(fd, CLONE_NEWUSER) < 0)
		return err_sys(e, -errno, "enter the server's user namespace");
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_sys(e, -errno, "become the server's user");
	return drop_caps(e);
}
