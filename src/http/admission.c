#include "http/admission.h"

#include <netinet/in.h>

enum {
	RESERVE_PART = 64, /* of all slots, for operators; */
	RESERVE_LEAST = 4, /* not less than this, unless the server is very small */
};

static void holder_init(struct holder *h, struct str name)
{
	*h = (struct holder){ 0 };
	(void)snprintf(h->name, sizeof h->name, "%.*s", STR_ARG(name));
	list_init(&h->node);
	list_init(&h->idle);
	list_init(&h->unread);
}

void admission_init(struct admission *a, const struct http_limits *limits)
{
	*a = (struct admission){ .max = limits->max_connections,
		.max_holder = limits->max_holder_connections,
		.max_bytes = limits->max_queued_bytes,
		.tells_apart = limits->stranger_body_bytes > 0 };
	holder_init(&a->strangers, STR("strangers"));
	holder_init(&a->operators, STR("operators"));
	holder_init(&a->everybody, STR("everybody"));
	list_init(&a->teams);
	if (!a->tells_apart)
		return;
	a->reserve = MIN(MAX(a->max / RESERVE_PART, (size_t)RESERVE_LEAST), a->max / 4);
	a->addresses = XNEW_N(struct address, ADMISSION_ADDRESSES);
	random_bytes(a->hash_key, sizeof a->hash_key);
	for (size_t i = 0; i < ADMISSION_ADDRESSES; i++) {
		list_init(&a->addresses[i].node);
		list_init(&a->addresses[i].strangers);
	}
	for (size_t i = 0; i < ADMISSION_BUCKETS; i++)
		list_init(&a->buckets[i]);
}

/* With its last slot. */
static void team_free(struct admission *a, struct holder *team)
{
	(void)map_remove(&a->by_name, str_of(team->name));
	list_remove(&team->node);
	free(team);
}

void admission_done(struct admission *a)
{
	assert(a->n == 0);
	map_done(&a->by_name);
	free(a->addresses);
	a->addresses = NULL;
}

/* ---- strangers, by address ---- */

/* Multiply-shift with a secret key. */
static struct address *address_of(struct admission *a, const struct sockaddr_storage *peer)
{
	const struct sockaddr_in6 *in6 = (const void *)peer;
	const struct sockaddr_in *in4 = (const void *)peer;
	uint32_t part[2] = { 0 }; /* half of an IPv6 address, an IPv4 address and 0 */
	uint64_t hash;

	if (peer->ss_family == AF_INET)
		part[0] = in4->sin_addr.s_addr;
	else if (peer->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		memcpy(part, &in6->sin6_addr.s6_addr[12], sizeof part[0]);
	else if (peer->ss_family == AF_INET6)
		memcpy(part, &in6->sin6_addr, sizeof part);
	hash = a->hash_key[0] * part[0] + a->hash_key[1] * part[1] + a->hash_key[2];
	return &a->addresses[(hash >> 32) % ADMISSION_ADDRESSES];
}

/* Moves the address to where it belongs by its number of strangers. */
static void place_address(struct admission *a, struct address *address)
{
	size_t bucket = 0;

	list_remove(&address->node);
	if (address->n == 0)
		return;
	while (bucket + 1 < ADMISSION_BUCKETS && address->n >> (bucket + 1))
		bucket++;
	list_append(&a->buckets[bucket], &address->node);
}

static bool is_power_of_two(size_t n)
{
	return (n & (n - 1)) == 0;
}

static struct slot *slowest_stranger(struct admission *a)
{
	for (size_t i = ADMISSION_BUCKETS; a->strangers.n > 0 && i-- > 0;)
		if (!list_empty(&a->buckets[i]))
			return container_of(container_of(a->buckets[i].next, struct address, node)
						    ->strangers.next,
				struct slot, node);
	return NULL;
}

/* ---- holding and letting go ---- */

static bool is_team(const struct admission *a, const struct holder *h)
{
	return h != &a->strangers && h != &a->operators && h != &a->everybody;
}

static void release(struct slot *slot)
{
	struct admission *a = slot->admission;
	struct holder *h = slot->holder;

	list_remove(&slot->node);
	list_remove(&slot->unread);
	h->n--;
	h->n_idle -= slot->is_idle;
	h->bytes -= slot->bytes;
	if (h == &a->strangers) {
		slot->address->n--;
		if (slot->address->n == 0 || is_power_of_two(slot->address->n + 1))
			place_address(a, slot->address);
	}
	slot->holder = NULL;
	if (!is_team(a, h))
		return;
	a->n_teams--;
	if (h->n == 0 && !h->is_pinned)
		team_free(a, h);
}

static void unpin(struct admission *a, struct holder *h)
{
	h->is_pinned = false;
	if (h->n == 0 && is_team(a, h))
		team_free(a, h);
}

static void assign(struct slot *slot, struct holder *h)
{
	struct admission *a = slot->admission;

	slot->holder = h;
	slot->is_idle = false;
	h->n++;
	h->bytes += slot->bytes;
	a->n_teams += is_team(a, h);
	if (h != &a->strangers)
		return;
	list_append(&slot->address->strangers, &slot->node);
	if (is_power_of_two(++slot->address->n))
		place_address(a, slot->address);
}

void admission_set_idle(struct slot *slot)
{
	struct holder *h = slot->holder;

	if (!h)
		return;
	list_remove(&slot->node);
	if (h == &slot->admission->strangers) {
		list_append(&slot->address->strangers, &slot->node);
		return;
	}
	list_append(&h->idle, &slot->node);
	h->n_idle += !slot->is_idle;
	slot->is_idle = true;
}

void admission_set_busy(struct slot *slot)
{
	if (!slot->holder || !slot->is_idle)
		return;
	list_remove(&slot->node);
	slot->holder->n_idle--;
	slot->is_idle = false;
}

void admission_leave(struct slot *slot)
{
	struct admission *a = slot->admission;

	if (!a)
		return;
	release(slot);
	a->bytes -= slot->bytes;
	slot->bytes = 0;
	a->n--;
	slot->admission = NULL;
}

static void evict(struct slot *slot)
{
	struct http_admission *counts = &slot->admission->counts;

	if (slot->holder == &slot->admission->strangers)
		counts->evicted_strangers++;
	else
		counts->evicted_idle++;
	admission_leave(slot);
	slot->evict(slot);
}

/* Of the holder with the most slots among those that have an idle one; operators come last. */
static struct slot *longest_idle(struct admission *a)
{
	struct holder *most = NULL;

	LIST_EACH(&a->teams, node)
	{
		struct holder *team = container_of(node, struct holder, node);

		if (team->n_idle > 0 && (!most || team->n > most->n))
			most = team;
	}
	if (!most)
		most = a->everybody.n_idle > 0 ? &a->everybody : &a->operators;
	return most->n_idle > 0 ? container_of(most->idle.next, struct slot, node) : NULL;
}

bool admission_make_room(struct admission *a)
{
	struct slot *slot = slowest_stranger(a);

	if (!slot)
		slot = longest_idle(a);
	if (slot)
		evict(slot);
	return slot;
}

int admission_enter(struct admission *a, struct slot *slot, const struct sockaddr_storage *peer)
{
	assert(!slot->admission);
	if (a->n >= a->max && !admission_make_room(a)) {
		a->counts.turned_away++;
		return -EAGAIN;
	}
	a->n++;
	slot->admission = a;
	slot->bytes = 0;
	list_init(&slot->node);
	list_init(&slot->unread);
	slot->address = a->tells_apart ? address_of(a, peer) : NULL;
	assign(slot, a->tells_apart ? &a->strangers : &a->everybody);
	if (!a->tells_apart)
		admission_set_idle(slot);
	return 0;
}

/* ---- who it is ---- */

/* Half of the slots that others leave, and of that a part. */
static size_t slots_for(const struct admission *a, size_t n_own, enum http_use use)
{
	size_t beyond = a->operators.n > a->reserve ? a->operators.n - a->reserve : 0;
	size_t others = a->n_teams - n_own + beyond, all = a->max - a->reserve;
	size_t most = all > others ? (all - others + 1) / 2 : 0;

	if (a->max_holder > 0)
		most = MIN(most, a->max_holder);
	switch (use) {
	case HTTP_CALL:
		break;
	case HTTP_STREAM:
		return most - most / 4;
	case HTTP_VISIT:
		return most - most / 2;
	}
	return most;
}

static size_t bytes_for(const struct admission *a, const struct holder *h)
{
	size_t others = a->bytes - h->bytes;

	return others < a->max_bytes ? (a->max_bytes - others) / 2 : 0;
}

/* Whether a holder may have this slot among so many. Its own idle connections go, when that is
 * enough. */
static bool has_room(struct holder *h, const struct slot *slot, size_t most)
{
	bool is_own = slot->holder == h;

	if (h->n - h->n_idle - is_own >= most)
		return false;
	while (h->n - is_own >= most)
		evict(container_of(h->idle.next, struct slot, node));
	return true;
}

static int refuse(struct admission *a, const struct holder *h, size_t most, struct err *e)
{
	a->counts.refused++;
	return err_set(e, -EDQUOT,
		"you have %zu connections open, and may have %zu of this kind at once now", h->n,
		most);
}

static struct holder *team_of(struct admission *a, struct str name)
{
	struct holder *team = map_get(&a->by_name, name);

	if (team)
		return team;
	assert(name.n < sizeof team->name);
	team = XNEW(struct holder);
	holder_init(team, name);
	(void)map_put(&a->by_name, str_of(team->name), team);
	list_append(&a->teams, &team->node);
	return team;
}

static void change_holder(struct slot *slot, struct holder *h)
{
	bool was_unread = !list_empty(&slot->unread);

	if (slot->holder == h)
		return;
	release(slot);
	assign(slot, h);
	if (was_unread)
		list_append(&h->unread, &slot->unread);
}

static int admit_operator(struct slot *slot, struct err *e)
{
	struct admission *a = slot->admission;
	struct holder *h = &a->operators;
	size_t most = a->reserve + (a->max - a->reserve - a->n_teams) / 2;

	if (!has_room(h, slot, most))
		return refuse(a, h, most, e);
	change_holder(slot, h);
	return 0;
}

static int admit_team(struct slot *slot, const struct http_claim *claim, struct holder *team,
	struct err *e)
{
	struct admission *a = slot->admission;
	size_t most = slots_for(a, team->n, claim->use);
	bool is_call = claim->use == HTTP_CALL;

	if ((is_call && slot->holder == team) || has_room(team, slot, most))
		change_holder(slot, team);
	else if (is_call && claim->is_admin && has_room(&a->operators, slot, a->reserve / 2))
		change_holder(slot, &a->operators);
	else
		return refuse(a, team, most, e);
	return 0;
}

int admission_admit(struct slot *slot, const struct http_claim *claim, struct err *e)
{
	struct admission *a = slot->admission;
	struct holder *team;
	int r;

	if (!a || !a->tells_apart)
		return 0;
	if (claim->holder.n == 0)
		return admit_operator(slot, e);
	team = team_of(a, claim->holder);
	team->is_pinned = true; /* also while its last other connection is evicted */
	r = admit_team(slot, claim, team, e);
	unpin(a, team);
	return r;
}

/* ---- bytes ---- */

bool admission_should_throttle(const struct slot *slot)
{
	const struct admission *a = slot->admission;

	return a && a->tells_apart && slot->holder->bytes > bytes_for(a, slot->holder) / 2;
}

bool admission_may_collect(const struct slot *slot, size_t more)
{
	const struct admission *a = slot->admission;

	return !a || !a->tells_apart || slot->holder->bytes + more <= bytes_for(a, slot->holder);
}

static void cut_longest_unread(struct admission *a, struct holder *h)
{
	while (h->bytes > bytes_for(a, h) && !list_empty(&h->unread)) {
		struct slot *slot = container_of(h->unread.next, struct slot, unread);

		a->counts.cut_unread++;
		a->counts.cut_bytes += slot->bytes;
		(void)snprintf(a->counts.last_cut, sizeof a->counts.last_cut, "%s", h->name);
		admission_leave(slot);
		slot->evict(slot);
	}
}

void admission_note(struct slot *slot, size_t unread, size_t collected)
{
	struct admission *a = slot->admission;
	size_t bytes = unread + collected;
	struct holder *h = slot->holder;
	bool grows = bytes > slot->bytes;

	if (!a)
		return;
	h->bytes += bytes - slot->bytes;
	a->bytes += bytes - slot->bytes;
	slot->bytes = bytes;
	if (unread == 0)
		list_remove(&slot->unread);
	else if (list_empty(&slot->unread))
		list_append(&h->unread, &slot->unread);
	if (grows && a->tells_apart) {
		h->is_pinned = true; /* the last that is cut may be its last */
		cut_longest_unread(a, h);
		unpin(a, h);
	}
}

/* ---- showing it ---- */

void admission_look(const struct admission *a, struct http_admission *ret)
{
	*ret = a->counts;
	ret->max = a->max;
	ret->reserve = a->reserve;
	ret->connections = a->n;
	ret->strangers = a->strangers.n;
	ret->operators = a->operators.n;
	ret->bytes = a->bytes;
	ret->max_bytes = a->max_bytes;
}

void admission_each(const struct admission *a, http_holder_fn fn, void *arg)
{
	LIST_EACH(&a->teams, node)
	{
		const struct holder *team = container_of(node, struct holder, node);

		fn(arg, team->name, team->n, team->bytes);
	}
}
