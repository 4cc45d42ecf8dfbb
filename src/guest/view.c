#include "guest/view.h"
#include "guest/mounts.h"

#include <sys/mount.h>
#include <sys/stat.h>

#define GROUPS "fs/cgroup"

/* What programs look for: processors and memory nodes, the sandbox's own interfaces, its limits,
 * and whether large pages are used by themselves. */
static const char *const kept[] = { "devices/system", "devices/virtual/net", "class/net", GROUPS,
	"kernel/mm/transparent_hugepage" };

/* The way to these, parents first, and directories that programs list: empty ones are no error. */
static const char *const directories[] = { "block", "bus", "class", "class/block", "class/net",
	"dev", "dev/block", "dev/char", "devices", "devices/system", "devices/virtual",
	"devices/virtual/net", "firmware", "fs", GROUPS, GROUPS "/cpu", GROUPS "/memory", "kernel",
	"kernel/mm", "kernel/mm/transparent_hugepage", "module", "power" };

static const char *const group_places[GUEST_GROUPS] = {
	[GROUP_MEMORY] = "/sys/" GROUPS "/memory",
	[GROUP_CPU] = "/sys/" GROUPS "/cpu",
};

static int fill(int fd, struct covers *ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (mkdirat(fd, directories[i], 0555) < 0)
			return err_sys(e, -errno, "make /sys/%s", directories[i]);
	return covers_make(fd, ret, e);
}

/* Two mounts of one file system, since only what is attached somewhere can be cloned. The first one
 * is kept by the files alone that are written through it. */
int view_make(struct view *ret, struct err *e)
{
	static const struct mount_option options[MOUNT_MAX_OPTIONS] = { { "mode", "0555" },
		{ "size", "512k" } };
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	cleanup_close int tree = -EBADF, clone = -EBADF;
	int r = mount_make("tmpfs", options, MOUNT_PLAIN, &tree, e);

	if (r >= 0)
		r = fill(tree, &ret->covers, e);
	if (r >= 0)
		r = mount_put(tree, "/sys", e);
	if (r < 0)
		return r;
	clone = open_tree(AT_FDCWD, "/sys", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (clone < 0 || mount_setattr(clone, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "make /sys read-only");
	ret->show_fd = TAKE_FD(clone);
	return 0;
}

void view_done(struct view *v)
{
	close_fdp(&v->show_fd);
	covers_done(&v->covers);
	*v = (struct view)VIEW_INIT;
}

int view_unstage(struct err *e)
{
	return umount2("/sys", MNT_DETACH) < 0 ? err_sys(e, -errno, "unmount /sys") : 0;
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

int view_show(const struct view *v, const int *groups, struct err *e)
{
	int parts[ARRAY_SIZE(kept)], r = 0;

	memset(parts, 0xff, sizeof parts); /* all -1: nothing open */
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kept); i++)
		if (!groups || strcmp(kept[i], GROUPS) != 0)
			r = clone_kept(kept[i], &parts[i], e);
	if (r >= 0)
		r = mount_put(v->show_fd, "/sys", e);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(kept); i++)
		r = put_kept(parts[i], kept[i], e);
	for (size_t i = 0; r >= 0 && groups && i < GUEST_GROUPS; i++)
		r = mount_put(groups[i], group_places[i], e);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		close_fdp(&parts[i]);
	return r < 0 ? r : covers_put(e);
}
