#include "server/interrupt.h"
#include "base/base.h"

static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

/* One that is held waits even where it would be ignored, as under nohup: those are left alone. */
static bool is_ignored(int signo)
{
	struct sigaction action;

	return sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void interrupt_hold(struct interrupt *held)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (!is_ignored(signals[i]))
			(void)sigaddset(&set, signals[i]);
	(void)sigprocmask(SIG_BLOCK, &set, &held->before);
}

bool interrupt_came(void)
{
	sigset_t set;

	if (sigpending(&set) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (sigismember(&set, signals[i]) == 1)
			return true;
	return false;
}

void interrupt_release(const struct interrupt *held)
{
	(void)sigprocmask(SIG_SETMASK, &held->before, NULL);
}
