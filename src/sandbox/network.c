/* Changing what a running sandbox may reach. The kernel is told before the row is written; should
 * the server die in between, reconciling lays what the row says. */
#include "sandbox/sandbox-internal.h"

enum {
	TOLD_BYTES = 256 << 10, /* more than the most ranges, names and headers take */
};

int live_policy(const struct live *live, struct arena *arena, struct policy *ret, struct err *e)
{
	const struct sandbox_options *options = &live->view.options;

	return policy_parse(arena, options->network, options->internet, ret, e);
}

struct change {
	struct op op;
	struct live *live;
	struct json_bool internet;
	struct buf network, told; /* the second for the event log */
	bool has_base;            /* of what it was made; the change before may have changed that */
	struct json_bool base_internet;
	struct buf base_network;
	char actor[ACTOR_SIZE];
	bool has_rules; /* of headers */
	struct err e;
	done_fn done;
	void *arg;
};

static void change_end(struct change *p, int r, const struct err *e)
{
	p->done(p->arg, r, e);
	p->op.book->in_flight--;
	buf_done(&p->network);
	buf_done(&p->told);
	buf_done(&p->base_network);
	free(p);
}

/* However it went, the sandbox is free for the next change, or found to be gone. */
static void change_settle(struct change *p, int r, const struct err *e)
{
	struct err mine = e ? *e : (struct err){ 0 };

	live_saved(TAKE(p->live), r);
	change_end(p, r, &mine);
}

static void change_undone(void *arg, int r, const struct err *e)
{
	struct change *p = arg;

	if (r < 0)
		log_error("sandbox.network_stuck", "sandbox_id=%s err=%s", p->op.id,
			log_quote(str_of(e->msg)));
	change_settle(p, p->e.code, &p->e);
}

static void change_undo(struct change *p)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(POLICY_BYTES);
	struct policy old;
	struct err e = { 0 };

	if (live_policy(p->live, arena, &old, &e) < 0)
		tell_later(p->op.book, &e, change_undone, p);
	else
		runtime_set_policy(p->live->runtime, p->op.id, &old, change_undone, p);
}

static void change_trusted(void *arg, int r, const struct err *e)
{
	CRASH_POINT("network.trusted");
	change_settle(arg, r, e);
}

static void change_recorded(void *arg, int r, const struct err *e)
{
	struct change *p = arg;
	struct sandbox_options *options = &p->live->view.options;

	CRASH_POINT("network.recorded");
	if (r < 0) {
		p->e = *e;
		change_undo(p);
		return;
	}
	buf_done(&p->live->network);
	p->live->network = p->network;
	p->network = BUF_INIT(SANDBOX_NETWORK_BYTES);
	options->internet = p->internet;
	options->network = buf_str(&p->live->network);
	if (p->op.book->network_changed)
		p->op.book->network_changed(p->op.book->network_arg, p->op.id);
	if (p->has_rules && p->op.book->config.authority.n)
		live_trust(p->live, change_trusted, p);
	else
		change_settle(p, 0, NULL);
}

static void change_laid(void *arg, int r, const struct err *e)
{
	struct change *p = arg;
	struct sandbox next;

	CRASH_POINT("network.laid");
	if (r < 0) {
		change_settle(p, r, e);
		return;
	}
	next = p->live->view;
	next.options.internet = p->internet;
	next.options.network = buf_str(&p->network);
	rows_set_options(p->op.book->config.store, &next,
		&(struct options_change){ p->actor, "sandbox.network", buf_str(&p->told) },
		change_recorded, p);
}

/* What it may reach from now on, for the event log. Headers are told of by name: their values may
 * be secrets. */
static void describe_policy(const struct policy *policy, struct jsonw *w)
{
	static const char *const lists[] = { "deny_out", "allow_out" };

	for (int allow = 0; allow < 2; allow++) {
		jsonw_array(w, lists[allow]);
		for (size_t i = 0; i < policy->n_ranges; i++) {
			const struct policy_range *range = &policy->ranges[i];
			char text[24];

			if (range->allow != allow)
				continue;
			(void)snprintf(text, sizeof text, "%u.%u.%u.%u/%u", range->address >> 24,
				range->address >> 16 & 255, range->address >> 8 & 255,
				range->address & 255, range->bits);
			jsonw_strz(w, NULL, text);
		}
		for (size_t i = 0; allow && i < policy->n_names; i++)
			jsonw_str(w, NULL, policy->names[i]);
		jsonw_end_array(w);
	}
	jsonw_array(w, "rules");
	for (size_t i = 0; i < policy->n_rules; i++) {
		jsonw_object(w, NULL);
		jsonw_str(w, "host", policy->rules[i].host);
		jsonw_array(w, "headers");
		for (size_t k = 0; k < policy->rules[i].n_headers; k++)
			jsonw_str(w, NULL, policy->rules[i].headers[k].name);
		jsonw_end_array(w);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
}

static void describe(struct change *p, const struct policy *policy)
{
	struct jsonw w;

	jsonw_init(&w, &p->told);
	jsonw_object(&w, NULL);
	if (p->internet.is_set)
		jsonw_bool(&w, "internet", p->internet.value);
	else
		jsonw_null(&w, "internet");
	describe_policy(policy, &w);
	jsonw_end_object(&w);
}

static bool is_stale(const struct change *p, const struct sandbox_options *now)
{
	return p->has_base && (p->base_internet.is_set != now->internet.is_set ||
				      p->base_internet.value != now->internet.value ||
				      !str_eq(buf_str(&p->base_network), now->network));
}

static void change_run(struct op *op, struct live *live)
{
	struct change *p = container_of(op, struct change, op);
	CLEANUP(arena_freep) struct arena *arena = arena_new(POLICY_BYTES);
	struct policy policy = { 0 };
	struct err e = { 0 };

	if (!live || live->view.state != SANDBOX_RUNNING)
		(void)op_not_found(op, &e);
	else if (is_stale(p, &live->view.options))
		(void)err_set(&e, -ESTALE, "the network was changed meanwhile: try again");
	else
		(void)policy_parse(arena, buf_str(&p->network), p->internet, &policy, &e);
	if (!live || e.code < 0) {
		change_end(p, e.code, &e);
		return;
	}
	describe(p, &policy);
	p->live = live;
	p->has_rules = policy.n_rules > 0;
	live->saving++;
	runtime_set_policy(live->runtime, live->view.id, &policy, change_laid, p);
}

void sandbox_on_network(struct sandbox_book *book, sandbox_network_fn fn, void *arg)
{
	book->network_changed = fn;
	book->network_arg = arg;
}

void sandbox_set_network(struct sandbox_book *book, const struct sandbox_owner *who, struct str id,
	const struct sandbox_reach *reach, done_fn done, void *arg)
{
	struct change *p;
	struct err e = { 0 };

	if (reach->network.n > SANDBOX_NETWORK_BYTES) {
		(void)err_set(&e, -E2BIG, "the network rules are too large");
		tell_later(book, &e, done, arg);
		return;
	}
	p = XNEW(struct change);
	p->internet = reach->internet;
	p->network = BUF_INIT(SANDBOX_NETWORK_BYTES);
	p->told = BUF_INIT(TOLD_BYTES);
	(void)buf_add_str(&p->network, reach->network);
	p->base_network = BUF_INIT(SANDBOX_NETWORK_BYTES);
	p->has_base = reach->made_of != NULL;
	if (reach->made_of) {
		p->base_internet = reach->made_of->internet;
		(void)buf_add_str(&p->base_network, reach->made_of->network);
	}
	(void)snprintf(p->actor, sizeof p->actor, "%s", reach->actor);
	p->done = done;
	p->arg = arg;
	book->in_flight++;
	op_start(&p->op, book, who, id, change_run);
}
