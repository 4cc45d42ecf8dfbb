#include "guest/seal.h"
#include "guest/mounts.h"
#include "guest/seccomp.h"
#include "guest/view.h"

#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define EMPTY_DIR "/dev/.empty"

/* One call, unlike mount_put: what lies below /proc is the kernel's own, there are no links of a
 * template on the way. What this kernel does not have needs no cover. */
static int hide(const char *path, const char *cover, struct err *e)
{
	if (mount(cover, path, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
		return err_sys(e, -errno, "cover %s", path);
	return 0;
}

static int freeze(const char *path, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_PLAIN };
	cleanup_close int fd = -EBADF;
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "clone %s", path);
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
		return err_sys(e, -errno, "make %s read-only", path);
	return mount_put(fd, path, e);
}

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* A boot of its own: programs take this id for "the same boot as before", and the host's would
 * neither change with a fresh start of the sandbox nor differ between sandboxes. */
static int give_boot_id(struct err *e)
{
	static const char file[] = "/dev/.boot-id";
	cleanup_close int cover = -EBADF;
	uint8_t b[16];
	char text[40];
	int n, fd, r;

	random_bytes(b, sizeof b);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	n = snprintf(text, sizeof text,
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0],
		b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		b[14], b[15]);
	fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
	if (fd < 0)
		return err_sys(e, -errno, "make %s", file);
	r = fd_write_all(fd, text, (size_t)n);
	(void)close(fd);
	if (r < 0)
		return err_sys(e, r, "write %s", file);
	cover = open_tree(AT_FDCWD, file, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (cover < 0)
		return err_sys(e, -errno, "clone %s", file);
	r = mount_put(cover, BOOT_ID, e);
	(void)unlink(file); /* it lives on where it is mounted */
	return r;
}

/* The kernel's own files that concern the whole machine: its secrets, its devices, and what its
 * other users do. What programs size themselves by is shown as the sandbox has it: see cover.h. */
static const char *const files[] = { "/proc/diskstats", "/proc/interrupts", "/proc/kallsyms",
	"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/locks", "/proc/mdstat",
	"/proc/partitions", "/proc/sched_debug", "/proc/schedstat", "/proc/swaps",
	"/proc/timer_list", "/proc/timer_stats" };
static const char *const directories[] = { "/proc/acpi", "/proc/asound", "/proc/bus", "/proc/fs",
	"/proc/irq", "/proc/pressure", "/proc/scsi" };
static const char *const frozen[] = { "/proc/sys", "/proc/sysrq-trigger" };

const char *seal_covered(size_t i)
{
	static const struct {
		const char *const *v;
		size_t n;
	} lists[] = { { files, ARRAY_SIZE(files) }, { directories, ARRAY_SIZE(directories) },
		{ frozen, ARRAY_SIZE(frozen) } };

	for (size_t k = 0; k < ARRAY_SIZE(lists); k++) {
		if (i < lists[k].n)
			return lists[k].v[i];
		i -= lists[k].n;
	}
	return cover_in_proc(i);
}

static int mask_host(struct err *e)
{
	int r = 0;

	if (mkdir(EMPTY_DIR, 0555) < 0)
		return err_sys(e, -errno, "make an empty directory");
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(files); i++)
		r = hide(files[i], "/dev/null", e);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(directories); i++)
		r = hide(directories[i], EMPTY_DIR, e);
	/* Deleted, it can never be filled; the covers keep it. */
	(void)rmdir(EMPTY_DIR);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(frozen); i++)
		r = freeze(frozen[i], e);
	return r;
}

const char *const seal_devices[SEAL_DEVICES] = { "/dev/null", "/dev/zero", "/dev/full",
	"/dev/random", "/dev/urandom", "/dev/tty" };

int seal_device_nodes(struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					       MOUNT_ATTR_NOEXEC };

	struct mount_attr none = { .attr_set = MOUNT_ATTR_NODEV };

	for (size_t i = 0; i < SEAL_DEVICES; i++)
		if (mount_setattr(AT_FDCWD, seal_devices[i], 0, &attr, sizeof attr) < 0)
			return err_sys(e, -errno, "make %s read-only", seal_devices[i]);
	/* It was so when it was handed over, and crun mounts it again without. */
	if (mount_setattr(AT_FDCWD, "/", 0, &none, sizeof none) < 0)
		return err_sys(e, -errno, "allow no devices in the root");
	return 0;
}

int seal_kernel_files(const struct view *view, const int *groups, struct err *e)
{
	int r = mask_host(e);

	if (r >= 0)
		r = view_show(view, groups, e);
	return r < 0 ? r : give_boot_id(e);
}

/* Lowers only, so it never needs a privilege. */
void seal_limits(void)
{
	struct rlimit core;

	if (getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		(void)setrlimit(RLIMIT_CORE, &core);
	}
	(void)umask(022);
}

#define CAP(name)           \
	{                   \
#name, name \
	}
const struct seal_cap seal_caps[] = { CAP(CAP_CHOWN), CAP(CAP_DAC_OVERRIDE), CAP(CAP_FOWNER),
	CAP(CAP_FSETID), CAP(CAP_KILL), CAP(CAP_SETGID), CAP(CAP_SETUID), CAP(CAP_SETPCAP),
	CAP(CAP_NET_BIND_SERVICE), CAP(CAP_NET_RAW), CAP(CAP_SYS_CHROOT), CAP(CAP_MKNOD),
	CAP(CAP_AUDIT_WRITE), CAP(CAP_SETFCAP) };

#define BIT(cap) (UINT64_C(1) << (cap))

static uint64_t kept_mask(void)
{
	uint64_t mask = 0;

	for (size_t i = 0; i < SEAL_CAPS; i++)
		mask |= BIT(seal_caps[i].number);
	return mask;
}

static int bound_caps(uint64_t kept, struct err *e)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(kept >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_sys(e, -errno, "drop capability %d", cap);
	/* Where there are none (gVisor), there is nothing to clear. */
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
		return err_sys(e, -errno, "clear ambient capabilities");
	return 0;
}

static int drop_caps(uint64_t mask, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data) < 0)
		return err_sys(e, -errno, "capget");
	for (int i = 0; i < 2; i++) {
		/* An engine may have kept some back. */
		data[i].permitted &= (uint32_t)(mask >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, data) < 0)
		return err_sys(e, -errno, "capset");
	return 0;
}

int seal_capabilities(struct err *e)
{
	int r = bound_caps(kept_mask(), e);

	return r < 0 ? r : drop_caps(kept_mask(), e);
}

/* The filter goes on between the two halves of dropping: without no_new_privs the kernel wants
 * CAP_SYS_ADMIN for it. Root of a nested one may mount, in mount namespaces that are its own; PID 1
 * alone may look at who asks it to (nest.h). */
int seal_self(const struct seccomp_kind *kind, int *ret_asked_fd, struct err *e)
{
	uint64_t kept = kept_mask() | (kind->is_nested ? BIT(CAP_SYS_ADMIN) : 0);
	int r = bound_caps(kept, e);

	if (r >= 0)
		r = seccomp_load(kind, ret_asked_fd, e);
	if (r >= 0)
		r = drop_caps(kept | (kind->is_nested ? BIT(CAP_SYS_PTRACE) : 0), e);
	return r;
}
