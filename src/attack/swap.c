/* A directory that is a symbolic link half of the time: whoever follows the name between a look at
 * it and a use of it comes out elsewhere. */
#include "attack/attack.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	EXCHANGE = 2, /* RENAME_EXCHANGE */
	TOLD_EVERY = 64,
};

static bool exchange(void)
{
	return syscall(SYS_renameat2, AT_FDCWD, "target", AT_FDCWD, "link", EXCHANGE) == 0;
}

/* Where names cannot be exchanged in one step, in three; somebody may have made the name meanwhile.
 */
static bool exchange_slowly(void)
{
	(void)rmdir("spare");
	(void)rename("target", "spare");
	(void)rmdir("target");
	if (rename("link", "target") < 0)
		return false;
	return rename("target", "link") == 0 && rename("spare", "target") == 0;
}

/* "SWAPS" in a file beside it: how often, so that it is known that there was a race. */
static void tell(int64_t swaps)
{
	char text[32];

	(void)snprintf(text, sizeof text, "%" PRId64 "\n", swaps);
	(void)file_write(AT_FDCWD, "swaps", str_of(text), NULL);
}

static _Noreturn void swap_until(int64_t until_ms)
{
	int64_t swaps = 0;
	bool has_exchange = true;

	while (time_now_ms() < until_ms) {
		for (int i = 0; i < TOLD_EVERY; i++) {
			if (has_exchange && exchange())
				swaps++;
			else if (has_exchange)
				has_exchange = errno != EINVAL && errno != ENOSYS;
			else if (exchange_slowly())
				swaps += 2;
		}
		tell(swaps);
	}
	_exit(0);
}

/* As an earlier one may have left it: the link in the directory's place, or neither. */
static int tidy(void)
{
	struct stat st;

	if (lstat("target", &st) == 0 && !S_ISDIR(st.st_mode))
		(void)unlink("target");
	if (lstat("link", &st) == 0 && S_ISDIR(st.st_mode))
		(void)rename("link", "target");
	(void)unlink("link");
	return mkdir("target", 0777) < 0 && errno != EEXIST ? -errno : 0;
}

int swap_start(const char *dir, const char *link_target, int64_t seconds)
{
	pid_t pid;

	if (chdir(dir) < 0 || tidy() < 0)
		return -errno;
	if (symlink(link_target, "link") < 0 ||
		file_replace(AT_FDCWD, "swaps", STR("0\n"), 0666, NULL) < 0)
		return -EIO;
	pid = fork();
	if (pid == 0) {
		(void)setsid();
		for (int fd = 0; fd < 3; fd++)
			(void)close(fd);
		swap_until(time_now_ms() + seconds * 1000);
	}
	return pid < 0 ? -errno : 0;
}
