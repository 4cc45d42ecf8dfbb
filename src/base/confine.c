#include "base/confine.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* The soft limit only: it is inherited, and who wants a core of a program in a sandbox may have it
 * there. Undumpable alone would do, also where the kernel pipes cores to a program; but executing
 * ends that, and the limit stays. */
void confine_memory(void)
{
	struct rlimit core;

	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		(void)setrlimit(RLIMIT_CORE, &core);
	}
}

static int drop_bounds(uint64_t kept, struct err *e)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(kept >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_sys(e, -errno, "drop capability %d", cap);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(e, -errno, "clear ambient capabilities");
	return 0;
}

int confine_capabilities(uint64_t kept, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	int r = drop_bounds(kept, e);

	if (r < 0)
		return r;
	if (syscall(SYS_capget, &head, data) < 0)
		return err_sys(e, -errno, "capget");
	for (int i = 0; i < 2; i++) {
		/* In a container there may be fewer to begin with. */
		data[i].permitted &= (uint32_t)(kept >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? err_sys(e, -errno, "capset") : 0;
}
