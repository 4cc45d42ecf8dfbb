/* `atoll upgrade`, the side that asks: a signal to the keeper, and its note until that is over. */
#include "base/process.h"
#include "server/note.h"
#include "server/server.h"

#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>

enum {
	LOOK_MS = 20
};

static int nobody(const char *data, struct err *e)
{
	return err_set(e, -ESRCH,
		"no server with a keeper runs on %s: start it with atoll serve, without "
		"--no-restart",
		data);
}

/* A descriptor of the process that wrote the note. */
static int open_keeper(const char *data, const struct note *note, struct err *e)
{
	cleanup_close int fd = pidfd_open(note->pid, 0);
	uint64_t start_time = 0;

	if (fd < 0 || process_start_time(note->pid, &start_time) < 0 ||
		start_time != note->start_time)
		return nobody(data, e);
	return TAKE_FD(fd);
}

/* 1: it is over. */
static int look(const char *data, int64_t asked, struct note *ret, struct err *e)
{
	int r = note_read(data, ret, e);

	if (r < 0)
		return r;
	if (ret->asked > asked && ret->is_refused && ret->state != NOTE_CHECKING)
		return 1;
	return ret->asked > asked && ret->state == NOTE_SERVING;
}

static int wait_for(const char *data, int keeper, int64_t until_ms, struct note *note,
	struct err *e)
{
	struct pollfd end = { .fd = keeper, .events = POLLIN };
	int64_t asked = note->asked;

	for (;;) {
		int gone = poll(&end, 1, LOOK_MS);
		int r = look(data, asked, note, e);

		if (r != 0)
			return MIN(r, 0);
		if (gone > 0)
			return err_set(e, -ESRCH, "the server has ended meanwhile: see its log");
		if (time_now_ms() >= until_ms)
			return err_set(e, -ETIMEDOUT,
				"it is not over yet (%s): see the server's log, and atoll status",
				note->asked == asked           ? "it was not begun"
				: note->state == NOTE_CHECKING ? "the new programs are looked at"
				: note->state == NOTE_STOPPING ? "the old server still leaves"
							       : "the new server does not serve");
	}
}

static void copy_build(const struct note_program *from, struct server_build *to)
{
	static_assert(sizeof to->version == sizeof from->version &&
			      sizeof to->build == sizeof from->build,
		"they hold the same");
	memcpy(to->version, from->version, sizeof to->version);
	memcpy(to->build, from->build, sizeof to->build);
}

int server_upgrade(const char *data, int64_t timeout_ms, struct server_upgrade_report *ret,
	struct err *e)
{
	cleanup_close int keeper = -EBADF;
	struct note note;
	int r = note_read(data, &note, e);

	if (r == -ENOENT)
		return nobody(data, e);
	if (r >= 0)
		r = keeper = open_keeper(data, &note, e);
	if (r >= 0 && pidfd_send_signal(keeper, SIGUSR2, NULL, 0) < 0)
		r = err_sys(e, -errno, "signal process %d, the server's keeper", (int)note.pid);
	if (r >= 0)
		r = wait_for(data, keeper, time_now_ms() + timeout_ms, &note, e);
	if (r < 0)
		return r;
	if (note.is_refused)
		return err_set(e, -ECANCELED, "refused, the old server serves on: %s", note.why);
	copy_build(&note.before, &ret->before);
	copy_build(&note.now, &ret->after);
	ret->away_ms = note.away_ms;
	ret->had = note.had;
	ret->has = note.has;
	return 0;
}
