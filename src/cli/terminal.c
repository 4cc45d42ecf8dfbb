#include "cli/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

/* A crash handler has no argument: this is the one thing in the room that a whole process shares,
 * as it shares its terminal. */
static struct {
	struct termios before;
	volatile sig_atomic_t fd_plus_one; /* 0: not raw */
} saved;

void terminal_restore(void)
{
	int fd = saved.fd_plus_one - 1;

	saved.fd_plus_one = 0;
	if (fd >= 0)
		(void)tcsetattr(fd, TCSANOW, &saved.before);
}

static void on_crash(int signo)
{
	terminal_restore(); /* tcsetattr is safe in a signal handler */
	(void)signal(signo, SIG_DFL);
	(void)raise(signo);
}

int terminal_make_raw(int fd, struct err *e)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
	struct termios raw;

	if (tcgetattr(fd, &saved.before) < 0)
		return err_sys(e, -errno, "read the terminal's settings");
	raw = saved.before;
	cfmakeraw(&raw);
	saved.fd_plus_one = fd + 1;
	(void)atexit(terminal_restore);
	for (size_t i = 0; i < ARRAY_SIZE(crashes); i++)
		(void)signal(crashes[i], on_crash);
	if (tcsetattr(fd, TCSANOW, &raw) < 0)
		return err_sys(e, -errno, "change the terminal's settings");
	return 0;
}

struct terminal_size terminal_size(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		struct winsize size;

		if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
			return (struct terminal_size){ size.ws_col, size.ws_row };
	}
	return (struct terminal_size){ 80, 24 };
}
