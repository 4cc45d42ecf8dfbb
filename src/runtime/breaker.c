#include "runtime/breaker.h"

static void forget(struct breaker *b)
{
	memset(b->window, 0, sizeof b->window);
}

static void count(struct breaker *b, int64_t now_ms, bool failed)
{
	int64_t second = now_ms / 1000;
	size_t at = (size_t)(second % BREAKER_WINDOW_S);

	if (b->window[at].second != second) {
		b->window[at].second = second;
		b->window[at].succeeded = b->window[at].failed = 0;
	}
	if (failed)
		b->window[at].failed++;
	else
		b->window[at].succeeded++;
}

static void sum(const struct breaker *b, int64_t now_ms, int64_t *succeeded, int64_t *failed)
{
	int64_t oldest = now_ms / 1000 - BREAKER_WINDOW_S;

	*succeeded = *failed = 0;
	for (size_t i = 0; i < BREAKER_WINDOW_S; i++)
		if (b->window[i].second > oldest) {
			*succeeded += b->window[i].succeeded;
			*failed += b->window[i].failed;
		}
}

/* A runtime that fails now and then is not down: what fails is tried again. */
static bool is_too_much(const struct breaker *b, int64_t now_ms)
{
	int64_t succeeded, failed;

	sum(b, now_ms, &succeeded, &failed);
	return failed >= BREAKER_FAILURES && failed > succeeded;
}

static void open_for(struct breaker *b, int64_t now_ms, int64_t ms, const struct err *e)
{
	b->state = RUNTIME_BREAKER_OPEN;
	b->open_ms = MIN(ms, BREAKER_MAX_OPEN_MS);
	b->until_ms = now_ms + b->open_ms;
	b->is_trying = false;
	b->refused = 0;
	b->why = e ? *e : (struct err){ 0 };
}

static void close_again(struct breaker *b)
{
	b->state = RUNTIME_BREAKER_CLOSED;
	b->is_trying = false;
	forget(b);
}

static int refuse(struct breaker *b, int64_t now_ms, struct err *e)
{
	int64_t left_s = (MAX(b->until_ms - now_ms, 0) + 999) / 1000;

	b->refused++;
	if (b->state == RUNTIME_BREAKER_HALF_OPEN)
		return err_set(e, -EHOSTDOWN, "it is being tried whether it works again after: %s",
			b->why.msg);
	return err_set(e, -EHOSTDOWN,
		"it has failed too often and is left alone for %" PRId64 " s; the last failure: %s",
		left_s, b->why.msg);
}

int breaker_admit(struct breaker *b, int64_t now_ms, struct err *e)
{
	switch (b->state) {
	case RUNTIME_BREAKER_CLOSED:
		return 0;
	case RUNTIME_BREAKER_OPEN:
		if (now_ms < b->until_ms)
			return refuse(b, now_ms, e);
		b->state = RUNTIME_BREAKER_HALF_OPEN;
		break;
	case RUNTIME_BREAKER_HALF_OPEN:
		if (b->is_trying && now_ms < b->until_ms)
			return refuse(b, now_ms, e);
		break;
	}
	b->is_trying = true;
	b->until_ms = now_ms + BREAKER_PROBE_MS;
	return 0;
}

/* One that failed by the asker's fault tells neither way: the next one tries. */
static bool note_try(struct breaker *b, int64_t now_ms, int r, bool is_ours, const struct err *e)
{
	b->is_trying = false;
	if (r < 0 && !is_ours)
		return false;
	if (r < 0)
		open_for(b, now_ms, b->open_ms * 2, e);
	else
		close_again(b);
	return true;
}

bool breaker_note(struct breaker *b, int64_t now_ms, int r, bool is_ours, const struct err *e)
{
	switch (b->state) {
	case RUNTIME_BREAKER_HALF_OPEN:
		return note_try(b, now_ms, r, is_ours, e);
	case RUNTIME_BREAKER_OPEN:
		return false; /* asked before it opened */
	case RUNTIME_BREAKER_CLOSED:
		break;
	}
	if (r < 0 && !is_ours)
		return false;
	count(b, now_ms, r < 0);
	if (r >= 0 || !is_too_much(b, now_ms))
		return false;
	open_for(b, now_ms, BREAKER_OPEN_MS, e);
	return true;
}

void breaker_look(const struct breaker *b, int64_t now_ms, struct runtime_breaker *ret)
{
	int64_t succeeded;

	*ret = (struct runtime_breaker){ .state = b->state, .refused = b->refused, .why = b->why };
	sum(b, now_ms, &succeeded, &ret->failures);
	if (b->state == RUNTIME_BREAKER_OPEN && now_ms >= b->until_ms)
		ret->state = RUNTIME_BREAKER_HALF_OPEN;
	if (b->state == RUNTIME_BREAKER_CLOSED)
		ret->why = (struct err){ 0 };
	else
		ret->retry_s = MAX((b->until_ms - now_ms + 999) / 1000, 1);
	if (ret->state == RUNTIME_BREAKER_HALF_OPEN)
		ret->retry_s = 1;
}
