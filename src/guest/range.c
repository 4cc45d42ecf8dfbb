#include "guest/range.h"

#include <time.h>

static const char date_format[] = "%a, %d %b %Y %H:%M:%S GMT";

void range_http_date(int64_t unix_s, char out[64])
{
	time_t t = unix_s;
	struct tm tm;

	out[0] = '\0';
	if (gmtime_r(&t, &tm))
		(void)strftime(out, 64, date_format, &tm);
}

bool range_not_modified(struct str if_modified_since, int64_t mtime_s)
{
	char text[64];
	struct tm tm = { 0 };
	const char *end;

	if (!if_modified_since.n || if_modified_since.n >= sizeof text)
		return false;
	memcpy(text, if_modified_since.p, if_modified_since.n);
	text[if_modified_since.n] = '\0';
	end = strptime(text, date_format, &tm);
	return end && *end == '\0' && mtime_s <= timegm(&tm);
}

static enum range_result part(int64_t first, int64_t last, int64_t size, struct range *ret)
{
	if (first >= size || last < first)
		return RANGE_IMPOSSIBLE;
	*ret = (struct range){ first, MIN(last, size - 1) - first + 1 };
	return RANGE_PART;
}

enum range_result range_choose(struct str header, struct str if_range, const char *last_modified,
	int64_t size, struct range *ret)
{
	static const struct str unit = { "bytes=", 6 };
	int64_t first = 0, last = INT64_MAX;
	struct str from, to;
	ptrdiff_t dash;

	if (!str_has_prefix(header, unit) || str_find(header, ',') >= 0)
		return RANGE_WHOLE;
	if (if_range.n && !str_is(if_range, last_modified))
		return RANGE_WHOLE;
	header = str_trim(str_from(header, unit.n));
	dash = str_find(header, '-');
	if (dash < 0)
		return RANGE_WHOLE;
	from = str_make(header.p, (size_t)dash);
	to = str_from(header, (size_t)dash + 1);
	if (to.n && str_to_int(to, 0, INT64_MAX, &last) < 0)
		return RANGE_WHOLE;
	if (from.n && str_to_int(from, 0, INT64_MAX, &first) < 0)
		return RANGE_WHOLE;
	if (from.n)
		return to.n && last < first ? RANGE_WHOLE : part(first, last, size, ret);
	if (!to.n)
		return RANGE_WHOLE;
	return last == 0 ? RANGE_IMPOSSIBLE : part(MAX(size - last, 0), size - 1, size, ret);
}
