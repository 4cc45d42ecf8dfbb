/* The headers that a rule sets, with its secrets in their places. They are fetched for each
 * request: a new version holds from the next one on, and nothing of them is kept. */
#include "egress/egress-internal.h"
#include "secret/secret.h"

enum {
	HEADERS_MAX_BYTES = 128 << 10
};

struct headers {
	struct secret_book *secrets;
	char team_id[TENANT_ID_SIZE];
	struct arena *arena; /* of the rule's copy: the policy may be another by the time */
	struct policy_rule rule;
	size_t at;        /* the header under way */
	struct str rest;  /* of its value */
	struct buf out;   /* "Name: value\r\n..." */
	struct str waits; /* for this secret; p NULL: for nothing */
	struct loop_task task;
	struct loop *loop;
	struct err e;
	headers_fn fn; /* NULL: nobody waits any more */
	void *arg;
};

static void take_pieces(struct headers *h);

static void headers_free(struct headers *h)
{
	if (h->out.p)
		explicit_bzero(h->out.p, h->out.cap);
	buf_done(&h->out);
	(void)arena_free(h->arena);
	free(h);
}

/* The text is the callee's for the call only. */
static void on_done(void *arg)
{
	struct headers *h = arg;

	if (h->fn && h->e.code < 0)
		h->fn(h->arg, NULL, &h->e);
	else if (h->fn)
		h->fn(h->arg, h->out.p ? h->out.p : "", NULL);
	headers_free(h);
}

static void finish(struct headers *h)
{
	loop_defer(h->loop, &h->task, on_done, h);
}

static void fail(struct headers *h, const char *why)
{
	(void)err_set(&h->e, -EINVAL, "secret '%.*s' %s", STR_ARG(h->waits), why);
	finish(h);
}

static bool is_fit(struct str value)
{
	for (size_t i = 0; i < value.n; i++) {
		unsigned char c = (unsigned char)value.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

/* Never with its value, in whatever goes wrong. */
static void on_secret(void *arg, int r, struct str value, const struct err *e)
{
	struct headers *h = arg;

	(void)e;
	if (!h->fn) {
		headers_free(h);
		return;
	}
	if (r < 0) {
		fail(h, r == -ENOENT ? "does not exist" : "could not be read");
		return;
	}
	if (!is_fit(value)) {
		fail(h, "holds what cannot stand in a header");
		return;
	}
	(void)buf_add_str(&h->out, value);
	h->waits = STR_NONE;
	take_pieces(h);
}

static void begin_header(struct headers *h)
{
	const struct policy_header *header = &h->rule.headers[h->at];

	(void)buf_add_str(&h->out, header->name);
	(void)buf_adds(&h->out, ": ");
	h->rest = header->value;
}

/* Goes on until a secret has to be fetched or everything is there. */
static void take_pieces(struct headers *h)
{
	struct str text, secret;

	while (h->at < h->rule.n_headers) {
		while (policy_next_secret(&h->rest, &text, &secret)) {
			(void)buf_add_str(&h->out, text);
			if (!secret.p)
				continue;
			h->waits = secret;
			secret_open(h->secrets, h->team_id, secret, on_secret, h);
			return;
		}
		(void)buf_adds(&h->out, "\r\n");
		h->at++;
		if (h->at < h->rule.n_headers)
			begin_header(h);
	}
	if (h->out.failed)
		(void)err_set(&h->e, -E2BIG, "the headers of the rule are too large");
	finish(h);
}

static bool copy_rule(struct headers *h, const struct policy_rule *rule)
{
	size_t size = rule->n_headers * sizeof *rule->headers;
	struct policy_header *copy = arena_alloc(h->arena, size);

	for (size_t i = 0; copy && i < rule->n_headers; i++) {
		const struct policy_header *from = &rule->headers[i];

		copy[i].name = str_make(arena_dup(h->arena, from->name), from->name.n);
		copy[i].value = str_make(arena_dup(h->arena, from->value), from->value.n);
		if (!copy[i].name.p || !copy[i].value.p)
			return false;
	}
	h->rule = (struct policy_rule){ .headers = copy, .n_headers = rule->n_headers };
	return copy != NULL;
}

struct headers *headers_start(struct tenant *t, const struct policy_rule *rule, headers_fn fn,
	void *arg)
{
	struct headers *h = XNEW(struct headers);

	h->loop = t->egress->loop;
	h->secrets = t->egress->config.secrets;
	(void)snprintf(h->team_id, sizeof h->team_id, "%s", t->team->id);
	h->arena = arena_new(HEADERS_MAX_BYTES);
	h->out = BUF_INIT((size_t)HEADERS_MAX_BYTES * 16);
	h->fn = fn;
	h->arg = arg;
	if (!copy_rule(h, rule)) {
		(void)err_set(&h->e, -E2BIG, "the headers of the rule are too large");
		finish(h);
		return h;
	}
	begin_header(h);
	take_pieces(h);
	return h;
}

/* The store may still be busy for it: it goes when that is over. */
void headers_cancel(struct headers *h)
{
	if (!h)
		return;
	h->fn = NULL;
	if (!h->waits.p) {
		loop_task_cancel(&h->task);
		headers_free(h);
	}
}
