#include "guest/boot-wire.h"

#include <sys/socket.h>

/* The paths are terminated, and the message is as long as their number says. */
static bool is_whole(const struct guest_boot *m, ssize_t size)
{
	if (size < (ssize_t)guest_boot_size(0) ||
		(m->n_groups && (m->n_groups != GUEST_GROUPS || m->engine == WARDEN_GVISOR)) ||
		m->n_mounts > WARDEN_MAX_MOUNTS || m->is_nested > 1 || m->has_fuse > 1 ||
		(m->has_fuse && (!m->is_nested || m->engine != WARDEN_LOCAL)) ||
		size != (ssize_t)guest_boot_size(m->n_mounts))
		return false;
	for (uint32_t i = 0; i < m->n_mounts; i++)
		if (!memchr(m->paths[i], '\0', sizeof m->paths[i]))
			return false;
	return memchr(m->id, '\0', sizeof m->id);
}

static int count_fds(const struct guest_boot *m)
{
	if (m->step != GUEST_ROOT)
		return GUEST_START_FDS;
	return (m->engine == WARDEN_LOCAL ? GUEST_ROOT_FDS : GUEST_ENGINE_FDS) + (int)m->n_groups +
	       (int)m->has_fuse + (int)m->n_mounts;
}

int boot_receive(enum guest_step step, struct guest_boot *ret, int fds[FD_MAX_PASS], struct err *e)
{
	int got[FD_MAX_PASS], n = 0, r = 0;
	ssize_t size = fd_recv(WARDEN_GUEST_FD, ret, sizeof *ret, got, &n);

	if (size < 0)
		return err_sys(e, (int)size, "receive from the warden");
	if (size == 0)
		return err_set(e, -ECANCELED, "the warden has gone");
	if (!is_whole(ret, size) || ret->version != WARDEN_VERSION || ret->step != step ||
		ret->engine >= WARDEN_ENGINES ||
		(step != GUEST_ROOT &&
			(ret->n_mounts || ret->n_groups || ret->engine || ret->is_nested)) ||
		n != count_fds(ret))
		r = err_set(e, -EPROTO, "unexpected message of %zd bytes and %d descriptors", size,
			n);
	for (int i = 0; i < n; i++) {
		if (r < 0)
			(void)close(got[i]);
		else
			fds[i] = got[i];
	}
	return r;
}

void boot_answer(int code, const char *msg)
{
	struct err e = { .code = code };

	(void)snprintf(e.msg, sizeof e.msg, "%s", msg);
	(void)send(WARDEN_GUEST_FD, &e, sizeof e, MSG_NOSIGNAL);
}
