#include "egress/egress-internal.h"

#include <arpa/inet.h>

enum {
	POLICY_ARENA_BYTES = 4 << 20,
	CACHE_MAX_ENTRIES = 24,
	CACHE_MAX_RECORDS = 8,     /* of one answer, */
	CACHE_MAX_BYTES = 4 << 10, /* and in them: whose server sends more is asked again */
	CACHE_MAX_TTL_S = 300,
	LOG_WINDOW_MS = 10000,
	LOG_PER_WINDOW = 5,
};

/* ---- the policy ---- */

static bool is_current(const struct tenant *t, const struct egress_sandbox *sb)
{
	return str_eq(t->network, sb->network) && t->internet.is_set == sb->internet.is_set &&
	       t->internet.value == sb->internet.value;
}

/* What was stored has been checked before; should it not be understood, everything is denied. */
static void read_policy(struct tenant *t, const struct egress_sandbox *sb)
{
	static struct policy_range everything[] = { { 0, 0, false } };
	static const struct policy closed = { .ranges = everything, .n_ranges = 1 };
	struct err e = { 0 };
	const char *copy;

	(void)arena_free(t->arena);
	t->arena = arena_new(POLICY_ARENA_BYTES);
	copy = arena_dup(t->arena, sb->network);
	t->network = copy ? str_make(copy, sb->network.n) : STR_NONE;
	t->internet = sb->internet;
	if (copy && policy_parse(t->arena, t->network, t->internet, &t->policy, &e) >= 0)
		return;
	log_error("egress.policy", "sandbox_id=%s err=%s", t->id, log_quote(str_of(e.msg)));
	t->policy = closed;
}

static struct tenant *tenant_new(struct egress *egress, const struct egress_sandbox *sb)
{
	struct tenant *t = XNEW(struct tenant);

	t->egress = egress;
	t->n_refs = 1;
	list_init(&t->flows);
	list_init(&t->webs);
	list_init(&t->cache);
	(void)snprintf(t->id, sizeof t->id, "%s", sb->id);
	t->team = team_join(egress, sb->team_id);
	rates_fill(egress, RATES_OF_ONE, t->buckets);
	read_policy(t, sb);
	(void)map_put(&egress->tenants, str_of(t->id), t);
	return t;
}

struct tenant *tenant_find(struct egress *egress, uint32_t address)
{
	struct egress_sandbox sb = { 0 };
	struct tenant *t;

	if (!egress->config.find(egress->config.find_arg, address, &sb))
		return NULL;
	t = map_get(&egress->tenants, str_of(sb.id));
	if (!t)
		t = tenant_new(egress, &sb);
	t->address = address;
	if (!is_current(t, &sb)) {
		read_policy(t, &sb);
		cache_clear(t);
		flow_recheck(t, false);
		web_recheck(t, false);
	}
	return t;
}

struct tenant *tenant_ref(struct tenant *t)
{
	t->n_refs++;
	return t;
}

struct tenant *tenant_unref(struct tenant *t)
{
	if (!t || --t->n_refs > 0)
		return NULL;
	cache_clear(t);
	team_leave(t->team);
	(void)arena_free(t->arena);
	free(t);
	return NULL;
}

void tenant_forget(struct tenant *t)
{
	const uint64_t *n = t->denials;

	if (n[DENIED_QUESTION] || n[DENIED_NAME] || n[DENIED_ADDRESS])
		log_info("egress.denied_in_all",
			"sandbox_id=%s questions=%" PRIu64 " names=%" PRIu64 " addresses=%" PRIu64,
			t->id, n[DENIED_QUESTION], n[DENIED_NAME], n[DENIED_ADDRESS]);
	(void)map_remove(&t->egress->tenants, str_of(t->id));
	(void)tenant_unref(t);
}

/* ---- denials ---- */

/* A few lines in each window, then how many more there were. */
static bool may_log(struct tenant *t)
{
	int64_t now_ms = loop_now_ms(t->egress->loop);

	if (now_ms - t->log_from_ms >= LOG_WINDOW_MS) {
		if (t->n_unlogged > 0)
			log_info("egress.denied", "sandbox_id=%s more=%u", t->id, t->n_unlogged);
		t->log_from_ms = now_ms;
		t->n_logged = t->n_unlogged = 0;
	}
	if (t->n_logged < LOG_PER_WINDOW) {
		t->n_logged++;
		return true;
	}
	t->n_unlogged++;
	return false;
}

void tenant_deny(struct tenant *t, enum denial kind, const char *what, uint16_t port)
{
	static const char *const kinds[N_DENIALS] = { "question", "name", "address" };

	t->denials[kind]++;
	if (may_log(t))
		log_info("egress.denied", "sandbox_id=%s by=%s target=%s port=%u", t->id,
			kinds[kind], log_quote(str_of(what)), (unsigned)port);
}

struct egress_denials egress_denied(const struct egress *egress, const char *id)
{
	const struct tenant *t = map_get(&egress->tenants, str_of(id));

	if (!t)
		return (struct egress_denials){ 0 };
	return (struct egress_denials){ t->denials[DENIED_QUESTION], t->denials[DENIED_NAME],
		t->denials[DENIED_ADDRESS] };
}

/* ---- what it asked for lately ----
 * Each sandbox has its own: nobody can find out what a neighbour asked for, or push it out. */

struct cached {
	struct list node;
	struct dns_question question;
	struct dns_answer *answer;
	int64_t from_ms, until_ms;
};

static void cached_free(struct tenant *t, struct cached *c)
{
	list_remove(&c->node);
	(void)dns_answer_unref(c->answer);
	free(c);
	t->n_cached--;
}

void cache_clear(struct tenant *t)
{
	LIST_EACH(&t->cache, node)
	cached_free(t, container_of(node, struct cached, node));
}

void cache_sweep(struct tenant *t)
{
	int64_t now_ms = loop_now_ms(t->egress->loop);

	LIST_EACH(&t->cache, node)
	{
		struct cached *c = container_of(node, struct cached, node);

		if (now_ms >= c->until_ms)
			cached_free(t, c);
	}
}

static struct cached *cache_find(struct tenant *t, const struct dns_question *q)
{
	LIST_EACH(&t->cache, node)
	{
		struct cached *c = container_of(node, struct cached, node);

		if (c->question.type == q->type && dns_name_equal(&c->question.name, &q->name))
			return c;
	}
	return NULL;
}

struct dns_answer *cache_get(struct tenant *t, const struct dns_question *question,
	uint32_t *ret_age_s)
{
	int64_t now_ms = loop_now_ms(t->egress->loop);
	struct cached *c = cache_find(t, question);

	if (!c)
		return NULL;
	if (now_ms >= c->until_ms) {
		cached_free(t, c);
		return NULL;
	}
	list_remove(&c->node);
	list_append(&t->cache, &c->node);
	*ret_age_s = (uint32_t)((now_ms - c->from_ms) / 1000);
	return c->answer;
}

static bool is_small(const struct dns_answer *answer)
{
	size_t bytes = 0;

	for (size_t i = 0; i < answer->n; i++)
		bytes += answer->records[i].data.n;
	return answer->n <= CACHE_MAX_RECORDS && bytes <= CACHE_MAX_BYTES;
}

void cache_put(struct tenant *t, const struct dns_question *question, struct dns_answer *answer)
{
	struct cached *c = cache_find(t, question);

	if (!c && t->n_cached >= CACHE_MAX_ENTRIES)
		c = container_of(t->cache.next, struct cached, node);
	if (c)
		cached_free(t, c);
	if (answer->ttl_s == 0 || !is_small(answer) ||
		(answer->rcode != DNS_OK && answer->rcode != DNS_NXDOMAIN))
		return;
	c = XNEW(struct cached);
	c->question = *question;
	c->answer = answer;
	answer->n_refs++;
	c->from_ms = loop_now_ms(t->egress->loop);
	c->until_ms = c->from_ms + (int64_t)MIN(answer->ttl_s, CACHE_MAX_TTL_S) * 1000;
	list_append(&t->cache, &c->node);
	t->n_cached++;
}
