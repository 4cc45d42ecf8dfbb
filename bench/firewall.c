/* What the firewall costs, in a network namespace of its own: making the table for many sandboxes,
 * taking it over as a restarted warden does, and changing the policy of one. Prints
 * microseconds, one sample a line.
 *
 * usage: bench-firewall make|adopt|change|enter SANDBOXES RANGES SAMPLES
 *
 * `change` and `enter` are of one with few ranges among SANDBOXES with RANGES each. */
#include "warden/firewall.h"

#include <sched.h>

static struct reach *reach_with(uint32_t n, uint32_t first)
{
	cleanup_free struct ranges *ranges = XNEW(struct ranges);
	struct reach *reach = XNEW(struct reach);

	ranges->n = n;
	for (uint32_t i = 0; i < n; i++)
		ranges->v[i] = (struct warden_range){ .address = first + (i << 16), .bits = 24 };
	reach_of(ranges, reach);
	return reach;
}

static void expect(struct firewall *fw, int n)
{
	firewall_begin(fw);
	for (int i = 1; i <= n; i++)
		firewall_expect(fw, i, (uint32_t)i);
}

static int lay_all(struct firewall *fw, int n, const struct reach *reach, struct err *e)
{
	int r = 0;

	for (int i = 1; r >= 0 && i <= n; i++)
		if (!firewall_keep(fw, i, reach))
			r = firewall_set(fw, i, reach, e);
	while (r >= 0 && (r = firewall_turn(fw, e)) > 0)
		;
	return r;
}

static int make(struct firewall *fw, int n, const struct reach *reach, struct err *e)
{
	int r;

	expect(fw, n);
	r = firewall_make(fw, e);
	return r < 0 ? r : lay_all(fw, n, reach, e);
}

static int adopt(struct firewall *fw, int n, const struct reach *reach, struct err *e)
{
	expect(fw, n);
	if (firewall_adopt(fw) != 1)
		return err_set(e, -ESTALE, "the table was not taken over");
	return lay_all(fw, n, reach, e);
}

/* Of the last one, each time to something else. */
static int change(struct firewall *fw, int n, int sample, struct err *e)
{
	cleanup_free struct reach *reach = reach_with(4, 0x0b000000 + ((uint32_t)sample << 8));
	int64_t from = time_now_us();
	int r = firewall_set(fw, n, reach, e);

	printf("%" PRId64 "\n", time_now_us() - from);
	while (r >= 0 && (r = firewall_turn(fw, e)) > 0)
		;
	return r;
}

static int enter(struct firewall *fw, int n, int sample, struct err *e)
{
	int64_t from = time_now_us();
	int r = firewall_enter(fw, n + 1, (uint32_t)(n + 1 + sample), e);

	printf("%" PRId64 "\n", time_now_us() - from);
	firewall_leave(fw, n + 1);
	return r;
}

static int measure(struct firewall *fw, const char *what, int n, uint32_t ranges, int samples,
	struct err *e)
{
	cleanup_free struct reach *reach = reach_with(ranges, 0x14000000);
	int r = strcmp(what, "make") == 0 ? 0 : make(fw, n, reach, e);

	for (int i = 0; r >= 0 && i < samples; i++) {
		int64_t from = time_now_us();

		if (strcmp(what, "change") == 0)
			r = change(fw, n, i, e);
		else if (strcmp(what, "enter") == 0)
			r = enter(fw, n, i, e);
		else
			r = what[0] == 'm' ? make(fw, n, reach, e) : adopt(fw, n, reach, e);
		if (what[0] == 'm' || what[0] == 'a')
			printf("%" PRId64 "\n", time_now_us() - from);
	}
	return r;
}

static int number(const char *text)
{
	int64_t n;

	return str_to_int(str_of(text), 0, 100000, &n) < 0 ? 0 : (int)n;
}

int main(int argc, char *argv[])
{
	cleanup_free struct firewall *fw = XNEW(struct firewall);
	struct err e = { 0 };
	int r;

	if (argc != 5 || number(argv[2]) < 1 || number(argv[2]) >= NET_MAX_NUMBER ||
		number(argv[3]) > WARDEN_MAX_RANGES)
		return 2;
	*fw = (struct firewall)FIREWALL_INIT;
	r = unshare(CLONE_NEWNET) < 0 ? err_sys(&e, -errno, "make a network namespace")
				      : firewall_open(fw, "bench000", &e);
	if (r >= 0)
		r = measure(fw, argv[1], number(argv[2]), (uint32_t)number(argv[3]),
			number(argv[4]), &e);
	if (r < 0)
		(void)fprintf(stderr, "bench-firewall: %s\n", e.msg);
	firewall_close(fw);
	return r < 0;
}
