#include "guest/save.h"

#include "guest/metadata.h"
#include "guest/path.h"

#include <sys/stat.h>

enum {
	SAVE_HOLD_BYTES = 64 << 10 /* network pieces are smaller than most files */
};

int save_open(struct save *s, const char *path, const struct user *user, struct err *e)
{
	char parent[PATH_MAX];
	bool is_owned = false;
	struct stat st;
	int r;

	path_parent(path, parent);
	r = path_make_dirs(parent, user->uid, user->gid, e);
	if (r < 0)
		return err_wrap(e, r, "error ensuring directories");
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return err_set(e, -EISDIR, "path is a directory: %s", path);
		is_owned = chown(path, user->uid, user->gid) == 0;
		if (!is_owned && errno != ENOENT)
			return err_sys(e, -errno, "error changing file ownership: chown %s", path);
	} else if (errno != ENOENT) {
		return err_sys(e, -errno, "error getting file info: stat %s", path);
	}
	/* Non-blocking: a pipe without a reader is an error, not a wait. */
	s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
	if (s->fd < 0 && errno == ENOSPC)
		return err_sys(e, -ENOSPC, "not enough inodes available: open %s", path);
	if (s->fd < 0)
		return err_sys(e, -errno, "error opening file: open %s", path);
	if (!is_owned && fchown(s->fd, user->uid, user->gid) < 0)
		return err_sys(e, -errno, "error changing file ownership: chown %s", path);
	(void)snprintf(s->path, sizeof s->path, "%s", path);
	s->held = BUF_INIT(SAVE_HOLD_BYTES);
	return 0;
}

static int put(struct save *s, struct str bytes, struct err *e)
{
	int r = bytes.n ? fd_write_all(s->fd, bytes.p, bytes.n) : 0;

	if (r == -ENOSPC || r == -EDQUOT)
		return err_set(e, -ENOSPC, "not enough disk space available");
	return r < 0 ? err_sys(e, r, "error writing file: write %s", s->path) : 0;
}

int save_write(struct save *s, struct str bytes, struct err *e)
{
	int r;

	if (bytes.n <= SAVE_HOLD_BYTES - s->held.n && buf_add_str(&s->held, bytes) == 0)
		return 0;
	r = put(s, buf_str(&s->held), e);
	buf_clear(&s->held);
	return r < 0 ? r : put(s, bytes, e);
}

int save_close(struct save *s, const struct json_map *metadata, struct err *e)
{
	int r = put(s, buf_str(&s->held), e);

	if (r == 0)
		r = metadata_write(s->fd, metadata, e);
	if (r == -EOPNOTSUPP)
		r = 0; /* such as /proc: the content is there, and the answer shows what was kept */
	else if (r == -ENOSPC || r == -EDQUOT)
		r = err_set(e, -ENOSPC, "not enough disk space available");
	save_done(s);
	return r;
}

void save_done(struct save *s)
{
	buf_done(&s->held);
	close_fdp(&s->fd);
	s->fd = -EBADF;
}
