/* Ending a command: a signal to its group, and SIGKILL if that was not enough. That it was asked
 * for is written down first, so that whoever finds it ended after a crash knows why. */
#include "execution/execution-internal.h"

struct cancelling {
	struct list node;
	struct command *command;
	int64_t grace_ms;
	bool then_kills, is_first; /* nobody had cancelled it before */
	struct loop_timer timer;
	struct loop_task task;
	struct err e;
	char signal[32];
	done_fn done;
	void *arg;
};

static void cancelling_free(struct cancelling *x)
{
	list_remove(&x->node);
	loop_timer_cancel(&x->timer);
	command_unref(x->command);
	free(x);
}

void cancels_done(struct execution_book *book)
{
	LIST_EACH(&book->cancels, node)
	cancelling_free(container_of(node, struct cancelling, node));
}

static void grace_over(void *arg)
{
	struct cancelling *x = arg;

	if (!x->command->is_ending)
		line_signal(x->command, "SIGNAL_SIGKILL", NULL, NULL);
	cancelling_free(x);
}

static void signalled(void *arg, int r, const struct err *e)
{
	struct cancelling *x = arg;

	if (r < 0 && x->is_first && !x->command->is_ending) /* its end is its own, then */
		x->command->is_cancelled = false;
	x->done(x->arg, r, e);
	if (r >= 0 && x->then_kills && !x->command->is_ending)
		loop_timer_set(&x->timer, time_now_ms() + x->grace_ms);
	else
		cancelling_free(x);
}

static void noted(void *arg, int r, const struct err *e)
{
	struct cancelling *x = arg;

	if (r < 0)
		signalled(x, r, e);
	else
		line_signal(x->command, x->signal, signalled, x);
}

static void cancel_failed(void *arg)
{
	struct cancelling *x = arg;

	x->done(x->arg, x->e.code, &x->e);
	cancelling_free(x);
}

static const char *const signals[] = { "SIGTERM", "SIGKILL", "SIGINT", "SIGQUIT", "SIGHUP",
	"SIGUSR1", "SIGUSR2" };

static int choose_signal(struct cancelling *x, const char *signal, struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (strcmp(signal, signals[i]) == 0 || strcmp(signal, signals[i] + 3) == 0) {
			(void)snprintf(x->signal, sizeof x->signal, "SIGNAL_%s", signals[i]);
			return 0;
		}
	return err_set(e, -EINVAL,
		"signal '%s': one of SIGTERM, SIGKILL, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2",
		signal);
}

/* A signal that programs use among themselves does not mean that it was cancelled. */
static bool ends(const char *signal)
{
	return !strstr(signal, "USR") && !strstr(signal, "HUP");
}

void execution_cancel(struct execution_book *book, const struct execution_ref *ref,
	const char *signal, int64_t grace_ms, const char *actor, done_fn done, void *arg)
{
	struct cancelling *x = XNEW(struct cancelling);
	struct command *c = command_find(book, ref);
	const struct sandbox *sb =
		c ? sandbox_find_tenant(book->config.sandboxes, c->view.sandbox_id) : NULL;

	list_append(&book->cancels, &x->node);
	x->done = done;
	x->arg = arg;
	x->grace_ms = grace_ms;
	x->then_kills = !signal;
	loop_timer_init(&x->timer, book->config.loop, grace_over, x);
	if (!c || c->is_ending)
		(void)err_set(&x->e, -ESRCH, "it has ended already");
	else if (sb && sandbox_is_paused(sb))
		(void)err_set(&x->e, -EBUSY, "sandbox %s is paused: resume it first", sb->id);
	else if (choose_signal(x, signal ? signal : "SIGTERM", &x->e) == 0)
		x->command = command_ref(c);
	if (!x->command) {
		loop_defer(book->config.loop, &x->task, cancel_failed, x);
		return;
	}
	c = x->command;
	log_info("execution.cancel", "sandbox_id=%s n=%" PRId64 " actor=%s signal=%s",
		c->view.sandbox_id, c->view.n, actor, x->signal);
	if (!ends(x->signal)) {
		line_signal(c, x->signal, signalled, x);
		return;
	}
	x->is_first = !c->is_cancelled;
	c->is_cancelled = true;
	command_row_cancel(c, noted, x);
}
