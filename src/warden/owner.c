#include "warden/owner.h"
#include "warden/host.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum {
	MOUNTS_BYTES = 8 << 20,
	NO_MOUNT = -1,
};

/* Where the first is not allowed, in a container with a user namespace, the second may be. */
static const char *const label_names[] = { "trusted.atoll", "user.atoll" };

/* ---- mounts ---- */

struct mount_line {
	int64_t id;
	uint32_t major, minor;
	struct str point; /* as it is written: see unescape */
};

static bool number_of(struct str s, uint32_t *ret)
{
	int64_t n;

	if (str_to_int(s, 0, UINT32_MAX, &n) < 0)
		return false;
	*ret = (uint32_t)n;
	return true;
}

/* `36 35 98:0 /root /point options...` */
static bool parse_mount(struct str line, struct mount_line *ret)
{
	struct str field, device;

	if (!str_split(&line, ' ', &field) || str_to_int(field, 0, INT32_MAX, &ret->id) < 0 ||
		!str_split(&line, ' ', &field) || !str_split(&line, ' ', &device) ||
		!str_split(&device, ':', &field) || !number_of(field, &ret->major) ||
		!number_of(device, &ret->minor))
		return false;
	return str_split(&line, ' ', &field) && str_split(&line, ' ', &ret->point);
}

/* Blanks and the like are written as `\040`. */
static bool unescape(struct str s, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (n + 1 >= size)
			return false;
		if (c == '\\' && i + 3 < s.n) {
			c = (char)((s.p[i + 1] - '0') << 6 | (s.p[i + 2] - '0') << 3 |
				   (s.p[i + 3] - '0'));
			i += 3;
		}
		out[n++] = c;
	}
	out[n] = '\0';
	return true;
}

static int read_mounts(struct buf *ret)
{
	return file_read(AT_FDCWD, "/proc/self/mountinfo", ret, NULL);
}

/* ---- handles ---- */

union handle_room {
	struct file_handle handle;
	char bytes[sizeof(struct file_handle) + OWNER_HANDLE_BYTES];
};

/* Its mount's id, and its handle where there are any. */
static int handle_of(int fd, union handle_room *ret)
{
	int mount_id = NO_MOUNT;

	memset(ret, 0, sizeof *ret);
	ret->handle.handle_bytes = OWNER_HANDLE_BYTES;
	if (name_to_handle_at(fd, "", &ret->handle, &mount_id, AT_EMPTY_PATH) < 0)
		ret->handle.handle_bytes = 0;
	return mount_id;
}

static bool find_device(int mount_id, struct owner *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(MOUNTS_BYTES);
	struct mount_line m;
	struct str rest, line;

	if (read_mounts(&text) < 0)
		return false;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (parse_mount(line, &m) && m.id == mount_id) {
			ret->major = m.major;
			ret->minor = m.minor;
			return true;
		}
	return false;
}

/* Some file systems have no handles, and then the kernel does not say which mount it is either. */
static void device_of(int fd, struct owner *ret)
{
	struct stat st;

	if (fstat(fd, &st) == 0) {
		ret->major = major(st.st_dev);
		ret->minor = minor(st.st_dev);
	}
}

uint64_t owner_mount_ns(void)
{
	struct stat st;

	return stat("/proc/self/ns/mnt", &st) < 0 ? 0 : st.st_ino;
}

int owner_describe(const char *data_dir, uint64_t mount_ns, struct owner *ret, struct err *e)
{
	cleanup_close int fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *path = realpath(data_dir, NULL);
	struct owner owner = { .mount_ns = mount_ns };
	union handle_room room;
	int mount_id;

	if (fd < 0 || !path)
		return err_sys(e, -errno, "open %s", data_dir);
	if (strlen(path) >= sizeof owner.path)
		return err_set(e, -ENAMETOOLONG, "the path of %s is too long", data_dir);
	(void)snprintf(owner.path, sizeof owner.path, "%s", path);
	mount_id = handle_of(fd, &room);
	if (room.handle.handle_bytes && find_device(mount_id, &owner)) {
		owner.handle_type = room.handle.handle_type;
		owner.n_handle = room.handle.handle_bytes;
		memcpy(owner.handle, room.handle.f_handle, owner.n_handle);
	} else {
		device_of(fd, &owner);
	}
	*ret = owner;
	return 0;
}

/* ---- the label ---- */

#define LABEL_KIND "1"

int owner_write(const struct owner *owner, struct buf *out)
{
	char hex[2 * OWNER_HANDLE_BYTES + 1];

	hex_encode(owner->handle, owner->n_handle, hex);
	return buf_printf(out, LABEL_KIND " %" PRIu32 " %" PRIu32 " %" PRId32 " %s %" PRIu64 " %s",
		owner->major, owner->minor, owner->handle_type, owner->n_handle ? hex : "-",
		owner->mount_ns, owner->path);
}

static bool parse_handle(struct str hex, struct owner *ret)
{
	if (str_is(hex, "-"))
		return true;
	ret->n_handle = (uint32_t)(hex.n / 2);
	return hex.n > 0 && hex.n % 2 == 0 && ret->n_handle <= OWNER_HANDLE_BYTES &&
	       hex_decode(hex, ret->handle, ret->n_handle) >= 0;
}

int owner_parse(struct str label, struct owner *ret)
{
	struct owner owner = { 0 };
	struct str field;
	int64_t type, ns;

	if (!str_split(&label, ' ', &field) || !str_is(field, LABEL_KIND) ||
		!str_split(&label, ' ', &field) || !number_of(field, &owner.major) ||
		!str_split(&label, ' ', &field) || !number_of(field, &owner.minor) ||
		!str_split(&label, ' ', &field) ||
		str_to_int(field, INT32_MIN, INT32_MAX, &type) < 0 ||
		!str_split(&label, ' ', &field) || !parse_handle(field, &owner) ||
		!str_split(&label, ' ', &field) || str_to_int(field, 0, INT64_MAX, &ns) < 0)
		return -EINVAL;
	if (label.n < 2 || label.n >= sizeof owner.path || label.p[0] != '/' ||
		memchr(label.p, '\0', label.n))
		return -EINVAL;
	owner.handle_type = (int32_t)type;
	owner.mount_ns = (uint64_t)ns;
	memcpy(owner.path, label.p, label.n);
	*ret = owner;
	return 0;
}

/* ---- claiming ---- */

static int label(int fd, struct str text)
{
	int r = -ENOTSUP;

	for (size_t i = 0; r < 0 && i < ARRAY_SIZE(label_names); i++)
		r = fsetxattr(fd, label_names[i], text.p, text.n, 0) < 0 ? -errno : 0;
	return r;
}

int owner_label(const struct cgroups *cg, const struct owner *owner, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(OWNER_LABEL_BYTES);
	int r = owner_write(owner, &text);

	for (size_t i = 0; r >= 0 && i < CGROUP_HIERARCHIES; i++) {
		int fd = cgroups_dir(cg, i);

		if (fd >= 0)
			r = label(fd, buf_str(&text));
	}
	return r < 0 ? err_sys(e, r, "label the cgroups with the data directory") : 0;
}

int owner_lock(const struct cgroups *cg, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < CGROUP_HIERARCHIES; i++) {
		int fd = cgroups_dir(cg, i);

		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
			r = -errno;
	}
	return r < 0 ? err_sys(e, r, "lock the cgroups") : 0;
}

/* ---- judging ---- */

/* By a mount of that file system. 1: it is there, 0: it is not, -errno: it cannot be asked so. */
static int ask_mount(int mount_fd, const struct owner *owner)
{
	cleanup_close int fd = -EBADF;
	union handle_room room;
	struct stat st;

	memset(&room, 0, sizeof room);
	room.handle.handle_bytes = owner->n_handle;
	room.handle.handle_type = owner->handle_type;
	memcpy(room.handle.f_handle, owner->handle, owner->n_handle);
	fd = open_by_handle_at(mount_fd, &room.handle, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ESTALE ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_nlink > 0;
}

/* What is mounted there now may be another one on top. */
static int ask_line(const struct mount_line *m, const struct owner *owner)
{
	cleanup_close int fd = -EBADF;
	char path[OWNER_PATH_BYTES];
	union handle_room room;

	if (!unescape(m->point, path, sizeof path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return handle_of(fd, &room) == m->id ? ask_mount(fd, owner) : -EXDEV;
}

static enum owner_fate ask_file_system(const struct owner *owner)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(MOUNTS_BYTES);
	struct mount_line m;
	struct str rest, line;
	int r = read_mounts(&text);

	if (r < 0)
		return OWNER_UNKNOWN;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		if (!parse_mount(line, &m) || m.major != owner->major || m.minor != owner->minor)
			continue;
		r = ask_line(&m, owner);
		if (r >= 0)
			return r ? OWNER_AWAY : OWNER_GONE;
	}
	return OWNER_UNKNOWN;
}

/* On the file system of which the label says that the directory is on it? */
static bool is_same_device(int fd, const struct owner *owner)
{
	struct owner there = { 0 };
	union handle_room room;

	if (!owner->n_handle)
		device_of(fd, &there);
	else if (!find_device(handle_of(fd, &room), &there))
		return false;
	return there.major == owner->major && there.minor == owner->minor;
}

/* Whether the nearest directory above that is there is on what the label says. A link on the way
 * was made since: what it stood for may be somewhere else. */
static bool is_above_there(char *path, const struct owner *owner)
{
	cleanup_close int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *slash;

	while ((slash = strrchr(path, '/'))) {
		cleanup_close int fd = -EBADF;

		*slash = '\0';
		if (slash == path)
			return is_same_device(root, owner);
		fd = open_beneath(root, path + 1, O_RDONLY | O_DIRECTORY);
		if (fd >= 0)
			return is_same_device(fd, owner);
		if (fd != -ENOENT)
			return false;
	}
	return false;
}

/* What its path says, in the namespace that it is from: gone if what it was on is there without it.
 * A file system that does not know a handle may have forgotten it, as FUSE does, and a directory
 * that is there by now may be a copy: whose sandboxes these are is not known then. */
static enum owner_fate ask_path(const struct owner *owner)
{
	char path[OWNER_PATH_BYTES];
	struct stat st;

	if (owner->mount_ns == 0 || owner->mount_ns != owner_mount_ns())
		return OWNER_UNKNOWN;
	(void)snprintf(path, sizeof path, "%s", owner->path);
	if (lstat(path, &st) == 0)
		return owner->n_handle ? OWNER_UNKNOWN : OWNER_AWAY;
	return errno == ENOENT && is_above_there(path, owner) ? OWNER_GONE : OWNER_UNKNOWN;
}

enum owner_fate owner_look(const struct owner *owner)
{
	enum owner_fate fate = owner->n_handle ? ask_file_system(owner) : OWNER_GONE;

	return fate == OWNER_GONE ? ask_path(owner) : fate;
}

static int read_label(int fd, struct owner *ret)
{
	char text[OWNER_LABEL_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(label_names); i++) {
		ssize_t n = fgetxattr(fd, label_names[i], text, sizeof text);

		if (n >= 0)
			return owner_parse(str_make(text, (size_t)n), ret);
	}
	return -ENODATA;
}

enum owner_fate owner_judge(const struct cgroups *cg, struct owner *ret)
{
	bool is_held = false, is_known = false;

	*ret = (struct owner){ 0 };
	for (size_t i = 0; i < CGROUP_HIERARCHIES; i++) {
		int fd = cgroups_dir(cg, i);

		if (fd < 0)
			continue;
		is_held |= flock(fd, LOCK_EX | LOCK_NB) < 0;
		is_known |= read_label(fd, ret) >= 0;
	}
	return is_held ? OWNER_LIVES : is_known ? owner_look(ret) : OWNER_UNKNOWN;
}

bool owner_is_still_gone(const struct cgroups *cg, const struct owner *judged)
{
	size_t n = 0;

	for (size_t i = 0; i < CGROUP_HIERARCHIES; i++) {
		struct owner now = { 0 };
		int fd = cgroups_dir(cg, i);

		if (fd < 0 || read_label(fd, &now) < 0)
			continue;
		if (memcmp(&now, judged, sizeof now) != 0)
			return false;
		n++;
	}
	return n > 0 && owner_look(judged) == OWNER_GONE;
}
