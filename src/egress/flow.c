/* One connection of a sandbox whose policy goes by name. It is held, its first bytes are looked at
 * and stay in the socket, and nothing goes out before it is decided where to. */
#include "egress/egress-internal.h"

#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>

enum {
	/* A client that says nothing speaks a protocol where the server begins: it goes by its
	 * address, if that is allowed, after a moment; else it has nothing to hope for anyway. */
	QUIET_MS = 500,
	SNIFF_MS = 5000,
	REFUSAL_MAX_BYTES = 4 * SNIFF_MAX_BYTES,
};

enum flow_state {
	FLOW_SNIFF,
	FLOW_DIAL,
	FLOW_TUNNEL,
	FLOW_OVER,
};

struct flow {
	struct list node; /* in tenant->flows */
	struct egress *egress;
	struct tenant *tenant;
	struct sockaddr_storage peer;
	uint32_t address; /* where it was meant to go */
	uint32_t reached; /* where it went; 0: nowhere yet */
	bool by_name;     /* and not because of the address */
	uint16_t port;
	int fd;
	enum flow_state state;
	enum sniffed what;
	char name[DNS_TEXT_SIZE]; /* empty: it says none */
	size_t seen;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	struct dial *dial;
	struct tunnel *tunnel;
};

/* ---- its end ---- */

static void flow_free(struct flow *f)
{
	loop_io_remove(&f->io);
	loop_timer_cancel(&f->timer);
	loop_task_cancel(&f->task);
	dial_cancel(f->dial);
	(void)tunnel_free(f->tunnel);
	close_hard(f->fd);
	list_remove(&f->node);
	f->egress->n_flows--;
	tenant_give_back(f->tenant, SHARE_FLOWS);
	(void)tenant_unref(f->tenant);
	free(f);
}

static void on_over(void *arg)
{
	flow_free(arg);
}

/* At the end of the turn, since events of this one may still name it. */
static void end(struct flow *f)
{
	if (f->state == FLOW_OVER)
		return;
	f->state = FLOW_OVER;
	loop_io_remove(&f->io);
	loop_timer_cancel(&f->timer);
	loop_defer(f->egress->loop, &f->task, on_over, f);
}

/* A client that speaks TLS learns of it in its own words. Its hello is read first: a socket closed
 * with unread bytes would be reset, and the reset could overtake the alert. */
static void send_alert(struct flow *f)
{
	static const char access_denied[] = "\x15\x03\x01\x00\x02\x02\x31";

	for (size_t n = 0; n < REFUSAL_MAX_BYTES; n += SCRATCH_BYTES)
		if (recv(f->fd, f->egress->scratch, SCRATCH_BYTES, MSG_DONTWAIT) <= 0)
			break;
	(void)send(f->fd, access_denied, sizeof access_denied - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close_fdp(&f->fd);
	f->fd = -EBADF;
}

static void refuse(struct flow *f)
{
	char address[INET_ADDRSTRLEN];
	struct in_addr in = { htonl(f->address) };

	if (f->name[0])
		tenant_deny(f->tenant, DENIED_NAME, f->name, f->port);
	else
		tenant_deny(f->tenant, DENIED_ADDRESS,
			inet_ntop(AF_INET, &in, address, sizeof address), f->port);
	if (f->what == SNIFF_TLS)
		send_alert(f);
	end(f);
}

/* ---- passing on ---- */

static void on_tunnel_over(void *arg)
{
	end(arg);
}

static void on_dialled(void *arg, int fd)
{
	struct flow *f = arg;

	f->dial = NULL;
	if (f->state == FLOW_OVER) { /* in this very turn */
		close_hard(fd);
		return;
	}
	if (fd < 0) {
		log_debug("egress.dial_failed", "sandbox_id=%s name=%s port=%u err=%d",
			f->tenant->id, log_quote(str_of(f->name)), (unsigned)f->port, -fd);
		end(f);
		return;
	}
	f->state = FLOW_TUNNEL;
	f->reached = dial_peer(fd);
	f->tunnel = tunnel_new(f->egress->loop, f->egress->scratch, TAKE_FD(f->fd), fd,
		on_tunnel_over, f);
}

static void pass_on(struct flow *f, const char *name)
{
	int one = 1;

	(void)setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
	loop_io_remove(&f->io);
	loop_timer_cancel(&f->timer);
	f->state = FLOW_DIAL;
	f->by_name = name != NULL;
	f->reached = name ? 0 : f->address;
	f->dial = dial_start(f->tenant, name, f->address, f->port, on_dialled, f);
}

/* Requests are looked at one by one, since a connection may carry many. */
static void hand_to_web(struct flow *f)
{
	struct web_connection connection = { .tenant = f->tenant,
		.peer = &f->peer,
		.address = f->address,
		.port = f->port,
		.fd = TAKE_FD(f->fd),
		.hello = f->what == SNIFF_TLS ? f->name : NULL };
	int one = 1;

	(void)setsockopt(connection.fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
	loop_io_remove(&f->io); /* the descriptor is watched by another now */
	end(f);
	if (connection.hello && !tenant_may(f->tenant, RATE_HELLOS))
		close_hard(connection.fd);
	else
		web_take(&connection);
}

/* A host with a header rule, to which requests leave only through us. */
static bool has_rule(const struct flow *f)
{
	return f->what == SNIFF_TLS && f->egress->config.authority &&
	       policy_rule_for(&f->tenant->policy, str_of(f->name));
}

enum verdict verdict_of(struct tenant *t, const char *name, uint32_t address, uint16_t port)
{
	if (route_is_closed(t->egress, address, port))
		return VERDICT_REFUSE;
	if (policy_grants_address(&t->policy, address))
		return VERDICT_ADDRESS;
	return policy_allows_name(&t->policy, str_of(name)) ? VERDICT_NAME : VERDICT_REFUSE;
}

/* The name that it claimed counts only if it was the reason, and where it went then. */
bool verdict_holds(const struct tenant *t, const char *name, uint32_t reached, uint16_t port)
{
	return (!private_is_closed(&t->egress->opened, reached, port) &&
		       policy_grants_address(&t->policy, reached)) ||
	       (name && policy_allows_name(&t->policy, str_of(name)));
}

static void decide(struct flow *f)
{
	enum verdict verdict = verdict_of(f->tenant, f->name, f->address, f->port);

	if ((f->what == SNIFF_HTTP && verdict != VERDICT_ADDRESS) ||
		(verdict != VERDICT_REFUSE && has_rule(f))) {
		hand_to_web(f);
		return;
	}
	switch (verdict) {
	case VERDICT_REFUSE:
		refuse(f);
		break;
	case VERDICT_ADDRESS:
		pass_on(f, NULL);
		break;
	case VERDICT_NAME:
		pass_on(f, f->name);
		break;
	}
}

/* ---- looking ---- */

static void on_timer(void *arg)
{
	struct flow *f = arg;

	f->what = SNIFF_OTHER;
	decide(f);
}

static void look(struct flow *f, uint32_t events)
{
	ssize_t n = recv(f->fd, f->egress->scratch, SNIFF_MAX_BYTES, MSG_PEEK | MSG_DONTWAIT);
	int more;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end(f);
		return;
	}
	f->what = sniff(str_make(f->egress->scratch, (size_t)n), f->name);
	if (f->what == SNIFF_MORE && (events & EPOLLRDHUP))
		f->what = SNIFF_OTHER; /* more will not come */
	if (f->what != SNIFF_MORE) {
		decide(f);
		return;
	}
	if (f->seen == 0) /* it speaks first: it has the time it needs */
		loop_timer_set(&f->timer, loop_now_ms(f->egress->loop) + SNIFF_MS);
	f->seen = (size_t)n;
	more = (int)n + 1; /* the bytes stay, and would be reported again and again */
	(void)setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof more);
}

static void on_io(void *arg, uint32_t events)
{
	struct flow *f = arg;

	if (events & (EPOLLERR | EPOLLHUP))
		end(f);
	else
		look(f, events);
}

/* ---- beginning ---- */

/* Only what the kernel redirected has another destination than this socket's own address. */
static bool find_target(int fd, struct sockaddr_in *ret)
{
	socklen_t size = sizeof *ret, own_size = sizeof *ret;
	struct sockaddr_in own = { 0 };

	if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, ret, &size) < 0 ||
		getsockname(fd, (struct sockaddr *)&own, &own_size) < 0)
		return false;
	return ret->sin_family == AF_INET &&
	       (ret->sin_addr.s_addr != own.sin_addr.s_addr || ret->sin_port != own.sin_port);
}

static void begin(struct flow *f)
{
	struct loop *loop = f->egress->loop;
	bool allowed = policy_grants_address(&f->tenant->policy, f->address);

	if (route_is_closed(f->egress, f->address, f->port)) {
		refuse(f); /* whatever it would say */
		return;
	}
	if (allowed && f->tenant->policy.n_rules == 0) {
		decide(f);
		return;
	}
	loop_timer_set(&f->timer, loop_now_ms(loop) + (allowed ? QUIET_MS : SNIFF_MS));
	if (loop_io_add(loop, &f->io, f->fd, EPOLLIN | EPOLLRDHUP, on_io, f, NULL) < 0)
		end(f);
}

void flow_accept(struct egress *egress, int fd, const struct sockaddr_storage *peer)
{
	const struct sockaddr_in *in4 = (const void *)peer;
	struct sockaddr_in target = { 0 };
	struct tenant *t = NULL;
	struct flow *f;

	if (peer->ss_family == AF_INET && find_target(fd, &target))
		t = tenant_find(egress, ntohl(in4->sin_addr.s_addr));
	if (!t || !tenant_take(t, SHARE_FLOWS, egress->n_flows, egress->max_flows)) {
		close_hard(fd);
		return;
	}
	f = XNEW(struct flow);
	egress->n_flows++;
	f->egress = egress;
	f->tenant = tenant_ref(t);
	f->peer = *peer;
	f->address = ntohl(target.sin_addr.s_addr);
	f->port = ntohs(target.sin_port);
	f->fd = fd;
	f->what = SNIFF_OTHER;
	list_append(&t->flows, &f->node);
	loop_timer_init(&f->timer, egress->loop, on_timer, f);
	begin(f);
}

void flow_recheck(struct tenant *t, bool all)
{
	LIST_EACH(&t->flows, node)
	{
		struct flow *f = container_of(node, struct flow, node);

		if (all || (f->state != FLOW_SNIFF && !verdict_holds(t, f->by_name ? f->name : NULL,
							      f->reached, f->port)))
			end(f);
	}
}

void flow_free_all(struct tenant *t)
{
	LIST_EACH(&t->flows, node)
	flow_free(container_of(node, struct flow, node));
}
