/* The server's socket: requests in, answers out. While answers wait for room no request is read, so
 * what waits is bounded by what one request can cause. */
#include "warden/warden.h"
#include "warden/wire.h"

#include <sys/socket.h>

enum {
	REQUESTS_PER_TURN = 16,
};

struct reply {
	struct list node;
	struct warden_reply message;
	int fds[FD_MAX_PASS], n_fds;
};

static void free_reply(struct reply *reply)
{
	list_remove(&reply->node);
	for (int i = 0; i < reply->n_fds; i++)
		(void)close(reply->fds[i]);
	free(reply);
}

/* The server has gone: there is nobody left to answer. */
static void hang_up(struct warden *w)
{
	loop_io_remove(&w->control);
	LIST_EACH(&w->replies, node)
	free_reply(container_of(node, struct reply, node));
	warden_leave(w);
}

static void flush(struct warden *w)
{
	LIST_EACH(&w->replies, node)
	{
		struct reply *reply = container_of(node, struct reply, node);
		int r = fd_send(WARDEN_CONTROL_FD, &reply->message, sizeof reply->message,
			reply->fds, reply->n_fds);

		if (r == -EAGAIN || r == -ENOBUFS) {
			loop_io_set(&w->control, EPOLLOUT);
			return;
		}
		if (r < 0) {
			hang_up(w);
			return;
		}
		free_reply(reply);
	}
	loop_io_set(&w->control, EPOLLIN);
}

static void enqueue(struct warden *w, const struct warden_reply *message, const int *fds, int n_fds)
{
	struct reply *reply;

	if (!w->control.loop)
		return;
	reply = XNEW(struct reply);
	reply->message = *message;
	reply->message.version = WARDEN_VERSION;
	/* The caller's descriptors are the caller's; an answer may have to wait. */
	for (int i = 0; i < n_fds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);

		if (fd >= 0)
			reply->fds[reply->n_fds++] = fd;
	}
	list_append(&w->replies, &reply->node);
	flush(w);
}

void control_reply(struct warden *w, enum warden_kind kind, uint64_t tag, const char *id,
	const struct err *why, const int *fds, int n_fds)
{
	struct warden_reply message = { .kind = kind, .tag = tag, .e = *why };

	(void)snprintf(message.id, sizeof message.id, "%s", id);
	enqueue(w, &message, fds, n_fds);
}

void control_tell(struct warden *w, const struct warden_reply *message, const char *id)
{
	struct warden_reply copy = *message;

	(void)snprintf(copy.id, sizeof copy.id, "%s", id);
	enqueue(w, &copy, NULL, 0);
}

static enum warden_step step_of(uint32_t op)
{
	switch ((enum warden_op)op) {
	case WARDEN_CREATE:
		return WARDEN_STEP_CREATE;
	case WARDEN_DESTROY:
		return WARDEN_STEP_DESTROY;
	case WARDEN_FREEZE:
	case WARDEN_THAW:
	case WARDEN_SAVE:
	case WARDEN_POLICY:
		return WARDEN_STEP_CHANGE;
	case WARDEN_SOCKET:
	case WARDEN_LIST:
	case WARDEN_DISCARD:
	case WARDEN_IMAGES:
	case WARDEN_DENIALS:
	case WARDEN_HOST:
	case WARDEN_USAGE:
	case WARDEN_VOLUME_MAKE:
	case WARDEN_VOLUME_OPEN:
	case WARDEN_VOLUME_REMOVE:
	case WARDEN_OPS:
		break;
	}
	return WARDEN_STEP_ASK;
}

static void dispatch(struct warden *w, const struct warden_message *m, const int *fds, int n_fds)
{
	const struct warden_request *q = &m->request;
	STEP(w, step_of(q->op));

	switch ((enum warden_op)q->op) {
	case WARDEN_CREATE:
		sandbox_create(w, m, fds, n_fds);
		break;
	case WARDEN_DESTROY:
		sandbox_destroy(w, q);
		break;
	case WARDEN_SOCKET:
		sandbox_socket(w, q);
		break;
	case WARDEN_LIST:
		sandbox_list(w, q);
		break;
	case WARDEN_FREEZE:
	case WARDEN_THAW:
	case WARDEN_SAVE:
		sandbox_still(w, q);
		break;
	case WARDEN_DISCARD:
		image_discard(w, q);
		break;
	case WARDEN_IMAGES:
		image_list(w, q);
		break;
	case WARDEN_POLICY:
		sandbox_policy(w, q, n_fds ? fds[0] : -EBADF);
		break;
	case WARDEN_DENIALS:
		sandbox_denials(w, q);
		break;
	case WARDEN_HOST:
		hold_tell(w, q);
		break;
	case WARDEN_USAGE:
		sandbox_usage(w, q);
		break;
	case WARDEN_VOLUME_MAKE:
	case WARDEN_VOLUME_OPEN:
	case WARDEN_VOLUME_REMOVE:
		volume_serve(w, m);
		break;
	case WARDEN_OPS:
		break;
	}
}

static bool read_request(struct warden *w)
{
	int fds[FD_MAX_PASS], n_fds = 0;
	struct warden_message raw, m;
	struct err e = { 0 };
	uint64_t tag;
	ssize_t n = fd_recv(WARDEN_CONTROL_FD, &raw, sizeof raw, fds, &n_fds);

	if (n == -EAGAIN || n == -EINTR)
		return false;
	if (n == 0 || (n < 0 && n != -EMSGSIZE)) {
		hang_up(w);
		return false;
	}
	if (n < 0)
		log_warn("request.refused", "err=\"cut short\"");
	else if (wire_decode(&raw, (size_t)n, n_fds, &m, &tag, &e) >= 0)
		dispatch(w, &m, fds, n_fds);
	else
		control_reply(w, WARDEN_REPLY, tag, "", &e, NULL, 0);
	for (int i = 0; i < n_fds; i++)
		(void)close(fds[i]);
	return true;
}

static void on_control(void *arg, uint32_t events)
{
	struct warden *w = arg;

	if (events & EPOLLOUT)
		flush(w);
	for (int i = 0; i < REQUESTS_PER_TURN; i++)
		if (!w->control.loop || !list_empty(&w->replies) || !read_request(w))
			return;
}

int control_open(struct warden *w, struct err *e)
{
	int r = fd_set_nonblock(WARDEN_CONTROL_FD, true);

	if (r < 0)
		return err_sys(e, r, "no control socket: the warden is started by `atoll serve`");
	(void)fcntl(WARDEN_CONTROL_FD, F_SETFD, FD_CLOEXEC);
	return loop_io_add(w->loop, &w->control, WARDEN_CONTROL_FD, EPOLLIN, on_control, w, e);
}

void control_close(struct warden *w)
{
	loop_io_remove(&w->control);
	LIST_EACH(&w->replies, node)
	free_reply(container_of(node, struct reply, node));
}
