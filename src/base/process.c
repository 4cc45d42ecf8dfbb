#include "base/process.h"

int process_start_time(pid_t pid, uint64_t *ret)
{
	enum {
		FIELD_AFTER_NAME =
			20, /* start time is field 22; fields are counted from the state, 3 */
	};
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct str rest, field = STR_NONE;
	int64_t value;
	char path[32];
	int r;

	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	r = file_read(AT_FDCWD, path, &text, NULL);
	if (r < 0)
		return r;
	/* The name may contain anything, also spaces and brackets; the last bracket ends it. */
	rest = buf_str(&text);
	for (const char *p = rest.p; (p = memchr(p, ')', text.n - (size_t)(p - text.p))); p++)
		rest = str_make(p + 1, text.n - (size_t)(p + 1 - text.p));
	rest = str_trim(rest);
	for (int i = 0; i < FIELD_AFTER_NAME; i++)
		if (!str_split(&rest, ' ', &field))
			return -EPROTO;
	r = str_to_int(field, 0, INT64_MAX, &value);
	if (r >= 0)
		*ret = (uint64_t)value;
	return r;
}
