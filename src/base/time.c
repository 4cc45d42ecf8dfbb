#include "base/base.h"
#include "base/fault.h"

#include <time.h>

static int64_t clock_us(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t time_now_ms(void)
{
	return clock_us(CLOCK_MONOTONIC) / 1000;
}

int64_t time_now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

int64_t time_wall_us(void)
{
	return clock_us(CLOCK_REALTIME) + fault_value(FAULT_CLOCK_US);
}

int64_t time_past_us(struct time_past *past, int64_t keep_s)
{
	const int64_t slew_us = 60 * 1000000, trusted_ms = 3600 * 1000;
	int64_t wall_us = time_wall_us(), now_ms = time_now_ms();
	int64_t offset_us = wall_us - now_ms * 1000;

	if (!past->since_ms || llabs(offset_us - past->offset_us) > slew_us)
		*past = (struct time_past){ offset_us, now_ms };
	return now_ms - past->since_ms < MIN(trusted_ms, keep_s * 1000)
		       ? 0
		       : wall_us - keep_s * 1000000;
}

void time_rfc3339(int64_t wall_us, char out[RFC3339_SIZE])
{
	time_t seconds = (time_t)(wall_us / 1000000);
	int fraction = (int)(wall_us % 1000000);
	struct tm tm;

	if (fraction < 0) {
		fraction += 1000000;
		seconds--;
	}
	(void)gmtime_r(&seconds, &tm);
	(void)snprintf(out, RFC3339_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
		(unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_mon + 1,
		(unsigned)tm.tm_mday, (unsigned)tm.tm_hour, (unsigned)tm.tm_min,
		(unsigned)tm.tm_sec, (unsigned)fraction);
}

/* Reads `n` digits at *at, moving on. */
static int digits(struct str s, size_t *at, size_t n, int *ret)
{
	int v = 0;

	if (s.n < n || *at > s.n - n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		char c = s.p[*at + i];

		if (c < '0' || c > '9')
			return -EINVAL;
		v = v * 10 + (c - '0');
	}
	*at += n;
	*ret = v;
	return 0;
}

static bool skip(struct str s, size_t *at, char a, char b)
{
	if (*at >= s.n || (s.p[*at] != a && s.p[*at] != b))
		return false;
	(*at)++;
	return true;
}

static int64_t fraction_us(struct str s, size_t *at)
{
	int64_t us = 0, scale = 100000;

	for (; *at < s.n && s.p[*at] >= '0' && s.p[*at] <= '9'; (*at)++, scale /= 10)
		us += (s.p[*at] - '0') * scale;
	return us;
}

/* "Z" or "+hh:mm" at the end, as seconds east. */
static int zone(struct str s, size_t *at, int *ret)
{
	int hours, minutes, sign;

	if (skip(s, at, 'Z', 'z')) {
		*ret = 0;
		return *at == s.n ? 0 : -EINVAL;
	}
	if (*at >= s.n)
		return -EINVAL;
	sign = s.p[*at] == '-' ? -1 : 1;
	if (!skip(s, at, '+', '-') || digits(s, at, 2, &hours) < 0 || !skip(s, at, ':', ':') ||
		digits(s, at, 2, &minutes) < 0 || *at != s.n || hours > 23 || minutes > 59)
		return -EINVAL;
	*ret = sign * (hours * 3600 + minutes * 60);
	return 0;
}

int time_parse_rfc3339(struct str s, int64_t *ret_wall_us)
{
	struct tm tm = { 0 };
	size_t at = 0;
	int64_t us = 0;
	int east;

	if (digits(s, &at, 4, &tm.tm_year) < 0 || !skip(s, &at, '-', '-') ||
		digits(s, &at, 2, &tm.tm_mon) < 0 || !skip(s, &at, '-', '-') ||
		digits(s, &at, 2, &tm.tm_mday) < 0 || !skip(s, &at, 'T', 't') ||
		digits(s, &at, 2, &tm.tm_hour) < 0 || !skip(s, &at, ':', ':') ||
		digits(s, &at, 2, &tm.tm_min) < 0 || !skip(s, &at, ':', ':') ||
		digits(s, &at, 2, &tm.tm_sec) < 0)
		return -EINVAL;
	if (skip(s, &at, '.', '.'))
		us = fraction_us(s, &at);
	if (zone(s, &at, &east) < 0)
		return -EINVAL;
	if (tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
		tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	*ret_wall_us = ((int64_t)timegm(&tm) - east) * 1000000 + us;
	return 0;
}
