#include "server/handover.h"

#define VARIABLE "ATOLL_KEPT"
/* Of its own, since earlier builds read the other to its end. */
#define BESIDE "ATOLL_KEPT_BESIDE"

int handover_put(const struct handover *handover, struct err *e)
{
	char text[NOTE_TEXT_SIZE + 32], beside[32];
	int n = snprintf(text, sizeof text, "%d %d ", (int)getpid(), handover->listening.fd);

	(void)note_format(&handover->note, text + n);
	(void)snprintf(beside, sizeof beside, "%d %d", (int)getpid(),
		handover->listening.beside_fd);
	if (setenv(BESIDE, beside, 1) < 0 || setenv(VARIABLE, text, 1) < 0)
		return err_sys(e, -errno, "set " VARIABLE);
	return 0;
}

void handover_forget(void)
{
	(void)unsetenv(VARIABLE);
	(void)unsetenv(BESIDE);
}

/* This process's number, then a descriptor (-EBADF: none). */
static bool take_fd(struct str *rest, int *ret)
{
	struct str pid, fd;
	int64_t number = 0;

	if (!str_split(rest, ' ', &pid) || !str_split(rest, ' ', &fd) ||
		str_to_int(pid, 1, INT32_MAX, &number) < 0 || number != getpid() ||
		str_to_int(fd, INT32_MIN, INT32_MAX, &number) < 0)
		return false;
	*ret = number < 0 ? -EBADF : (int)number;
	return true;
}

bool handover_take(struct handover *ret)
{
	const char *value = getenv(VARIABLE), *beside = getenv(BESIDE);
	struct str rest = value ? str_of(value) : STR_NONE;
	struct str second = beside ? str_of(beside) : STR_NONE;
	struct handover h = { .listening = LISTENING_NONE };
	bool ok = value && take_fd(&rest, &h.listening.fd) && note_parse(rest, &h.note) >= 0;

	if (ok) {
		(void)take_fd(&second, &h.listening.beside_fd);
		*ret = h;
	}
	handover_forget();
	return ok;
}
