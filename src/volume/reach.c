/* Where the files of a volume are. A plain directory is simply opened. A volume that is a file
 * system of its own is opened by whoever makes those, who mounts it; it stays open for a while
 * after its last use here, some of them at once, and is closed by a job: the last one to close it
 * writes out and unmounts. */
#include "volume/volume-internal.h"

#include <dirent.h>
#include <sys/statvfs.h>

enum {
	CLOSE_LANE = 1, /* as what is swept: nobody waits for either */
	MAX_OPEN = 64,
	IDLE_MS = 10000,
	LOOK_MS = 1000,
	MAX_LEFT = 100000, /* names that an earlier server left beside one volume */
	/* Of the host's file system: below it the warden makes nothing more either. */
	RESERVE_MIB = 256,
	MIB = 1 << 20,
	KIB = 1024,
};

struct waiter {
	struct list node;
	reach_fn fn;
	void *arg;
};

/* On its way; outlives the holding, and the book. */
struct opening {
	struct list node;
	struct volume_book *book; /* NULL: gone meanwhile */
	struct loop *loop;
	char id[UUID_SIZE];
	struct list waiters;
	struct reach *reach;
	struct sweep *left;
};

/* ---- one ---- */

static struct reach *reach_new(struct volume_book *book, bool is_image)
{
	struct reach *reach = XNEW(struct reach);

	reach->loop = book->config.loop;
	reach->refs = 1;
	reach->is_image = is_image;
	reach->root_fd = reach->incoming_fd = -EBADF;
	reach->host_fd = is_image ? fcntl(book->config.dir_fd, F_DUPFD_CLOEXEC, 0) : -EBADF;
	return reach;
}

static void reach_close(struct reach *reach)
{
	close_fdp(&reach->root_fd);
	close_fdp(&reach->incoming_fd);
	close_fdp(&reach->host_fd);
	free(reach);
}

static int close_it(void *arg, struct err *e)
{
	struct reach *reach = arg;

	(void)e;
	close_fdp(&reach->root_fd);
	close_fdp(&reach->incoming_fd);
	reach->root_fd = reach->incoming_fd = -EBADF;
	return 0;
}

static void closed(void *arg, int r, const struct err *e)
{
	(void)r;
	(void)e;
	reach_close(arg);
}

struct reach *reach_ref(struct reach *reach)
{
	reach->refs++;
	return reach;
}

struct reach *reach_unref(struct reach *reach)
{
	if (!reach || --reach->refs > 0)
		return NULL;
	if (reach->is_image)
		loop_job(reach->loop, CLOSE_LANE, close_it, closed, reach);
	else
		reach_close(reach);
	return NULL;
}

int reach_check_room(const struct reach *reach)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(16384);
	struct str rest, line, name, word;
	struct statvfs st;
	int64_t kib, taken = 0;

	if (!reach->is_image || fstatvfs(reach->host_fd, &st) < 0 ||
		file_read(AT_FDCWD, "/proc/meminfo", &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		if (!str_split(&line, ':', &name) ||
			(!str_is(name, "Dirty") && !str_is(name, "Writeback")))
			continue;
		line = str_trim(line);
		if (str_split(&line, ' ', &word) && str_to_int(word, 0, INT64_MAX / KIB, &kib) >= 0)
			taken += kib * KIB;
	}
	/* More than half of a small file system is nobody's reserve. */
	taken = MIN(taken, (int64_t)(st.f_blocks * st.f_frsize / 2));
	return (int64_t)(st.f_bavail * st.f_frsize) < taken + (int64_t)RESERVE_MIB * MIB ? -ENOSPC
											 : 0;
}

/* ---- those that stay open ---- */

static int64_t idle_ms(const struct volume_book *book)
{
	return book->config.idle_ms ? book->config.idle_ms : IDLE_MS;
}

static void look_later(struct volume_book *book)
{
	if (!loop_timer_is_set(&book->idler))
		loop_timer_set(&book->idler,
			loop_now_ms(book->config.loop) + MIN((int64_t)LOOK_MS, idle_ms(book)));
}

static void let_go(struct holding *h)
{
	list_remove(&h->open_node);
	h->reach = reach_unref(h->reach);
}

static bool is_idle(const struct holding *h)
{
	return h->reach->refs == 1;
}

/* The one that was used longest ago comes first. */
static void look(void *arg)
{
	struct volume_book *book = arg;
	int64_t now_ms = loop_now_ms(book->config.loop);
	size_t n = 0;

	LIST_EACH(&book->open, node)
	n++;
	LIST_EACH(&book->open, node)
	{
		struct holding *h = container_of(node, struct holding, open_node);

		if (is_idle(h) && (n > MAX_OPEN || now_ms - h->used_ms >= idle_ms(book))) {
			let_go(h);
			n--;
		}
	}
	if (n)
		look_later(book);
}

void reaches_init(struct volume_book *book)
{
	list_init(&book->open);
	list_init(&book->openings);
	loop_timer_init(&book->idler, book->config.loop, look, book);
}

void reach_forget(struct holding *h)
{
	if (!h->reach)
		return;
	h->reach->is_removed = true;
	let_go(h);
}

/* ---- opening ---- */

static void tell(struct list *waiters, struct reach *reach, const struct err *e)
{
	while (!list_empty(waiters)) {
		struct waiter *waiter = container_of(waiters->next, struct waiter, node);
		reach_fn fn = waiter->fn;
		void *arg = waiter->arg;

		list_remove(&waiter->node);
		free(waiter);
		fn(arg, reach ? reach_ref(reach) : NULL, e);
	}
}

static void opening_end(struct opening *o, const struct err *e)
{
	struct volume_book *book = o->book;
	struct holding *h = book ? map_get(&book->by_id, str_of(o->id)) : NULL;

	if (book)
		list_remove(&o->node);
	if (h)
		h->opening = NULL;
	if (h && o->reach) {
		h->reach = reach_ref(o->reach);
		h->is_tidied = true;
		h->used_ms = loop_now_ms(book->config.loop);
		list_append(&book->open, &h->open_node);
		look_later(book);
	}
	tell(&o->waiters, o->reach, e);
	(void)reach_unref(o->reach);
	free(o);
}

static int find_left(void *arg, struct err *e)
{
	struct opening *o = arg;

	(void)e;
	return sweep_find(o->left, MAX_LEFT);
}

static void found_left(void *arg, int r, const struct err *e)
{
	struct opening *o = arg;

	if (r > 0)
		sweep_begin(TAKE(o->left));
	else
		sweep_drop(TAKE(o->left));
	opening_end(o, e);
}

/* What was beside it when the last server ended goes before anything new comes there. */
static void opened(void *arg, int r, const int take_fds[2], const struct err *e)
{
	struct opening *o = arg;
	struct holding *h = o->book ? map_get(&o->book->by_id, str_of(o->id)) : NULL;

	if (r < 0 || !h) {
		struct err gone = { 0 };

		(void)err_set(&gone, -ENOENT, "the volume was removed meanwhile");
		for (int i = 0; r >= 0 && i < 2; i++)
			(void)close(take_fds[i]);
		opening_end(o, r < 0 ? e : &gone);
		return;
	}
	o->reach = reach_new(o->book, true);
	o->reach->root_fd = take_fds[0];
	o->reach->incoming_fd = take_fds[1];
	if (h->is_tidied) {
		opening_end(o, e);
		return;
	}
	o->left = sweep_beside(o->book, o->reach);
	loop_job(o->loop, CLOSE_LANE, find_left, found_left, o);
}

static void wait_for_it(struct opening *o, reach_fn fn, void *arg)
{
	struct waiter *waiter = XNEW(struct waiter);

	waiter->fn = fn;
	waiter->arg = arg;
	list_append(&o->waiters, &waiter->node);
}

static void open_image(struct volume_book *book, struct holding *h, reach_fn fn, void *arg)
{
	struct opening *o = h->opening;

	if (o) {
		wait_for_it(o, fn, arg);
		return;
	}
	o = XNEW(struct opening);
	o->book = book;
	o->loop = book->config.loop;
	memcpy(o->id, h->view.id, sizeof o->id);
	list_init(&o->waiters);
	list_append(&book->openings, &o->node);
	h->opening = o;
	wait_for_it(o, fn, arg);
	book->config.maker.open(book->config.maker.arg, o->id, opened, o);
}

static void open_plain(struct volume_book *book, const char *id, reach_fn fn, void *arg)
{
	struct reach *reach = reach_new(book, false);
	struct err e = { 0 };

	reach->root_fd =
		openat(book->config.dir_fd, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (reach->root_fd < 0)
		(void)err_sys(&e, -EIO, "open volume %s", id);
	else
		reach->incoming_fd = fcntl(book->incoming_fd, F_DUPFD_CLOEXEC, 0);
	if (e.code >= 0 && reach->incoming_fd < 0)
		(void)err_sys(&e, -EIO, "open volume %s", id);
	if (e.code < 0)
		reach = reach_unref(reach);
	fn(arg, reach, &e);
}

void reach_get(struct volume_book *book, const char *id, reach_fn fn, void *arg)
{
	struct holding *h = map_get(&book->by_id, str_of(id));
	struct err e = { 0 };

	if (!h || !h->is_image) {
		open_plain(book, id, fn, arg);
	} else if (h->reach) {
		h->used_ms = loop_now_ms(book->config.loop);
		list_remove(&h->open_node);
		list_append(&book->open, &h->open_node);
		fn(arg, reach_ref(h->reach), &e);
	} else if (book->is_resting || !book->config.maker.open) {
		(void)err_set(&e, -EIO, "the server cannot open volume %s now", id);
		fn(arg, NULL, &e);
	} else {
		open_image(book, h, fn, arg);
	}
}

/* ---- the end of the book ---- */

void reaches_rest(struct volume_book *book)
{
	struct err e = { 0 };

	(void)err_set(&e, -ECANCELED, "the server stops");
	book->is_resting = true;
	LIST_EACH(&book->openings, node)
	{
		struct opening *o = container_of(node, struct opening, node);
		struct holding *h = map_get(&book->by_id, str_of(o->id));

		list_remove(&o->node);
		o->book = NULL;
		if (h)
			h->opening = NULL;
		tell(&o->waiters, NULL, &e);
	}
}

/* Nobody runs jobs any more. */
void reaches_done(struct volume_book *book)
{
	loop_timer_cancel(&book->idler);
	LIST_EACH(&book->open, node)
	{
		struct holding *h = container_of(node, struct holding, open_node);

		list_remove(&h->open_node);
		if (is_idle(h))
			reach_close(TAKE(h->reach));
		else
			h->reach = reach_unref(h->reach);
	}
}
