#include "access/access.h"
#include "loop/loop.h"

struct entry { /* a live key */
	struct access_key key;
	char hash[2 * SHA256_SIZE + 1];
	struct list node; /* oldest first */
};

struct access_book {
	struct store *store;
	char team_id[ACCESS_ID_SIZE]; /* the first team: today's only one */
	struct map by_hash;
	struct list entries;
};

static void make_uuid(char out[ACCESS_ID_SIZE])
{
	uint8_t b[16];

	random_bytes(b, sizeof b);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	(void)snprintf(out, ACCESS_ID_SIZE,
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		b[15]);
}

void access_make_key(char key[ACCESS_KEY_SIZE])
{
	uint8_t bytes[20];

	random_bytes(bytes, sizeof bytes);
	memcpy(key, "e2b_", 4);
	hex_encode(bytes, sizeof bytes, key + 4);
}

/* Lower-case hex only, exactly as issued: one key has one spelling. */
static int hash_key(struct str key, char hash[2 * SHA256_SIZE + 1])
{
	uint8_t bytes[20], digest[SHA256_SIZE];

	if (key.n != ACCESS_KEY_SIZE - 1 || !str_has_prefix(key, STR("e2b_")))
		return -EINVAL;
	for (size_t i = 4; i < key.n; i++)
		if (key.p[i] >= 'A' && key.p[i] <= 'F')
			return -EINVAL;
	if (hex_decode(str_from(key, 4), bytes, sizeof bytes) < 0)
		return -EINVAL;
	sha256(bytes, sizeof bytes, digest);
	hex_encode(digest, sizeof digest, hash);
	return 0;
}

static void book_add(struct access_book *book, const struct access_key *key, const char *hash)
{
	struct entry *entry = XNEW(struct entry);

	entry->key = *key;
	(void)snprintf(entry->hash, sizeof entry->hash, "%s", hash);
	list_append(&book->entries, &entry->node);
	(void)map_put(&book->by_hash, str_of(entry->hash), entry);
}

static void copy_column(const struct store_row *row, int column, char *to, size_t size)
{
	(void)snprintf(to, size, "%.*s", STR_ARG(store_text(row, column)));
}

static int load_key(void *arg, const struct store_row *row, struct err *e)
{
	struct access_key key = { .created_us = store_int(row, 6) };
	char hash[2 * SHA256_SIZE + 1];

	(void)e;
	copy_column(row, 0, key.id, sizeof key.id);
	copy_column(row, 1, key.team_id, sizeof key.team_id);
	copy_column(row, 2, key.name, sizeof key.name);
	copy_column(row, 3, hash, sizeof hash);
	copy_column(row, 4, key.mask_start, sizeof key.mask_start);
	copy_column(row, 5, key.mask_end, sizeof key.mask_end);
	book_add(arg, &key, hash);
	return 0;
}

static int load_team(void *arg, const struct store_row *row, struct err *e)
{
	struct access_book *book = arg;

	(void)e;
	copy_column(row, 0, book->team_id, sizeof book->team_id);
	return 0;
}

static int load_book(struct store_tx *tx, void *arg, struct err *e)
{
	struct access_book *book = arg;
	int r = store_query(tx, "SELECT id FROM teams ORDER BY created_us LIMIT 1", NULL, 0,
		load_team, book, e);

	if (r >= 0 && !book->team_id[0]) {
		make_uuid(book->team_id);
		r = store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
			STORE_PARAMS(P_TEXT(book->team_id), P_TEXT("default"),
				P_INT(time_wall_us())),
			e);
	}
	if (r < 0)
		return r;
	return store_query(tx,
		"SELECT id, team_id, name, hash, mask_start, mask_end, created_us FROM api_keys "
		"WHERE revoked_us IS NULL ORDER BY created_us, id",
		NULL, 0, load_key, book, e);
}

int access_book_new(struct store *store, struct access_book **ret, struct err *e)
{
	CLEANUP(access_book_freep) struct access_book *book = XNEW(struct access_book);
	int r;

	book->store = store;
	list_init(&book->entries);
	r = store_run_now(store, load_book, book, e);
	if (r < 0)
		return err_wrap(e, r, "load API keys");
	*ret = TAKE(book);
	return 0;
}

struct access_book *access_book_free(struct access_book *book)
{
	if (!book)
		return NULL;
	LIST_EACH(&book->entries, node)
	free(container_of(node, struct entry, node));
	map_done(&book->by_hash);
	free(book);
	return NULL;
}

const struct access_key *access_check(const struct access_book *book, struct str key)
{
	char hash[2 * SHA256_SIZE + 1];
	struct entry *entry;

	/* Looking up a digest tells an attacker nothing about the key, however long it takes. */
	if (hash_key(key, hash) < 0)
		return NULL;
	entry = map_get(&book->by_hash, str_of(hash));
	return entry ? &entry->key : NULL;
}

const char *access_first_team(const struct access_book *book)
{
	return book->team_id;
}

struct creation {
	struct access_book *book;
	struct access_key key;
	char text[ACCESS_KEY_SIZE], hash[2 * SHA256_SIZE + 1], actor[ACCESS_ID_SIZE];
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
		"INSERT INTO api_keys (id, team_id, name, hash, mask_start, mask_end, created_us) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (hash) DO NOTHING",
		STORE_PARAMS(P_TEXT(c->key.id), P_TEXT(c->key.team_id), P_TEXT(c->key.name),
			P_TEXT(c->hash), P_TEXT(c->key.mask_start), P_TEXT(c->key.mask_end),
			P_INT(c->key.created_us)),
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
	make_uuid(c->key.id);
	(void)snprintf(c->key.team_id, sizeof c->key.team_id, "%s", team_id);
	(void)snprintf(c->key.name, sizeof c->key.name, "%.*s", STR_ARG(name));
	(void)snprintf(c->key.mask_start, sizeof c->key.mask_start, "%.2s", digits.p);
	(void)snprintf(c->key.mask_end, sizeof c->key.mask_end, "%.4s", digits.p + digits.n - 4);
	(void)snprintf(c->actor, sizeof c->actor, "%s", actor);
	c->key.created_us = time_wall_us();
	(void)hash_key(str_of(c->text), c->hash);
}

int access_ensure_key(struct access_book *book, const char *key, struct err *e)
{
	struct creation c = { 0 };
	int r;

	if (hash_key(str_of(key), c.hash) < 0)
		return err_set(e, -EINVAL,
			"E2B_API_KEY in the env file is not of the form e2b_ + 40 hex digits");
	(void)snprintf(c.text, sizeof c.text, "%s", key);
	fill_creation(&c, book, book->team_id, STR("first"), "system");
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

struct revocation {
	struct access_book *book;
	char id[ACCESS_ID_SIZE], team_id[ACCESS_ID_SIZE], actor[ACCESS_ID_SIZE];
	done_fn done;
	void *arg;
};

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int mark_revoked(struct store_tx *tx, void *arg, struct err *e)
{
	struct revocation *v = arg;
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
	struct revocation *v = arg;

	if (r >= 0)
		LIST_EACH(&v->book->entries, node)
		{
			struct entry *entry = container_of(node, struct entry, node);

			if (strcmp(entry->key.id, v->id) != 0)
				continue;
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
	struct revocation *v = XNEW(struct revocation);

	v->book = book;
	(void)snprintf(v->id, sizeof v->id, "%.*s", STR_ARG(id));
	(void)snprintf(v->team_id, sizeof v->team_id, "%s", team_id);
	(void)snprintf(v->actor, sizeof v->actor, "%s", actor);
	v->done = done;
	v->arg = arg;
	store_run(book->store, mark_revoked, key_revoked, v);
}

void access_each_key(const struct access_book *book, const char *team_id,
	void (*fn)(void *arg, const struct access_key *key), void *arg)
{
	for (struct list *node = book->entries.prev; node != &book->entries; node = node->prev) {
		struct entry *entry = container_of(node, struct entry, node);

		if (strcmp(entry->key.team_id, team_id) == 0)
			fn(arg, &entry->key);
	}
}
