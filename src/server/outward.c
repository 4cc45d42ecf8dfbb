#include "server/outward.h"
#include "egress/egress.h"

#include <arpa/inet.h>

enum {
	COUNT_MS = 5000, /* how old the kernel's counts may be */
};

struct outward {
	struct outward_config config;
	struct egress *egress;
	struct loop_timer count;
};

/* Whose files alone are left has no processes that could have sent anything, and the address of one
 * that ends may be the next one's already. */
static bool has_processes(const struct sandbox *sb)
{
	return sb->state != SANDBOX_ENDING && (sb->state != SANDBOX_PAUSED || !sb->image[0]);
}

static bool find(void *arg, uint32_t address, struct egress_sandbox *ret)
{
	struct outward *o = arg;
	const char *id = runtime_find_address(o->config.runtime, address);
	const struct sandbox *sb = id ? sandbox_find_tenant(o->config.sandboxes, id) : NULL;

	if (!sb || !has_processes(sb))
		return false;
	*ret = (struct egress_sandbox){ .id = sb->id,
		.team_id = sb->team_id,
		.network = sb->options.network,
		.internet = sb->options.internet };
	return true;
}

static void on_network(void *arg, const char *id)
{
	struct outward *o = arg;

	egress_recheck(o->egress, id);
}

/* Few of them are told, so that these lines are few. */
static void on_denied(void *arg, const struct runtime_denial *what)
{
	struct in_addr address = { htonl(what->address) };
	char text[INET_ADDRSTRLEN];

	(void)arg;
	log_info("egress.denied", "sandbox_id=%s by=kernel protocol=%d target=%s port=%u", what->id,
		what->protocol, inet_ntop(AF_INET, &address, text, sizeof text),
		(unsigned)what->port);
}

static void counted(void *arg, const char *id, uint64_t packets)
{
	struct outward *o = arg;

	sandbox_note_denied(o->config.sandboxes, id, packets);
}

static void all_counted(void *arg, int r, const struct err *e)
{
	struct outward *o = arg;

	if (r < 0)
		log_debug("egress.count", "err=%s", log_quote(str_of(e->msg)));
	/* The table may be away for a moment. A warden that is gone is for good, and when the
	 * server stops this is gone as well. */
	if (r != -EPIPE)
		loop_timer_set(&o->count, loop_now_ms(o->config.loop) + COUNT_MS);
}

static void count_denials(void *arg)
{
	struct outward *o = arg;

	runtime_denied(o->config.runtime, counted, all_counted, o);
}

int outward_new(const struct outward_config *config, struct outward **ret, struct err *e)
{
	struct outward *o = XNEW(struct outward);
	struct egress_config egress = { .loop = config->loop,
		.secrets = config->secrets,
		.authority = config->authority,
		.find = find,
		.find_arg = o,
		.dns_servers = config->dns_servers,
		.opened = config->opened };
	int r;

	o->config = *config;
	r = egress_new(&egress, &o->egress, e);
	if (r < 0) {
		(void)outward_free(o);
		return r;
	}
	sandbox_on_network(config->sandboxes, on_network, o);
	runtime_on_denied(config->runtime, on_denied, o);
	*ret = o;
	return 0;
}

struct outward *outward_free(struct outward *o)
{
	if (!o)
		return NULL;
	loop_timer_cancel(&o->count);
	o->egress = egress_free(o->egress);
	free(o);
	return NULL;
}

int outward_start(struct outward *o, struct err *e)
{
	struct runtime_egress sockets;
	struct egress_sockets own;
	int r = runtime_egress_sockets(o->config.runtime, &sockets, e);

	if (r == -EOPNOTSUPP)
		return 0;
	if (r < 0)
		return r;
	loop_timer_init(&o->count, o->config.loop, count_denials, o);
	loop_timer_set(&o->count, loop_now_ms(o->config.loop) + COUNT_MS);
	own = (struct egress_sockets){ sockets.dns_udp_fd, sockets.dns_tcp_fd, sockets.proxy_fd };
	return egress_start(o->egress, &own, e);
}

const struct egress *outward_egress(const struct outward *o)
{
	return o->egress;
}
