#include "runtime/runtime-internal.h"

struct runtime *runtime_free(struct runtime *rt)
{
	return rt ? rt->ops->free(rt) : NULL;
}

const char *runtime_name(const struct runtime *rt)
{
	return rt->ops->name;
}

void runtime_on_exited(struct runtime *rt, runtime_exited_fn fn, void *arg)
{
	rt->exited = fn;
	rt->exited_arg = arg;
}

int runtime_ready(const struct runtime *rt, struct err *e)
{
	return rt->ops->ready(rt, e);
}

void runtime_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done, void *arg)
{
	assert(spec->id && spec->template_name && spec->cpu_count > 0 && spec->memory_mb > 0);
	rt->ops->create(rt, spec, done, arg);
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
