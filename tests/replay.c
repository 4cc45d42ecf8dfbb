/* Feeds every file of a corpus directory, whole and as it is, to a fuzz target. */
#include "base/base.h"

#include <dirent.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(int dir_fd, const char *name)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	CLEANUP(buf_done) struct buf text = BUF_INIT(16 << 20);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_read_all(fd, &text);
	if (r < 0)
		return r;
	(void)LLVMFuzzerTestOneInput((const uint8_t *)text.p, text.n);
	return 1;
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *entry;
	int count = 0;

	if (!dir) {
		fprintf(stderr, "usage: replay CORPUS-DIRECTORY (no such directory?)\n");
		return 2;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (replay_file(dirfd(dir), entry->d_name) > 0)
			count++;
	}
	(void)closedir(dir);
	printf("%d inputs replayed\n", count);
	return count > 0 ? 0 : 1;
}
