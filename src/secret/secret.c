#include "secret/secret-internal.h"

struct secret_book *secret_book_new(struct loop *loop, struct store *store,
	const struct limit_teams *teams, const uint8_t seed[SHA256_SIZE])
{
	struct secret_book *book = XNEW(struct secret_book);

	if (teams)
		book->teams = *teams;
	book->loop = loop;
	book->store = store;
	hmac_sha256(seed, STR("secrets"), book->key);
	return book;
}

struct secret_book *secret_book_free(struct secret_book *book)
{
	if (book)
		explicit_bzero(book->key, sizeof book->key);
	free(book);
	return NULL;
}

/* ---- one call ---- */

static struct secret_op *op_new(struct secret_book *book, const char *team_id, struct str which,
	const char *actor)
{
	struct secret_op *op = XNEW(struct secret_op);

	op->book = book;
	memcpy(op->key, book->key, sizeof op->key);
	(void)snprintf(op->team_id, sizeof op->team_id, "%s", team_id);
	(void)snprintf(op->actor, sizeof op->actor, "%s", actor ? actor : "");
	/* Names are stored in lower case and ids are lower case anyway. */
	for (size_t i = 0; which.n < sizeof op->which && i < which.n; i++) /* nothing is longer */
		op->which[i] = which.p[i] >= 'A' && which.p[i] <= 'Z'
				       ? (char)(which.p[i] - 'A' + 'a')
				       : which.p[i];
	op->value = BUF_INIT(SECRET_VALUE_MAX + 64);
	op->box = BUF_INIT((size_t)2 * SECRET_VALUE_MAX);
	op->metadata =
		BUF_INIT((size_t)8 * SECRET_MAX_METADATA); /* written as JSON, escapes included */
	return op;
}

static void wipe(struct buf *b)
{
	if (b->p)
		explicit_bzero(b->p, b->cap);
	buf_done(b);
}

static void op_end(void *arg, int r, const struct err *e)
{
	struct secret_op *op = arg;

	op->secret.metadata = buf_str(&op->metadata);
	if (op->fn)
		op->fn(op->arg, MIN(r, 0), &op->secret, e);
	else if (op->value_fn)
		op->value_fn(op->arg, MIN(r, 0), buf_str(&op->value), e);
	else
		op->done(op->arg, MIN(r, 0), e);
	explicit_bzero(op->key, sizeof op->key);
	wipe(&op->value);
	buf_done(&op->box);
	buf_done(&op->metadata);
	free(op);
}

static void fail_now(void *arg)
{
	struct secret_op *op = arg;

	op_end(op, op->e.code, &op->e);
}

static void op_run(struct secret_op *op, store_work_fn work)
{
	if (op->e.code < 0)
		loop_defer(op->book->loop, &op->task, fail_now, op);
	else if (work == rows_get || work == rows_open)
		store_read(op->book->store, work, op_end, op);
	else
		store_run_for(op->book->store, op->team_id, work, op_end, op);
}

/* ---- what may be stored ---- */

static int check_name(struct str name, struct err *e)
{
	static const struct str reserved = { "sec_", 4 };

	if (name.n == 0 || name.n >= SECRET_NAME_SIZE)
		return err_set(e, -EINVAL, "name must have 1 to %d characters",
			SECRET_NAME_SIZE - 1);
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '_' || c == '-'))
			return err_set(e, -EINVAL,
				"name must be of letters, digits, '_' and '-' only");
	}
	if (name.n >= reserved.n && str_eq_nocase(str_make(name.p, reserved.n), reserved))
		return err_set(e, -EINVAL, "name must not begin with sec_: ids do");
	return 0;
}

static int check_metadata(const struct json_map *map, struct err *e)
{
	size_t total = 0;

	if (map->n > SECRET_MAX_PAIRS)
		return err_set(e, -EINVAL, "metadata must have at most %d entries",
			SECRET_MAX_PAIRS);
	for (size_t i = 0; i < map->n; i++) {
		if (map->v[i].key.n == 0 || map->v[i].key.n > SECRET_MAX_KEY)
			return err_set(e, -EINVAL, "metadata: a key must have 1 to %d bytes",
				SECRET_MAX_KEY);
		if (map->v[i].value.n > SECRET_MAX_TEXT)
			return err_set(e, -EINVAL, "metadata: a value must have at most %d bytes",
				SECRET_MAX_TEXT);
		total += map->v[i].key.n + map->v[i].value.n;
	}
	if (total > SECRET_MAX_METADATA)
		return err_set(e, -EINVAL, "metadata must have at most %d bytes in total",
			SECRET_MAX_METADATA);
	return 0;
}

static void take_in(struct secret_op *op, const struct secret_in *in)
{
	struct jsonw w;

	if (in->value.n == 0 || in->value.n > SECRET_VALUE_MAX)
		(void)err_set(&op->e, -EINVAL, "value must have 1 to %d bytes", SECRET_VALUE_MAX);
	else if (check_metadata(&in->metadata, &op->e) == 0)
		(void)buf_add_str(&op->value, in->value);
	if (op->e.code < 0)
		return;
	op->has_metadata = in->metadata.is_set;
	jsonw_init(&w, &op->metadata);
	jsonw_map(&w, NULL, &in->metadata);
}

/* ---- doors ---- */

void secret_create(struct secret_book *book, const struct secret_in *in, secret_fn fn, void *arg)
{
	struct secret_op *op = op_new(book, in->team_id, in->which, in->actor);

	op->fn = fn;
	op->arg = arg;
	op->most = limit_team_ceiling(&book->teams, in->team_id, LIMIT_SECRETS);
	if (check_name(in->which, &op->e) == 0)
		take_in(op, in);
	op_run(op, rows_create);
}

void secret_update(struct secret_book *book, const struct secret_in *in, secret_fn fn, void *arg)
{
	struct secret_op *op = op_new(book, in->team_id, in->which, in->actor);

	op->fn = fn;
	op->arg = arg;
	take_in(op, in);
	op_run(op, rows_update);
}

void secret_get(struct secret_book *book, const char *team_id, struct str which, secret_fn fn,
	void *arg)
{
	struct secret_op *op = op_new(book, team_id, which, NULL);

	op->fn = fn;
	op->arg = arg;
	op_run(op, rows_get);
}

void secret_remove(struct secret_book *book, const char *team_id, struct str which,
	const char *actor, done_fn done, void *arg)
{
	struct secret_op *op = op_new(book, team_id, which, actor);

	op->done = done;
	op->arg = arg;
	op_run(op, rows_remove);
}

void secret_open(struct secret_book *book, const char *team_id, struct str which,
	secret_value_fn fn, void *arg)
{
	struct secret_op *op = op_new(book, team_id, which, NULL);

	op->value_fn = fn;
	op->arg = arg;
	op_run(op, rows_open);
}
