/* Sandboxes that have ended and do not go away. A volume can have a socket in it, through which one
 * sandbox hands its open files to another. What is open stays: the disk of one that has ended, its
 * network, its number. So that one sandbox cannot collect those of any number of others, a volume
 * of theirs is given to no more of them. */
#include "warden/warden.h"

#define FILE_NAME "volumes"

enum {
	LINGERS_AFTER_MS = 5000, /* nothing of the warden's own is open any more since */
	MAX_LINGERING = 16,      /* for each volume */
};

static bool lingers(const struct slot *slot)
{
	return slot->is_removed && loop_now_ms(slot->w->loop) - slot->removed_ms > LINGERS_AFTER_MS;
}

static bool shares(const struct slot *slot, const char *volume)
{
	for (uint32_t i = 0; i < slot->n_volumes; i++)
		if (strcmp(slot->volumes[i], volume) == 0)
			return true;
	return false;
}

int linger_check(const struct warden *w, const struct warden_message *m, struct err *e)
{
	for (uint32_t i = 0; i < m->request.n_mounts; i++) {
		int n = 0;

		LIST_EACH(&w->slots, node)
		{
			const struct slot *slot = container_of(node, struct slot, node);

			n += lingers(slot) && shares(slot, m->mounts[i].volume);
		}
		if (n >= MAX_LINGERING)
			return err_set(e, -EBUSY,
				"a sandbox that has the volume for %s open keeps files of %d "
				"others "
				"that have ended: end it first",
				m->mounts[i].path, n);
	}
	return 0;
}

static void add_volume(struct slot *slot, const char *volume)
{
	if (slot->n_volumes < WARDEN_MAX_MOUNTS)
		(void)snprintf(slot->volumes[slot->n_volumes++], WARDEN_VOLUME_SIZE, "%s", volume);
}

/* One by one, each with its NUL. */
static int write_volumes(const struct slot *slot, struct err *e)
{
	struct str text = { slot->volumes[0], slot->n_volumes * sizeof slot->volumes[0] };
	char name[SLOT_KEY_SIZE + 1];
	cleanup_close int dir = -EBADF;

	(void)snprintf(name, sizeof name, ".%s", slot->key);
	dir = openat(slot->w->run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return dir < 0 ? err_sys(e, -errno, "open the run directory")
		       : file_replace(dir, FILE_NAME, text, 0600, e);
}

int linger_note(struct slot *slot, const struct warden_message *m, struct err *e)
{
	for (uint32_t i = 0; i < m->request.n_mounts; i++)
		add_volume(slot, m->mounts[i].volume);
	return slot->n_volumes ? write_volumes(slot, e) : 0;
}

void linger_adopt(struct slot *slot)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(sizeof slot->volumes + 1);
	cleanup_close int dir =
		openat(slot->w->run_fd, slot->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int fd = file_open_own(dir, FILE_NAME, 0, NULL);

	if (fd < 0 || fd_read_all(fd, &text) < 0)
		return;
	for (size_t at = 0; at + WARDEN_VOLUME_SIZE <= text.n; at += WARDEN_VOLUME_SIZE)
		add_volume(slot, buf_str(&text).p + at);
}
