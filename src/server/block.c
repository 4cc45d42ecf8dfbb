/* Volumes hold files of whatever uids the users of sandboxes have, with whatever modes; on disk
 * they are all of the server's block. Whoever reads and removes them must be root for this block,
 * and for nothing else. That is what a user namespace is: outside of its map the capabilities kept
 * here count for nothing, and a stolen server is still nobody on this host. No capability is kept
 * that would make namespaces, mounts or networks: those would open more of the kernel than they are
 * worth. */
#include "server/block.h"
#include "base/confine.h"
#include "base/userns.h"
#include "warden/proto.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>

static const uint64_t kept_caps =
	UINT64_C(1) << CAP_CHOWN | UINT64_C(1) << CAP_DAC_OVERRIDE | UINT64_C(1) << CAP_FOWNER;

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
	return confine_capabilities(kept_caps, e);
}
