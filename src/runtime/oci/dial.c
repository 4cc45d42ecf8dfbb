/* Dialling through the guest: name the port, hear one byte, and the connection is the service's. */
#include "runtime/oci/oci.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum {
	DIAL_MS = 15000, /* longer than the guest tries */
};

struct dial {
	struct list node;
	struct oci *oci;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	int fd, port;
	struct err e;
	runtime_dial_fn fn;
	void *arg;
};

static void tell(void *arg)
{
	struct dial *d = arg;

	list_remove(&d->node);
	d->fn(d->arg, d->e.code < 0 ? d->e.code : TAKE_FD(d->fd), &d->e);
	close_fdp(&d->fd);
	free(d);
}

/* On a later turn, as every answer. */
static void end(struct dial *d)
{
	loop_io_remove(&d->io);
	loop_timer_cancel(&d->timer);
	loop_defer(d->oci->base.loop, &d->task, tell, d);
}

static void on_answer(void *arg, uint32_t events)
{
	struct dial *d = arg;
	unsigned char problem = 0;
	ssize_t n = recv(d->fd, &problem, 1, 0);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != 1)
		(void)err_set(&d->e, -ECONNRESET, "the guest hung up");
	else if (problem)
		(void)err_sys(&d->e, -(int)problem, "connect to port %d of the sandbox", d->port);
	end(d);
}

static void on_deadline(void *arg)
{
	struct dial *d = arg;

	(void)err_set(&d->e, -ETIMEDOUT, "the guest did not connect to port %d", d->port);
	end(d);
}

static int ask(struct dial *d, const char *id, struct err *e)
{
	struct guest_dial dial = { .port = htons((uint16_t)d->port) };
	struct loop *loop = d->oci->base.loop;
	int fd = local_open_door(d->oci->local, id, GUEST_DIAL, e);

	if (fd < 0)
		return fd;
	d->fd = fd;
	/* A fresh socket takes two bytes. */
	if (send(fd, &dial, sizeof dial, MSG_NOSIGNAL) != sizeof dial)
		return err_sys(e, -errno, "ask the guest of '%s'", id);
	loop_timer_set(&d->timer, loop_now_ms(loop) + DIAL_MS);
	return loop_io_add(loop, &d->io, fd, EPOLLIN, on_answer, d, e);
}

void oci_dial_inside(struct oci *oci, const char *id, int port, runtime_dial_fn fn, void *arg)
{
	struct dial *d = XNEW(struct dial);

	d->oci = oci;
	d->fd = -EBADF;
	d->port = port;
	d->fn = fn;
	d->arg = arg;
	list_append(&oci->dials, &d->node);
	loop_timer_init(&d->timer, oci->base.loop, on_deadline, d);
	if (ask(d, id, &d->e) < 0)
		end(d);
}

void oci_dials_end(struct oci *oci)
{
	LIST_EACH(&oci->dials, node)
	{
		struct dial *d = container_of(node, struct dial, node);

		(void)err_set(&d->e, -ECANCELED, "the server stops");
		loop_io_remove(&d->io);
		loop_timer_cancel(&d->timer);
		loop_task_cancel(&d->task);
		tell(d);
	}
}
