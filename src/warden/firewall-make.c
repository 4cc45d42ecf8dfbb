/* A whole table: made, known again after a restart, and compared with what it should be. */
#include "warden/firewall.h"
#include "warden/nft.h"
#include "warden/run.h"

/* An empty chain, whose name tells what the table was made from and what the kernel then had: who
 * finds the same may take it over. */
#define SEAL "sealed_"

enum {
	TEXT_BYTES = 1 << 20,
	RULES_BYTES = 1 << 19, /* twice what it is */
	MEMBER_BYTES = 128,    /* of a message about one */
	MAX_STALE = 1 << 20,   /* keys that are nobody's, of one set */
	STALE_AT_ONCE = 1024,
	COUNTS = 3,
};

/* Not what changes with the sandboxes and their packets. */
static bool is_fixed(const char *set)
{
	static const char *const changing[] = { "mine", "denied", "proxied", "told", "asking",
		"opened", "reach" };

	for (size_t i = 0; i < ARRAY_SIZE(changing); i++)
		if (strcmp(set, changing[i]) == 0)
			return false;
	return !str_has_prefix(str_of(set), STR("ranges"));
}

/* What the seal says, and what it should. */
static int describe(const struct firewall *fw, char ret_sealed[NFT_SEAL_SIZE],
	char ret[NFT_SEAL_SIZE])
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TEXT_BYTES);
	uint8_t digest[SHA256_SIZE];
	int r = nft_digest(fw->nft_fd, fw->table, is_fixed, SEAL, digest, ret_sealed);

	firewall_text(fw, false, &text);
	(void)buf_add(&text, digest, sizeof digest);
	if (r < 0 || text.failed)
		return r < 0 ? r : -ENOBUFS;
	sha256(text.p, text.n, digest);
	hex_encode(digest, sizeof digest, ret);
	return 0;
}

/* Without it the next warden makes the table anew. */
static void seal(struct firewall *fw)
{
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(fw->table, 0);
	char sealed[NFT_SEAL_SIZE], now[NFT_SEAL_SIZE], name[sizeof SEAL + NFT_SEAL_SIZE];
	int r = describe(fw, sealed, now);

	if (r >= 0) {
		(void)snprintf(name, sizeof name, SEAL "%s", now);
		nft_add_chain(nft, name);
		r = nft_commit(fw->nft_fd, nft);
	}
	if (r < 0)
		log_warn("firewall.not_sealed", "errno=%d", -r);
}

/* ---- making ---- */

static void decide(struct nft_batch *nft, const char *kind, int shard, unsigned step)
{
	char chain[24], denied[24], set[16];

	(void)snprintf(chain, sizeof chain, "%s%d", kind, shard);
	(void)snprintf(denied, sizeof denied, "%s%d_denied", kind, shard);
	(void)snprintf(set, sizeof set, "ranges%d", shard);
	nft_add_none_of(nft, chain, "reach", set, REACH_ALLOW, step, denied);
	nft_add_goto(nft, chain, "pass");
	nft_add_none_of(nft, denied, "reach", set, REACH_WHOLE, step, "pass");
	nft_add_goto(nft, denied, "refuse");
}

/* Until these are there, nothing is let out. */
static int add_rules(struct firewall *fw)
{
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin_bytes(fw->table, RULES_BYTES);
	uint32_t shards = (FIREWALL_SHARDS - 1) << FIREWALL_ID_NUMBER;

	for (int i = 0; i < FIREWALL_SHARDS; i++) {
		decide(nft, "few", i, 8);
		decide(nft, "any", i, 1);
	}
	nft_add_choice(nft, "through", "reach", shards | (REACH_KINDS - 1), "branches");
	return nft_commit(fw->nft_fd, nft);
}

int firewall_make(struct firewall *fw, struct err *e)
{
	static const char *const argv[] = { "nft", "-f", "-", NULL };
	CLEANUP(buf_done) struct buf text = BUF_INIT(TEXT_BYTES);
	int r;

	firewall_text(fw, true, &text);
	r = text.failed ? err_set(e, -ENOBUFS, "too many rules")
			: run_program(argv, buf_str(&text), AT_FDCWD, e);
	if (r < 0)
		return err_wrap(e, r, "firewall of this server");
	r = add_rules(fw);
	if (r < 0)
		return err_sys(e, r, "rules of this server's firewall");
	fw->is_built = true;
	seal(fw);
	return 0;
}

/* ---- taking over ---- */

static bool is_as_left(const struct firewall *fw)
{
	char sealed[NFT_SEAL_SIZE], now[NFT_SEAL_SIZE];

	return describe(fw, sealed, now) >= 0 && strcmp(sealed, now) == 0;
}

struct look {
	struct firewall *fw;
	enum look_at {
		LOOK_MINE,
		LOOK_DENIED,
		LOOK_PROXIED,
		LOOK_REACH
	} at;
	struct nft_batch *nft; /* what puts it right */
};

static const char *const looked_at[] = { [LOOK_MINE] = "mine",
	[LOOK_DENIED] = "denied",
	[LOOK_PROXIED] = "proxied",
	[LOOK_REACH] = "reach" };

static bool note(struct finding *f, const struct look *look, int number, uint32_t value)
{
	switch (look->at) {
	case LOOK_MINE:
		f->is_member = true;
		return true;
	case LOOK_DENIED:
		f->is_counted = true;
		return true;
	case LOOK_PROXIED:
		f->is_proxied = true;
		return true;
	case LOOK_REACH:
		break;
	}
	if (value >> FIREWALL_ID_NUMBER != (uint32_t)number || value & REACH_FLAGS)
		return false;
	f->id = value;
	return true;
}

static bool has_room(const struct nft_batch *nft)
{
	return nft->b.size - nft->b.n > 2 * MEMBER_BYTES;
}

static void on_member(void *arg, const struct nft_member *member)
{
	struct look *look = arg;
	int number = firewall_number_of(look->fw, member->index);

	if (number && note(&look->fw->found[number], look, number, member->value))
		return;
	if (has_room(look->nft))
		nft_remove_member(look->nft, looked_at[look->at], member->index);
}

/* Everybody is in the sets that all are in, and nobody else is in any. */
static int take_members(struct firewall *fw)
{
	CLEANUP(nft_freep)
	struct nft_batch *nft =
		nft_begin_bytes(fw->table, (size_t)(NET_MAX_NUMBER * 4) * MEMBER_BYTES);
	struct look look = { .fw = fw, .nft = nft };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(looked_at); i++) {
		look.at = (enum look_at)i;
		r = nft_each_member(fw->nft_fd, fw->table, looked_at[i], on_member, &look);
	}
	for (int i = 1; r >= 0 && i <= NET_MAX_NUMBER; i++) {
		const struct finding *f = &fw->found[i];
		uint32_t index = fw->places[i].index;

		if (index && !f->is_member && has_room(nft))
			nft_add_member(nft, "mine", index);
		if (index && !f->is_counted && has_room(nft))
			nft_add_member(nft, "denied", index);
	}
	if (r >= 0 && !has_room(nft))
		r = -ENOBUFS;
	return r < 0 ? r : nft_commit(fw->nft_fd, nft);
}

/* Spreads the bits of a key, so that keys can be compared by their sum, in any order. */
static uint64_t mixed(uint32_t flags, uint32_t address)
{
	uint64_t x = ((uint64_t)flags << 32 | address) + UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

struct keys_look {
	struct firewall *fw;
	int wanted;     /* only this number's; 0: all */
	bool is_forget; /* they are stale whatever their id */
	struct buf stale;
};

static void on_key(void *arg, uint32_t id, uint32_t address)
{
	struct keys_look *look = arg;
	uint32_t number = id >> FIREWALL_ID_NUMBER, flags = id & REACH_FLAGS;
	struct finding *f = number <= NET_MAX_NUMBER ? &look->fw->found[number] : NULL;
	struct reach_key key = { .flags = id, .address = address };

	if (look->wanted && number != (uint32_t)look->wanted)
		return;
	if (look->is_forget || !f || f->id == 0 || f->id != (id ^ flags)) {
		(void)buf_add(&look->stale, &key, sizeof key);
		return;
	}
	f->n++;
	f->sum += mixed(flags, address);
}

static int remove_stale(struct firewall *fw, const char *set, const struct buf *stale)
{
	uint32_t n = (uint32_t)(stale->n / sizeof(struct reach_key));
	cleanup_free struct reach_key *keys = XNEW_N(struct reach_key, n + 1);
	int r = stale->failed ? -ENOBUFS : 0;

	if (n)
		memcpy(keys, stale->p, n * sizeof *keys);
	for (uint32_t at = 0; r >= 0 && at < n; at += STALE_AT_ONCE) {
		CLEANUP(nft_freep)
		struct nft_batch *nft = nft_begin(fw->table, STALE_AT_ONCE);

		nft_remove_keys(nft, set, 0, keys + at, MIN(n - at, STALE_AT_ONCE));
		r = nft_commit(fw->nft_fd, nft);
	}
	return r;
}

/* What a warden that died had begun to lay, or not quite removed; and whatever is not ours. */
static int look_at_keys(struct firewall *fw, int shard, int wanted, bool is_forget)
{
	struct keys_look look = { .fw = fw,
		.wanted = wanted,
		.is_forget = is_forget,
		.stale = BUF_INIT(MAX_STALE * sizeof(struct reach_key)) };
	char set[16];
	int r;

	(void)snprintf(set, sizeof set, "ranges%d", shard);
	r = nft_each_key(fw->nft_fd, fw->table, set, on_key, &look);
	if (r >= 0)
		r = remove_stale(fw, set, &look.stale);
	buf_done(&look.stale);
	return r;
}

int firewall_adopt(struct firewall *fw)
{
	int r;

	if (!is_as_left(fw))
		return 0;
	fw->found = XNEW_N(struct finding, NET_MAX_NUMBER + 1);
	r = take_members(fw);
	for (int i = 0; r >= 0 && i < FIREWALL_SHARDS; i++)
		r = look_at_keys(fw, i, 0, false);
	if (r < 0) {
		log_warn("firewall.not_adopted", "errno=%d", -r);
		free(TAKE(fw->found));
		return 0;
	}
	fw->is_built = true;
	return 1;
}

static bool matches(const struct finding *f, const struct reach *reach)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < reach->n; i++)
		sum += mixed(reach->keys[i].flags, reach->keys[i].address);
	return f->id && (f->id & (REACH_KINDS - 1)) == reach->kind && f->n == reach->n &&
	       f->sum == sum && f->is_proxied == reach->is_proxied;
}

/* The kernel may tell of a key twice or not at all while it makes the set larger, which it does at
 * some time after they were added. */
static bool matches_now(struct firewall *fw, int number, const struct reach *reach)
{
	struct finding *f = &fw->found[number];

	for (int i = 0; i < COUNTS && !matches(f, reach); i++) {
		f->n = 0;
		f->sum = 0;
		if (f->id == 0 || i == COUNTS - 1 ||
			look_at_keys(fw, number % FIREWALL_SHARDS, number, false) < 0)
			return false;
	}
	return true;
}

/* Keys that nobody knows go before others are laid; meanwhile it reaches nothing. */
static void forget(struct firewall *fw, int number)
{
	struct place *place = &fw->places[number];
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(fw->table, 0);

	nft_remove_member(nft, "reach", place->index);
	if (nft_commit(fw->nft_fd, nft) < 0)
		return; /* the next change is refused as well, and then all is made anew */
	place->id = 0;
	(void)look_at_keys(fw, number % FIREWALL_SHARDS, number, true);
}

bool firewall_is_found(struct firewall *fw, int number, const struct reach *reach)
{
	struct place *place = &fw->places[number];
	const struct finding *f = &fw->found[number];

	place->id = f->id;
	place->is_proxied = f->is_proxied;
	if (f->id)
		place->time = f->id >> FIREWALL_ID_TIME &
			      ((1 << (FIREWALL_ID_NUMBER - FIREWALL_ID_TIME)) - 1);
	if (matches_now(fw, number, reach))
		return true;
	log_info("firewall.differs", "number=%d", number);
	if (f->id)
		forget(fw, number);
	return false;
}
