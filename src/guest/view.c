#include "guest/view.h"
#include "guest/mounts.h"

#include <sys/mount.h>
#include <sys/stat.h>

/* What programs look for: processors and memory nodes, the sandbox's own interfaces, its limits,
 * and whether large pages are used by themselves. */
static const char *const kept[] = { "devices/system", "devices/virtual/net", "class/net",
	"fs/cgroup", "kernel/mm/transparent_hugepage" };

/* The way to these, parents first, and directories that programs list: empty ones are no error. */
static const char *const directories[] = { "block", "bus", "class", "class/block", "class/net",
	"dev", "dev/block", "dev/char", "devices", "devices/system", "devices/virtual",
	"devices/virtual/net", "firmware", "fs", "fs/cgroup", "kernel", "kernel/mm",
	"kernel/mm/transparent_hugepage", "module", "power" };

static int make_tree(int *ret, struct err *e)
{
	static const struct mount_option options[MOUNT_MAX_OPTIONS] = { { "mode", "0555" },
		{ "size", "4096" } };
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	cleanup_close int fd = -EBADF;
	int r = mount_make("tmpfs", options, MOUNT_PLAIN, &fd, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (mkdirat(fd, directories[i], 0555) < 0)
			return err_sys(e, -errno, "make /sys/%s", directories[i]);
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "make /sys read-only");
	*ret = TAKE_FD(fd);
	return 0;
}

/* -EBADF in *ret: this kernel has none. */
static int clone_kept(const char *name, int *ret, struct err *e)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/sys/%s", name);
	*ret = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (*ret < 0 && errno != ENOENT)
		return err_sys(e, -errno, "clone %s", path);
	return 0;
}

static int put_kept(int fd, const char *name, struct err *e)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/sys/%s", name);
	return fd < 0 ? 0 : mount_put(fd, path, e);
}

int view_sysfs(struct err *e)
{
	int parts[ARRAY_SIZE(kept)], tree = -EBADF, r;

	memset(parts, 0xff, sizeof parts); /* all -1: nothing open */
	r = make_tree(&tree, e);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kept); i++)
		r = clone_kept(kept[i], &parts[i], e);
	if (r >= 0)
		r = mount_put(tree, "/sys", e);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kept); i++)
		r = put_kept(parts[i], kept[i], e);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		close_fdp(&parts[i]);
	close_fdp(&tree);
	return r;
}
