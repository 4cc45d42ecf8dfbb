#include "server/handover.h"

#define VARIABLE "ATOLL_KEPT"

int handover_put(const struct handover *handover, struct err *e)
{
	char text[NOTE_TEXT_SIZE + 32];
	int n = snprintf(text, sizeof text, "%d %d ", (int)getpid(), handover->listen_fd);

	(void)note_format(&handover->note, text + n);
	return setenv(VARIABLE, text, 1) < 0 ? err_sys(e, -errno, "set " VARIABLE) : 0;
}

void handover_forget(void)
{
	(void)unsetenv(VARIABLE);
}

bool handover_take(struct handover *ret)
{
	const char *value = getenv(VARIABLE);
	struct str rest = value ? str_of(value) : STR_NONE, pid, fd;
	struct handover h = { 0 };
	int64_t number = 0;
	bool ok = value && str_split(&rest, ' ', &pid) && str_split(&rest, ' ', &fd) &&
		  str_to_int(pid, 1, INT32_MAX, &number) >= 0 && number == getpid() &&
		  str_to_int(fd, INT32_MIN, INT32_MAX, &number) >= 0 &&
		  note_parse(rest, &h.note) >= 0;

	if (ok) {
		h.listen_fd = number < 0 ? -EBADF : (int)number;
		*ret = h;
	}
	handover_forget();
	return ok;
}
