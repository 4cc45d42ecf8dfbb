/* The book: which volumes there are, who has them, and what opens them. */
#include "volume/volume-internal.h"

#include <dirent.h>

static void hold(struct volume_book *book, const struct volume *volume)
{
	struct holding *h = XNEW(struct holding);

	h->view = *volume;
	list_append(&book->holdings, &h->node);
	(void)map_put(&book->by_id, str_of(h->view.id), h);
}

/* ---- starting ---- */

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	struct volume v = { .created_us = store_int(row, 3) };

	(void)e;
	store_copy_text(row, 0, v.id, sizeof v.id);
	store_copy_text(row, 1, v.team_id, sizeof v.team_id);
	store_copy_text(row, 2, v.name, sizeof v.name);
	hold(arg, &v);
	return 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx,
		"SELECT id, team_id, name, created_us FROM volumes ORDER BY created_us, id", NULL,
		0, load_row, arg, e);
}

/* Trees on their way out: what they were is already gone from the book and the table. */
struct sweep {
	struct volume_book *book; /* NULL: gone meanwhile */
	struct list node;         /* in sweeping or unswept */
	int dir_fd;
	char id[UUID_SIZE];    /* this one; empty: all that is there */
	struct dirent **names; /* without an id: what was there when it began */
	int n_names;
};

enum {
	SWEEP_AGAIN_MS = 5000,
	SWEEP_LANE = 1, /* one by one: trees of millions of files must not hold up others' work */
};

static int sweep_one(void *arg, struct err *e)
{
	struct sweep *sweep = arg;
	int r = tree_remove(sweep->dir_fd, sweep->id);

	return r < 0 ? err_sys(e, r, "remove what is left of volume %s", sweep->id) : 0;
}

static int sweep_all(void *arg, struct err *e)
{
	struct sweep *sweep = arg;
	int r = 0;

	for (int i = 0; i < sweep->n_names; i++) {
		const char *name = sweep->names[i]->d_name;
		int one = name[0] == '.' ? 0 : tree_remove(sweep->dir_fd, name);

		r = one < 0 ? one : r;
	}
	return r < 0 ? err_sys(e, r, "remove what is left of volumes") : 0;
}

static void sweep_free(struct sweep *sweep)
{
	for (int i = 0; i < sweep->n_names; i++)
		free(sweep->names[i]);
	free(sweep->names);
	close_fdp(&sweep->dir_fd);
	free(sweep);
}

static void sweep_done(void *arg, int r, const struct err *e)
{
	struct sweep *sweep = arg;

	list_remove(&sweep->node);
	if (r == -ENOTEMPTY && sweep->id[0] && sweep->book) {
		/* A sandbox that has it mounted is filling it: it will not live for ever. */
		list_append(&sweep->book->unswept, &sweep->node);
		loop_timer_set(&sweep->book->sweeper,
			loop_now_ms(sweep->book->config.loop) + SWEEP_AGAIN_MS);
		return;
	}
	if (r < 0)
		log_warn("volume.not_removed", "err=%s", log_quote(str_of(e->msg)));
	sweep_free(sweep);
}

static void sweep_run(struct sweep *sweep)
{
	struct volume_book *book = sweep->book;

	list_append(&book->sweeping, &sweep->node);
	loop_job(book->config.loop, SWEEP_LANE, sweep->id[0] ? sweep_one : sweep_all, sweep_done,
		sweep);
}

static void sweep_again(void *arg)
{
	struct volume_book *book = arg;

	LIST_EACH(&book->unswept, node)
	{
		struct sweep *sweep = container_of(node, struct sweep, node);

		list_remove(&sweep->node);
		sweep_run(sweep);
	}
}

/* What could not be removed by now, the next start does. */
static void sweeps_let_go(struct volume_book *book)
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

/* One volume, or (empty) all that lies there now: what comes later is being uploaded. */
static void sweep_incoming(struct volume_book *book, const char *id)
{
	struct sweep *sweep = XNEW(struct sweep);
	int n = 0;

	sweep->book = book;
	(void)snprintf(sweep->id, sizeof sweep->id, "%s", id);
	sweep->dir_fd = openat(book->incoming_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sweep->dir_fd >= 0 && !id[0])
		n = scandirat(sweep->dir_fd, ".", &sweep->names, NULL, NULL);
	sweep->n_names = n < 0 ? 0 : n;
	if (sweep->dir_fd < 0)
		free(sweep); /* out of descriptors: the next start does it */
	else
		sweep_run(sweep);
}

/* A directory without a row was being made or removed when the server ended. */
static void move_orphans(struct volume_book *book)
{
	struct dirent **names = NULL;
	int n = scandirat(book->config.dir_fd, ".", &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;

		if (name[0] != '.' && !map_get(&book->by_id, str_of(name)))
			(void)renameat(book->config.dir_fd, name, book->incoming_fd, name);
		free(names[i]);
	}
	free(names);
}

int volume_book_new(const struct volume_book_config *config, struct volume_book **ret,
	struct err *e)
{
	CLEANUP(volume_book_freep) struct volume_book *book = XNEW(struct volume_book);
	int r;

	book->config = *config;
	book->incoming_fd = -EBADF;
	list_init(&book->holdings);
	list_init(&book->sweeping);
	list_init(&book->unswept);
	loop_timer_init(&book->sweeper, config->loop, sweep_again, book);
	r = dir_make(config->dir_fd, INCOMING_DIR, 0700, e);
	if (r < 0)
		return err_wrap(e, r, "volumes directory");
	book->incoming_fd = openat(config->dir_fd, INCOMING_DIR,
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (book->incoming_fd < 0)
		return err_sys(e, -errno, "open the volumes directory");
	r = store_run_now(config->store, load, book, e);
	if (r < 0)
		return err_wrap(e, r, "load volumes");
	move_orphans(book);
	sweep_incoming(book, "");
	*ret = TAKE(book);
	return 0;
}

struct volume_book *volume_book_free(struct volume_book *book)
{
	if (!book)
		return NULL;
	LIST_EACH(&book->holdings, node)
	free(container_of(node, struct holding, node));
	sweeps_let_go(book);
	map_done(&book->by_id);
	close_fdp(&book->incoming_fd);
	close_fdp(&book->config.dir_fd);
	explicit_bzero(book->config.seed, sizeof book->config.seed);
	free(book);
	return NULL;
}

/* ---- reading ---- */

const struct volume *volume_find(const struct volume_book *book, const char *team_id, struct str id)
{
	const struct holding *h = map_get(&book->by_id, id);

	return h && (!team_id || strcmp(h->view.team_id, team_id) == 0) ? &h->view : NULL;
}

const struct volume *volume_find_name(const struct volume_book *book, const char *team_id,
	struct str name)
{
	LIST_EACH(&book->holdings, node)
	{
		const struct holding *h = container_of(node, struct holding, node);

		if (strcmp(h->view.team_id, team_id) == 0 && str_is(name, h->view.name))
			return &h->view;
	}
	return NULL;
}

void volume_each(const struct volume_book *book, const char *team_id,
	void (*fn)(void *arg, const struct volume *volume), void *arg)
{
	for (struct list *node = book->holdings.prev; node != &book->holdings; node = node->prev) {
		const struct holding *h = container_of(node, struct holding, node);

		if (strcmp(h->view.team_id, team_id) == 0)
			fn(arg, &h->view);
	}
}

void volume_token(const struct volume_book *book, const char *id, char token[VOLUME_TOKEN_SIZE])
{
	uint8_t mac[SHA256_SIZE];
	char text[64];
	int n = snprintf(text, sizeof text, "volume-%s", id);

	hmac_sha256(book->config.seed, str_make(text, (size_t)n), mac);
	hex_encode(mac, sizeof mac, token);
}

/* ---- changing ---- */

struct change {
	struct volume_book *book;
	struct volume volume;
	char actor[UUID_SIZE];
	int dir_fd; /* the job's own */
	struct err e;
	struct loop_task task;
	volume_fn fn;
	done_fn done;
	void *arg;
};

static void change_end(void *arg, int r, const struct err *e)
{
	struct change *c = arg;

	r = MIN(r, 0);
	if (c->fn)
		c->fn(c->arg, r, &c->volume, e);
	else
		c->done(c->arg, r, e);
	close_fdp(&c->dir_fd);
	free(c);
}

static void fail_now(void *arg)
{
	struct change *c = arg;

	change_end(c, c->e.code, &c->e);
}

static struct change *change_new(struct volume_book *book, const char *actor)
{
	struct change *c = XNEW(struct change);

	c->book = book;
	c->dir_fd = fcntl(book->config.dir_fd, F_DUPFD_CLOEXEC, 0);
	(void)snprintf(c->actor, sizeof c->actor, "%s", actor);
	return c;
}

static int check_name(struct str name, struct err *e)
{
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '_' || c == '-'))
			return err_set(e, -EINVAL,
				"name must be of letters, digits, '_' and '-' only");
	}
	if (name.n == 0 || name.n >= VOLUME_NAME_SIZE)
		return err_set(e, -EINVAL, "name must have 1 to %d characters",
			VOLUME_NAME_SIZE - 1);
	return 0;
}

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	struct change *c = arg;
	const struct volume *v = &c->volume;
	struct store_event event = { .actor = c->actor,
		.kind = "volume.created",
		.subject = v->id };
	int64_t count = 0;
	int r = store_query(tx, "SELECT COUNT(*) FROM volumes WHERE team_id = $1",
		STORE_PARAMS(P_TEXT(v->team_id)), count_row, &count, e);

	if (r >= 0 && count >= VOLUME_MAX_COUNT)
		r = err_set(e, -EDQUOT, "a team has at most %d volumes: remove some first",
			VOLUME_MAX_COUNT);
	if (r < 0)
		return r;
	r = store_exec(tx,
		"INSERT INTO volumes (id, team_id, name, created_us) VALUES ($1, $2, $3, $4)",
		STORE_PARAMS(P_TEXT(v->id), P_TEXT(v->team_id), P_TEXT(v->name),
			P_INT(v->created_us)),
		e);
	if (r == -EEXIST)
		return err_set(e, -EINVAL, "a volume named '%s' exists already", v->name);
	if (r >= 0)
		r = store_add_event(tx, &event, e);
	/* For every user of the sandboxes that will see it. */
	if (r >= 0 &&
		(mkdirat(c->dir_fd, v->id, 0777) < 0 || fchmodat(c->dir_fd, v->id, 0777, 0) < 0))
		r = err_sys(e, -errno, "make the volume's directory");
	return r;
}

static void inserted(void *arg, int r, const struct err *e)
{
	struct change *c = arg;

	if (r >= 0)
		hold(c->book, &c->volume);
	change_end(c, r, e);
}

void volume_create(struct volume_book *book, const char *team_id, struct str name,
	const char *actor, volume_fn fn, void *arg)
{
	struct change *c = change_new(book, actor);

	c->fn = fn;
	c->arg = arg;
	if (check_name(name, &c->e) < 0) {
		loop_defer(book->config.loop, &c->task, fail_now, c);
		return;
	}
	uuid_make(c->volume.id);
	(void)snprintf(c->volume.team_id, sizeof c->volume.team_id, "%s", team_id);
	(void)snprintf(c->volume.name, sizeof c->volume.name, "%.*s", STR_ARG(name));
	c->volume.created_us = time_wall_us();
	store_run(book->config.store, insert, inserted, c);
}

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
	struct change *c = arg;
	struct store_event event = { .actor = c->actor,
		.kind = "volume.removed",
		.subject = c->volume.id };
	int r = store_exec(tx, "DELETE FROM volumes WHERE id = $1",
		STORE_PARAMS(P_TEXT(c->volume.id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "volume '%s' not found", c->volume.id);
	return r < 0 ? r : store_add_event(tx, &event, e);
}

static void deleted(void *arg, int r, const struct err *e)
{
	struct change *c = arg;
	struct volume_book *book = c->book;
	struct holding *h = r >= 0 ? map_remove(&book->by_id, str_of(c->volume.id)) : NULL;

	if (h) {
		list_remove(&h->node);
		free(h);
		(void)renameat(book->config.dir_fd, c->volume.id, book->incoming_fd, c->volume.id);
		sweep_incoming(book, c->volume.id);
	}
	change_end(c, r, e);
}

void volume_remove(struct volume_book *book, const char *team_id, struct str id, const char *actor,
	done_fn done, void *arg)
{
	const struct volume *v = volume_find(book, team_id, id);
	struct change *c = change_new(book, actor);

	c->done = done;
	c->arg = arg;
	if (!v) {
		(void)err_set(&c->e, -ENOENT, "volume '%.*s' not found", STR_ARG(id));
		loop_defer(book->config.loop, &c->task, fail_now, c);
		return;
	}
	c->volume = *v;
	store_run(book->config.store, delete_row, deleted, c);
}
