#include "guest/pty.h"

#include <sys/ioctl.h>
#include <termios.h>

int pty_resize(int master, struct pty_size size, struct err *e)
{
	struct winsize ws = { .ws_col = size.cols, .ws_row = size.rows };

	return ioctl(master, TIOCSWINSZ, &ws) < 0 ? err_sys(e, -errno, "resize") : 0;
}

/* By descriptor: right whatever is mounted on /dev/pts. gVisor knows them by name only, and there
 * nothing else can be mounted. */
static int open_slave(int master)
{
	int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
	int fd = ioctl(master, TIOCGPTPEER, flags);
	unsigned number;
	char path[32];

	if (fd >= 0 || errno != ENOTTY)
		return fd;
	if (ioctl(master, TIOCGPTN, &number) < 0)
		return -1;
	(void)snprintf(path, sizeof path, "/dev/pts/%u", number);
	return open(path, flags | O_NOFOLLOW);
}

int pty_open(struct pty_size size, uid_t uid, int *ret_master, int *ret_slave, struct err *e)
{
	cleanup_close int master = -EBADF, slave = -EBADF;
	int locked = 0, r;

	master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (master < 0)
		return err_sys(e, -errno, "open /dev/ptmx");
	if (ioctl(master, TIOCSPTLCK, &locked) < 0)
		return err_sys(e, -errno, "unlock the terminal");
	slave = open_slave(master);
	if (slave < 0)
		return err_sys(e, -errno, "open the terminal");
	r = pty_resize(master, size, e);
	if (r < 0)
		return r;
	/* So that the user's programs can open it by name; not possible when we are not root. */
	(void)!fchown(slave, uid, (gid_t)-1);
	*ret_master = TAKE_FD(master);
	*ret_slave = TAKE_FD(slave);
	return 0;
}
