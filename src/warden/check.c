/* Whether this build could take over the sandboxes that another one made. A guest is only spoken to
 * by the warden that boots it, so what counts is the file in which each one's making stands. */
#include "warden/state.h"
#include "warden/warden.h"

#include <dirent.h>

/* One that ends meanwhile is no obstacle. */
static int check_one(int run_fd, const char *name, struct err *e)
{
	cleanup_close int fd =
		openat(run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct state state;
	int r;

	if (fd < 0)
		return 0;
	r = state_read(fd, &state, e);
	if (r >= 0 || faccessat(fd, "state", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return err_wrap(e, r,
		"sandbox %.31s was made by a build whose records this one does not know", name);
}

static int check_all(const char *data_dir, struct err *e)
{
	cleanup_close int data = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int run_fd = data < 0 ? -1 : openat(data, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = run_fd < 0 ? NULL : fdopendir(run_fd);
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return errno == ENOENT ? 0 : err_sys(e, -errno, "open %s/run", data_dir);
	while (r >= 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			r = check_one(dirfd(dir), entry->d_name, e);
	(void)closedir(dir);
	return r;
}

int check_sandboxes(const struct options *options)
{
	struct err e = { 0 };

	if (check_all(options->data_dir, &e) < 0) {
		(void)fprintf(stderr, "atoll-warden: %s\n", e.msg);
		return 1;
	}
	(void)printf("protocol %d\n", WARDEN_VERSION);
	return 0;
}
