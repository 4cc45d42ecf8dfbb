/* The book: which volumes there are, who has them, and what opens them. */
#include "volume/volume-internal.h"

#include <dirent.h>

enum {
	MIB = 1 << 20
};

static bool is_image(const struct volume_book *book, const char *id)
{
	char path[sizeof VOLUME_IMAGES + UUID_SIZE];

	(void)snprintf(path, sizeof path, VOLUME_IMAGES "/%s", id);
	return faccessat(book->config.dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void hold(struct volume_book *book, const struct volume *volume)
{
	struct holding *h = XNEW(struct holding);

	h->view = *volume;
	h->is_image = is_image(book, volume->id);
	list_init(&h->open_node);
	volume_token(book, volume, h->token);
	list_init(&h->holders);
	list_append(&book->holdings, &h->node);
	(void)map_put(&book->by_id, str_of(h->view.id), h);
	measure_soon(book, h);
}

/* ---- starting ---- */

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	struct volume v = { .created_us = store_int(row, 3), .token_epoch = store_int(row, 4) };

	(void)e;
	store_copy_text(row, 0, v.id, sizeof v.id);
	store_copy_text(row, 1, v.team_id, sizeof v.team_id);
	store_copy_text(row, 2, v.name, sizeof v.name);
	store_copy_text(row, 5, v.agent_id, sizeof v.agent_id);
	hold(arg, &v);
	return 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx,
		"SELECT id, team_id, name, created_us, token_epoch, agent_id FROM volumes "
		"ORDER BY created_us, id",
		NULL, 0, load_row, arg, e);
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

static void image_removed(void *arg, int r, const struct err *e)
{
	(void)arg;
	if (r < 0 && r != -ENOENT)
		log_warn("volume.not_removed", "err=%s", log_quote(str_of(e->msg)));
}

/* Not waited for: what a server that ends leaves of that, the next one does. */
static void remove_image(const struct volume_book *book, const char *id)
{
	const struct volume_maker *maker = &book->config.maker;

	if (maker->remove)
		maker->remove(maker->arg, id, image_removed, NULL);
}

static void remove_orphan_images(const struct volume_book *book)
{
	struct dirent **names = NULL;
	int n = scandirat(book->config.dir_fd, VOLUME_IMAGES, &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;

		if (strlen(name) == UUID_SIZE - 1 && name[0] != '.' &&
			!map_get(&book->by_id, str_of(name)))
			remove_image(book, name);
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
	sweeps_init(book);
	reaches_init(book);
	list_init(&book->making);
	measure_init(book);
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
	remove_orphan_images(book);
	sweep_leftovers(book);
	*ret = TAKE(book);
	return 0;
}

/* ---- reading ---- */

static bool is_of(const struct volume *v, const struct volume_owner *who)
{
	bool is_bound = who->agent_id && who->agent_id[0];

	return strcmp(v->team_id, who->team_id) == 0 &&
	       (!is_bound || strcmp(v->agent_id, who->agent_id) == 0);
}

const struct volume *volume_find(const struct volume_book *book, const struct volume_owner *who,
	struct str id)
{
	const struct holding *h = map_get(&book->by_id, id);

	return h && (!who || is_of(&h->view, who)) ? &h->view : NULL;
}

const struct volume *volume_find_name(const struct volume_book *book,
	const struct volume_owner *who, struct str name)
{
	LIST_EACH(&book->holdings, node)
	{
		const struct holding *h = container_of(node, struct holding, node);

		if (is_of(&h->view, who) && str_is(name, h->view.name))
			return &h->view;
	}
	return NULL;
}

void volume_each(const struct volume_book *book, const struct volume_owner *who,
	void (*fn)(void *arg, const struct volume *volume), void *arg)
{
	for (struct list *node = book->holdings.prev; node != &book->holdings; node = node->prev) {
		const struct holding *h = container_of(node, struct holding, node);

		if (is_of(&h->view, who))
			fn(arg, &h->view);
	}
}

/* ---- changing ---- */

void volume_change_end(void *arg, int r, const struct err *e)
{
	struct volume_change *c = arg;

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
	struct volume_change *c = arg;

	volume_change_end(c, c->e.code, &c->e);
}

struct volume_change *volume_change_new(struct volume_book *book, const char *actor)
{
	struct volume_change *c = XNEW(struct volume_change);

	c->book = book;
	c->dir_fd = fcntl(book->config.dir_fd, F_DUPFD_CLOEXEC, 0);
	(void)snprintf(c->actor, sizeof c->actor, "%s", actor);
	return c;
}

int volume_change_find(struct volume_change *c, const struct volume_owner *who, struct str id)
{
	const struct volume *v = volume_find(c->book, who, id);

	if (v) {
		c->volume = *v;
		return 0;
	}
	(void)err_set(&c->e, -ENOENT, "volume '%.*s' not found", STR_ARG(id));
	loop_defer(c->book->config.loop, &c->task, fail_now, c);
	return -ENOENT;
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
	struct volume_change *c = arg;
	const struct volume *v = &c->volume;
	struct store_event event = { .actor = c->actor,
		.kind = "volume.created",
		.subject = v->id };
	int64_t count = 0;
	int r = store_query(tx, "SELECT COUNT(*) FROM volumes WHERE team_id = $1",
		STORE_PARAMS(P_TEXT(v->team_id)), count_row, &count, e);

	if (r >= 0 && count >= c->max_count)
		r = err_set(e, -EDQUOT,
			"the limit of your team, %" PRId64
			" volumes, was reached: remove some first",
			c->max_count);
	if (r < 0)
		return r;
	r = store_exec(tx,
		"INSERT INTO volumes (id, team_id, name, created_us, agent_id) VALUES ($1, $2, $3, "
		"$4, $5)",
		STORE_PARAMS(P_TEXT(v->id), P_TEXT(v->team_id), P_TEXT(v->name),
			P_INT(v->created_us),
			P_STR(v->agent_id[0] ? str_of(v->agent_id) : STR_NONE)),
		e);
	if (r == -EEXIST)
		return err_set(e, -EINVAL, "a volume named '%s' exists already", v->name);
	if (r >= 0)
		r = store_add_caused_event(tx, &event,
			&(struct store_cause){ .team_id = v->team_id, .agent_id = v->agent_id }, e);
	/* For every user of the sandboxes that will see it. */
	if (r >= 0 && !c->is_image &&
		(mkdirat(c->dir_fd, v->id, 0777) < 0 || fchmodat(c->dir_fd, v->id, 0777, 0) < 0))
		r = err_sys(e, -errno, "make the volume's directory");
	return r;
}

static void inserted(void *arg, int r, const struct err *e)
{
	struct volume_change *c = arg;

	if (r >= 0)
		hold(c->book, &c->volume);
	else if (c->is_image)
		remove_image(c->book, c->volume.id);
	volume_change_end(c, r, e);
}

static void image_made(void *arg, int r, const struct err *e)
{
	struct volume_change *c = arg;

	if (!c->book) { /* the next start removes what was made */
		free(c);
		return;
	}
	CRASH_POINT("volume.made");
	list_remove(&c->node);
	c->is_image = r >= 0;
	if (r < 0 && r != -EOPNOTSUPP)
		volume_change_end(c, r, e);
	else
		store_run_for(c->book->config.store, c->volume.team_id, insert, inserted, c);
}

static void make_image(struct volume_change *c, const char *team_id)
{
	struct volume_book *book = c->book;
	const struct volume_maker *maker = &book->config.maker;
	int64_t mib = limit_team_ceiling(&book->config.teams, team_id, LIMIT_VOLUME_SIZE);

	list_append(&book->making, &c->node);
	maker->make(maker->arg, c->volume.id, mib * MIB, image_made, c);
}

static void forget_making(struct volume_book *book)
{
	struct err e = { 0 };

	(void)err_set(&e, -ECANCELED, "the server stops");
	LIST_EACH(&book->making, node)
	{
		struct volume_change *c = container_of(node, struct volume_change, node);

		list_remove(&c->node);
		c->book = NULL;
		close_fdp(&c->dir_fd);
		c->fn(c->arg, e.code, &c->volume, &e);
	}
}

/* It will be refused: nothing is made for that. */
static bool seems_taken(const struct volume_book *book, const struct volume *v, int64_t max_count)
{
	int64_t n = 0;

	LIST_EACH(&book->holdings, node)
	{
		const struct holding *h = container_of(node, struct holding, node);

		if (strcmp(h->view.team_id, v->team_id) != 0)
			continue;
		if (strcmp(h->view.name, v->name) == 0)
			return true;
		n++;
	}
	return n >= max_count;
}

void volume_create(struct volume_book *book, const struct volume_owner *who, struct str name,
	const char *actor, volume_fn fn, void *arg)
{
	struct volume_change *c = volume_change_new(book, actor);

	c->fn = fn;
	c->arg = arg;
	if (check_name(name, &c->e) < 0) {
		loop_defer(book->config.loop, &c->task, fail_now, c);
		return;
	}
	uuid_make(c->volume.id);
	(void)snprintf(c->volume.team_id, sizeof c->volume.team_id, "%s", who->team_id);
	(void)snprintf(c->volume.agent_id, sizeof c->volume.agent_id, "%s",
		who->agent_id ? who->agent_id : "");
	(void)snprintf(c->volume.name, sizeof c->volume.name, "%.*s", STR_ARG(name));
	c->volume.created_us = time_wall_us();
	c->max_count = limit_team_ceiling(&book->config.teams, who->team_id, LIMIT_VOLUMES);
	if (!book->config.maker.make || book->is_resting ||
		seems_taken(book, &c->volume, c->max_count))
		store_run_for(book->config.store, c->volume.team_id, insert, inserted, c);
	else
		make_image(c, who->team_id);
}

static int delete_row(struct store_tx *tx, void *arg, struct err *e)
{
	struct volume_change *c = arg;
	struct store_event event = { .actor = c->actor,
		.kind = "volume.removed",
		.subject = c->volume.id };
	int r = store_exec(tx, "DELETE FROM volumes WHERE id = $1",
		STORE_PARAMS(P_TEXT(c->volume.id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "volume '%s' not found", c->volume.id);
	return r < 0 ? r
		     : store_add_caused_event(tx, &event,
			       &(struct store_cause){ .team_id = c->volume.team_id,
				       .agent_id = c->volume.agent_id },
			       e);
}

static void remove_files(struct volume_book *book, const struct holding *h)
{
	const char *id = h->view.id;

	if (h->is_image) {
		remove_image(book, id);
		return;
	}
	(void)renameat(book->config.dir_fd, id, book->incoming_fd, id);
	sweep_begin(sweep_new(book, id));
}

static void deleted(void *arg, int r, const struct err *e)
{
	struct volume_change *c = arg;
	struct volume_book *book = c->book;
	struct holding *h = r >= 0 ? map_remove(&book->by_id, str_of(c->volume.id)) : NULL;

	if (h) {
		CRASH_POINT("volume.deleted");
		list_remove(&h->node);
		notice_tell(&h->holders);
		reach_forget(h);
		remove_files(book, h);
		free(h);
	}
	volume_change_end(c, r, e);
}

void volume_remove(struct volume_book *book, const struct volume_owner *who, struct str id,
	const char *actor, done_fn done, void *arg)
{
	struct volume_change *c = volume_change_new(book, actor);

	c->done = done;
	c->arg = arg;
	if (volume_change_find(c, who, id) >= 0)
		store_run_for(book->config.store, c->volume.team_id, delete_row, deleted, c);
}

/* ---- the end ---- */

void volume_book_rest(struct volume_book *book)
{
	measure_let_go(book);
	forget_making(book);
	reaches_rest(book);
	sweeps_let_go(book);
}

struct volume_book *volume_book_free(struct volume_book *book)
{
	if (!book)
		return NULL;
	volume_book_rest(book);
	reaches_done(book);
	LIST_EACH(&book->holdings, node)
	{
		struct holding *h = container_of(node, struct holding, node);

		notice_forget(&h->holders);
		free(h);
	}
	map_done(&book->by_id);
	close_fdp(&book->incoming_fd);
	close_fdp(&book->config.dir_fd);
	explicit_bzero(book->config.seed, sizeof book->config.seed);
	free(book);
	return NULL;
}
