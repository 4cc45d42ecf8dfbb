/* The network's part: a policy becomes ranges for the kernel, and an address the sandbox that has
 * it. Names and headers are not the kernel's business: whoever serves the sockets knows them. */
#include "policy/policy.h"
#include "runtime/local/local.h"

static struct warden_range range_of(const struct policy_range *from)
{
	uint32_t mask = from->bits == 0 ? 0 : UINT32_MAX << (32 - from->bits);

	return (struct warden_range){ .address = from->address & mask,
		.bits = (uint8_t)from->bits,
		.allow = from->allow };
}

int local_add_policy(struct call *call, const struct policy *policy, struct err *e)
{
	struct warden_range ranges[WARDEN_MAX_RANGES];

	if (!policy || policy->is_open)
		return 0;
	if (policy->n_ranges > WARDEN_MAX_RANGES)
		return err_set(e, -E2BIG, "a policy of %zu ranges", policy->n_ranges);
	call->request.reach_flags = policy_by_name(policy) ? WARDEN_PROXIED : 0;
	call->request.n_ranges = (uint32_t)policy->n_ranges;
	if (policy->n_ranges == 0)
		return 0;
	for (size_t i = 0; i < policy->n_ranges; i++)
		ranges[i] = range_of(&policy->ranges[i]);
	call->ranges_fd =
		sealed_file("atoll-ranges", str_make(ranges, policy->n_ranges * sizeof *ranges), e);
	return call->ranges_fd < 0 ? call->ranges_fd : 0;
}

void local_set_policy(struct runtime *rt, const char *id, const struct policy *policy, done_fn done,
	void *arg)
{
	struct local *local = container_of(rt, struct local, base);
	struct call *call = call_new(WARDEN_POLICY, id, arg);
	struct err e = { 0 };

	call->done = done;
	if (local_add_policy(call, policy, &e) < 0)
		fail_later(local, call, &e);
	else
		local_ask(local, call);
}

void local_denied(struct runtime *rt, runtime_denied_fn each, done_fn done, void *arg)
{
	struct call *call = call_new(WARDEN_DENIALS, "", arg);

	call->done = done;
	call->each_denied = each;
	local_ask(container_of(rt, struct local, base), call);
}

void local_keep_egress(struct local *local, const int *take_fds, int n)
{
	for (int i = 0; i < n; i++)
		if (n == WARDEN_EGRESS_FDS && local->egress_fds[i] < 0)
			local->egress_fds[i] = take_fds[i];
		else
			(void)close(take_fds[i]);
}

int local_egress_sockets(const struct runtime *rt, struct runtime_egress *ret, struct err *e)
{
	const struct local *local = (const struct local *)rt; /* base comes first */

	if (!local->is_ready)
		return err_set(e, -EAGAIN, "%s", local->state.msg);
	if (local->egress_fds[WARDEN_PROXY] < 0)
		return err_set(e, -EOPNOTSUPP, "sandboxes have no network");
	*ret = (struct runtime_egress){ .dns_udp_fd = local->egress_fds[WARDEN_DNS_UDP],
		.dns_tcp_fd = local->egress_fds[WARDEN_DNS_TCP],
		.proxy_fd = local->egress_fds[WARDEN_PROXY] };
	return 0;
}

/* Two addresses belong to each number, and numbers follow each other. */
static struct resident *place_of(const struct local *local, uint32_t address)
{
	return &local->residents[(address >> 1) % LOCAL_RESIDENTS];
}

void local_note_address(struct local *local, const struct warden_reply *reply)
{
	struct resident *resident = place_of(local, reply->address);

	resident->address = reply->address;
	memcpy(resident->id, reply->id, sizeof resident->id);
}

const char *local_find_address(const struct runtime *rt, uint32_t address)
{
	const struct resident *resident = place_of((const struct local *)rt, address);

	return address && resident->address == address ? resident->id : NULL;
}

void local_tell_denied(struct local *local, const struct warden_reply *reply)
{
	struct runtime_denial what = { .id = reply->id,
		.protocol = reply->protocol,
		.address = reply->address,
		.port = reply->port };

	if (local->base.on_denied)
		local->base.on_denied(local->base.on_denied_arg, &what);
}
