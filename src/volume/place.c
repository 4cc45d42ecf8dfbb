#include "volume/volume-internal.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

int place_clean(struct str path, char out[PATH_MAX], struct err *e)
{
	struct str part;
	size_t to = 0;

	if (path.n >= PATH_MAX - 1 || !str_is_utf8(path))
		return err_set(e, -EINVAL, "path is too long or not UTF-8");
	while (str_split(&path, '/', &part)) {
		if (str_is(part, "..")) {
			while (to > 0 && out[--to] != '/')
				;
		} else if (part.n > NAME_MAX) {
			return err_set(e, -EINVAL, "a name in the path is longer than %d bytes",
				NAME_MAX);
		} else if (part.n > 0 && !str_is(part, ".")) {
			out[to++] = '/';
			memcpy(out + to, part.p, part.n);
			to += part.n;
		}
	}
	if (to == 0)
		out[to++] = '/';
	out[to] = '\0';
	return 0;
}

struct str place_base(const char *clean)
{
	const char *slash = strrchr(clean, '/');

	return slash[1] ? str_of(slash + 1) : str_of(slash);
}

int place_open(int root_fd, const char *clean, int flags)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };
	int64_t fd = -1;

	/* The kernel says EAGAIN when a rename raced with a "..": then it has to look again. */
	for (int i = 0; i < 16; i++) {
		fd = syscall(SYS_openat2, root_fd, clean, &how, sizeof how);
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

int place_open_parent(int root_fd, const char *clean)
{
	struct str base = place_base(clean);
	char parent[PATH_MAX];

	if (str_is(base, "/"))
		return -EEXIST;
	(void)snprintf(parent, sizeof parent, "%.*s",
		(int)MAX(strlen(clean) - base.n - 1, (size_t)1), clean);
	return place_open(root_fd, parent, O_PATH | O_DIRECTORY);
}

int place_fail(struct err *e, int code, const char *clean)
{
	switch (-code) {
	case ENOENT:
	case ENOTDIR:
		return err_set(e, -ENOENT, "Path %s not found", clean);
	case EEXIST:
	case EISDIR:
	case ENOTEMPTY:
		return err_set(e, -EEXIST, "Path %s already exists", clean);
	case ELOOP:
	case EXDEV:
	case ENXIO:
		return err_set(e, -EINVAL, "Path %s cannot be used: it leads nowhere", clean);
	case EACCES:
	case EPERM:
		return err_set(e, -EPERM, "Path %s does not allow that: look at its mode", clean);
	case ENOSPC:
	case EDQUOT:
		return err_set(e, -ENOSPC, "not enough disk space available");
	}
	return err_sys(e, code, "path %s", clean);
}

int place_chmod(int fd, int mode)
{
	char self[32];

	/* fchmod does not take O_PATH, and opening otherwise needs the very mode to be changed. */
	(void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	return chmod(self, (mode_t)mode) < 0 ? -errno : 0;
}

int place_change(int fd, const struct volume_attr *attr)
{
	if ((attr->uid >= 0 || attr->gid >= 0) &&
		fchownat(fd, "", (uid_t)attr->uid, (gid_t)attr->gid, AT_EMPTY_PATH) < 0)
		return -errno;
	return attr->mode < 0 ? 0 : place_chmod(fd, attr->mode);
}
