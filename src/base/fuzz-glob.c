/* The same answer as libc's matcher gives, where that one is sure to be quick and means the same:
 * few stars, no sets. Whatever the pattern, a name that is the pattern with all its marks escaped
 * matches itself. */
#include "base/base.h"
#include "base/glob.h"

#include <fnmatch.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_plain(struct str pattern)
{
	size_t stars = 0;

	for (size_t i = 0; i < pattern.n; i++) {
		if (strchr("[]\\", pattern.p[i])) /* NUL too */
			return false;
		stars += pattern.p[i] == '*';
	}
	return stars <= 4 && pattern.n <= 64;
}

static void compare(const struct glob *g, struct str pattern, struct str name)
{
	char p[65], n[65];

	if (name.n > 64 || (name.n && memchr(name.p, 0, name.n)))
		return;
	(void)snprintf(p, sizeof p, "%.*s", STR_ARG(pattern));
	(void)snprintf(n, sizeof n, "%.*s", STR_ARG(name));
	assert(glob_matches(g, name) == (fnmatch(p, n, FNM_PERIOD) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = str_make(data, size), pattern = STR_NONE, name = STR_NONE;
	CLEANUP(buf_done) struct buf escaped = BUF_INIT(1 << 20);
	struct glob g;

	(void)str_split(&rest, '\n', &pattern);
	(void)str_split(&rest, '\n', &name);
	if (glob_compile(&g, pattern) < 0)
		return 0;
	(void)glob_matches(&g, name);
	if (is_plain(pattern))
		compare(&g, pattern, name);
	if (name.n > GLOB_NAME_MAX)
		return 0;
	for (size_t i = 0; i < name.n; i++) {
		(void)buf_addc(&escaped, '\\');
		(void)buf_addc(&escaped, name.p[i]);
	}
	assert(glob_compile(&g, buf_str(&escaped)) == 0 && glob_matches(&g, name));
	return 0;
}
