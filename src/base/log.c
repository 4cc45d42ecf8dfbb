#include "base/base.h"

#include <ctype.h>
#include <time.h>

/* The only mutable globals of the house: level and sink, set once in main. */
static enum log_level sink_level = LOG_LEVEL_INFO;
static int sink_fd = STDERR_FILENO;

void log_init(enum log_level level, int fd)
{
	sink_level = level;
	sink_fd = fd;
}

enum log_level log_get_level(void)
{
	return sink_level;
}

static size_t hex_run(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n && isxdigit((unsigned char)p[i]))
		i++;
	return i;
}

void log_redact(char *line, size_t n)
{
	for (size_t i = 0; i < n;) {
		bool key = n - i > 4 && memcmp(line + i, "e2b_", 4) == 0;
		size_t start = key ? i + 4 : i, run = hex_run(line + start, n - start);
		size_t keep = key ? 2 : 4;

		/* A key at any length; a bare token only from 32 digits on, so that ids stay
		 * readable. */
		if ((key && run > keep) || run >= 32)
			memset(line + start + keep, '*', run - keep);
		i = start + MAX(run, (size_t)1);
	}
}

const char *log_quote(struct str s)
{
	static _Thread_local char ring[4][512];
	static _Thread_local unsigned turn;
	char *out = ring[turn++ % 4];
	size_t n = 0;

	out[n++] = '"';
	for (size_t i = 0; i < s.n && n < sizeof ring[0] - 8; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c == '"' || c == '\\') {
			out[n++] = '\\';
			out[n++] = (char)c;
		} else if (c < 0x20 || c == 0x7f || c >= 0x80) {
			n += (size_t)snprintf(out + n, 5, "\\x%02x", c);
		} else {
			out[n++] = (char)c;
		}
	}
	out[n++] = '"';
	out[n] = '\0';
	return out;
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char line[2048], at[RFC3339_SIZE];
	va_list ap;
	int n, more;

	if (level > sink_level)
		return;
	time_rfc3339(time_wall_us(), at);
	n = snprintf(line, sizeof line, "ts=%s level=%s event=%s ", at, names[level], event);
	va_start(ap, fmt);
	more = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = MIN(n + MAX(more, 0), (int)sizeof line - 2);
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20)
			line[i] = ' '; /* one event, one line, whatever slipped through */
	log_redact(line, (size_t)n);
	line[n++] = '\n';
	(void)!write(sink_fd, line, (size_t)n); /* nowhere left to complain to */
}
