/* Trees on their way out: what they were is already gone from the book, the table and the volume.
 * One may have millions of files, so that a job removes only some and then goes behind the others,
 * in a lane that nobody else waits for. */
#include "volume/volume-internal.h"

#include <dirent.h>

enum {
	SWEEP_AGAIN_MS = 5000,
	SWEEP_LANE = 1,
	SWEEP_US = 100000, /* at once */
};

struct sweep {
	struct volume_book *book; /* NULL: gone meanwhile */
	struct list node;         /* in sweeping or unswept */
	int dir_fd;
	struct reach *reach; /* of a volume that is an image; NULL: none */
	char **names;
	size_t n_names, at;
	int r; /* the worst of those before */
};

static void sweep_free(struct sweep *sweep)
{
	list_remove(&sweep->node);
	for (size_t i = 0; i < sweep->n_names; i++)
		free(sweep->names[i]);
	free(sweep->names);
	close_fdp(&sweep->dir_fd);
	(void)reach_unref(sweep->reach);
	free(sweep);
}

static int sweep_some(void *arg, struct err *e)
{
	struct sweep *sweep = arg;
	int64_t until_us = time_now_us() + SWEEP_US;

	for (; sweep->at < sweep->n_names; sweep->at++) {
		int r = dir_remove_some(sweep->dir_fd, sweep->names[sweep->at], until_us);

		if (r == -EAGAIN || time_now_us() >= until_us + SWEEP_US)
			return -EAGAIN;
		sweep->r = r < 0 ? r : sweep->r;
	}
	return sweep->r < 0 ? err_sys(e, sweep->r, "remove what is left of volumes") : 0;
}

static void sweep_done(void *arg, int r, const struct err *e)
{
	struct sweep *sweep = arg;
	struct volume_book *book = sweep->book;

	if (r == -EAGAIN && book) {
		sweep_begin(sweep);
		return;
	}
	if (r == -ENOTEMPTY && book) {
		/* A sandbox that has it mounted is filling it: it will not live for ever. */
		list_remove(&sweep->node);
		list_append(&book->unswept, &sweep->node);
		loop_timer_set(&book->sweeper, loop_now_ms(book->config.loop) + SWEEP_AGAIN_MS);
		return;
	}
	if (r < 0 && r != -EAGAIN && !(sweep->reach && sweep->reach->is_removed))
		log_warn("volume.not_removed", "err=%s", log_quote(str_of(e->msg)));
	sweep_free(sweep);
}

static void sweep_again(void *arg)
{
	struct volume_book *book = arg;

	LIST_EACH(&book->unswept, node)
	{
		struct sweep *sweep = container_of(node, struct sweep, node);

		list_remove(&sweep->node);
		list_append(&book->sweeping, &sweep->node);
		sweep->at = 0;
		sweep->r = 0;
		sweep_begin(sweep);
	}
}

void sweeps_init(struct volume_book *book)
{
	list_init(&book->sweeping);
	list_init(&book->unswept);
	loop_timer_init(&book->sweeper, book->config.loop, sweep_again, book);
}

void sweeps_let_go(struct volume_book *book)
{
	LIST_EACH(&book->unswept, node)
	sweep_free(container_of(node, struct sweep, node));
	LIST_EACH(&book->sweeping, node)
	{
		list_remove(node);
		container_of(node, struct sweep, node)->book = NULL;
	}
	loop_timer_cancel(&book->sweeper);
}

static struct sweep *sweep_empty(struct volume_book *book, int incoming_fd, size_t n_names)
{
	struct sweep *sweep = XNEW(struct sweep);

	sweep->book = book;
	sweep->dir_fd = openat(incoming_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	sweep->names = XNEW_N(char *, n_names);
	list_append(&book->sweeping, &sweep->node);
	return sweep;
}

struct sweep *sweep_new(struct volume_book *book, const char *name)
{
	struct sweep *sweep = sweep_empty(book, book->incoming_fd, 1);

	sweep->names[sweep->n_names++] = xstrdup(name);
	return sweep;
}

struct sweep *sweep_new_at(struct volume_book *book, struct reach *reach, const char *name)
{
	struct sweep *sweep = sweep_empty(book, reach->incoming_fd, 1);

	sweep->reach = reach_ref(reach);
	sweep->names[sweep->n_names++] = xstrdup(name);
	return sweep;
}

struct sweep *sweep_beside(struct volume_book *book, struct reach *reach)
{
	struct sweep *sweep = sweep_empty(book, reach->incoming_fd, 1);

	sweep->reach = reach_ref(reach);
	return sweep;
}

void sweep_begin(struct sweep *sweep)
{
	/* Out of descriptors, or the server is about to end: the next start does it. */
	if (!sweep->book || sweep->dir_fd < 0)
		sweep_free(sweep);
	else
		loop_job(sweep->book->config.loop, SWEEP_LANE, sweep_some, sweep_done, sweep);
}

void sweep_drop(struct sweep *sweep)
{
	if (sweep)
		sweep_free(sweep);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

int sweep_find(struct sweep *sweep, size_t most)
{
	int fd = openat(sweep->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t room = 1;

	if (!dir)
		return -errno;
	while (sweep->n_names < most && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (sweep->n_names == room) {
			room *= 2;
			sweep->names = realloc(sweep->names, room * sizeof *sweep->names);
			if (!sweep->names)
				abort();
		}
		sweep->names[sweep->n_names++] = xstrdup(entry->d_name);
	}
	(void)closedir(dir);
	return (int)sweep->n_names;
}

void sweep_leftovers(struct volume_book *book)
{
	struct dirent **names = NULL;
	int n = scandirat(book->incoming_fd, ".", &names, is_visible, NULL);
	struct sweep *sweep = n > 0 ? sweep_empty(book, book->incoming_fd, (size_t)n) : NULL;

	for (int i = 0; i < n; i++) {
		sweep->names[sweep->n_names++] = xstrdup(names[i]->d_name);
		free(names[i]);
	}
	free(names);
	if (sweep)
		sweep_begin(sweep);
}
