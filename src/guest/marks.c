#include "guest/marks.h"

#include <sys/stat.h>

enum {
	MACHINE_ID_SIZE = 32, /* hexadecimal digits */
	MARK_MODE = 0444,
};

#define MARK_DIR "/run/e2b"

static const char *const names[MARK_FILES] = {
	[MARK_MACHINE_ID] = "/etc/machine-id",
	[MARK_SANDBOX] = MARK_DIR "/.E2B_SANDBOX",
	[MARK_SANDBOX_ID] = MARK_DIR "/.E2B_SANDBOX_ID",
	[MARK_TEMPLATE_ID] = MARK_DIR "/.E2B_TEMPLATE_ID",
};

/* An empty file of ours under this name, open; whatever had the name has lost it. */
static int make_anew(const char *name)
{
	cleanup_close int fd = -EBADF;
	char temp[64];

	fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MARK_MODE);
	if (fd >= 0 || errno != EEXIST)
		return fd < 0 ? -errno : TAKE_FD(fd);
	(void)snprintf(temp, sizeof temp, "%s.new", name);
	(void)unlink(temp);
	fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MARK_MODE);
	if (fd < 0)
		return -errno;
	if (rename(temp, name) < 0) {
		int r = -errno;

		(void)unlink(temp);
		return r;
	}
	return TAKE_FD(fd);
}

void marks_prepare(struct marks *m)
{
	(void)mkdir(MARK_DIR, 0755);
	for (size_t i = 0; i < MARK_FILES; i++)
		m->fds[i] = make_anew(names[i]);
}

/* The same for all of a sandbox's life, and never that of the one it was forked from. */
static void machine_id(const char *sandbox_id, char out[MACHINE_ID_SIZE + 2])
{
	uint8_t digest[SHA256_SIZE];

	sha256(sandbox_id, strlen(sandbox_id), digest);
	hex_encode(digest, MACHINE_ID_SIZE / 2, out);
	out[MACHINE_ID_SIZE] = '\n';
	out[MACHINE_ID_SIZE + 1] = '\0';
}

static void write_mark(int take_fd, const char *name, const char *text)
{
	cleanup_close int fd = take_fd;

	if (!text && fd >= 0)
		(void)unlink(name);
	if (!text)
		return;
	if (fd < 0)
		fd = make_anew(name);
	if (fd >= 0)
		(void)fd_write_all(fd, text, strlen(text));
}

void marks_write(struct marks *take, const struct settings *s)
{
	char id[MACHINE_ID_SIZE + 2];
	const char *texts[MARK_FILES] = { [MARK_SANDBOX] = "true",
		[MARK_SANDBOX_ID] = s->sandbox_id,
		[MARK_TEMPLATE_ID] = s->template_id };

	if (s->sandbox_id) {
		machine_id(s->sandbox_id, id);
		texts[MARK_MACHINE_ID] = id;
	}
	(void)mkdir(MARK_DIR, 0755);
	for (size_t i = 0; i < MARK_FILES; i++)
		write_mark(TAKE_FD(take->fds[i]), names[i], texts[i]);
}
