#include "warden/firewall.h"
#include "warden/egress.h"
#include "warden/nflog.h"
#include "warden/nft.h"

#define SHARED "atoll"
#define PREFIX SHARED "_"

enum {
	KEYS_AT_ONCE = 256, /* a turn's: some 0.3 ms */
	KEYS_LAID_NOW = 64, /* without waiting for a turn: the loop serves many requests in one */
	TIMES = 1 << (FIREWALL_ID_NUMBER - FIREWALL_ID_TIME),
};

int firewall_open(struct firewall *fw, const char *instance, struct err *e)
{
	int r = nft_open(&fw->nft_fd, e);

	if (r >= 0)
		r = egress_open(fw->socket_fds, fw->ports, e);
	if (r < 0)
		return r;
	(void)snprintf(fw->table, sizeof fw->table, PREFIX "%s", instance);
	list_init(&fw->jobs);
	/* Not where another began: what may have been left of it is never met. */
	for (int i = 0; i <= NET_MAX_NUMBER; i++)
		fw->places[i].time = (uint32_t)time_now_us() % TIMES;
	/* To be told of what was refused is good to have, no more. */
	if (nflog_open(instance, &fw->log_fd, &fw->log_group, e) < 0)
		log_info("nflog.missing", "err=%s", log_quote(str_of(e->msg)));
	fw->enabled = true;
	return 0;
}

void firewall_close(struct firewall *fw)
{
	if (fw->enabled)
		firewall_begin(fw);
	free(TAKE(fw->found));
	close_fdp(&fw->nft_fd);
	close_fdp(&fw->log_fd);
	for (int i = 0; i < WARDEN_EGRESS_FDS; i++)
		close_fdp(&fw->socket_fds[i]);
	*fw = (struct firewall)FIREWALL_INIT;
}

static void remove_table(int nft_fd, const char *name)
{
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(name, 0);

	nft_remove_table(nft);
	(void)nft_commit(nft_fd, nft);
}

void firewall_remove(struct firewall *fw)
{
	if (fw->enabled)
		remove_table(fw->nft_fd, fw->table);
}

enum {
	TABLES_AT_ONCE = 64,
};

struct found {
	char names[TABLES_AT_ONCE][sizeof((struct firewall *)0)->table];
	int n;
};

static void find_ours(void *arg, const char *name)
{
	struct found *found = arg;

	if (str_has_prefix(str_of(name), STR(PREFIX)) && found->n < TABLES_AT_ONCE &&
		strlen(name) < sizeof found->names[0])
		(void)snprintf(found->names[found->n++], sizeof found->names[0], "%s", name);
}

void firewall_remove_all(struct firewall *fw)
{
	struct found found = { 0 };

	if (!fw->enabled || nft_each_table(fw->nft_fd, find_ours, &found) < 0)
		return;
	for (int i = 0; i < found.n; i++)
		remove_table(fw->nft_fd, found.names[i]);
}

static void find_one(void *arg, const char *name)
{
	const char **wanted = arg;

	if (*wanted && strcmp(name, *wanted) == 0)
		*wanted = NULL;
}

bool firewall_stands(const struct firewall *fw)
{
	const char *names[] = { fw->table, SHARED };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (nft_each_table(fw->nft_fd, find_one, &names[i]) < 0 || names[i])
			return false;
	return true;
}

/* ---- one sandbox ---- */

/* Keys that are laid or removed, a piece a turn. */
struct job {
	struct list node;
	int number;
	bool is_removal, is_proxied;
	uint32_t id, at;
	struct laid *laid; /* NULL: no keys */
};

static struct laid *laid_new(uint32_t id, const struct reach *reach)
{
	struct laid *laid;

	if (reach->n == 0)
		return NULL;
	laid = (struct laid *)XNEW_N(uint8_t, sizeof *laid + reach->n * sizeof *laid->keys);
	laid->id = id;
	laid->n = reach->n;
	memcpy(laid->keys, reach->keys, reach->n * sizeof *laid->keys);
	return laid;
}

static uint32_t keys_of(const struct laid *laid)
{
	return laid ? laid->n : 0;
}

static uint32_t next_id(struct firewall *fw, int number, uint32_t kind)
{
	struct place *place = &fw->places[number];

	place->time = (place->time + 1) % TIMES;
	return (uint32_t)number << FIREWALL_ID_NUMBER | place->time << FIREWALL_ID_TIME | kind;
}

static void ranges_name(int number, char ret[16])
{
	(void)snprintf(ret, 16, "ranges%d", number % FIREWALL_SHARDS);
}

/* From `at`. Returns how many. */
static uint32_t remove_piece(struct nft_batch *nft, const struct laid *laid, int number,
	uint32_t at, uint32_t most)
{
	uint32_t n = laid ? MIN(laid->n - at, most) : 0;
	char set[16];

	ranges_name(number, set);
	if (n)
		nft_remove_keys(nft, set, laid->id, laid->keys + at, n);
	return n;
}

static struct job *job_new(struct firewall *fw, int number, struct laid *take_laid, uint32_t at)
{
	struct job *job = XNEW(struct job);

	job->number = number;
	job->laid = take_laid;
	job->at = at;
	list_append(&fw->jobs, &job->node);
	return job;
}

static void job_free(struct job *job)
{
	list_remove(&job->node);
	free(job->laid);
	free(job);
}

/* The keys from `at` on, in the turns that follow. */
static void remove_later(struct firewall *fw, int number, struct laid *take_laid, uint32_t at)
{
	if (at < keys_of(take_laid))
		job_new(fw, number, take_laid, at)->is_removal = true;
	else
		free(take_laid);
}

/* What was begun for it is taken back. */
static void stop_laying(struct firewall *fw, int number)
{
	LIST_EACH(&fw->jobs, node)
	{
		struct job *job = container_of(node, struct job, node);

		if (job->number != number || job->is_removal)
			continue;
		if (job->laid)
			job->laid->n = job->at;
		remove_later(fw, number, TAKE(job->laid), 0);
		job_free(job);
	}
}

/* What decides for it from now on: the keys that are laid already, and those from `at`. */
static int point(struct firewall *fw, const struct job *job, struct err *e)
{
	struct place *place = &fw->places[job->number];
	uint32_t n = keys_of(job->laid) - job->at, removed;
	CLEANUP(nft_freep)
	struct nft_batch *nft = nft_begin(fw->table, n + KEYS_AT_ONCE);
	char set[16];
	int r;

	ranges_name(job->number, set);
	if (n)
		nft_add_keys(nft, set, job->id, job->laid->keys + job->at, n);
	if (place->id)
		nft_remove_member(nft, "reach", place->index);
	nft_add_value(nft, "reach", place->index, job->id);
	if (place->is_proxied && !job->is_proxied)
		nft_remove_member(nft, "proxied", place->index);
	if (job->is_proxied && !place->is_proxied)
		nft_add_member(nft, "proxied", place->index);
	removed = remove_piece(nft, place->laid, job->number, 0, KEYS_LAID_NOW);
	r = nft_commit(fw->nft_fd, nft);
	if (r < 0)
		return err_sys(e, r, "change the firewall for atoll%d", job->number);
	remove_later(fw, job->number, TAKE(place->laid), removed);
	place->id = job->id;
	place->is_proxied = job->is_proxied;
	return 0;
}

int firewall_enter(struct firewall *fw, int number, uint32_t index, struct err *e)
{
	CLEANUP(nft_freep) struct nft_batch *nft = NULL;
	struct place *place = &fw->places[number];
	uint32_t id;
	int r;

	if (!fw->enabled)
		return 0;
	firewall_leave(fw, number);
	id = next_id(fw, number, REACH_PASS);
	nft = nft_begin(fw->table, 0);
	nft_add_member(nft, "mine", index);
	nft_add_member(nft, "denied", index);
	nft_add_value(nft, "reach", index, id);
	r = nft_commit(fw->nft_fd, nft);
	if (r < 0)
		return err_sys(e, r, "let atoll%d through the firewall", number);
	place->index = index;
	place->id = id;
	return 0;
}

int firewall_set(struct firewall *fw, int number, const struct reach *reach, struct err *e)
{
	struct place *place = &fw->places[number];
	struct job *job;
	int r;

	if (!fw->enabled)
		return 0;
	if (place->index == 0)
		return err_set(e, -ENOENT, "the firewall does not know atoll%d", number);
	stop_laying(fw, number);
	job = job_new(fw, number, NULL, 0);
	job->id = next_id(fw, number, reach->kind);
	job->is_proxied = reach->is_proxied;
	job->laid = laid_new(job->id, reach);
	if (reach->n > KEYS_LAID_NOW)
		return 1;
	r = point(fw, job, e);
	if (r >= 0)
		place->laid = TAKE(job->laid);
	job_free(job);
	return r;
}

static int lay_piece(struct firewall *fw, struct job *job, struct err *e)
{
	uint32_t n = keys_of(job->laid) - job->at;
	CLEANUP(nft_freep) struct nft_batch *nft = NULL;
	int r, number = job->number;
	char set[16];

	if (n <= KEYS_AT_ONCE) {
		r = point(fw, job, e);
		if (r < 0)
			return r;
		fw->places[number].laid = TAKE(job->laid);
		job_free(job);
		if (fw->laid)
			fw->laid(fw->laid_arg, number);
		return 0;
	}
	ranges_name(number, set);
	nft = nft_begin(fw->table, KEYS_AT_ONCE);
	nft_add_keys(nft, set, job->id, job->laid->keys + job->at, KEYS_AT_ONCE);
	job->at += KEYS_AT_ONCE;
	r = nft_commit(fw->nft_fd, nft);
	CRASH_POINT("warden.policy.piece");
	return r < 0 ? err_sys(e, r, "lay ranges for atoll%d", number) : 0;
}

static int take_piece(struct firewall *fw, struct job *job, struct err *e)
{
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(fw->table, KEYS_AT_ONCE);
	int r, number = job->number;

	job->at += remove_piece(nft, job->laid, number, job->at, KEYS_AT_ONCE);
	if (job->at == keys_of(job->laid))
		job_free(job);
	r = nft_commit(fw->nft_fd, nft);
	return r < 0 ? err_sys(e, r, "remove ranges of atoll%d", number) : 0;
}

bool firewall_is_laying(const struct firewall *fw, int number)
{
	if (!fw->enabled)
		return false;
	LIST_EACH(&fw->jobs, node)
	{
		const struct job *job = container_of(node, struct job, node);

		if (job->number == number && !job->is_removal)
			return true;
	}
	return false;
}

int firewall_turn(struct firewall *fw, struct err *e)
{
	struct job *job;
	int r;

	if (!fw->enabled || list_empty(&fw->jobs))
		return 0;
	job = container_of(fw->jobs.next, struct job, node);
	r = job->is_removal ? take_piece(fw, job, e) : lay_piece(fw, job, e);
	return r < 0 ? r : !list_empty(&fw->jobs);
}

/* What cannot be removed is of an interface that is gone: it is in nobody's way. */
void firewall_leave(struct firewall *fw, int number)
{
	struct place *place = &fw->places[number];
	CLEANUP(nft_freep) struct nft_batch *nft = NULL;
	uint32_t removed;
	int r;

	if (!fw->enabled || place->index == 0)
		return;
	stop_laying(fw, number);
	nft = nft_begin(fw->table, KEYS_AT_ONCE);
	if (place->id)
		nft_remove_member(nft, "reach", place->index);
	if (place->is_proxied)
		nft_remove_member(nft, "proxied", place->index);
	nft_remove_member(nft, "mine", place->index);
	nft_remove_member(nft, "denied", place->index);
	removed = remove_piece(nft, place->laid, number, 0, KEYS_LAID_NOW);
	r = nft_commit(fw->nft_fd, nft);
	if (r < 0)
		log_debug("firewall.leave", "number=%d errno=%d", number, -r);
	remove_later(fw, number, TAKE(place->laid), r < 0 ? UINT32_MAX : removed);
	*place = (struct place){ .time = place->time };
}

void firewall_begin(struct firewall *fw)
{
	LIST_EACH(&fw->jobs, node)
	job_free(container_of(node, struct job, node));
	for (int i = 0; i <= NET_MAX_NUMBER; i++) {
		free(fw->places[i].laid);
		fw->places[i] = (struct place){ .time = fw->places[i].time };
	}
	free(TAKE(fw->found));
}

bool firewall_expects(const struct firewall *fw, int number)
{
	return fw->places[number].index > 0;
}

void firewall_expect(struct firewall *fw, int number, uint32_t index)
{
	fw->places[number].index = index;
}

bool firewall_keep(struct firewall *fw, int number, const struct reach *reach)
{
	struct place *place = &fw->places[number];

	if (!fw->found || !firewall_is_found(fw, number, reach))
		return false;
	place->laid = laid_new(place->id, reach);
	return true;
}

int firewall_number_of(const struct firewall *fw, uint32_t index)
{
	for (int i = 1; index > 0 && i <= NET_MAX_NUMBER; i++)
		if (fw->places[i].index == index)
			return i;
	return 0;
}

struct counts {
	const struct firewall *fw;
	firewall_denied_fn fn;
	void *arg;
};

static void on_count(void *arg, const struct nft_member *member)
{
	struct counts *c = arg;
	int number = member->packets ? firewall_number_of(c->fw, member->index) : 0;

	if (number)
		c->fn(c->arg, number, member->packets);
}

int firewall_each_denied(struct firewall *fw, firewall_denied_fn fn, void *arg, struct err *e)
{
	struct counts c = { fw, fn, arg };
	int r = fw->enabled ? nft_each_member(fw->nft_fd, fw->table, "denied", on_count, &c) : 0;

	return r < 0 ? err_sys(e, r, "read the firewall's counters") : 0;
}
