/* Whatever is put into a line, nothing in it moves a cursor or begins another line; and what goes
 * to a terminal has no control but lines, tabs and our own styles. */
#include "cli/out.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void format(struct buf *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void format(struct buf *to, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	out_format(to, fmt, ap);
	va_end(ap);
}

static bool is_control(const char *p, size_t left)
{
	unsigned char c = (unsigned char)p[0];

	return c < 0x20 || c == 0x7f ||
	       (c == 0xc2 && left > 1 && (unsigned char)p[1] >= 0x80 && (unsigned char)p[1] < 0xa0);
}

static void check_line(struct str line)
{
	assert(str_is_utf8(line));
	for (size_t i = 0; i < line.n; i++)
		assert(!is_control(line.p + i, line.n - i));
}

static bool is_style(struct str text)
{
	for (int style = OUT_PLAIN; style <= OUT_RED; style++)
		if (str_has_prefix(text, str_of(out_color(true, (enum out_style)style))))
			return true;
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(OUT_MAX), shown = BUF_INIT(OUT_MAX);
	struct str text = str_make(data, size);

	format(&line, "%.*s|%-20.*s|", STR_ARG(text), STR_ARG(text));
	check_line(buf_str(&line));
	out_for_terminal(&shown, text);
	for (size_t i = 0; i < shown.n; i++)
		assert(!is_control(shown.p + i, shown.n - i) || shown.p[i] == '\n' ||
			shown.p[i] == '\t' || is_style(str_from(buf_str(&shown), i)));
	return 0;
}
