/* view - what a sandbox sees of /sys: a small read-only tree in its place. Disks, file systems and
 * devices of the host, and so its neighbours' images and how busy they are, are not in it. */
#pragma once

#include "base/base.h"

/* Wants sysfs on /sys, and cgroup2 on /sys/fs/cgroup if it is to be seen. */
int view_sysfs(struct err *e);
