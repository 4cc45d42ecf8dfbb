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
	char text[ACCESS_KEY_SIZE], hash[HASH_SIZE], actor[ACTOR_SIZE];
	struct buf scopes;             /* as the row has them */
	char replaces[ACCESS_ID_SIZE]; /* the key that is rotated; empty: none, as the next */
	bool is_lost;                  /* the book does not know that key, or not what it may */
	int64_t replaced_end_us;
	int64_t most; /* keys that the team may have */
	access_created_fn fn;
	void *arg;
};

/* As a row has it: what is longer than an id must not stand for the one that it begins with. */
static void copy_id(char to[ACCESS_ID_SIZE], struct str id)
{
	struct str known = str_is_uuid(id) ? id : STR("?");

	(void)snprintf(to, ACCESS_ID_SIZE, "%.*s", STR_ARG(known));
}

static struct store_param text_or_null(const char *text)
{
	return text[0] ? P_TEXT(text) : P_NULL;
}

static int tell(struct store_tx *tx, const struct creation *c, const char *kind, struct err *e)
{
	CLEANUP(buf_done) struct buf data = BUF_INIT(4096);
	struct store_event event = { .actor = c->actor, .kind = kind, .subject = c->key.id };
	struct store_cause cause = { .team_id = c->key.team_id, .agent_id = c->key.agent_id };
	struct jsonw w;

	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "name", c->key.name);
	jsonw_str(&w, "scopes", buf_str(&c->scopes));
	if (c->replaces[0])
		jsonw_strz(&w, "replaces", c->replaces);
	jsonw_end_object(&w);
	event.data = buf_str(&data);
	return store_add_caused_event(tx, &event, &cause, e);
}

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

/* Those whose time is up count too, until they are revoked. */
static int check_count(struct store_tx *tx, const struct creation *c, struct err *e)
{
	int64_t n = 0;
	int r = store_query(tx,
		"SELECT COUNT(*) FROM api_keys WHERE team_id = $1 AND revoked_us IS NULL",
		STORE_PARAMS(P_TEXT(c->key.team_id)), count_row, &n, e);

	return r < 0 || n < c->most ? r
				    : err_set(e, -EDQUOT,
					      "the limit of your team, %" PRId64
					      " API keys, is reached: revoke some first",
					      c->most);
}

/* Returns how many rows there are now that were not before. */
static int insert_row(struct store_tx *tx, const struct creation *c, struct err *e)
{
	const struct access_key *k = &c->key;
	int r = check_count(tx, c, e);

	return r < 0 ? r
		     : store_exec(tx,
			       "INSERT INTO api_keys (id, team_id, name, hash, mask_start, "
			       "mask_end, created_us, "
			       "created_by, agent_id, scopes, expires_us) VALUES ($1, $2, $3, $4, "
			       "$5, $6, $7, $8, "
			       "$9, $10, $11) ON CONFLICT (hash) DO NOTHING",
			       STORE_PARAMS(P_TEXT(k->id), P_TEXT(k->team_id), P_TEXT(k->name),
				       P_TEXT(c->hash), P_TEXT(k->mask_start), P_TEXT(k->mask_end),
				       P_INT(k->created_us), text_or_null(k->created_by),
				       text_or_null(k->agent_id),
				       P_STR(c->scopes.n ? buf_str(&c->scopes) : STR("")),
				       k->expires_us ? P_INT(k->expires_us) : P_NULL),
			       e);
}

static int insert_key(struct store_tx *tx, void *arg, struct err *e)
{
	const struct creation *c = arg;
	int r = insert_row(tx, c, e);

	if (r <= 0)
		return r;
	r = tell(tx, c, "key.created", e);
	return r < 0 ? r : 1;
}

/* The row says nothing of scopes where they are the usual ones: a later version may know more. */
static void fill_scopes(struct creation *c, unsigned scopes)
{
	unsigned usual = access_scopes_usual(c->key.agent_id[0]);

	c->scopes = BUF_INIT(1024);
	c->key.scopes = scopes ? scopes : usual;
	if (c->key.scopes != usual)
		access_scopes_write(&c->scopes, c->key.scopes, " ");
}

static int64_t most_keys(const struct access_book *book, const char *team_id)
{
	struct limit_ceilings c;

	access_ceilings(book, team_id, &c);
	return limit_ceiling(&c, LIMIT_API_KEYS);
}

/* c->text is set already. */
static void fill_creation(struct creation *c, struct access_book *book,
	const struct access_key_spec *spec)
{
	struct str digits = str_from(str_of(c->text), 4);
	struct access_key *k = &c->key;

	c->book = book;
	c->most = most_keys(book, spec->team_id);
	uuid_make(k->id);
	if (str_is_uuid(actor_id(spec->actor)))
		(void)snprintf(k->created_by, sizeof k->created_by, "%.*s",
			STR_ARG(actor_id(spec->actor)));
	(void)snprintf(k->team_id, sizeof k->team_id, "%s", spec->team_id);
	(void)snprintf(k->name, sizeof k->name, "%.*s", STR_ARG(spec->name));
	(void)snprintf(k->mask_start, sizeof k->mask_start, "%.2s", digits.p);
	(void)snprintf(k->mask_end, sizeof k->mask_end, "%.4s", digits.p + digits.n - 4);
	(void)snprintf(k->agent_id, sizeof k->agent_id, "%.*s", STR_ARG(spec->agent_id));
	(void)snprintf(c->actor, sizeof c->actor, "%s", spec->actor);
	k->created_us = time_wall_us();
	k->expires_us = spec->expires_us;
	fill_scopes(c, spec->scopes);
	(void)key_hash(str_of(c->text), c->hash);
}

int access_ensure_key(struct access_book *book, const char *key, struct err *e)
{
	const struct access_key_spec spec = { .team_id = access_first_team(book),
		.actor = "system",
		.name = STR("first") };
	struct creation c = { 0 };
	int r;

	if (key_hash(str_of(key), c.hash) < 0)
		return err_set(e, -EINVAL,
			"E2B_API_KEY in the env file is not of the form e2b_ + 40 hex digits");
	(void)snprintf(c.text, sizeof c.text, "%s", key);
	fill_creation(&c, book, &spec);
	c.most = INT64_MAX; /* the server must be able to start */
	r = store_run_now(book->store, insert_key, &c, e);
	if (r > 0)
		book_add(book, &c.key, c.hash);
	buf_done(&c.scopes);
	return r < 0 ? r : 0;
}

static void creation_end(struct creation *c, int r, const struct err *e)
{
	c->fn(c->arg, MIN(r, 0), &c->key, c->text, e);
	explicit_bzero(c->text, sizeof c->text);
	buf_done(&c->scopes);
	free(c);
}

static void key_inserted(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;

	if (r > 0)
		book_add(c->book, &c->key, c->hash);
	creation_end(c, r, e);
}

void access_create_key(struct access_book *book, const struct access_key_spec *spec,
	access_created_fn fn, void *arg)
{
	struct creation *c = XNEW(struct creation);

	access_make_key(c->text);
	fill_creation(c, book, spec);
	c->fn = fn;
	c->arg = arg;
	store_run_for(book->store, c->key.team_id, insert_key, key_inserted, c);
}

/* ---- rotating: the new key and the end of the old one are one transaction ---- */

static int note_known(void *arg, const struct store_row *row, struct err *e)
{
	(void)row;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

/* Nothing was there to replace: for want of a key, or of a live one. */
static int explain(struct store_tx *tx, const struct creation *c, struct err *e)
{
	bool is_known = false;
	int r = store_query(tx,
		"SELECT 1 FROM api_keys WHERE id = $1 AND team_id = $2 AND revoked_us IS NULL",
		STORE_PARAMS(P_TEXT(c->replaces), P_TEXT(c->key.team_id)), note_known, &is_known,
		e);

	if (r < 0)
		return r;
	return is_known ? err_set(e, -EEXIST,
				  "API key '%s' has been rotated already, or its time is up",
				  c->replaces)
			: err_set(e, -ENOENT, "API key '%s' not found", c->replaces);
}

static int replace_key(struct store_tx *tx, void *arg, struct err *e)
{
	const struct creation *c = arg;
	int r = 0;

	if (!c->is_lost)
		r = store_exec(tx,
			"UPDATE api_keys SET expires_us = $1, replaced_by = $2 WHERE id = $3 AND "
			"team_id = $4 AND revoked_us IS NULL AND replaced_by IS NULL AND "
			"(expires_us IS NULL OR expires_us > $5)",
			STORE_PARAMS(P_INT(c->replaced_end_us), P_TEXT(c->key.id),
				P_TEXT(c->replaces), P_TEXT(c->key.team_id),
				P_INT(c->key.created_us)),
			e);
	if (r == 0)
		return explain(tx, c, e);
	if (r > 0)
		r = insert_row(tx, c, e);
	return r < 0 ? r : tell(tx, c, "key.rotated", e);
}

static void key_replaced(void *arg, int r, const struct err *e)
{
	struct creation *c = arg;
	struct entry *old = book_find(c->book, c->key.team_id, str_of(c->replaces));

	if (r >= 0)
		book_add(c->book, &c->key, c->hash);
	if (r >= 0 && old) {
		old->key.expires_us = c->replaced_end_us;
		memcpy(old->key.replaced_by, c->key.id, sizeof old->key.replaced_by);
		book_watch_end(c->book, old);
	}
	creation_end(c, r, e);
}

/* The new one is as the old: its name, agent and scopes, and as long a life; but it does not
 * outlive who asks for it, or a key that has an end would renew itself for ever. */
static void fill_rotation(struct creation *c, const struct access_key *old, int64_t overlap_s)
{
	const struct access_key *asker =
		access_find_key(c->book, c->key.team_id, actor_id(c->actor));
	int64_t now_us = c->key.created_us, end_us = now_us + overlap_s * 1000000;

	c->replaced_end_us = old->expires_us ? MIN(old->expires_us, end_us) : end_us;
	if (old->expires_us)
		c->key.expires_us = now_us + (old->expires_us - old->created_us);
	if (old->expires_us && asker && asker->expires_us)
		c->key.expires_us = MIN(c->key.expires_us, asker->expires_us);
	memcpy(c->key.name, old->name, sizeof c->key.name);
	memcpy(c->key.agent_id, old->agent_id, sizeof c->key.agent_id);
	fill_scopes(c, old->scopes);
}

void access_rotate_key(struct access_book *book, const char *team_id, struct str id,
	int64_t overlap_s, const char *actor, access_created_fn fn, void *arg)
{
	const struct access_key_spec spec = { .team_id = team_id, .actor = actor };
	const struct access_key *old = access_find_key(book, team_id, id);
	struct creation *c = XNEW(struct creation);

	access_make_key(c->text);
	fill_creation(c, book, &spec);
	copy_id(c->replaces, id);
	c->is_lost = !old || !old->scopes; /* no scopes would become the usual ones */
	if (old)
		fill_rotation(c, old, overlap_s);
	c->fn = fn;
	c->arg = arg;
	store_run_for(book->store, c->key.team_id, replace_key, key_replaced, c);
}

struct change { /* of a key that is there */
	struct access_book *book;
	char id[ACCESS_ID_SIZE], team_id[ACCESS_ID_SIZE], actor[ACTOR_SIZE];
	char name[ACCESS_NAME_SIZE], agent_id[ACCESS_AGENT_SIZE];
	bool is_full; /* it may do everything */
	int64_t most; /* keys that the team may have, and as many that were */
	done_fn done;
	void *arg;
};

static struct change *change_new(struct access_book *book, const char *team_id, struct str id,
	const char *actor)
{
	struct change *v = XNEW(struct change);
	const struct access_key *key = access_find_key(book, team_id, id);

	v->book = book;
	v->most = most_keys(book, team_id);
	v->is_full = key && key->scopes == ACCESS_ALL;
	(void)snprintf(v->agent_id, sizeof v->agent_id, "%s", key ? key->agent_id : "");
	copy_id(v->id, id);
	(void)snprintf(v->team_id, sizeof v->team_id, "%s", team_id);
	(void)snprintf(v->actor, sizeof v->actor, "%s", actor);
	return v;
}

static int tell_change(struct store_tx *tx, const struct change *v, const char *kind, struct err *e)
{
	struct store_event event = { .actor = v->actor, .kind = kind, .subject = v->id };
	struct store_cause cause = { .team_id = v->team_id, .agent_id = v->agent_id };

	return store_add_caused_event(tx, &event, &cause, e);
}

/* Of those that were the oldest go; but not what the server or its operator made: the first key
 * would be one again at the next start if nobody knew that it was revoked. */
static int forget_old(struct store_tx *tx, const struct change *v, struct err *e)
{
	return store_exec(tx,
		"DELETE FROM api_keys WHERE id IN (SELECT id FROM api_keys WHERE team_id = $1 AND "
		"revoked_us IS NOT NULL AND created_by IS NOT NULL ORDER BY revoked_us DESC "
		"LIMIT 100 OFFSET $2)",
		STORE_PARAMS(P_TEXT(v->team_id), P_INT(v->most)), e);
}

static int mark_revoked(struct store_tx *tx, void *arg, struct err *e)
{
	struct change *v = arg;
	int64_t now_us = time_wall_us(), left = 0;
	int r = store_exec(tx,
		"UPDATE api_keys SET revoked_us = $1 WHERE id = $2 AND team_id = $3 AND revoked_us "
		"IS NULL",
		STORE_PARAMS(P_INT(now_us), P_TEXT(v->id), P_TEXT(v->team_id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "API key '%s' not found", v->id);
	if (r > 0) /* of those that may do everything: with the last the team would be locked out */
		r = store_query(tx,
			"SELECT COUNT(*) FROM api_keys WHERE team_id = $1 AND revoked_us IS NULL "
			"AND "
			"agent_id IS NULL AND scopes = '' AND (expires_us IS NULL OR expires_us > "
			"$2)",
			STORE_PARAMS(P_TEXT(v->team_id), P_INT(now_us)), count_row, &left, e);
	if (r >= 0 && left == 0 && v->is_full)
		return err_set(e, -EBUSY, "this is the team's last key: create another one first");
	if (r >= 0)
		r = forget_old(tx, v, e);
	return r < 0 ? r : tell_change(tx, v, "key.revoked", e);
}

static void key_revoked(void *arg, int r, const struct err *e)
{
	struct change *v = arg;
	struct entry *entry = r >= 0 ? book_find(v->book, v->team_id, str_of(v->id)) : NULL;

	if (entry)
		book_remove(v->book, entry);
	v->done(v->arg, MIN(r, 0), e); /* first: a key may have revoked itself */
	if (entry)
		entry_end(entry);
	free(v);
}

void access_revoke_key(struct access_book *book, const char *team_id, struct str id,
	const char *actor, done_fn done, void *arg)
{
	struct change *v = change_new(book, team_id, id, actor);

	v->done = done;
	v->arg = arg;
	store_run_for(book->store, v->team_id, mark_revoked, key_revoked, v);
}

static int rename_row(struct store_tx *tx, void *arg, struct err *e)
{
	struct change *v = arg;
	int r = store_exec(tx,
		"UPDATE api_keys SET name = $1 WHERE id = $2 AND team_id = $3 AND revoked_us IS "
		"NULL",
		STORE_PARAMS(P_TEXT(v->name), P_TEXT(v->id), P_TEXT(v->team_id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "API key '%s' not found", v->id);
	return r < 0 ? r : tell_change(tx, v, "key.renamed", e);
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
	store_run_for(book->store, v->team_id, rename_row, key_renamed, v);
}
