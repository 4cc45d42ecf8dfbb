#include "warden/locks.h"

#include <signal.h>
#include <sys/syscall.h>

enum {
	LOOK_MS = 1000,
	LITTLE_BYTES = 64 << 20,
	/* Some 20,000 locks, the newest first. The kernel gives a page at a time and counts from
	 * the first one for each, so that more would take seconds. */
	SAMPLE_BYTES = 1 << 20,
	PIECE_BYTES = 4096,
	KEY_SIZE = 32,
};

/* "12: POSIX  ADVISORY  WRITE 4711 00:2d:42 0 0", or "12: -> POSIX ..." for one that waits. */
pid_t lock_owner(struct str line)
{
	enum {
		OWNER = 4, /* which word it is */
	};
	struct str word;
	int64_t pid = 0;
	int n = 0;

	while (str_split(&line, ' ', &word)) {
		if (word.n == 0 || str_is(word, "->"))
			continue;
		if (n++ == OWNER)
			return str_to_int(word, 1, INT32_MAX, &pid) < 0 ? 0 : (pid_t)pid;
	}
	return 0;
}

struct owner {
	char key[KEY_SIZE];
	int n;
};
struct sample {
	const struct cgroups *cgroups;
	struct owner owners[LOCKS_OWNERS];
	/* Whom the last line was of: most often the next one is, too. */
	pid_t last_pid;
	struct owner *last;
};

/* The sandbox of a process of ours; false: it is none. */
static bool find_key(const struct cgroups *cg, pid_t pid, char key[KEY_SIZE])
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(65536);
	char path[64], mark[64];
	const char *at;
	size_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	(void)snprintf(mark, sizeof mark, ":/atoll/%s/", cg->instance);
	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return false;
	at = strstr(buf_str(&text).p, mark);
	if (!at)
		return false;
	at += strlen(mark);
	n = strcspn(at, "/\n");
	if (n == 0 || n >= KEY_SIZE)
		return false;
	memcpy(key, at, n);
	key[n] = '\0';
	return true;
}

/* NULL: nobody of ours, or one too many. */
static struct owner *find_owner(struct sample *s, pid_t pid)
{
	char key[KEY_SIZE];

	if (!find_key(s->cgroups, pid, key))
		return NULL;
	for (size_t i = 0; i < LOCKS_OWNERS; i++) {
		if (s->owners[i].n == 0)
			memcpy(s->owners[i].key, key, sizeof key);
		if (strcmp(s->owners[i].key, key) == 0)
			return &s->owners[i];
	}
	return NULL;
}

static void count_line(struct sample *s, struct str line)
{
	pid_t pid = lock_owner(line);

	if (pid == 0)
		return;
	if (pid != s->last_pid) {
		s->last_pid = pid;
		s->last = find_owner(s, pid);
	}
	if (s->last)
		s->last->n++;
}

/* Only one that was seen to be the sandbox's, whoever has its number by now. */
static bool end_process(const struct cgroups *cg, pid_t pid, const char *key)
{
	cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	char found[KEY_SIZE];

	return fd >= 0 && find_key(cg, pid, found) && strcmp(found, key) == 0 &&
	       syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
}

static void each_line(struct str text, struct sample *s,
	void (*fn)(struct sample *s, struct str line, void *arg), void *arg)
{
	struct str line;

	for (int i = 0; str_split(&text, '\n', &line); i++)
		if (i % LOCKS_EACH == 0 && line.n)
			fn(s, line, arg);
}

static void count_each(struct sample *s, struct str line, void *arg)
{
	(void)arg;
	count_line(s, line);
}

static void end_each(struct sample *s, struct str line, void *arg)
{
	const struct owner *owner = arg;
	pid_t pid = lock_owner(line);

	if (pid == 0 || pid == s->last_pid)
		return;
	s->last_pid = pid;
	if (end_process(s->cgroups, pid, owner->key))
		log_warn("sandbox.too_many_locks", "key=%s pid=%d", owner->key, (int)pid);
}

static int read_sample(struct buf *text)
{
	cleanup_close int fd = open("/proc/locks", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	while (text->n < SAMPLE_BYTES) {
		char *at = buf_reserve(text, PIECE_BYTES);

		if (!at)
			return -ENOMEM;
		n = read(fd, at, PIECE_BYTES);
		if (n <= 0)
			break;
		text->n += (size_t)n;
	}
	return 0;
}

void locks_end_takers(const struct cgroups *cgroups)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(SAMPLE_BYTES + 2 * PIECE_BYTES);
	struct sample s = { .cgroups = cgroups };

	if (read_sample(&text) < 0)
		return;
	each_line(buf_str(&text), &s, count_each, NULL);
	for (size_t i = 0; i < LOCKS_OWNERS; i++)
		if (s.owners[i].n >= LOCKS_MANY / LOCKS_EACH) {
			s.last_pid = 0;
			each_line(buf_str(&text), &s, end_each, &s.owners[i]);
		}
}

/* Of the kernel's own memory, what it cannot give back. */
static int64_t kernel_bytes(void)
{
	static const char name[] = "\nSUnreclaim:";
	CLEANUP(buf_done) struct buf text = BUF_INIT(16384);
	const char *at = NULL;

	if (file_read(AT_FDCWD, "/proc/meminfo", &text, NULL) >= 0)
		at = strstr(buf_str(&text).p, name);
	return at ? (int64_t)strtoll(at + strlen(name), NULL, 10) << 10 : 0;
}

static void looked(void *arg, const struct work_report *report, const int *fds, int n_fds)
{
	struct lock_watch *w = arg;

	(void)report;
	(void)fds;
	(void)n_fds;
	w->is_looking = false;
}

static void look(void *arg)
{
	const struct work_order order = { .op = WORK_LOCKS };
	struct lock_watch *w = arg;
	int64_t bytes = kernel_bytes();

	if (bytes - w->low_bytes > LITTLE_BYTES && !w->is_looking) {
		w->is_looking = true;
		(void)work_ask(w->workers, LANE_USED, false, &order, NULL, looked, w);
		w->low_bytes = bytes;
	}
	w->low_bytes = MIN(w->low_bytes, bytes);
	loop_timer_set(&w->timer, loop_now_ms(w->loop) + LOOK_MS);
}

void lock_watch_start(struct lock_watch *w, struct loop *loop, struct workers *workers)
{
	*w = (struct lock_watch){ .loop = loop, .workers = workers, .low_bytes = kernel_bytes() };
	loop_timer_init(&w->timer, loop, look, w);
	loop_timer_set(&w->timer, loop_now_ms(loop) + LOOK_MS);
}

void lock_watch_stop(struct lock_watch *w)
{
	loop_timer_cancel(&w->timer);
}
