/* The book: what the tables hold, in memory, and the check that every request makes. */
#include "access/access-internal.h"

/* Keys made for an hour each would fill the book and its listing: so long after their end they are
 * forgotten. Their rows stay, as those of revoked ones do. */
#define EXPIRED_KEPT_US (30 * 24 * 3600 * INT64_C(1000000))

enum {
	LOOK_MS = 5000, /* keys end by the wall clock, which can be set: so often it is looked at */
};

/* Lower-case hex only, exactly as issued: one key has one spelling. */
int key_hash(struct str key, char hash[HASH_SIZE])
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

void book_add(struct access_book *book, const struct access_key *key, const char *hash)
{
	struct entry *entry = XNEW(struct entry);

	entry->key = *key;
	list_init(&entry->holders);
	(void)snprintf(entry->hash, sizeof entry->hash, "%s", hash);
	list_append(&book->entries, &entry->node);
	(void)map_put(&book->by_hash, str_of(entry->hash), entry);
}

void book_remove(struct access_book *book, struct entry *entry)
{
	(void)map_remove(&book->by_hash, str_of(entry->hash));
	list_remove(&entry->node);
}

void entry_end(struct entry *entry)
{
	notice_tell(&entry->holders);
	free(entry);
}

struct entry *book_find(const struct access_book *book, const char *team_id, struct str id)
{
	LIST_EACH(&book->entries, node)
	{
		struct entry *entry = container_of(node, struct entry, node);

		if (str_is(id, entry->key.id) && strcmp(entry->key.team_id, team_id) == 0)
			return entry;
	}
	return NULL;
}

/* ---- loading ---- */

static int load_key(void *arg, const struct store_row *row, struct err *e)
{
	struct access_key key = { .created_us = store_int(row, 6),
		.last_used_us = store_int(row, 8),
		.expires_us = store_int(row, 11) };
	char hash[HASH_SIZE];

	(void)e;
	store_copy_text(row, 0, key.id, sizeof key.id);
	store_copy_text(row, 1, key.team_id, sizeof key.team_id);
	store_copy_text(row, 2, key.name, sizeof key.name);
	store_copy_text(row, 3, hash, sizeof hash);
	store_copy_text(row, 4, key.mask_start, sizeof key.mask_start);
	store_copy_text(row, 5, key.mask_end, sizeof key.mask_end);
	store_copy_text(row, 7, key.created_by, sizeof key.created_by);
	store_copy_text(row, 9, key.agent_id, sizeof key.agent_id);
	key.scopes = access_scopes_read(store_text(row, 10), key.agent_id[0]);
	store_copy_text(row, 12, key.replaced_by, sizeof key.replaced_by);
	book_add(arg, &key, hash);
	return 0;
}

static struct team *add_team(struct access_book *book)
{
	struct team *team = XNEW(struct team);

	list_append(&book->teams, &team->node);
	return team;
}

static int load_team(void *arg, const struct store_row *row, struct err *e)
{
	struct team *team = add_team(arg);

	(void)e;
	store_copy_text(row, 0, team->view.id, sizeof team->view.id);
	store_copy_text(row, 1, team->view.name, sizeof team->view.name);
	limit_ceilings_parse(store_text(row, 2), &team->view.ceilings);
	(void)limit_quota_parse(store_text(row, 3), &team->view.quota, NULL);
	team_read_env(team, store_text(row, 4));
	(void)limit_activity_parse(store_text(row, 5), &team->view.activity, NULL);
	return 0;
}

static int make_first_team(struct store_tx *tx, struct access_book *book, struct err *e)
{
	struct team *team = add_team(book);

	uuid_make(team->view.id);
	(void)snprintf(team->view.name, sizeof team->view.name, "default");
	return store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
		STORE_PARAMS(P_TEXT(team->view.id), P_TEXT(team->view.name), P_INT(time_wall_us())),
		e);
}

static int load_book(struct store_tx *tx, void *arg, struct err *e)
{
	struct access_book *book = arg;
	int r = store_query(tx,
		"SELECT id, name, limits, quota, environment, activity FROM teams "
		"ORDER BY created_us, id",
		NULL, 0, load_team, book, e);

	if (r >= 0 && list_empty(&book->teams))
		r = make_first_team(tx, book, e);
	if (r < 0)
		return r;
	return store_query(tx,
		"SELECT id, team_id, name, hash, mask_start, mask_end, created_us, created_by, "
		"last_used_us, agent_id, scopes, expires_us, replaced_by FROM api_keys "
		"WHERE revoked_us IS NULL AND (expires_us IS NULL OR expires_us > $1) "
		"ORDER BY created_us, id",
		STORE_PARAMS(P_INT(time_wall_us() - EXPIRED_KEPT_US)), load_key, book, e);
}

int access_book_new(struct store *store, struct access_book **ret, struct err *e)
{
	CLEANUP(access_book_freep) struct access_book *book = XNEW(struct access_book);
	int r;

	book->store = store;
	list_init(&book->entries);
	list_init(&book->teams);
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
	loop_timer_cancel(&book->timer);
	loop_timer_cancel(&book->ends);
	LIST_EACH(&book->entries, node)
	{
		struct entry *entry = container_of(node, struct entry, node);

		notice_forget(&entry->holders);
		free(entry);
	}
	LIST_EACH(&book->teams, node)
	{
		struct team *team = container_of(node, struct team, node);

		(void)arena_free(team->env_arena);
		free(team);
	}
	map_done(&book->by_hash);
	free(book);
	return NULL;
}

/* ---- when a key was used ---- */

struct uses { /* a copy for the job */
	struct use {
		char id[ACCESS_ID_SIZE];
		int64_t at_us;
	} * v;
	size_t n;
};

static int write_uses(struct store_tx *tx, void *arg, struct err *e)
{
	const struct uses *uses = arg;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < uses->n; i++)
		r = store_exec(tx, "UPDATE api_keys SET last_used_us = $1 WHERE id = $2",
			STORE_PARAMS(P_INT(uses->v[i].at_us), P_TEXT(uses->v[i].id)), e);
	return r;
}

static void uses_written(void *arg, int r, const struct err *e)
{
	struct uses *uses = arg;

	if (r < 0)
		log_debug("access.use_not_written", "err=%s", log_quote(str_of(e->msg)));
	free(uses->v);
	free(uses);
}

static void forget_expired(struct access_book *book)
{
	int64_t before_us = time_wall_us() - EXPIRED_KEPT_US;

	LIST_EACH(&book->entries, node)
	{
		struct entry *entry = container_of(node, struct entry, node);

		if (entry->key.expires_us && entry->key.expires_us < before_us) {
			book_remove(book, entry);
			entry_end(entry);
		}
	}
}

static void on_use_timer(void *arg)
{
	struct access_book *book = arg;
	struct uses *uses = XNEW(struct uses);

	forget_expired(book);
	uses->v = XNEW_N(struct use, book->by_hash.n + 1);
	LIST_EACH(&book->entries, node)
	{
		struct entry *entry = container_of(node, struct entry, node);
		struct use *use = &uses->v[uses->n];

		if (!entry->used)
			continue;
		entry->used = false;
		memcpy(use->id, entry->key.id, sizeof use->id);
		use->at_us = entry->key.last_used_us;
		uses->n++;
	}
	store_run(book->store, write_uses, uses_written, uses);
}

/* ---- those who hold a key ---- */

static bool is_over(const struct entry *entry)
{
	return entry->key.expires_us && entry->key.expires_us <= time_wall_us();
}

void book_watch_end(struct access_book *book, const struct entry *entry)
{
	int64_t left_ms = (entry->key.expires_us - time_wall_us()) / 1000 + 1, at_ms;

	if (!book->loop || !entry->key.expires_us || list_empty(&entry->holders))
		return;
	at_ms = loop_now_ms(book->loop) + MIN(MAX(left_ms, 0), LOOK_MS);
	if (!loop_timer_is_set(&book->ends) || book->ends.at_ms > at_ms)
		loop_timer_set(&book->ends, at_ms);
}

static void on_end_timer(void *arg)
{
	struct access_book *book = arg;

	LIST_EACH(&book->entries, node)
	{
		struct entry *entry = container_of(node, struct entry, node);

		if (is_over(entry))
			notice_tell(&entry->holders);
		else
			book_watch_end(book, entry);
	}
}

void access_hold(struct access_book *book, const struct access_key *key, struct notice *n,
	loop_fn fn, void *arg)
{
	/* The caller may only read the key; who holds it is the book's own business. */
	const struct entry *shown = (const struct entry *)(const void *)key;
	struct entry *entry = map_get(&book->by_hash, str_of(shown->hash));

	static_assert(offsetof(struct entry, key) == 0, "a key is the start of its entry");
	notice_want(&entry->holders, n, fn, arg);
	book_watch_end(book, entry);
}

void access_keep_use(struct access_book *book, struct loop *loop, int64_t after_ms)
{
	book->loop = loop;
	book->use_after_ms = after_ms;
	loop_timer_init(&book->timer, loop, on_use_timer, book);
	loop_timer_init(&book->ends, loop, on_end_timer, book);
}

static void mark_used(struct access_book *book, struct entry *entry)
{
	entry->key.last_used_us = time_wall_us();
	entry->used = true;
	if (book->loop && !loop_timer_is_set(&book->timer))
		loop_timer_set(&book->timer, loop_now_ms(book->loop) + book->use_after_ms);
}

static struct entry *find_text(const struct access_book *book, struct str key)
{
	char hash[HASH_SIZE];

	/* Looking up a digest tells an attacker nothing about the key, however long it takes. */
	return key_hash(key, hash) < 0 ? NULL : map_get(&book->by_hash, str_of(hash));
}

const struct access_key *access_check(struct access_book *book, struct str key)
{
	struct entry *entry = find_text(book, key);

	if (!entry || is_over(entry))
		return NULL;
	mark_used(book, entry);
	return &entry->key;
}

bool access_is_key(const struct access_book *book, struct str text)
{
	return find_text(book, text);
}

bool access_is_expired(const struct access_book *book, struct str key)
{
	const struct entry *entry = find_text(book, key);

	return entry && is_over(entry);
}

const struct access_key *access_find_key(const struct access_book *book, const char *team_id,
	struct str id)
{
	const struct entry *entry = book_find(book, team_id, id);

	return entry ? &entry->key : NULL;
}

/* ---- reading ---- */

const char *access_first_team(const struct access_book *book)
{
	return container_of(book->teams.next, struct team, node)->view.id;
}

const struct access_team *access_team(const struct access_book *book, struct str id)
{
	for (struct list *node = book->teams.next; node != &book->teams; node = node->next) {
		struct team *team = container_of(node, struct team, node);

		if (str_is(id, team->view.id))
			return &team->view;
	}
	return NULL;
}

void access_each_team(const struct access_book *book,
	void (*fn)(void *arg, const struct access_team *team), void *arg)
{
	for (struct list *node = book->teams.next; node != &book->teams; node = node->next)
		fn(arg, &container_of(node, struct team, node)->view);
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
