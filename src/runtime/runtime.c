#include "runtime/runtime-internal.h"
#include "base/fault.h"
#include "warden/proto.h"

struct runtime *runtime_free(struct runtime *rt)
{
	return rt ? rt->ops->free(rt) : NULL;
}

const char *runtime_name(const struct runtime *rt)
{
	return rt->ops->name;
}

struct runtime *runtime_find(const struct runtime_set *set, struct str name, struct err *e)
{
	char known[RUNTIME_MAX * (RUNTIME_NAME_SIZE + 4)] = "";
	size_t n = 0;

	for (size_t i = 0; i < set->n; i++) {
		if (name.n == 0 || str_is(name, set->v[i]->ops->name))
			return set->v[i];
		n += (size_t)snprintf(known + n, sizeof known - n, "%s'%s'", i ? ", " : "",
			set->v[i]->ops->name);
	}
	(void)err_set(e, -EINVAL, "unknown runtime '%.*s': there are %s",
		(int)MIN(name.n, (size_t)RUNTIME_NAME_SIZE), name.p, known);
	return NULL;
}

void runtime_set_free(struct runtime_set *set)
{
	while (set->n > 0) {
		set->n--;
		set->v[set->n] = runtime_free(set->v[set->n]);
	}
}

void runtime_on_exited(struct runtime *rt, runtime_exited_fn fn, void *arg)
{
	rt->exited = fn;
	rt->exited_arg = arg;
}

void runtime_on_held(struct runtime *rt, runtime_held_fn fn, void *arg)
{
	rt->held = fn;
	rt->held_arg = arg;
}

void runtime_host(struct runtime *rt, runtime_host_fn fn, void *arg)
{
	struct err e = { 0 };

	if (rt->ops->host) {
		rt->ops->host(rt, fn, arg);
		return;
	}
	(void)err_set(&e, -EOPNOTSUPP, "the engine '%s' shares nothing here", rt->ops->name);
	fn(arg, e.code, NULL, &e);
}

static_assert((int)RUNTIME_STEPS == (int)WARDEN_STEPS, "all of them");
static_assert((int)RUNTIME_BUCKETS == (int)WARDEN_BUCKETS, "the same");

const char *runtime_step_name(size_t step)
{
	static const char *const names[RUNTIME_STEPS] = {
		[WARDEN_STEP_CREATE] = "create",
		[WARDEN_STEP_DESTROY] = "destroy",
		[WARDEN_STEP_CHANGE] = "change",
		[WARDEN_STEP_ASK] = "ask",
		[WARDEN_STEP_PLACED] = "placed",
		[WARDEN_STEP_DISK] = "disk",
		[WARDEN_STEP_WORKED] = "worked",
		[WARDEN_STEP_GUEST] = "guest",
		[WARDEN_STEP_EXIT] = "exit",
		[WARDEN_STEP_REMOVE] = "remove",
		[WARDEN_STEP_REFILL] = "refill",
		[WARDEN_STEP_LOOK] = "look",
	};

	return names[step];
}

int64_t runtime_bucket_us(size_t bucket)
{
	return warden_bucket_us[bucket];
}

void runtime_on_crossed(struct runtime *rt, runtime_crossed_fn fn, void *arg)
{
	rt->crossed = fn;
	rt->crossed_arg = arg;
}

void runtime_on_lost(struct runtime *rt, runtime_lost_fn fn, void *arg)
{
	rt->lost = fn;
	rt->lost_arg = arg;
}

int runtime_ready(const struct runtime *rt, struct err *e)
{
	return rt->ops->ready(rt, e);
}

const char *runtime_mount_problem(struct str path)
{
	static_assert((int)RUNTIME_MAX_MOUNTS <= (int)WARDEN_MAX_MOUNTS, "the wire takes them all");
	return warden_path_problem(path);
}

/* ---- creating, through the breaker ---- */

const char *runtime_breaker_name(enum runtime_breaker_state state)
{
	static const char *const names[] = {
		[RUNTIME_BREAKER_CLOSED] = "closed",
		[RUNTIME_BREAKER_HALF_OPEN] = "half_open",
		[RUNTIME_BREAKER_OPEN] = "open",
	};

	return names[state];
}

void runtime_breaker(const struct runtime *rt, struct runtime_breaker *ret)
{
	breaker_look(&rt->breaker, loop_now_ms(rt->loop), ret);
}

int64_t runtime_retry_s(const struct runtime_set *set)
{
	struct runtime_breaker breaker;
	int64_t longest = 0;

	for (size_t i = 0; i < set->n; i++) {
		runtime_breaker(set->v[i], &breaker);
		longest = MAX(longest, breaker.retry_s);
	}
	return longest;
}

void runtime_on_breaker(struct runtime *rt, runtime_breaker_fn fn, void *arg)
{
	rt->on_breaker = fn;
	rt->on_breaker_arg = arg;
}

static void tell_breaker(struct runtime *rt)
{
	if (rt->on_breaker)
		rt->on_breaker(rt->on_breaker_arg, rt);
}

struct creation {
	struct runtime *rt;
	bool has_image;
	struct loop_task task;
	struct err e;
	done_fn done;
	void *arg;
};

static void created(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;
	/* What somebody left on a saved disk may keep it from starting, and must not be able to
	 * keep others from it. */
	bool is_ours = runtime_fault_of(r) == RUNTIME_FAULT_PASSING && !c->has_image;

	if (breaker_note(&c->rt->breaker, loop_now_ms(c->rt->loop), r, is_ours, e))
		tell_breaker(c->rt);
	c->done(c->arg, r, e);
	free(c);
}

static void tell_refused(void *arg)
{
	struct creation *c = arg;

	c->done(c->arg, c->e.code, &c->e);
	free(c);
}

static void tell_fault(void *arg)
{
	struct creation *c = arg;

	created(c, c->e.code, &c->e);
}

void runtime_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done, void *arg)
{
	enum runtime_breaker_state before = rt->breaker.state;
	struct creation *c = XNEW(struct creation);
	int fault = (int)fault_value(FAULT_CREATE_ERRNO);

	assert(spec->id && spec->template_name && spec->limits);
	c->rt = rt;
	c->has_image = spec->image != NULL;
	c->done = done;
	c->arg = arg;
	if (breaker_admit(&rt->breaker, loop_now_ms(rt->loop), &c->e) < 0) {
		(void)err_wrap(&c->e, c->e.code, "runtime '%s'", rt->ops->name);
		loop_defer(rt->loop, &c->task, tell_refused, c);
		return;
	}
	if (rt->breaker.state != before)
		tell_breaker(rt);
	if (fault_strikes(FAULT_CREATE_EVERY)) {
		(void)err_set(&c->e, fault ? -fault : -EIO, "a test made this creation fail");
		loop_defer(rt->loop, &c->task, tell_fault, c);
		return;
	}
	rt->ops->create(rt, spec, created, c);
}

void runtime_destroy(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	rt->ops->destroy(rt, id, done, arg);
}

void runtime_dial(struct runtime *rt, const char *id, int port, runtime_dial_fn fn, void *arg)
{
	assert(port > 0 && port <= 65535);
	rt->ops->dial(rt, id, port, fn, arg);
}

void runtime_hang_up(const struct runtime_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->v[i]->ops->hang_up)
			set->v[i]->ops->hang_up(set->v[i]);
}

void runtime_list(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg)
{
	rt->ops->list(rt, each, done, arg);
}

void runtime_pause(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	rt->ops->pause(rt, id, done, arg);
}

void runtime_resume(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	rt->ops->resume(rt, id, done, arg);
}

void runtime_save(struct runtime *rt, const char *id, const char *image, done_fn done, void *arg)
{
	assert(image[0]);
	rt->ops->save(rt, id, image, done, arg);
}

void runtime_discard(struct runtime *rt, const char *image, done_fn done, void *arg)
{
	assert(image[0]);
	rt->ops->discard(rt, image, done, arg);
}

void runtime_list_images(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg)
{
	rt->ops->list_images(rt, each, done, arg);
}

void runtime_set_policy(struct runtime *rt, const char *id, const struct policy *policy,
	done_fn done, void *arg)
{
	rt->ops->set_policy(rt, id, policy, done, arg);
}

int runtime_egress_sockets(const struct runtime *rt, struct runtime_egress *ret, struct err *e)
{
	return rt->ops->egress_sockets(rt, ret, e);
}

const char *runtime_find_address(const struct runtime *rt, uint32_t address)
{
	return rt->ops->find_address(rt, address);
}

void runtime_on_denied(struct runtime *rt, runtime_denial_fn fn, void *arg)
{
	rt->on_denied = fn;
	rt->on_denied_arg = arg;
}

void runtime_used(struct runtime *rt, const char *id, runtime_used_fn fn, void *arg)
{
	rt->ops->used(rt, id, fn, arg);
}

void runtime_denied(struct runtime *rt, runtime_denied_fn each, done_fn done, void *arg)
{
	rt->ops->denied(rt, each, done, arg);
}
