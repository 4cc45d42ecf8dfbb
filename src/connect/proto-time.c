/* google.protobuf.Timestamp as JSON has it: RFC 3339, with 0, 3, 6 or 9 digits behind the second.
 */
#include "connect/connect-internal.h"

#include <time.h>

#define FIRST_SECOND (-INT64_C(62135596800)) /* 0001-01-01T00:00:00Z */
#define LAST_SECOND INT64_C(253402300799)    /* 9999-12-31T23:59:59Z */

enum {
	NANOS = 1000000000,
	DATE_TIME_SIZE = 19, /* 2006-01-02T15:04:05 */
};

static bool is_valid(const struct timestamp *t)
{
	return t->seconds >= FIRST_SECOND && t->seconds <= LAST_SECOND && t->nanos >= 0 &&
	       t->nanos < NANOS;
}

int timestamp_write(const struct timestamp *t, char out[TIMESTAMP_SIZE])
{
	time_t seconds = (time_t)t->seconds;
	char fraction[16] = "";
	struct tm tm;

	if (!is_valid(t) || !gmtime_r(&seconds, &tm))
		return -EINVAL;
	if (t->nanos % 1000 != 0)
		(void)snprintf(fraction, sizeof fraction, ".%09" PRId32, t->nanos);
	else if (t->nanos % 1000000 != 0)
		(void)snprintf(fraction, sizeof fraction, ".%06" PRId32, t->nanos / 1000);
	else if (t->nanos != 0)
		(void)snprintf(fraction, sizeof fraction, ".%03" PRId32, t->nanos / 1000000);
	(void)snprintf(out, TIMESTAMP_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u%sZ",
		(unsigned)tm.tm_year + 1900, (unsigned)tm.tm_mon + 1, (unsigned)tm.tm_mday,
		(unsigned)tm.tm_hour, (unsigned)tm.tm_min, (unsigned)tm.tm_sec, fraction);
	return 0;
}

static bool read_digits(struct str text, size_t at, size_t n, int *ret)
{
	int64_t value;

	if (text.p[at] == '-' || str_to_int(str_make(text.p + at, n), 0, 9999, &value) < 0)
		return false;
	*ret = (int)value;
	return true;
}

static int read_date_time(struct str text, int64_t *ret_seconds)
{
	struct tm tm = { 0 }, normal;

	if (text.n < DATE_TIME_SIZE || text.p[4] != '-' || text.p[7] != '-' || text.p[10] != 'T' ||
		text.p[13] != ':' || text.p[16] != ':')
		return -EINVAL;
	if (!read_digits(text, 0, 4, &tm.tm_year) || !read_digits(text, 5, 2, &tm.tm_mon) ||
		!read_digits(text, 8, 2, &tm.tm_mday) || !read_digits(text, 11, 2, &tm.tm_hour) ||
		!read_digits(text, 14, 2, &tm.tm_min) || !read_digits(text, 17, 2, &tm.tm_sec))
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	/* timegm makes a time of anything, the 31st of February too, and leaves in its argument
	 * what that is. */
	normal = tm;
	*ret_seconds = timegm(&normal);
	return normal.tm_mon == tm.tm_mon && normal.tm_mday == tm.tm_mday &&
			       normal.tm_hour == tm.tm_hour && normal.tm_min == tm.tm_min &&
			       normal.tm_sec == tm.tm_sec
		       ? 0
		       : -EINVAL;
}

/* ".5" is half a second; no more than nine digits. */
static int read_fraction(struct str text, int32_t *ret_nanos)
{
	int32_t nanos = 0;

	if (text.n < 2 || text.n > 10 || text.p[0] != '.')
		return -EINVAL;
	for (size_t i = 1; i <= 9; i++) {
		char c = i < text.n ? text.p[i] : '0';

		if (c < '0' || c > '9')
			return -EINVAL;
		nanos = nanos * 10 + (c - '0');
	}
	*ret_nanos = nanos;
	return 0;
}

int timestamp_read(struct str text, struct timestamp *ret)
{
	struct timestamp t = { 0 };

	if (text.n <= DATE_TIME_SIZE || text.p[text.n - 1] != 'Z')
		return -EINVAL;
	text.n--;
	if (read_date_time(text, &t.seconds) < 0)
		return -EINVAL;
	if (text.n > DATE_TIME_SIZE && read_fraction(str_from(text, DATE_TIME_SIZE), &t.nanos) < 0)
		return -EINVAL;
	if (!is_valid(&t))
		return -EINVAL;
	*ret = t;
	return 0;
}
