#include "warden/copier.h"
#include "warden/copier-child.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

struct copier {
	struct list node;
	struct loop_io io;
	pid_t pid;
	int pid_fd;
	struct copy_report *report; /* shared with the process */
	copier_fn done;             /* NULL: abandoned */
	void *arg;
};

void copy_order_done(struct copy_order *order)
{
	close_fdp(&order->from_fd);
	close_fdp(&order->to_fd);
	close_fdp(&order->layer_fd);
	close_fdp(&order->marker_fd);
	close_fdp(&order->saved_fd);
	freezer_close(&order->freezer);
	*order = (struct copy_order)COPY_ORDER_INIT;
}

static void copier_free(struct copier *c)
{
	loop_io_remove(&c->io);
	list_remove(&c->node);
	close_fdp(&c->pid_fd);
	if (c->report)
		(void)munmap(c->report, sizeof *c->report);
	free(c);
}

static void on_exited(void *arg, uint32_t events)
{
	struct copier *c = arg;
	struct copy_report report = *c->report;
	copier_fn done = c->done;
	void *done_arg = c->arg;

	(void)events;
	(void)waitpid(c->pid, NULL, 0);
	copier_free(c);
	if (done)
		done(done_arg, &report);
}

static struct copy_report *map_report(void)
{
	struct copy_report *report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (report == MAP_FAILED)
		return NULL;
	/* What is true until the process says something else. */
	(void)err_set(&report->e, -EIO, "the copying process was killed");
	return report;
}

int copier_start(struct loop *loop, struct list *all, const struct copy_order *order,
	copier_fn done, void *arg, struct copier **ret, struct err *e)
{
	struct copier *c = XNEW(struct copier);
	int r;

	list_init(&c->node);
	c->pid_fd = -EBADF;
	c->done = done;
	c->arg = arg;
	c->report = map_report();
	c->pid = c->report ? fork() : -1;
	if (c->pid == 0)
		copier_child_main(order, c->report);
	if (c->pid > 0)
		c->pid_fd = pidfd_open(c->pid, 0);
	r = c->pid < 0 || c->pid_fd < 0 ? err_sys(e, -errno, "start a process to copy") : 0;
	if (r >= 0)
		r = loop_io_add(loop, &c->io, c->pid_fd, EPOLLIN, on_exited, c, e);
	if (r < 0) {
		if (c->pid > 0) {
			(void)kill(c->pid, SIGKILL);
			(void)waitpid(c->pid, NULL, 0);
		}
		copier_free(c);
		return r;
	}
	list_append(all, &c->node);
	*ret = c;
	return 0;
}

void copier_abandon(struct copier *c)
{
	c->done = NULL;
	(void)kill(c->pid, SIGKILL);
}

void copiers_forget(struct list *all)
{
	LIST_EACH(all, node)
	copier_free(container_of(node, struct copier, node));
}
