#include "guest/watchdog.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
	/* The word's phase; the child's number is above it. */
	AT_REST = 0,
	ON_ITS_WAY, /* between clone and exec */
	CLAIMED,    /* the thread is about to kill it */
	KILLED,
	PHASES,

	LOOK_MS = 50,
	/* For a while after one was killed: whoever stops one is likely to stop the next. */
	ALERT_LOOK_MS = 5,
	ALERT_MS = 2000,
	STOPPED_LOOKS = 2,
	PATIENCE_MS = 10000,
	PARK_MS = 2000, /* without a command: then it sleeps until the next */
	STACK_BYTES = 64 << 10,
};

/* What the thread knows. Time is counted in looks: a sandbox that was frozen has not waited. */
struct look {
	uint32_t word; /* at the last look */
	int waited_ms, stopped, quiet_ms, alert_ms;
};

static uint32_t phase_of(uint32_t word)
{
	return word % PHASES;
}

static uint32_t load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void store(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static bool swap(uint32_t *word, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST,
		__ATOMIC_SEQ_CST);
}

/* Returns at once when the word is not `value` any more. */
static void wait_while(uint32_t *word, uint32_t value, const struct timespec *timeout)
{
	(void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout, NULL, 0);
}

static void wake(uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the thread ---- */

static bool is_stopped(pid_t pid)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == pid;
}

static bool kill_child(struct watchdog *w, uint32_t word, pid_t pid)
{
	uint32_t next = word - ON_ITS_WAY + KILLED;

	if (!swap(&w->word, word, word - ON_ITS_WAY + CLAIMED))
		return false; /* it got there after all */
	if (kill(pid, SIGKILL) < 0)
		next = word;
	store(&w->word, next);
	wake(&w->word);
	return next != word;
}

static void look(struct watchdog *w, struct look *l, int passed_ms)
{
	uint32_t word = load(&w->word);
	pid_t pid = __atomic_load_n(&w->pid, __ATOMIC_SEQ_CST);

	l->quiet_ms += passed_ms;
	l->alert_ms = MAX(l->alert_ms - passed_ms, 0);
	if (word != l->word) {
		*l = (struct look){ .word = word, .alert_ms = l->alert_ms };
		return;
	}
	/* Without a pid it is not born: the kernel is still making it. */
	if (phase_of(word) != ON_ITS_WAY || pid <= 0)
		return;
	l->quiet_ms = 0;
	l->waited_ms += passed_ms;
	l->stopped += is_stopped(pid);
	if ((l->stopped >= STOPPED_LOOKS || l->waited_ms >= PATIENCE_MS) &&
		kill_child(w, word, pid))
		l->alert_ms = ALERT_MS;
}

static void park(struct watchdog *w, struct look *l)
{
	store(&w->is_parked, true);
	wait_while(&w->word, l->word, NULL);
	store(&w->is_parked, false);
}

static void *watch(void *arg)
{
	struct watchdog *w = arg;
	struct look l = { 0 };

	while (!load(&w->is_stopping)) {
		int ms = l.alert_ms > 0 ? ALERT_LOOK_MS : LOOK_MS;
		struct timespec pause = { .tv_nsec = (int64_t)ms * 1000000 };

		wait_while(&w->is_stopping, false, &pause);
		look(w, &l, ms);
		if (l.quiet_ms >= PARK_MS)
			park(w, &l);
	}
	return NULL;
}

/* ---- the loop's side ---- */

static int make_thread(struct watchdog *w, struct err *e)
{
	pthread_attr_t attr;
	int r;

	(void)pthread_attr_init(&attr);
	r = pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (r == 0)
		r = pthread_create(&w->thread, &attr, watch, w);
	(void)pthread_attr_destroy(&attr);
	if (r != 0)
		return err_sys(e, -r, "start the watchdog of new processes");
	w->is_made = true;
	return 0;
}

void watchdog_done(struct watchdog *w)
{
	if (!w->is_made)
		return;
	store(&w->is_stopping, true);
	store(&w->word, w->word + PHASES); /* a parked one waits for a change of it */
	wake(&w->is_stopping);
	wake(&w->word);
	(void)pthread_join(w->thread, NULL);
	*w = (struct watchdog){ 0 };
}

int watchdog_begin(struct watchdog *w, struct err *e)
{
	/* Without it nothing is started: the first of all is before anything inside runs. */
	int r = w->is_made ? 0 : make_thread(w, e);

	if (r < 0)
		return r;
	__atomic_store_n(&w->pid, 0, __ATOMIC_SEQ_CST);
	store(&w->word, load(&w->word) + PHASES + ON_ITS_WAY);
	if (load(&w->is_parked))
		wake(&w->word);
	return 0;
}

bool watchdog_end(struct watchdog *w)
{
	uint32_t word = load(&w->word), rest = word - phase_of(word);

	if (swap(&w->word, rest + ON_ITS_WAY, rest))
		return false;
	while ((word = load(&w->word)) == rest + CLAIMED)
		wait_while(&w->word, word, NULL);
	store(&w->word, rest);
	return word == rest + KILLED;
}
