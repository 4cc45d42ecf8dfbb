#include "warden/copy.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum {
	CHUNK_BYTES = 64 << 10,
	BLOCK_BYTES = 4096,
};

/* For two file systems of different kinds, between which the kernel does not copy by itself. */
static ssize_t copy_chunk(int from, int to, off_t at, size_t n)
{
	char chunk[CHUNK_BYTES];
	ssize_t got = pread(from, chunk, MIN(n, sizeof chunk), at), put = 0;

	while (got >= 0 && put < got) {
		ssize_t more = pwrite(to, chunk + put, (size_t)(got - put), at + put);

		if (more < 0)
			return -1;
		put += more;
	}
	return got;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
	bool by_hand = false;

	while (at < end) {
		off_t in = at, out = at;
		size_t left = (size_t)(end - at);
		ssize_t n = by_hand ? copy_chunk(from, to, at, left)
				    : copy_file_range(from, &in, to, &out, left, 0);

		if (n < 0 && !by_hand && (errno == EXDEV || errno == EOPNOTSUPP)) {
			by_hand = true;
			continue;
		}
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
	}
	return 0;
}

int copy_image(int from, int to, struct err *e)
{
	struct stat st;
	off_t at = 0;

	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	/* Out of space by reference is out of space: the long way would only find it out later. */
	if (errno == ENOSPC || errno == EDQUOT)
		return err_sys(e, -errno, "copy an image");
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return err_sys(e, -errno, "size the image");
	for (;;) {
		off_t end;
		int r;

		at = lseek(from, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : err_sys(e, -errno, "read an image");
		end = lseek(from, at, SEEK_HOLE);
		if (end < 0)
			return err_sys(e, -errno, "read an image");
		r = copy_range(from, to, at, end);
		if (r < 0)
			return err_sys(e, r, "copy an image");
		at = end;
	}
}

bool copy_is_cheap_in(int dir_fd)
{
	static const char block[BLOCK_BYTES] = "x";
	cleanup_close int from = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	cleanup_close int to = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return from >= 0 && to >= 0 && fd_write_all(from, block, sizeof block) >= 0 &&
	       ioctl(to, FICLONE, from) == 0;
}
