/* Properties: whatever the text, it ends, with a reason when it is refused; a text that bash would
 * take as one quoted word runs nothing; and what follows a line that is understood is still seen.
 */
#include "execution/execution-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count(void *arg, struct str program, struct err *e)
{
	(void)e;
	assert(program.n > 0);
	*(int *)arg += str_is(program, "seen-by-all-means");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(1 << 20);
	struct str text = { (const char *)data, size };
	struct err e = { 0 };
	int n = 0, r = shell_programs(text, count, &n, &e);

	assert(r == 0 || (r == -EPERM && e.msg[0]));
	if (r < 0 || size > 4096)
		return 0;
	/* A here-document or a comment may swallow a line, but not one behind an empty line that
	 * begins a command of its own: only an unfinished here-document reaches to the end. */
	if (memmem(data, size, "<<", 2))
		return 0;
	(void)buf_add_str(&line, text);
	(void)buf_adds(&line, "\nseen-by-all-means\n");
	n = 0;
	r = shell_programs(buf_str(&line), count, &n, &e);
	assert(r < 0 || n >= 1);
	return 0;
}
