/* Typing into somebody else's terminal. */
#include "attack/attack.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

enum {
	TIOCLINUX_PASTE = 3,
};

/* On the sandbox's own devpts: others have the same numbers, but not the same file system. */
static bool is_own_terminal(int fd)
{
	struct stat st, pts;

	return fstat(fd, &st) == 0 && stat("/dev/pts", &pts) == 0 && st.st_dev == pts.st_dev;
}

/* What we type goes to the terminal's own input. That is only an escape when the terminal is not
 * the sandbox's. */
static void type_into(int fd, const char *what, bool own, struct finding *f)
{
	struct termios settings;
	char typed = ' ';

	if (tcgetattr(fd, &settings) == 0) { /* our own output must not show it */
		settings.c_lflag &= ~(tcflag_t)ECHO;
		(void)tcsetattr(fd, TCSANOW, &settings);
	}
	if (ioctl(fd, TIOCSTI, &typed) < 0)
		refused_with(f, errno, "TIOCSTI on %s", what);
	else if (own)
		contained(f, "TIOCSTI on %s types into the sandbox's own terminal", what);
	else
		escaped(f, "TIOCSTI types into a terminal outside (%s)", what);
	(void)tcflush(fd, TCIFLUSH);
}

static void type_keys(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const names[] = { "stdin", "stdout", "stderr" };
	cleanup_close int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	int error = errno;
	unsigned own = 0, named = 0;

	(void)a;
	(void)scene;
	for (int fd = 0; fd < 3; fd++) {
		if (!isatty(fd))
			continue;
		if (is_own_terminal(fd))
			(void)ioctl(fd, TIOCGDEV, &own);
		else
			escaped(f, "%s is a terminal of the host", names[fd]);
		type_into(fd, names[fd], is_own_terminal(fd), f);
	}
	if (tty < 0) {
		refused_with(f, error, "/dev/tty");
		return;
	}
	/* It stands for the controlling terminal: own, when it is the one that was given. */
	(void)ioctl(tty, TIOCGDEV, &named);
	type_into(tty, "/dev/tty", own && own == named, f);
}

/* A kernel that knows no such call on a pseudo terminal has not refused it. */
static void judge_ioctl(struct finding *f, const char *what)
{
	if (errno == ENOTTY || errno == EINVAL)
		absent(f, "%s: pseudo terminals have none here", what);
	else
		refused_with(f, errno, "%s", what);
}

static void take_console(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	cleanup_close int pty = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	char paste = TIOCLINUX_PASTE;

	(void)a;
	(void)scene;
	if (pty < 0) {
		inconclusive(f, "/dev/ptmx: %s", strerrordesc_np(errno));
		return;
	}
	if (ioctl(pty, TIOCCONS) < 0)
		judge_ioctl(f, "TIOCCONS");
	else
		escaped(f, "what the host writes to its console comes to us");
	(void)ioctl(pty, TIOCCONS, 0);
	if (ioctl(pty, TIOCLINUX, &paste) < 0)
		judge_ioctl(f, "TIOCLINUX");
	else
		escaped(f, "the host's console takes what we paste");
}

/* EIO is what kernels say where TIOCSTI is switched off; ENXIO: we have no terminal at all, neither
 * of the host. */
static const int by_typing[] = { EPERM, EIO, ENXIO, 0 };

static const struct attempt attempts[] = {
	{ "tiocsti", "type into a terminal outside (TIOCSTI)", type_keys, by_typing, NULL, NULL },
	{ "console", "take over the console (TIOCCONS, TIOCLINUX)", take_console, by_rights, NULL,
		NULL },
};
FAMILY(terminal, attempts);
