#include "guest/ports.h"
#include "warden/proto.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum {
	CHUNK = 32 << 10,
	MAX_LINKS = 4096,
	ASK_MS = 10000, /* from the connection to the port's number */
	CONNECT_MS = 10000,
};

enum {
	HOST,
	SERVICE,
	SIDES
};

/* Bytes read from one side and not yet written to the other. */
struct pending {
	size_t from, to;
	bool at_end;  /* no more will be read */
	bool is_told; /* and the other side knows */
	char bytes[CHUNK];
};

struct link {
	struct list node;
	struct ports *ports;
	struct loop_io io[SIDES];
	struct loop_timer timer;
	struct loop_task gone;
	int fd[SIDES];
	uint16_t port;
	int family;         /* being tried */
	bool is_open, over; /* `over`: only its memory is left */
	struct pending *read[SIDES];
};

static void on_side(struct link *link, int side, uint32_t events);

static void on_host(void *arg, uint32_t events)
{
	on_side(arg, HOST, events);
}

static void on_service(void *arg, uint32_t events)
{
	on_side(arg, SERVICE, events);
}

static void link_free(void *arg)
{
	struct link *link = arg;

	for (int i = 0; i < SIDES; i++)
		free(link->read[i]);
	free(link);
}

/* Freed at the end of the turn: an event of the other side may be in the same batch. */
static void link_end(struct link *link)
{
	if (link->over)
		return;
	link->over = true;
	loop_timer_cancel(&link->timer);
	for (int i = 0; i < SIDES; i++) {
		loop_io_remove(&link->io[i]);
		close_fdp(&link->fd[i]);
	}
	list_remove(&link->node);
	link->ports->n_links--;
	loop_defer(link->ports->loop, &link->gone, link_free, link);
}

static void on_deadline(void *arg)
{
	link_end(arg);
}

/* An io without interest is not kept: the end of the other side would wake us for ever. */
static int listen_to(struct link *link, int side, uint32_t events)
{
	struct loop_io *io = &link->io[side];

	if (!events)
		loop_io_remove(io);
	else if (io->loop)
		loop_io_set(io, events);
	else
		return loop_io_add(link->ports->loop, io, link->fd[side], events,
			side == HOST ? on_host : on_service, link, NULL);
	return 0;
}

/* ---- moving bytes ---- */

static size_t waiting(const struct pending *p)
{
	return p->to - p->from;
}

static int take_in(struct pending *p, int fd)
{
	ssize_t n;

	if (p->at_end || waiting(p))
		return 0;
	n = read(fd, p->bytes, sizeof p->bytes);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	p->at_end = n == 0;
	p->from = 0;
	p->to = (size_t)n;
	return 0;
}

static int give_out(struct pending *p, int fd)
{
	ssize_t n;

	if (waiting(p)) {
		n = send(fd, p->bytes + p->from, waiting(p), MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		p->from += (size_t)n;
	}
	if (p->at_end && !waiting(p) && !p->is_told) {
		(void)shutdown(fd, SHUT_WR);
		p->is_told = true;
	}
	return 0;
}

static void await(struct link *link)
{
	for (int i = 0; i < SIDES; i++) {
		const struct pending *in = link->read[i], *out = link->read[1 - i];
		uint32_t events = 0;

		if (!in->at_end && !waiting(in))
			events |= EPOLLIN;
		if (waiting(out))
			events |= EPOLLOUT;
		if (listen_to(link, i, events) < 0) {
			link_end(link);
			return;
		}
	}
}

static void flow(struct link *link)
{
	for (int i = 0; i < SIDES; i++) {
		if (take_in(link->read[i], link->fd[i]) < 0 ||
			give_out(link->read[i], link->fd[1 - i]) < 0) {
			link_end(link);
			return;
		}
	}
	if (link->read[HOST]->is_told && link->read[SERVICE]->is_told)
		link_end(link);
	else
		await(link);
}

/* ---- connecting ---- */

static void answer(struct link *link, int r)
{
	char byte = (char)-r;

	if (send(link->fd[HOST], &byte, 1, MSG_NOSIGNAL) != 1 || r < 0) {
		link_end(link);
		return;
	}
	link->is_open = true;
	loop_timer_cancel(&link->timer);
	for (int i = 0; i < SIDES; i++)
		link->read[i] = XNEW(struct pending);
	flow(link);
}

static int start_connecting(int fd, int family, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
		.sin_port = port,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
		.sin6_port = port,
		.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int r = family == AF_INET ? connect(fd, (struct sockaddr *)&v4, sizeof v4)
				  : connect(fd, (struct sockaddr *)&v6, sizeof v6);

	return r < 0 && errno != EINPROGRESS ? -errno : 0;
}

static int try_family(struct link *link, int family)
{
	cleanup_close int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = start_connecting(fd, family, link->port);
	if (r < 0)
		return r;
	link->family = family;
	link->fd[SERVICE] = TAKE_FD(fd);
	return listen_to(link, SERVICE, EPOLLOUT);
}

static void connected(struct link *link)
{
	int problem = 0;
	socklen_t n = sizeof problem;

	if (getsockopt(link->fd[SERVICE], SOL_SOCKET, SO_ERROR, &problem, &n) < 0)
		problem = errno;
	loop_io_remove(&link->io[SERVICE]);
	if (problem && link->family == AF_INET) {
		(void)close(TAKE_FD(link->fd[SERVICE]));
		if (try_family(link, AF_INET6) >= 0)
			return;
	}
	answer(link, -problem);
}

static void asked(struct link *link)
{
	struct guest_dial dial;
	ssize_t n = recv(link->fd[HOST], &dial, sizeof dial, 0);
	int r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof dial || dial.port == 0) {
		link_end(link);
		return;
	}
	link->port = dial.port;
	loop_io_remove(&link->io[HOST]);
	loop_timer_set(&link->timer, loop_now_ms(link->ports->loop) + CONNECT_MS);
	r = try_family(link, AF_INET);
	if (r < 0)
		answer(link, r);
}

static void on_side(struct link *link, int side, uint32_t events)
{
	(void)events;
	if (link->over)
		return;
	if (link->is_open)
		flow(link);
	else if (side == HOST)
		asked(link);
	else
		connected(link);
}

static void on_accept(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct ports *ports = arg;
	struct link *link;

	(void)peer;
	if (ports->n_links >= MAX_LINKS) {
		(void)close(fd);
		return;
	}
	link = XNEW(struct link);
	link->ports = ports;
	link->fd[HOST] = fd;
	link->fd[SERVICE] = -EBADF;
	list_append(&ports->links, &link->node);
	ports->n_links++;
	loop_timer_init(&link->timer, ports->loop, on_deadline, link);
	loop_timer_set(&link->timer, loop_now_ms(ports->loop) + ASK_MS);
	if (listen_to(link, HOST, EPOLLIN) < 0)
		link_end(link);
}

int ports_take(struct ports *ports, struct loop *loop, int fd, struct err *e)
{
	ports->loop = loop;
	list_init(&ports->links);
	return loop_listener_take(loop, &ports->listener, fd, on_accept, ports, e);
}

void ports_done(struct ports *ports)
{
	if (!ports->loop)
		return;
	loop_listener_close(&ports->listener);
	LIST_EACH(&ports->links, node)
	link_end(container_of(node, struct link, node));
}
