#include "server/keep.h"
#include "base/process.h"
#include "server/handover.h"
#include "server/note.h"
#include "server/program.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum {
	FIRST_PAUSE_MS = 50,
	LAST_PAUSE_MS = 10000,
	GOOD_LIFE_MS = 60000, /* after which a crash is the first one again */
	SIGNALLED = 128,      /* the usual exit status of a program that died by a signal */
	TRY_MS = 60000,       /* that the next build may take to say whether it would start */
	LEAVE_MS = 30000,     /* that a server has to leave after its grace, until it is ended */
};

static const int awaited_signals[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR2 };

struct message {
	uint32_t word, sandboxes;
};

struct keeper {
	const struct keep_plan *plan;
	char path[PROGRAM_PATH_SIZE];
	struct note note;
	struct listening listening;
	int signal_fd, tell_fd;
	pid_t server;
	bool is_asked;     /* to end */
	bool is_upgrading; /* the server leaves for that, */
	int64_t kill_ms;   /* until then */
	bool is_first;     /* the server that runs */
};

static sigset_t awaited(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(awaited_signals); i++)
		(void)sigaddset(&set, awaited_signals[i]);
	return set;
}

static void write_note(const struct keeper *k)
{
	struct err e = { 0 };

	if (note_write(k->plan->data, &k->note, &e) < 0)
		log_warn("keeper.note", "err=%s", log_quote(str_of(e.msg)));
}

static void set_state(struct keeper *k, enum note_state state)
{
	k->note.state = state;
	write_note(k);
}

/* Between two there is none. */
static void tell_server(const struct keeper *k, int signo)
{
	if (k->server > 0)
		(void)kill(k->server, signo);
}

/* ---- the next build ---- */

/* It was taken out of sight when the configuration was read. */
static void show_database(const struct keeper *k, bool show)
{
	if (k->plan->database)
		(void)setenv("ATOLL_DATABASE", show ? k->plan->database : "", 1);
}

/* argv of `serve`, with the program before it and words behind "serve". */
static const char **words_of(const struct keeper *k, const char *extra)
{
	size_t n = 0, at = 0;
	const char **words;

	while (k->plan->argv[n])
		n++;
	words = XNEW_N(const char *, n + 3);
	words[at++] = k->path;
	words[at++] = "serve";
	if (extra)
		words[at++] = extra;
	for (size_t i = 1; i < n; i++)
		words[at++] = k->plan->argv[i];
	return words;
}

static int try_next(const struct keeper *k, struct err *e)
{
	cleanup_free const char **words = words_of(k, "--check");
	int r = program_check_owner(k->path, e);

	if (r < 0)
		return r;
	show_database(k, true);
	r = program_try(words, TRY_MS, NULL, e);
	show_database(k, false);
	return r;
}

static void refuse(struct keeper *k, const struct err *e)
{
	log_error("upgrade.refused", "err=%s", log_quote(str_of(e->msg)));
	k->note.is_refused = true;
	(void)snprintf(k->note.why, sizeof k->note.why, "%s", e->msg);
}

/* One that could not take over has been nobody's server: what was before it still counts. */
static void note_leaving(struct keeper *k, enum note_state state)
{
	if (state != NOTE_STARTING) {
		k->note.before = k->note.now;
		k->note.stopped_ms = time_now_ms();
		k->note.had = -1;
	}
	k->note.has = -1;
}

static void begin_upgrade(struct keeper *k)
{
	enum note_state state = k->note.state;
	struct err e = { 0 };

	if (k->is_upgrading || k->is_asked)
		return;
	k->note.asked++;
	k->note.is_refused = false;
	k->note.why[0] = '\0';
	set_state(k, NOTE_CHECKING);
	if (try_next(k, &e) < 0) {
		refuse(k, &e);
		set_state(k, state);
		return;
	}
	log_info("upgrade.begins", "version=%s build=%.12s", k->note.now.version,
		k->note.now.build);
	k->is_upgrading = true;
	note_leaving(k, state);
	k->kill_ms = time_now_ms() + k->plan->grace_ms + LEAVE_MS;
	set_state(k, NOTE_STOPPING);
	tell_server(k, SIGUSR2);
}

/* Returns if it could not be done: then this build goes on. */
static void become_next(struct keeper *k)
{
	cleanup_free const char **words = words_of(k, NULL);
	struct handover handover;
	struct err e = { 0 };
	int r;

	set_state(k, NOTE_STARTING);
	handover = (struct handover){ k->listening, k->note };
	r = handover_put(&handover, &e);
	if (r >= 0) {
		show_database(k, true);
		listening_keep_open(&k->listening, true);
		(void)execv(k->path, (char *const *)(uintptr_t)words);
		(void)err_sys(&e, -errno, "execute %s", k->path);
		listening_keep_open(&k->listening, false);
		show_database(k, false);
		handover_forget();
	}
	k->is_upgrading = false;
	refuse(k, &e);
}

static void note_new_build(struct keeper *k)
{
	k->note.pid = getpid();
	(void)process_start_time(k->note.pid, &k->note.start_time);
	note_program_own(&k->note.now);
}

/* ---- the server that runs ---- */

static void on_ready(struct keeper *k, uint32_t sandboxes)
{
	struct note *note = &k->note;

	if (note->state == NOTE_STARTING && !note->is_refused && note->before.version[0]) {
		note->away_ms = time_now_ms() - note->stopped_ms;
		note->has = sandboxes;
		log_info("upgrade.done",
			"version=%s build=%.12s was=%s was_build=%.12s away_ms=%" PRId64
			" sandboxes=%" PRId64 " had=%" PRId64,
			note->now.version, note->now.build, note->before.version,
			note->before.build, note->away_ms, note->has, note->had);
	}
	set_state(k, NOTE_SERVING);
}

static void read_words(struct keeper *k)
{
	struct message m;

	while (k->tell_fd >= 0) {
		ssize_t n = read(k->tell_fd, &m, sizeof m);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n != sizeof m) {
			close_fdp(&k->tell_fd);
			k->tell_fd = -EBADF;
		} else if (m.word == KEEP_READY) {
			on_ready(k, m.sandboxes);
		} else if (m.word == KEEP_STOPPED) {
			k->note.had = m.sandboxes;
		}
	}
}

/* There will be nobody to wait for. */
static void take_leave(struct keeper *k)
{
	k->is_asked = true;
	listening_close(&k->listening);
}

/* What the keeper is told, the server is told. Whoever asked for an end gets one: then it does not
 * matter how the server came to it. */
static void on_signal(struct keeper *k, int signo)
{
	switch (signo) {
	case SIGCHLD:
		break;
	case SIGUSR2:
		begin_upgrade(k);
		break;
	default:
		if (signo != SIGHUP)
			take_leave(k);
		tell_server(k, signo);
	}
}

static void read_signals(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signal_fd, &info, sizeof info) == sizeof info)
		on_signal(k, (int)info.ssi_signo);
}

static int wait_ms(const struct keeper *k)
{
	return k->is_upgrading ? (int)MAX(k->kill_ms - time_now_ms(), (int64_t)0) : -1;
}

/* The server's wait status. */
static int wait_for_end(struct keeper *k)
{
	int status;

	for (;;) {
		struct pollfd fds[] = { { .fd = k->signal_fd, .events = POLLIN },
			{ .fd = k->tell_fd, .events = POLLIN } };
		bool has_ended = waitpid(k->server, &status, WNOHANG) == k->server;

		read_words(k);
		if (has_ended)
			return status;
		if (poll(fds, ARRAY_SIZE(fds), wait_ms(k)) == 0) {
			log_error("upgrade.slow", "pid=%d: ending the old server", (int)k->server);
			(void)kill(k->server, SIGKILL);
			k->kill_ms = time_now_ms() + LEAVE_MS;
		}
		read_signals(k);
	}
}

/* ---- starting one ---- */

/* Who cannot have its address says why when the server asks for it in its turn. */
static void open_sockets(struct keeper *k)
{
	(void)listening_open(&k->listening, k->plan->listen, NULL);
}

static void become_server(struct keeper *k, int tell_fd, struct kept *ret)
{
	sigset_t set = awaited();

	close_fdp(&k->signal_fd);
	close_fdp(&k->tell_fd);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	*ret = (struct kept){ .keeper = getppid(), .listening = k->listening, .tell_fd = tell_fd };
}

/* True in the server. */
static bool start(struct keeper *k, struct kept *ret)
{
	int pair[2];

	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0) {
		log_error("server.pipe", "err=%s", strerror(errno));
		exit(1);
	}
	k->tell_fd = pair[0];
	k->server = fork();
	if (k->server < 0) {
		log_error("server.fork", "err=%s", strerror(errno));
		exit(1);
	}
	if (k->server == 0) {
		become_server(k, pair[1], ret);
		return true;
	}
	(void)close(pair[1]);
	return false;
}

/* The first one that cannot start says why, and that is that. One that takes over from another may
 * come too early (the old warden still leaves, the disk is full): the next is luckier. */
static bool has_crashed(int status, bool is_first)
{
	return WIFSIGNALED(status) ||
	       (WIFEXITED(status) && (WEXITSTATUS(status) == KEEP_EXIT_AGAIN ||
					     (!is_first && WEXITSTATUS(status) != 0)));
}

/* Pauses grow while it dies young, so that a server that cannot live does not eat the machine. Who
 * asks for an end, or has put other programs there, is not kept waiting. */
static void pause_before_next(struct keeper *k, int64_t lived_ms, int64_t *pause_ms)
{
	struct pollfd signals = { .fd = k->signal_fd, .events = POLLIN };
	int64_t until_ms;

	*pause_ms = lived_ms >= GOOD_LIFE_MS || *pause_ms == 0
			    ? FIRST_PAUSE_MS
			    : MIN(*pause_ms * 2, (int64_t)LAST_PAUSE_MS);
	until_ms = time_now_ms() + *pause_ms;
	while (time_now_ms() < until_ms && !k->is_asked && !k->is_upgrading)
		if (poll(&signals, 1, (int)MAX(until_ms - time_now_ms(), (int64_t)0)) > 0)
			read_signals(k);
}

static _Noreturn void end_as(int status)
{
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : SIGNALLED + WTERMSIG(status));
}

static void open_keeper(struct keeper *k)
{
	struct handover handover;
	sigset_t set = awaited();
	struct err e = { 0 };

	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (k->signal_fd < 0 || program_own_path(k->path, &e) < 0) {
		log_error("keeper.start", "err=%s", log_quote(str_of(e.msg)));
		exit(1);
	}
	k->listening = k->plan->inherited;
	k->is_first = true;
	k->note.had = k->note.has = -1;
	if (handover_take(&handover)) {
		k->note = handover.note;
		k->listening = handover.listening;
		k->is_first = false;
		listening_keep_open(&k->listening, false);
	}
	note_new_build(k);
}

/* The server is gone, and the next one shall come: false. */
static bool is_over(struct keeper *k, int status)
{
	if (!k->is_asked && k->is_upgrading)
		become_next(k);
	else if (k->is_asked || !has_crashed(status, k->is_first))
		return true;
	else
		log_error("server.died", "pid=%d signal=%d status=%d: starting it again",
			(int)k->server, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
			WIFEXITED(status) ? WEXITSTATUS(status) : 0);
	return false;
}

void keep_serving(const struct keep_plan *plan, struct kept *ret)
{
	struct keeper k = { .plan = plan, .tell_fd = -EBADF, .listening = LISTENING_NONE };
	int64_t pause_ms = 0;

	open_keeper(&k);
	for (;;) {
		int64_t from_ms = time_now_ms();
		int status;

		open_sockets(&k);
		if (start(&k, ret))
			return;
		status = wait_for_end(&k);
		close_fdp(&k.tell_fd);
		k.tell_fd = -EBADF;
		if (is_over(&k, status))
			end_as(status);
		k.server = 0;
		k.is_first = false;
		pause_before_next(&k, time_now_ms() - from_ms, &pause_ms);
		if (k.is_asked)
			exit(0);
		if (k.is_upgrading)
			become_next(&k);
	}
}

int keep_follow(pid_t keeper)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return getppid() == keeper ? 0 : -ESRCH;
}

void keep_tell(struct kept *kept, enum keep_word word, size_t sandboxes)
{
	const struct message m = { word, (uint32_t)sandboxes };

	if (kept->tell_fd >= 0)
		(void)!write(kept->tell_fd, &m, sizeof m);
}
