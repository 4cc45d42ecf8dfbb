#include "warden/space.h"

#include <sys/statvfs.h>

#define BALLAST_NAME ".ballast"

enum {
	LONGEST_LOOK_MS = 250,
	SHORTEST_LOOK_MS = 10,
	/* Faster than any disk that Atoll is likely to meet. */
	MIB_PER_MS = 4,
	KIB = 1024,
};

static uint64_t mib(uint64_t n)
{
	return n * SPACE_MIB;
}

static int look_at(int fd, struct space *s)
{
	struct statvfs st;
	uint64_t free_bytes;

	if (fstatvfs(fd, &st) < 0)
		return -errno;
	free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	if (s->total_bytes == 0 || free_bytes < s->free_bytes) {
		s->free_bytes = free_bytes;
		s->total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	}
	return 0;
}

static uint64_t line_kib(struct str text, const char *name)
{
	struct str line, word;
	int64_t n = 0;

	while (str_split(&text, '\n', &line)) {
		if (!str_split(&line, ':', &word) || !str_is(word, name))
			continue;
		line = str_trim(line);
		if (str_split(&line, ' ', &word))
			(void)str_to_int(word, 0, INT64_MAX / KIB, &n);
	}
	return (uint64_t)n;
}

/* Of the whole host: more than the sandboxes', and so on the safe side. */
static uint64_t dirty_bytes(void)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(16384);

	if (file_read(AT_FDCWD, "/proc/meminfo", &text, NULL) < 0)
		return 0;
	return (line_kib(buf_str(&text), "Dirty") + line_kib(buf_str(&text), "Writeback")) * KIB;
}

int space_look(const struct disk *disk, struct space *ret)
{
	struct space s = { 0 };
	int r = look_at(disk->host_fd, &s);

	if (r >= 0 && disk->dir_fd != disk->host_fd)
		r = look_at(disk->dir_fd, &s);
	if (r < 0)
		return r;
	s.dirty_bytes = dirty_bytes();
	*ret = s;
	return 0;
}

static uint64_t hold_below(const struct space *s)
{
	/* More than half of a small file system is nobody's reserve. */
	return mib(SPACE_RESERVE_MIB + SPACE_MARGIN_MIB) + MIN(s->dirty_bytes, s->total_bytes / 2);
}

bool space_is_short(const struct space *s)
{
	return s->free_bytes < hold_below(s);
}

bool space_is_back(const struct space *s)
{
	return s->free_bytes > hold_below(s) + mib(SPACE_MARGIN_MIB) / 2;
}

uint64_t space_missing(const struct space *s)
{
	uint64_t wanted = mib(SPACE_RESERVE_MIB + SPACE_MARGIN_MIB + SPACE_MARGIN_MIB / 2);

	return wanted > s->free_bytes ? wanted - s->free_bytes : 0;
}

int64_t space_next_look_ms(const struct space *s)
{
	uint64_t line = hold_below(s), room = s->free_bytes > line ? s->free_bytes - line : 0;
	int64_t ms = (int64_t)(room / SPACE_MIB / MIB_PER_MS);

	return MAX(MIN(ms, LONGEST_LOOK_MS), SHORTEST_LOOK_MS);
}

void space_keep_ballast(const struct disk *disk, const struct space *s)
{
	cleanup_close int fd = -EBADF;

	if (s->free_bytes < mib(SPACE_BALLAST_MIB) / 2) {
		if (unlinkat(disk->host_fd, BALLAST_NAME, 0) == 0)
			log_warn("disk.ballast_given_up", "free_mib=%" PRIu64,
				s->free_bytes / SPACE_MIB);
		return;
	}
	if (!space_is_back(s) ||
		faccessat(disk->host_fd, BALLAST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	fd = openat(disk->host_fd, BALLAST_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && fallocate(fd, 0, 0, (off_t)mib(SPACE_BALLAST_MIB)) < 0)
		(void)unlinkat(disk->host_fd, BALLAST_NAME, 0);
}
