/* No attribute named Domain is left, what has none is left as it is, and a second look changes
 * nothing. */
#include "edge/edge-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* By other means than the code that is tested. */
static bool has_domain(struct str cookie)
{
	for (size_t i = 0; i < cookie.n; i++) {
		size_t at = i + 1, end;

		if (cookie.p[i] != ';')
			continue;
		while (at < cookie.n && (cookie.p[at] == ' ' || cookie.p[at] == '\t'))
			at++;
		if (cookie.n - at < 6 || strncasecmp(cookie.p + at, "domain", 6) != 0)
			continue;
		for (end = at + 6; end < cookie.n && strchr(" \t", cookie.p[end]) && cookie.p[end];)
			end++;
		if (end == cookie.n || cookie.p[end] == '=' || cookie.p[end] == ';')
			return true;
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str cookie = str_make(data, size);
	CLEANUP(buf_done) struct buf once = BUF_INIT(1 << 20), twice = BUF_INIT(1 << 20);

	cookie_host_only(cookie, &once);
	assert(!once.failed && !has_domain(buf_str(&once)));
	if (!has_domain(cookie))
		assert(str_eq(buf_str(&once), cookie));
	cookie_host_only(buf_str(&once), &twice);
	assert(str_eq(buf_str(&once), buf_str(&twice)));
	return 0;
}
