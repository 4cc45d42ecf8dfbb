#include "egress/egress-internal.h"
#include "tls/tls.h"

#include <sys/resource.h>

enum {
	SWEEP_MS = 1000,
	MAX_FLOWS = 8192,
	FILES_A_FLOW = 8, /* two sockets, the one for its name, and the rest is for the server */
	WEB_IDLE_MS = 60000,
};

static void on_sweep(void *arg);

int egress_new(const struct egress_config *config, struct egress **ret, struct err *e)
{
	CLEANUP(egress_freep) struct egress *egress = XNEW(struct egress);
	struct http_limits limits = { .idle_timeout_ms = WEB_IDLE_MS };
	int r;

	egress->config = *config;
	if (config->opened)
		egress->opened = *config->opened;
	egress->loop = config->loop;
	egress->route_fd = egress->proxy.fd = -EBADF;
	loop_timer_init(&egress->sweep, config->loop, on_sweep, egress);
	r = servers_new(config->dns_servers, &egress->servers, e);
	if (r < 0)
		return r;
	r = egress->route_fd = route_open(e);
	if (r < 0)
		return r;
	egress->scratch = xcalloc(1, SCRATCH_BYTES);
	egress->http = http_server_new(config->loop, &limits, web_on_request, egress);
	egress->tls = tls_server_new(config->loop, egress->http, NULL, NULL);
	*ret = TAKE(egress);
	return 0;
}

/* ---- sandboxes that are gone, or may do less than before ---- */

/* False: it is gone. Finding it reads its policy again, if it is another one by now. */
static bool recheck(struct tenant *t)
{
	if (tenant_find(t->egress, t->address) == t)
		return true;
	flow_recheck(t, true);
	web_recheck(t, true);
	return false;
}

/* Forgetting one moves others in the map: what this walk then misses, the next one finds. Beginning
 * again each time would be a walk for each of many that end together. */
static void on_sweep(void *arg)
{
	struct egress *egress = arg;
	struct tenant *t;
	size_t at = 0;

	while ((t = map_next(&egress->tenants, &at))) {
		if (recheck(t))
			cache_sweep(t);
		else
			tenant_forget(t);
	}
	loop_timer_set(&egress->sweep, loop_now_ms(egress->loop) + SWEEP_MS);
}

void egress_recheck(struct egress *egress, const char *id)
{
	struct tenant *t = map_get(&egress->tenants, str_of(id));

	if (t && !recheck(t))
		tenant_forget(t);
}

struct egress *egress_free(struct egress *egress)
{
	struct tenant *t;
	size_t at = 0;

	if (!egress)
		return NULL;
	loop_timer_cancel(&egress->sweep);
	loop_listener_close(&egress->proxy);
	egress->names = names_free(egress->names);
	while ((t = map_next(&egress->tenants, &at)))
		web_quiet_all(t);
	egress->http = http_server_free(egress->http);
	egress->tls = tls_server_free(egress->tls);
	at = 0;
	while ((t = map_next(&egress->tenants, &at))) {
		flow_free_all(t);
		tenant_forget(t);
		at = 0;
	}
	map_done(&egress->tenants);
	map_done(&egress->teams);
	egress->servers = servers_free(egress->servers);
	close_fdp(&egress->route_fd);
	free(egress->scratch);
	free(egress);
	return NULL;
}

/* ---- beginning ---- */

static size_t flows_possible(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return MAX_FLOWS / FILES_A_FLOW;
	return MIN(files.rlim_cur / FILES_A_FLOW, MAX_FLOWS);
}

static void on_accepted(void *arg, int fd, const struct sockaddr_storage *peer)
{
	flow_accept(arg, fd, peer);
}

/* What the operator has opened and is this host's own stays closed, which should be no surprise. */
static void tell_of_own(struct egress *egress)
{
	char text[PRIVATE_TEXT_SIZE];

	for (size_t i = 0; i < egress->opened.n; i++) {
		const struct private_range *range = &egress->opened.v[i];

		if (range->bits < 32 || !route_is_own(egress, range->address))
			continue;
		private_range_text(range, text);
		log_warn("egress.opened_own",
			"address=%s means=\"it is this host's own, or no route leads there: no "
			"sandbox reaches it\"",
			text);
	}
}

int egress_start(struct egress *egress, const struct egress_sockets *sockets, struct err *e)
{
	int fd, r;

	assert(!egress->names);
	egress->max_flows = flows_possible();
	r = names_new(egress, sockets->dns_udp_fd, sockets->dns_tcp_fd, &egress->names, e);
	if (r < 0)
		return err_wrap(e, r, "names for sandboxes");
	fd = fcntl(sockets->proxy_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, -errno, "keep the proxy's socket");
	r = loop_listener_take(egress->loop, &egress->proxy, fd, on_accepted, egress, e);
	if (r < 0)
		return err_wrap(e, r, "proxy for sandboxes");
	loop_timer_set(&egress->sweep, loop_now_ms(egress->loop) + SWEEP_MS);
	tell_of_own(egress);
	return 0;
}
