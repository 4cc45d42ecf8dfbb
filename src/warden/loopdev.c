#include "warden/loopdev.h"

#include <dirent.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define NOTE_NAME "trusted.atoll.loop"

enum {
	LOOP_MAJOR_NUMBER = 7,
	PAUSE_US = 1000,
	MAX_TRIES = 64, /* another program may take the device between asking and attaching */
};

int loopdev_open(void)
{
	int fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -EBADF : fd;
}

static int open_device(int number)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof path, "/dev/loop%d", number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 || errno != ENOENT)
		return fd < 0 ? -errno : fd;
	/* A /dev that is not the kernel's own does not follow new devices. */
	(void)mknod(path, S_IFBLK | 0660, makedev(LOOP_MAJOR_NUMBER, (unsigned)number));
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int configure(int fd, int file_fd, const char *name, bool *no_direct_io)
{
	struct loop_config config = { .fd = (uint32_t)file_fd, .block_size = 4096 };

	config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
	(void)snprintf((char *)config.info.lo_file_name, sizeof config.info.lo_file_name, "%s",
		name);
	if (!*no_direct_io) {
		config.info.lo_flags |= LO_FLAGS_DIRECT_IO;
		if (ioctl(fd, LOOP_CONFIGURE, &config) == 0)
			return 0;
		if (errno != EINVAL)
			return -errno;
		*no_direct_io = true;
		config.info.lo_flags &= ~(uint32_t)LO_FLAGS_DIRECT_IO;
	}
	return ioctl(fd, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

int loopdev_attach(int control_fd, int file_fd, const char *name, bool *no_direct_io, int *ret_fd,
	int *ret_number, struct err *e)
{
	int r = -EBUSY;

	for (int i = 0; i < MAX_TRIES && r == -EBUSY; i++) {
		int number = ioctl(control_fd, LOOP_CTL_GET_FREE);
		cleanup_close int fd = -EBADF;

		if (number < 0)
			return err_sys(e, -errno, "find a free loop device");
		fd = open_device(number);
		if (fd < 0)
			return err_sys(e, fd, "open /dev/loop%d", number);
		r = configure(fd, file_fd, name, no_direct_io);
		if (r >= 0) {
			*ret_fd = TAKE_FD(fd);
			*ret_number = number;
		}
	}
	return r < 0 ? err_sys(e, r, "attach %s to a loop device", name) : 0;
}

int loopdev_reopen(int number, int file_fd)
{
	cleanup_close int fd = open_device(number);
	struct loop_info64 info = { 0 };
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(file_fd, &st) < 0)
		return -errno;
	if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0 || info.lo_device != st.st_dev ||
		info.lo_inode != st.st_ino)
		return -ENXIO;
	return TAKE_FD(fd);
}

bool loopdev_is_attached(int number, const char *name)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(8192);
	char path[64];

	(void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", number);
	return file_read(AT_FDCWD, path, &text, NULL) >= 0 && strstr(buf_str(&text).p, name);
}

int loopdev_find(int file_fd, const char *file_name, int *ret_fd, int *ret_number)
{
	DIR *dir = opendir("/sys/block");
	struct dirent *entry;
	int r = -ENXIO;

	while (r < 0 && dir && (entry = readdir(dir))) {
		struct str name = str_of(entry->d_name);
		int64_t number;

		if (!str_has_prefix(name, STR("loop")) ||
			str_to_int(str_from(name, strlen("loop")), 0, 1 << 20, &number) < 0 ||
			!loopdev_is_attached((int)number, file_name))
			continue;
		r = loopdev_reopen((int)number, file_fd);
		if (r >= 0) {
			*ret_fd = r;
			*ret_number = (int)number;
		}
	}
	if (dir)
		(void)closedir(dir);
	return MIN(r, 0);
}

/* A host may have thousands of devices, so the file says which one had it last. */
static void note_device(int file_fd, int number)
{
	char text[16];
	int n = snprintf(text, sizeof text, "%d", number);

	(void)fsetxattr(file_fd, NOTE_NAME, text, (size_t)n, 0);
}

int loopdev_find_noted(int file_fd, const char *name, int *ret_fd, int *ret_number)
{
	char text[16];
	ssize_t n = fgetxattr(file_fd, NOTE_NAME, text, sizeof text);
	int64_t number;
	int fd;

	if (n > 0 && str_to_int(str_make(text, (size_t)n), 0, 1 << 20, &number) >= 0) {
		fd = loopdev_reopen((int)number, file_fd);
		if (fd >= 0) {
			*ret_fd = fd;
			*ret_number = (int)number;
			return 0;
		}
	}
	return loopdev_find(file_fd, name, ret_fd, ret_number);
}

static int attach_and_note(int control_fd, int file_fd, const char *name, int *ret_fd,
	int *ret_number, struct err *e)
{
	bool no_direct_io = false;
	int r = loopdev_attach(control_fd, file_fd, name, &no_direct_io, ret_fd, ret_number, e);

	if (r >= 0)
		note_device(file_fd, *ret_number);
	return r;
}

/* The lock is the open file's, and the device keeps that open: so it lasts exactly as long as the
 * device has the file, whoever dies. Who does not get it looks for the device, which may only be on
 * its way, here or out. */
int loopdev_attach_once(int control_fd, int dir_fd, const char *name, int64_t deadline_ms,
	int *ret_fd, int *ret_number, struct err *e)
{
	for (;;) {
		cleanup_close int file = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

		if (file < 0)
			return err_sys(e, -errno, "open %s", name);
		if (flock(file, LOCK_EX | LOCK_NB) == 0)
			return attach_and_note(control_fd, file, name, ret_fd, ret_number, e);
		if (loopdev_find_noted(file, name, ret_fd, ret_number) >= 0)
			return 0;
		if (time_now_ms() >= deadline_ms)
			return err_set(e, -EBUSY, "%s is locked, and no loop device has it", name);
		(void)usleep(PAUSE_US);
	}
}
