#include "runtime/oci/oci.h"

/* One table each, since the table has the name; all by one macro, since that is the only
 * difference. */
static const struct runtime_ops oci_ops[];

static struct oci *oci_from(struct runtime *rt)
{
	struct oci *oci = container_of(rt, struct oci, base);

	assert(rt->ops == &oci_ops[oci->engine]);
	return oci;
}

static struct runtime *local_of(struct runtime *rt)
{
	return &oci_from(rt)->local->base;
}

static struct runtime *oci_free(struct runtime *rt)
{
	struct oci *oci = oci_from(rt);

	oci_dials_end(oci);
	oci->local->engines[oci->engine] = NULL;
	free(oci);
	return NULL;
}

static int oci_ready(const struct runtime *rt, struct err *e)
{
	return runtime_ready(&((const struct oci *)rt)->local->base, e); /* base comes first */
}

static void oci_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done, void *arg)
{
	struct oci *oci = oci_from(rt);

	local_create_with(oci->local, oci->engine, spec, done, arg);
}

static void oci_destroy(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	runtime_destroy(local_of(rt), id, done, arg);
}

static void oci_dial(struct runtime *rt, const char *id, int port, runtime_dial_fn fn, void *arg)
{
	struct oci *oci = oci_from(rt);

	if (oci->engine == WARDEN_GVISOR && port != RUNTIME_GUEST_PORT)
		oci_dial_inside(oci, id, port, fn, arg);
	else
		runtime_dial(&oci->local->base, id, port, fn, arg);
}

static void oci_hang_up(struct runtime *rt)
{
	oci_dials_end(oci_from(rt));
}

static void oci_list(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg)
{
	struct oci *oci = oci_from(rt);

	local_list_of(oci->local, oci->engine, each, done, arg);
}

static void oci_pause(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	runtime_pause(local_of(rt), id, done, arg);
}

static void oci_resume(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	runtime_resume(local_of(rt), id, done, arg);
}

static void oci_save(struct runtime *rt, const char *id, const char *image, done_fn done, void *arg)
{
	runtime_save(local_of(rt), id, image, done, arg);
}

static void oci_discard(struct runtime *rt, const char *image, done_fn done, void *arg)
{
	runtime_discard(local_of(rt), image, done, arg);
}

static void oci_list_images(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg)
{
	runtime_list_images(local_of(rt), each, done, arg);
}

static void oci_set_policy(struct runtime *rt, const char *id, const struct policy *policy,
	done_fn done, void *arg)
{
	runtime_set_policy(local_of(rt), id, policy, done, arg);
}

static int oci_egress_sockets(const struct runtime *rt, struct runtime_egress *ret, struct err *e)
{
	return runtime_egress_sockets(&((const struct oci *)rt)->local->base, ret, e);
}

static const char *oci_find_address(const struct runtime *rt, uint32_t address)
{
	return runtime_find_address(&((const struct oci *)rt)->local->base, address);
}

static void oci_denied(struct runtime *rt, runtime_denied_fn each, done_fn done, void *arg)
{
	runtime_denied(local_of(rt), each, done, arg);
}

static void oci_used(struct runtime *rt, const char *id, runtime_used_fn fn, void *arg)
{
	runtime_used(local_of(rt), id, fn, arg);
}

#define OCI_OPS(its_name)                                                                       \
	{                                                                                       \
		.name = (its_name), .free = oci_free, .ready = oci_ready, .create = oci_create, \
		.destroy = oci_destroy, .dial = oci_dial, .hang_up = oci_hang_up,               \
		.list = oci_list, .pause = oci_pause, .resume = oci_resume, .save = oci_save,   \
		.discard = oci_discard, .list_images = oci_list_images,                         \
		.set_policy = oci_set_policy, .egress_sockets = oci_egress_sockets,             \
		.find_address = oci_find_address, .denied = oci_denied, .used = oci_used,       \
	}

static const struct runtime_ops oci_ops[] = {
	[WARDEN_GVISOR] = OCI_OPS("gvisor"),
	[WARDEN_RUNC] = OCI_OPS("runc"),
	[WARDEN_CRUN] = OCI_OPS("crun"),
};

int runtime_oci_new(struct runtime *local, const char *name, struct runtime **ret, struct err *e)
{
	struct oci *oci;

	for (size_t i = WARDEN_GVISOR; i < ARRAY_SIZE(oci_ops); i++) {
		if (strcmp(oci_ops[i].name, name) != 0)
			continue;
		oci = XNEW(struct oci);
		oci->base.ops = &oci_ops[i];
		oci->base.loop = local->loop;
		oci->local = local_from(local);
		oci->engine = (enum warden_engine)i;
		list_init(&oci->dials);
		oci->local->engines[i] = &oci->base;
		*ret = &oci->base;
		return 0;
	}
	return err_set(e, -ENOENT, "no runtime is called '%s'", name);
}
