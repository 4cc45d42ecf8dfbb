/* From a name to a connected socket. The addresses are those that the name has for us, and one that
 * is private and not opened, this host's own or a sandbox's is never dialled. */
#include "egress/egress-internal.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>

enum {
	MAX_ADDRESSES = 4,
	CONNECT_MS = 6000, /* each */
	KEEPALIVE_SECONDS = 60,
};

struct dial {
	struct tenant *tenant;
	struct lookup *lookup;
	uint32_t addresses[MAX_ADDRESSES];
	size_t n, at;
	uint16_t port;
	bool name_allowed; /* whatever its addresses are, so that they are public */
	int fd, error;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	dial_fn fn;
	void *arg;
};

static void try_next(struct dial *d);

static void close_socket(struct dial *d)
{
	loop_io_remove(&d->io);
	loop_timer_cancel(&d->timer);
	close_fdp(&d->fd);
	d->fd = -EBADF;
}

static void dial_free(struct dial *d)
{
	lookup_cancel(d->lookup);
	close_socket(d);
	loop_task_cancel(&d->task);
	(void)tenant_unref(d->tenant);
	free(d);
}

void dial_cancel(struct dial *d)
{
	if (d)
		dial_free(d);
}

uint32_t dial_peer(int fd)
{
	struct sockaddr_in peer = { 0 };
	socklen_t size = sizeof peer;

	if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0)
		return 0;
	return ntohl(peer.sin_addr.s_addr);
}

static void on_done(void *arg)
{
	struct dial *d = arg;
	int fd = TAKE_FD(d->fd);

	d->fn(d->arg, fd >= 0 ? fd : d->error);
	dial_free(d);
}

static void finish(struct dial *d)
{
	loop_io_remove(&d->io);
	loop_timer_cancel(&d->timer);
	loop_defer(d->tenant->egress->loop, &d->task, on_done, d);
}

static void on_connected(void *arg, uint32_t events)
{
	struct dial *d = arg;
	socklen_t size = sizeof(int);
	int error = 0;

	(void)events;
	if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		error = errno;
	if (error == 0) {
		finish(d);
		return;
	}
	d->error = -error;
	try_next(d);
}

static void on_timer(void *arg)
{
	struct dial *d = arg;

	d->error = -ETIMEDOUT;
	try_next(d);
}

static void set_options(int fd)
{
	int on = 1, seconds = KEEPALIVE_SECONDS;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
}

static int connect_to(struct dial *d, uint32_t address)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(d->port),
		.sin_addr.s_addr = htonl(address) };
	struct loop *loop = d->tenant->egress->loop;

	d->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (d->fd < 0)
		return -errno;
	set_options(d->fd);
	if (connect(d->fd, (const struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
		return -errno;
	loop_timer_set(&d->timer, loop_now_ms(loop) + CONNECT_MS);
	return loop_io_add(loop, &d->io, d->fd, EPOLLOUT, on_connected, d, NULL);
}

static void try_next(struct dial *d)
{
	int r = -ENOENT;

	while (d->at < d->n) {
		close_socket(d);
		r = connect_to(d, d->addresses[d->at++]);
		if (r >= 0)
			return;
		d->error = r;
	}
	close_socket(d);
	finish(d);
}

static void add_address(struct dial *d, uint32_t address)
{
	if (d->n == MAX_ADDRESSES || route_is_closed(d->tenant->egress, address, d->port))
		return;
	if (d->name_allowed || policy_grants_address(&d->tenant->policy, address))
		d->addresses[d->n++] = address;
}

static void on_answer(void *arg, const struct dns_answer *answer, uint32_t age_s)
{
	struct dial *d = arg;

	(void)age_s;
	d->lookup = NULL;
	for (size_t i = 0; answer && i < answer->n; i++)
		if (answer->records[i].type == DNS_A)
			add_address(d, dns_record_address(&answer->records[i]));
	try_next(d);
}

static void resolve(struct dial *d, const char *name)
{
	struct dns_question question = { .type = DNS_A, .class = DNS_CLASS_IN };

	if (dns_name_parse(str_of(name), &question.name) == 0)
		d->lookup = lookup_start(d->tenant, &question, on_answer, d);
	if (!d->lookup)
		finish(d);
}

struct dial *dial_start(struct tenant *tenant, const char *name, uint32_t address, uint16_t port,
	dial_fn fn, void *arg)
{
	struct dial *d = XNEW(struct dial);

	d->tenant = tenant_ref(tenant);
	d->port = port;
	d->fd = -EBADF;
	d->error = -ENOENT;
	d->fn = fn;
	d->arg = arg;
	loop_timer_init(&d->timer, tenant->egress->loop, on_timer, d);
	if (name) {
		d->name_allowed = policy_allows_name(&tenant->policy, str_of(name));
		resolve(d, name);
		return d;
	}
	add_address(d, address);
	try_next(d);
	return d;
}
