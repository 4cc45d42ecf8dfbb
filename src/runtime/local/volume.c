/* Volumes that are file systems of their own: made, opened and removed by the warden. */
#include "runtime/local/local.h"

static struct call *volume_call(enum warden_op op, const char *id, void *arg)
{
	struct call *call = call_new(op, "", arg);

	call->mounts = XNEW(struct warden_mount);
	call->request.n_mounts = 1;
	(void)snprintf(call->mounts->volume, sizeof call->mounts->volume, "%s", id);
	return call;
}

void runtime_volume_make(struct runtime *local, const char *id, int64_t bytes, done_fn done,
	void *arg)
{
	struct call *call = volume_call(WARDEN_VOLUME_MAKE, id, arg);

	call->done = done;
	call->request.disk_bytes = (uint64_t)bytes;
	local_ask(local_from(local), call);
}

void runtime_volume_open(struct runtime *local, const char *id, runtime_volume_fn fn, void *arg)
{
	struct call *call = volume_call(WARDEN_VOLUME_OPEN, id, arg);

	call->opened = fn;
	local_ask(local_from(local), call);
}

void runtime_volume_remove(struct runtime *local, const char *id, done_fn done, void *arg)
{
	struct call *call = volume_call(WARDEN_VOLUME_REMOVE, id, arg);

	call->done = done;
	local_ask(local_from(local), call);
}

/* What an answer to OPEN brought is the caller's, or nobody's. */
int local_take_volume(struct call *call, const int *take_fds, int n, int r, struct err *e)
{
	if (r >= 0 && n == WARDEN_VOLUME_FDS) {
		memcpy(call->volume_fds, take_fds, sizeof call->volume_fds);
		return r;
	}
	for (int i = 0; i < n; i++)
		(void)close(take_fds[i]);
	return r < 0 ? r
		     : err_set(e, -EPROTO, "the warden opened a volume and did not hand it over");
}
