#include "guest/seen-use.h"

enum {
	TICK_US = 10000, /* of /proc: a hundredth of a second, whatever the kernel counts in */
	PAD = 64,
	MAX_STEPS = 720, /* an hour: then nothing is left of what was before */
	HUNDRED = 100,
};

void seen_load_add(struct seen_load *load, int64_t running, int64_t now_ms)
{
	/* The kernel's own constants: what is left after five seconds. */
	static const int64_t kept[SEEN_LOADS] = { 1884, 2014, 2037 };
	int64_t steps;

	if (!load->at_ms)
		load->at_ms = now_ms;
	steps = MIN((now_ms - load->at_ms) / SEEN_SAMPLE_MS, (int64_t)MAX_STEPS);
	if (steps <= 0)
		return;
	load->at_ms = now_ms - (now_ms - load->at_ms) % SEEN_SAMPLE_MS;
	while (steps-- > 0)
		for (size_t i = 0; i < SEEN_LOADS; i++) {
			int64_t target = running * SEEN_LOAD_ONE,
				rest = load->parts[i] * kept[i] +
				       target * (SEEN_LOAD_ONE - kept[i]);

			/* Rounded towards where it goes, or it would never come there. */
			if (target >= load->parts[i])
				rest += SEEN_LOAD_ONE - 1;
			load->parts[i] = rest / SEEN_LOAD_ONE;
		}
}

static void write_times(struct buf *out, int64_t user_us, int64_t system_us, int64_t idle_us)
{
	(void)buf_printf(out, " %" PRId64 " 0 %" PRId64 " %" PRId64 " 0 0 0 0 0 0\n",
		user_us / TICK_US, system_us / TICK_US, idle_us / TICK_US);
}

/* The kernel does not tell on which processor a sandbox was how long: each gets its share. */
void seen_write_stat(const struct seen_use *use, const cpu_set_t *cpus, struct buf *out)
{
	int64_t n = MAX(CPU_COUNT(cpus), 1);
	int64_t idle_us = MAX(use->elapsed_us * n - use->user_us - use->system_us, 0);

	(void)buf_adds(out, "cpu ");
	write_times(out, use->user_us, use->system_us, idle_us);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, cpus))
			continue;
		(void)buf_printf(out, "cpu%zu", cpu);
		write_times(out, use->user_us / n, use->system_us / n, idle_us / n);
	}
	(void)buf_printf(out,
		"intr 0\nctxt 0\nbtime %" PRId64 "\nprocesses %" PRId64 "\nprocs_running %" PRId64
		"\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
		use->booted_s, use->last_pid, MAX(use->running, 1));
	seen_pad(out);
}

void seen_write_load(const struct seen_load *load, const struct seen_use *use, struct buf *out)
{
	for (size_t i = 0; i < SEEN_LOADS; i++) {
		int64_t hundredths = (load->parts[i] * HUNDRED + SEEN_LOAD_ONE / 2) / SEEN_LOAD_ONE;

		(void)buf_printf(out, "%" PRId64 ".%02" PRId64 " ", hundredths / HUNDRED,
			hundredths % HUNDRED);
	}
	(void)buf_printf(out, "%" PRId64 "/%" PRId64 " %" PRId64 "\n", MAX(use->running, 1),
		MAX(use->processes, 1), use->last_pid);
	seen_pad(out);
}

void seen_pad(struct buf *out)
{
	static const char spaces[PAD + 1] =
		"                                                                ";

	if (out->n == 0)
		return;
	out->n--;
	(void)buf_add(out, spaces, PAD - 1 - out->n % PAD);
	(void)buf_addc(out, '\n');
}
