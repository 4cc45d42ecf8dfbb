/* Timers in a binary heap: each open stream holds one or two, mostly cancelled before they fire. */
#include "loop/loop-internal.h"

static void place(struct loop *loop, size_t at, struct loop_timer *timer)
{
	loop->heap[at] = timer;
	timer->place = at;
}

static void sift_up(struct loop *loop, size_t at, struct loop_timer *timer)
{
	for (; at > 1 && loop->heap[at / 2]->at_ms > timer->at_ms; at /= 2)
		place(loop, at, loop->heap[at / 2]);
	place(loop, at, timer);
}

static void sift_down(struct loop *loop, size_t at, struct loop_timer *timer)
{
	for (;;) {
		size_t child = at * 2;

		if (child < loop->heap_n && loop->heap[child + 1]->at_ms < loop->heap[child]->at_ms)
			child++;
		if (child > loop->heap_n || loop->heap[child]->at_ms >= timer->at_ms)
			break;
		place(loop, at, loop->heap[child]);
		at = child;
	}
	place(loop, at, timer);
}

void loop_timer_init(struct loop_timer *timer, struct loop *loop, loop_fn fn, void *arg)
{
	*timer = (struct loop_timer){ .loop = loop, .fn = fn, .arg = arg };
}

void loop_timer_set(struct loop_timer *timer, int64_t at_ms)
{
	struct loop *loop = timer->loop;

	if (timer->place) {
		bool later = at_ms > timer->at_ms;

		timer->at_ms = at_ms;
		if (later)
			sift_down(loop, timer->place, timer);
		else
			sift_up(loop, timer->place, timer);
		return;
	}
	if (loop->heap_n + 1 >= loop->heap_cap) {
		loop->heap_cap = loop->heap_cap ? loop->heap_cap * 2 : 64;
		loop->heap = realloc(loop->heap, loop->heap_cap * sizeof *loop->heap);
		if (!loop->heap)
			abort();
	}
	timer->at_ms = at_ms;
	sift_up(loop, ++loop->heap_n, timer);
}

void loop_timer_cancel(struct loop_timer *timer)
{
	struct loop *loop = timer->loop;
	struct loop_timer *last;
	size_t at = timer->place;

	if (!at)
		return;
	last = loop->heap[loop->heap_n--];
	timer->place = 0;
	if (last == timer)
		return;
	if (at > 1 && loop->heap[at / 2]->at_ms > last->at_ms)
		sift_up(loop, at, last);
	else
		sift_down(loop, at, last);
}

int64_t loop_timers_next(const struct loop *loop)
{
	return loop->heap_n ? loop->heap[1]->at_ms : -1;
}

void loop_timers_run(struct loop *loop)
{
	/* A timer that sets itself to now again must not keep the turn from ending. */
	for (size_t budget = loop->heap_n; budget && loop->heap_n; budget--) {
		struct loop_timer *timer = loop->heap[1];

		if (timer->at_ms > loop->now_ms)
			break;
		loop_timer_cancel(timer);
		timer->fn(timer->arg);
	}
}
