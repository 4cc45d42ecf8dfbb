#include "warden/reach.h"
#include "warden/wire.h"

#include <sys/stat.h>

#define FILE_NAME "policy"

/* In front of the ranges in a kept file, which are as they are on the wire. */
struct head {
	char magic[8];
	uint32_t flags, n;
};
static const char magic[8] = "atollp1";

static int check_range(const struct warden_range *range)
{
	uint32_t mask;

	if (range->bits > 32 || range->allow > 1 || range->zero)
		return -EINVAL;
	mask = range->bits ? UINT32_MAX << (32 - range->bits) : 0;
	return range->address & ~mask ? -EINVAL : 0;
}

static int check(const struct ranges *ranges)
{
	int r = ranges->n > WARDEN_MAX_RANGES || ranges->flags & ~(uint32_t)WARDEN_PROXIED ? -EINVAL
											   : 0;

	for (uint32_t i = 0; r >= 0 && i < ranges->n; i++)
		r = check_range(&ranges->v[i]);
	return r;
}

int ranges_receive(int fd, uint32_t flags, uint32_t n, struct ranges *ret, struct err *e)
{
	size_t size = n * sizeof *ret->v;
	struct stat st;
	int r;

	assert(n <= WARDEN_MAX_RANGES);
	ret->flags = flags;
	ret->n = n;
	if (n == 0)
		return 0;
	r = wire_check_settings(fd, e);
	if (r < 0)
		return err_wrap(e, r, "ranges");
	if (fstat(fd, &st) < 0 || (size_t)st.st_size != size ||
		pread(fd, ret->v, size, 0) != (ssize_t)size || check(ret) < 0)
		return err_set(e, -EINVAL, "bad ranges");
	return 0;
}

int ranges_write(int dir_fd, const struct ranges *ranges, struct err *e)
{
	char bytes[sizeof(struct head) + sizeof ranges->v];
	struct head head = { .flags = ranges->flags, .n = ranges->n };
	size_t size = ranges->n * sizeof *ranges->v;

	if (ranges->n == 0 && ranges->flags == 0) {
		if (unlinkat(dir_fd, FILE_NAME, 0) < 0 && errno != ENOENT)
			return err_sys(e, -errno, "remove " FILE_NAME);
		return 0;
	}
	memcpy(head.magic, magic, sizeof head.magic);
	memcpy(bytes, &head, sizeof head);
	memcpy(bytes + sizeof head, ranges->v, size);
	return file_replace(dir_fd, FILE_NAME, str_make(bytes, sizeof head + size), 0600, e);
}

int ranges_parse(struct str bytes, struct ranges *ret)
{
	struct head head;

	if (bytes.n < sizeof head)
		return -EINVAL;
	memcpy(&head, bytes.p, sizeof head);
	bytes = str_from(bytes, sizeof head);
	if (memcmp(head.magic, magic, sizeof magic) != 0 || head.n > WARDEN_MAX_RANGES ||
		bytes.n != head.n * sizeof *ret->v)
		return -EINVAL;
	ret->flags = head.flags;
	ret->n = head.n;
	memcpy(ret->v, bytes.p, bytes.n);
	return check(ret);
}

/* Only a file that root wrote counts, as with the state. */
int ranges_read(int dir_fd, struct ranges *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(sizeof(struct head) + sizeof ret->v + 1);
	struct err why = { 0 };
	cleanup_close int fd = file_open_own(dir_fd, FILE_NAME, 0, &why);
	int r;

	ret->flags = ret->n = 0;
	if (fd < 0)
		return fd == -ENOENT ? 0 : err_set(e, fd, "%s", why.msg);
	r = fd_read_all(fd, &bytes);
	if (r >= 0)
		r = ranges_parse(buf_str(&bytes), ret);
	return r < 0 ? err_sys(e, r, "read " FILE_NAME) : 0;
}

bool ranges_equal(const struct ranges *a, const struct ranges *b)
{
	return a->flags == b->flags && a->n == b->n && memcmp(a->v, b->v, a->n * sizeof *a->v) == 0;
}
