/* seal - what PID 1 takes from itself before anything of the sandbox's own runs: the kernel's files
 * about the whole machine, capabilities, system calls, and more open files than programs expect. It
 * needs to be root with all capabilities in its user namespace, its root to be the sandbox's. */
#pragma once

#include "base/base.h"

/* What is kept of capabilities. */
enum {
	SEAL_CAPS = 14,
};
struct seal_cap {
	const char *name;
	int number;
};
extern const struct seal_cap seal_caps[SEAL_CAPS];

/* Which of the host's devices are shown, each a mount of its own. */
enum {
	SEAL_DEVICES = 6,
};
extern const char *const seal_devices[SEAL_DEVICES];
/* Where an engine has mounted them: read-only as nodes, since their times are the host's, and none
 * but these, whatever a template brings along. */
int seal_device_nodes(struct err *e);
struct view;
/* Hides or freezes what concerns the host in /proc and /sys, and gives a boot id of its own. The
 * groups as for view_show. */
int seal_kernel_files(const struct view *view, const int *groups, struct err *e);
/* What is covered of /proc, one after the other; NULL: there are no more. */
const char *seal_covered(size_t i);
/* Lowers only, so it never needs a privilege. */
void seal_limits(void);
/* Capabilities and the system call filter (whose descriptor is for grant.h), or only the former. */
struct seccomp_kind;
int seal_self(const struct seccomp_kind *kind, int *ret_asked_fd, struct err *e);
int seal_capabilities(struct err *e);
