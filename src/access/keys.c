/* Changes of keys: each is one transaction with its event; the book follows when it is done. */
#include "access/access-internal.h"

void access_make_key(char key[ACCESS_KEY_SIZE])
{
	uint8_t bytes[20];

	random_bytes(bytes, sizeof bytes);
	memcpy(key, "e2b_", 4);
	hex_encode(bytes, sizeof bytes, key + 4);
}

struct creation {
	struct access_book *book;
	struct access_key key;
	char text[ACCESS_KEY_SIZE], hash[HASH_SIZE], actor[ACCESS_ID_SIZE];
	access_created_fn fn;
	void *arg;
};

static int insert_key(struct store_tx *tx, void *arg, struct err *e)
{
	struct creation *c = arg;
	struct store_event event = { .actor = c->actor,
		.kind = "key.created",
		.subject = c->key.id };
	int r = store_exec(tx,
		"INSERT INTO api_keys (id, team_id, name, hash, mask_start, mask_end, created_us, "
		"created_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (hash) DO NOTHING",
		STORE_PARAMS(P_TEXT(c->key.id), P_TEXT(c->key.team_id), P_TEXT(c->key.name),
			P_TEXT(c->hash), P_TEXT(c->key.mask_start), P_TEXT(c->key.mask_end),
			P_INT(c->key.created_us),
			c->key.created_by[0] ? P_TEXT(c->key.created_by) : P_NULL),
		e);

	if (r <= 0)
		return r;
	r = store_add_event(tx, &event, e);
	return r < 0 ? r : 1;
}

static void fill_creation(struct creation *c, struct access_book *book, const char *team_id,
	struct str name, const char *actor)
{
	struct str digits = str_from(str_of(c->text), 4);

	c->book = book;
	uuid_make(c->key.id);
	if (str_is_uuid(str_of(actor)))
		(void)snprintf(c->key.created_by, sizeof c->key.created_by, "%s", actor);
	(void)snprintf(c->key.team_id, sizeof c->key.team_id, "%s", team_id);
	(void)snprintf(c->key.name, sizeof c->key.name, "%.*s", STR_ARG(name));
	(void)snprintf(c->key.mask_start, sizeof c->key.mask_start, "%.2s", digits.p);
	(void)snprintf(c->key.mask_end, sizeof c->key.mask_end, "%.4s", digits.p + digits.n - 4);
	(void)snprintf(c->actor, sizeof c->actor, "%s", actor);
	c->key.created_us = time_wall_us();
	(void)key_hash(str_of(c->text), c->hash);
}

int access_ensure_key(struct access_book *book, const char *key, struct err *e)
{
	struct creation c = { 0 };
	int r;

	if (key_hash(str_of(key), c.hash) < 0)
		return err_set(e, -EINVAL,
			"E2B_API_KEY in the env file is not of the form e2b_ + 40 hex digits");
	(void)snprintf(c.text, sizeof c.text, "%s", key);
	fill_creation(&c, book, access_first_team(book), STR("first"), "system");
	r = store_run_now(book->store, insert_key, &c, e);
	if (r > 0)
		book_add(book, &c.key, c.hash);
	return r < 0 ? r : 0;
}

static void key_inserted(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	if (r > 0)
		book_add(c->book, &c->key, c->hash);
	c->fn(c->arg, MIN(r, 0), &c->key, c->text, e);
	explicit_bzero(c->text, sizeof c->text);
	free(c);
}

void access_create_key(struct access_book *book, const char *team_id, struct str name,
	const char *actor, access_created_fn fn, void *arg)
{
	struct creation *c = XNEW(struct creation);

	access_make_key(c->text);
	fill_creation(c, book, team_id, name, actor);
	c->fn = fn;
	c->arg = arg;
	store_run(book->store, insert_key, key_inserted, c);
}

struct change { /* of a key that is there */
	struct access_book *book;
	char id[ACCESS_ID_SIZE], team_id[ACCESS_ID_SIZE], actor[ACCESS_ID_SIZE];
	char name[ACCESS_NAME_SIZE];
	done_fn done;
	void *arg;
};

static struct change *change_new(struct access_book *book, const char *team_id, struct str id,
	const char *actor)
{
	struct change *v = XNEW(struct change);

	v->book = book;
	(void)snprintf(v->id, sizeof v->id, "%.*s", STR_ARG(id));
	(void)snprintf(v->team_id, sizeof v->team_id, "%s", team_id);
	(void)snprintf(v->actor, sizeof v->actor, "%s", actor);
	return v;
}

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int mark_revoked(struct store_tx *tx, void *arg, struct err *e)
{
	struct change *v = arg;
	struct store_event event = { .actor = v->actor, .kind = "key.revoked", .subject = v->id };
	int64_t left = 0;
	int r = store_exec(tx,
		"UPDATE api_keys SET revoked_us = $1 WHERE id = $2 AND team_id = $3 AND revoked_us "
		"IS NULL",
		STORE_PARAMS(P_INT(time_wall_us()), P_TEXT(v->id), P_TEXT(v->team_id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "API key '%s' not found", v->id);
	if (r > 0)
		r = store_query(tx,
			"SELECT COUNT(*) FROM api_keys WHERE team_id = $1 AND revoked_us IS NULL",
			STORE_PARAMS(P_TEXT(v->team_id)), count_row, &left, e);
	if (r >= 0 && left == 0)
		return err_set(e, -EBUSY, "this is the team's last key: create another one first");
	return r < 0 ? r : store_add_event(tx, &event, e);
}

static void key_revoked(void *arg, int r, const struct err *e)
{
	struct change *v = arg;
	struct entry *entry = r >= 0 ? book_find(v->book, v->team_id, str_of(v->id)) : NULL;

	if (entry) {
		(void)map_remove(&v->book->by_hash, str_of(entry->hash));
		list_remove(&entry->node);
		free(entry);
	}
	v->done(v->arg, MIN(r, 0), e);
	free(v);
}

void access_revoke_key(struct access_book *book, const char *team_id, struct str id,
	const char *actor, done_fn done, void *arg)
{
	struct change *v = change_new(book, team_id, id, actor);

	v->done = done;
	v->arg = arg;
	store_run(book->store, mark_revoked, key_revoked, v);
}

static int rename_row(struct store_tx *tx, void *arg, struct err *e)
{
	struct change *v = arg;
	struct store_event event = { .actor = v->actor, .kind = "key.renamed", .subject = v->id };
	int r = store_exec(tx,
		"UPDATE api_keys SET name = $1 WHERE id = $2 AND team_id = $3 AND revoked_us IS "
		"NULL",
		STORE_PARAMS(P_TEXT(v->name), P_TEXT(v->id), P_TEXT(v->team_id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "API key '%s' not found", v->id);
	return r < 0 ? r : store_add_event(tx, &event, e);
}

static void key_renamed(void *arg, int r, const struct err *e)
{
	struct change *v = arg;
	struct entry *entry = r >= 0 ? book_find(v->book, v->team_id, str_of(v->id)) : NULL;

	if (entry)
		memcpy(entry->key.name, v->name, sizeof entry->key.name);
	v->done(v->arg, MIN(r, 0), e);
	free(v);
}

void access_rename_key(struct access_book *book, const char *team_id, struct str id,
	struct str name, const char *actor, done_fn done, void *arg)
{
	struct change *v = change_new(book, team_id, id, actor);

	(void)snprintf(v->name, sizeof v->name, "%.*s", STR_ARG(name));
	v->done = done;
	v->arg = arg;
	store_run(book->store, rename_row, key_renamed, v);
}
