/* Sandboxes of Linux's own namespaces, made by the warden. This side is unprivileged: it asks. */
#include "runtime/local/local.h"
#include "limit/limit.h"

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

static const struct runtime_ops local_ops;

struct local *local_from(struct runtime *rt)
{
	assert(rt->ops == &local_ops);
	return container_of(rt, struct local, base);
}

static struct runtime *local_free(struct runtime *rt)
{
	struct local *local = local_from(rt);

	local_wire_stop(local);
	close_fdp(&local->warden_fd);
	close_fdp(&local->run_fd);
	for (int i = 0; i < WARDEN_EGRESS_FDS; i++)
		close_fdp(&local->egress_fds[i]);
	free(local->residents);
	free(local);
	return NULL;
}

static int local_ready(const struct runtime *rt, struct err *e)
{
	const struct local *local = (const struct local *)rt; /* base comes first */

	if (local->is_ready && !local->is_dead)
		return 0;
	return err_set(e, local->state.code < 0 ? local->state.code : -EAGAIN, "%s",
		local->state.msg);
}

void call_end(struct call *call, int r, int fd, const struct err *e)
{
	if (call->dial)
		call->dial(call->arg, r < 0 ? r : fd, e);
	else if (call->opened)
		call->opened(call->arg, r, call->volume_fds, e);
	else if (call->used)
		call->used(call->arg, r, &call->amounts, e);
	else if (call->host)
		call->host(call->arg, r, &call->shared, e);
	else
		call->done(call->arg, r, e);
	close_fdp(&call->fd);
	close_fdp(&call->ranges_fd);
	free(call->mounts);
	free(call);
}

struct call *call_new(enum warden_op op, const char *id, void *arg)
{
	struct call *call = XNEW(struct call);

	call->request.op = op;
	call->fd = call->ranges_fd = -EBADF;
	call->arg = arg;
	(void)snprintf(call->request.id, sizeof call->request.id, "%s", id);
	return call;
}

int sealed_file(const char *name, struct str bytes, struct err *e)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

	if (fd < 0)
		return err_sys(e, -errno, "make the memory file %s", name);
	r = fd_write_all(fd, bytes.p, bytes.n);
	if (r >= 0 &&
		(lseek(fd, 0, SEEK_SET) < 0 ||
			fcntl(fd, F_ADD_SEALS,
				F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
		r = -errno;
	if (r >= 0)
		return fd;
	(void)close(fd);
	return err_sys(e, r, "write %s", name);
}

/* Failures found on this side are told on a later turn. */
struct failed {
	struct loop_task task;
	struct call *call;
	struct err e;
};

static void tell_failed(void *arg)
{
	struct failed *f = arg;

	call_end(f->call, f->e.code, -EBADF, &f->e);
	free(f);
}

void fail_later(struct local *local, struct call *call, const struct err *e)
{
	struct failed *f = XNEW(struct failed);

	f->call = call;
	f->e = *e;
	loop_defer(local->base.loop, &f->task, tell_failed, f);
}

static int by_path(const void *a, const void *b)
{
	const struct warden_mount *x = a, *y = b;

	return strcmp(x->path, y->path);
}

/* In the order that the wire wants: by path. */
static void add_mounts(struct call *call, const struct runtime_spec *spec)
{
	assert(spec->n_mounts <= WARDEN_MAX_MOUNTS);
	if (spec->n_mounts == 0)
		return;
	call->mounts = XNEW_N(struct warden_mount, spec->n_mounts);
	for (size_t i = 0; i < spec->n_mounts; i++) {
		struct warden_mount *m = &call->mounts[i];

		(void)snprintf(m->volume, sizeof m->volume, "%s", spec->mounts[i].volume_id);
		(void)snprintf(m->path, sizeof m->path, "%s", spec->mounts[i].path);
	}
	qsort(call->mounts, spec->n_mounts, sizeof *call->mounts, by_path);
	call->request.n_mounts = (uint32_t)spec->n_mounts;
}

static void add_limits(struct warden_request *q, const struct limit_set *limits)
{
	q->memory_bytes = (uint64_t)limits->v[LIMIT_MEMORY] << 20;
	q->shm_bytes = (uint64_t)limits->v[LIMIT_SHM] << 20;
	q->disk_bytes = (uint64_t)limits->v[LIMIT_DISK] << 20;
	q->disk_inodes = (uint64_t)limits->v[LIMIT_INODES];
	q->cpu_percent = (uint32_t)limits->v[LIMIT_CPU] * 100;
	q->max_pids = (uint32_t)limits->v[LIMIT_PROCESSES];
}

void local_create_with(struct local *local, enum warden_engine engine,
	const struct runtime_spec *spec, done_fn done, void *arg)
{
	struct call *call = call_new(WARDEN_CREATE, spec->id, arg);
	struct err e = { 0 };

	call->done = done;
	(void)snprintf(call->request.template_name, sizeof call->request.template_name, "%s",
		spec->template_name);
	if (spec->image)
		(void)snprintf(call->request.image_name, sizeof call->request.image_name, "%s",
			spec->image);
	call->request.engine = engine;
	call->request.is_nested = spec->is_nested;
	add_limits(&call->request, spec->limits);
	add_mounts(call, spec);
	/* The warden passes the settings on without a look. */
	call->fd = sealed_file("atoll-settings", spec->settings, &e);
	if (call->fd < 0 || local_add_policy(call, spec->policy, &e) < 0)
		fail_later(local, call, &e);
	else
		local_ask(local, call);
}

static void local_create(struct runtime *rt, const struct runtime_spec *spec, done_fn done,
	void *arg)
{
	local_create_with(local_from(rt), WARDEN_LOCAL, spec, done, arg);
}

static void local_destroy(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	struct call *call = call_new(WARDEN_DESTROY, id, arg);

	call->done = done;
	local_ask(local_from(rt), call);
}

static void ask_each(struct local *local, enum warden_op op, enum warden_engine engine,
	runtime_each_fn each, done_fn done, void *arg)
{
	struct call *call = call_new(op, "", arg);

	call->done = done;
	call->each = each;
	call->engine = engine;
	local_ask(local, call);
}

void local_list_of(struct local *local, enum warden_engine engine, runtime_each_fn each,
	done_fn done, void *arg)
{
	ask_each(local, WARDEN_LIST, engine, each, done, arg);
}

static void local_list(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg)
{
	local_list_of(local_from(rt), WARDEN_LOCAL, each, done, arg);
}

static void local_list_images(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg)
{
	ask_each(local_from(rt), WARDEN_IMAGES, WARDEN_LOCAL, each, done, arg);
}

/* A plain question about one sandbox, one image, or both. */
static void ask_done(struct runtime *rt, enum warden_op op, const char *id, const char *image,
	done_fn done, void *arg)
{
	struct call *call = call_new(op, id, arg);

	call->done = done;
	(void)snprintf(call->request.image_name, sizeof call->request.image_name, "%s", image);
	local_ask(local_from(rt), call);
}

static void local_pause(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	ask_done(rt, WARDEN_FREEZE, id, "", done, arg);
}

static void local_used(struct runtime *rt, const char *id, runtime_used_fn fn, void *arg)
{
	struct call *call = call_new(WARDEN_USAGE, id, arg);

	call->used = fn;
	local_ask(local_from(rt), call);
}

static void local_host(struct runtime *rt, runtime_host_fn fn, void *arg)
{
	struct call *call = call_new(WARDEN_HOST, "", arg);

	call->host = fn;
	local_ask(local_from(rt), call);
}

static void local_resume(struct runtime *rt, const char *id, done_fn done, void *arg)
{
	ask_done(rt, WARDEN_THAW, id, "", done, arg);
}

static void local_save(struct runtime *rt, const char *id, const char *image, done_fn done,
	void *arg)
{
	ask_done(rt, WARDEN_SAVE, id, image, done, arg);
}

static void local_discard(struct runtime *rt, const char *image, done_fn done, void *arg)
{
	ask_done(rt, WARDEN_DISCARD, "", image, done, arg);
}

/* ---- dialling ---- */

/* Through a directory descriptor, since a socket's path may be 108 bytes long at most. */
int local_open_door(const struct local *local, const char *id, const char *name, struct err *e)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, -errno, "make a socket");
	(void)snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d/%s/%s", local->run_fd,
		id, name);
	if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
		return err_sys(e, -errno, "connect to the guest of '%s'", id);
	return TAKE_FD(fd);
}

struct dialled {
	struct loop_task task;
	int fd;
	struct err e;
	runtime_dial_fn fn;
	void *arg;
};

static void tell_dialled(void *arg)
{
	struct dialled *d = arg;

	d->fn(d->arg, d->fd, &d->e);
	free(d);
}

static void local_dial(struct runtime *rt, const char *id, int port, runtime_dial_fn fn, void *arg)
{
	struct local *local = local_from(rt);

	if (port == RUNTIME_GUEST_PORT) {
		struct dialled *d = XNEW(struct dialled);

		d->fd = local_open_door(local, id, GUEST_SOCKET, &d->e);
		d->fn = fn;
		d->arg = arg;
		loop_defer(local->base.loop, &d->task, tell_dialled, d);
	} else {
		struct call *call = call_new(WARDEN_SOCKET, id, arg);

		call->dial = fn;
		call->port = port;
		local_ask(local, call);
	}
}

/* Starts connecting; what loopback refuses is known at once, so a second address can be tried. */
static int try_connect(int fd, const struct sockaddr *addr, socklen_t size)
{
	int problem = 0;
	socklen_t n = sizeof problem;

	if (connect(fd, addr, size) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &n) < 0)
		return -errno;
	return -problem;
}

static int connect_loopback(int fd, int port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
		.sin6_port = htons((uint16_t)port),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int domain = 0;
	socklen_t n = sizeof domain;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0)
		return -errno;
	return domain == AF_INET6 ? try_connect(fd, (struct sockaddr *)&v6, sizeof v6)
				  : try_connect(fd, (struct sockaddr *)&v4, sizeof v4);
}

/* A socket each: one that was refused over a mapped address cannot be used for ::1 again. */
int local_connect(const int *take_fds, int n, int port, struct err *e)
{
	int fd = -EBADF, r = -EPROTO;

	for (int i = 0; i < n; i++) {
		int result = fd >= 0 ? 0 : connect_loopback(take_fds[i], port);

		if (fd < 0 && result >= 0)
			fd = take_fds[i];
		else
			(void)close(take_fds[i]);
		/* What the first said is what counts: IPv6 may simply be switched off inside. */
		if (i == 0)
			r = result;
	}
	return fd >= 0 ? fd : err_sys(e, r, "connect to port %d of the sandbox", port);
}

static const struct runtime_ops local_ops = {
	.name = "local",
	.free = local_free,
	.ready = local_ready,
	.create = local_create,
	.destroy = local_destroy,
	.dial = local_dial,
	.list = local_list,
	.pause = local_pause,
	.resume = local_resume,
	.save = local_save,
	.discard = local_discard,
	.list_images = local_list_images,
	.set_policy = local_set_policy,
	.egress_sockets = local_egress_sockets,
	.find_address = local_find_address,
	.denied = local_denied,
	.used = local_used,
	.host = local_host,
};

int runtime_local_new(struct loop *loop, const struct runtime_local_config *config,
	struct runtime **ret, struct err *e)
{
	struct local *local = XNEW(struct local);
	char run[4200];
	int r;

	local->base.ops = &local_ops;
	local->base.loop = loop;
	local->engines[WARDEN_LOCAL] = &local->base;
	local->warden_fd = config->warden_fd;
	for (int i = 0; i < WARDEN_EGRESS_FDS; i++)
		local->egress_fds[i] = -EBADF;
	local->residents = XNEW_N(struct resident, LOCAL_RESIDENTS);
	list_init(&local->unsent);
	list_init(&local->waiting);
	(void)snprintf(run, sizeof run, "%s/run", config->data_dir);
	local->run_fd = open(run, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = local->run_fd < 0 ? err_sys(e, -errno, "open %s", run) : local_wire_start(local, e);
	if (r < 0) {
		(void)local_free(&local->base);
		return r;
	}
	*ret = &local->base;
	return 0;
}
