#include "guest/trust.h"

#include <sys/stat.h>

enum {
	BUNDLE_MAX_BYTES = 8 << 20
};

/* The files are the sandbox's own and may be anything by now: a FIFO must not make us wait. */
static int open_bundle(const char *path, bool *ret_existed)
{
	int fd = open(path, O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	*ret_existed = fd >= 0;
	if (fd < 0 && errno == ENOENT)
		fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	(void)close(fd);
	return -EINVAL;
}

static int append(const char *path, struct str pem, bool *ret_existed, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(BUNDLE_MAX_BYTES);
	cleanup_close int fd = open_bundle(path, ret_existed);
	int r = fd < 0 ? fd : fd_read_all(fd, &text);

	if (r < 0)
		return err_sys(e, r, "read %s", path);
	if (text.n && memmem(text.p, text.n, pem.p, pem.n))
		return 0;
	if (text.n && text.p[text.n - 1] != '\n')
		r = fd_write_all(fd, "\n", 1);
	if (r >= 0)
		r = fd_write_all(fd, pem.p, pem.n);
	return r < 0 ? err_sys(e, r, "write %s", path) : 0;
}

static void make_parents(const char *path)
{
	char part[256];

	for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		(void)snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
		(void)mkdir(part, 0755);
	}
}

int trust_write(const char *bundle, const char *file, struct str pem, bool *ret_existed,
	struct err *e)
{
	int r;

	make_parents(file);
	make_parents(bundle);
	r = file_replace(AT_FDCWD, file, pem, 0644, e);
	return r < 0 ? r : append(bundle, pem, ret_existed, e);
}

void trust_install(struct settings *s)
{
	struct err e = { 0 };
	bool existed = false;

	if (!s->authority || s->is_trusted)
		return;
	if (trust_write(TRUST_BUNDLE, TRUST_FILE, str_of(s->authority), &existed, &e) < 0) {
		log_warn("trust.failed", "err=%s", log_quote(str_of(e.msg)));
		return;
	}
	s->is_trusted = true;
	s->has_bundle |= existed;
}
