#include "cli/progress.h"

enum {
	FIRST_MS = 1000,
	REDRAW_MS = 200,
	REPEAT_MS = 10 * 1000,
};

static void draw(void *arg)
{
	struct progress *p = arg;
	int64_t now_ms = loop_now_ms(p->cli->loop);
	uint64_t per_s = p->bytes * 1000 / (uint64_t)MAX(now_ms - p->started_ms, 1);
	const struct out *out = &p->cli->out;
	char done[OUT_CELL], speed[OUT_CELL], percent[16] = "";

	out_size(p->bytes, done);
	out_size(per_s, speed);
	if (p->total_bytes > 0)
		(void)snprintf(percent, sizeof percent, "%3d %%  ",
			(int)(p->bytes * 100 / (uint64_t)p->total_bytes));
	out_progress(out, "%.40s  %s%s  %s/s", p->name, percent, done, speed);
	p->is_drawn = out->redraws;
	loop_timer_set(&p->timer, now_ms + (out->redraws ? REDRAW_MS : REPEAT_MS));
}

void progress_start(struct progress *p, struct cli *cli, const char *name, int64_t total_bytes)
{
	*p = (struct progress){ .cli = cli,
		.name = name,
		.total_bytes = total_bytes,
		.started_ms = time_now_ms() };
	loop_timer_init(&p->timer, cli->loop, draw, p);
	if (!cli->out.quiet && !cli->out.json)
		loop_timer_set(&p->timer,
			p->started_ms + (cli->out.redraws ? FIRST_MS : REPEAT_MS));
}

void progress_stop(struct progress *p)
{
	loop_timer_cancel(&p->timer);
	if (p->is_drawn)
		out_progress(&p->cli->out, "%s", "");
	p->is_drawn = false;
}
