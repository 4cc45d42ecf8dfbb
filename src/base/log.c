#include "base/base.h"

#include <ctype.h>
#include <time.h>

/* The only mutable globals of the house: level and sink, set once in main. */
static enum log_level sink_level = LOG_LEVEL_INFO;
static int sink_fd = STDERR_FILENO;
static enum log_format sink_format = LOG_LOGFMT;

void log_init(enum log_level level, int fd)
{
	sink_level = level;
	sink_fd = fd;
}

int log_format_find(struct str name)
{
	static const char *const names[] = { "logfmt", "json", "text" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_is(name, names[i]))
			return (int)i;
	return -EINVAL;
}

void log_set_format(int format)
{
	if (format >= 0)
		sink_format = (enum log_format)format;
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

/* ---- other formats ---- */

struct out {
	char *p;
	size_t n, size;
	bool full;
};

static void put(struct out *o, const char *bytes, size_t n)
{
	if (o->full || n > o->size - o->n) {
		o->full = true;
		return;
	}
	memcpy(o->p + o->n, bytes, n);
	o->n += n;
}

static bool is_number(struct str s)
{
	size_t digits = 0;

	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] >= '0' && s.p[i] <= '9')
			digits++;
		else if (s.p[i] != '-' || i > 0)
			return false;
	}
	/* Other readers keep numbers as doubles; and 007 is none. */
	return digits > 0 && digits <= 15 && (digits == 1 || s.p[s.n - digits] != '0');
}

/* One value of logfmt: bare, or as log_quote made it, in which \\xNN stands for a byte. */
static void put_value(struct out *o, struct str value, bool quoted)
{
	if (!quoted && is_number(value)) {
		put(o, value.p, value.n);
		return;
	}
	put(o, "\"", 1);
	for (size_t i = 0; i < value.n; i++) {
		char c = value.p[i];

		if (quoted && c == '\\' && i + 1 < value.n && value.p[i + 1] == 'x')
			put(o, "\\\\", 2); /* stays readable: the bytes need not be UTF-8 */
		else if (quoted && c == '\\' && i + 1 < value.n) {
			put(o, value.p + i, 2);
			i++;
		} else if (c == '"' || c == '\\') {
			put(o, "\\", 1);
			put(o, &c, 1);
		} else if ((unsigned char)c >= 0x80 || (unsigned char)c < 0x20) {
			put(o, "?", 1);
		} else {
			put(o, &c, 1);
		}
	}
	put(o, "\"", 1);
}

/* Takes `key=value` off the front; a word without '=' is a key without a value. */
static bool next_pair(struct str *rest, struct str *key, struct str *value, bool *quoted)
{
	size_t i = 0;

	while (rest->n && rest->p[0] == ' ')
		*rest = str_from(*rest, 1);
	if (rest->n == 0)
		return false;
	while (i < rest->n && rest->p[i] != '=' && rest->p[i] != ' ')
		i++;
	*key = str_make(rest->p, i);
	*value = STR("");
	*quoted = false;
	if (i == rest->n || rest->p[i] == ' ') {
		*rest = str_from(*rest, i);
		return true;
	}
	*rest = str_from(*rest, i + 1);
	*quoted = rest->n && rest->p[0] == '"';
	for (i = *quoted; i < rest->n && rest->p[i] != (*quoted ? '"' : ' '); i++)
		i += *quoted && rest->p[i] == '\\' && i + 1 < rest->n;
	*value = str_make(rest->p + *quoted, i - *quoted);
	*rest = str_from(*rest, i + *quoted);
	return true;
}

size_t log_to_json(struct str line, char *out, size_t size)
{
	struct out o = { .p = out, .size = size - 2 };
	struct str key, value;
	bool quoted;
	size_t whole = 0;

	put(&o, "{", 1);
	while (!o.full && next_pair(&line, &key, &value, &quoted)) {
		whole = o.n;
		if (whole > 1)
			put(&o, ",", 1);
		put_value(&o, key, true);
		put(&o, ":", 1);
		put_value(&o, value, quoted);
	}
	if (o.full)
		o.n = MAX(whole, (size_t)1);
	out[o.n++] = '}';
	return o.n;
}

static size_t begin_line(char *line, size_t size, enum log_level level, const char *event)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char at[RFC3339_SIZE];

	time_rfc3339(time_wall_us(), at);
	if (sink_format == LOG_TEXT)
		return (size_t)snprintf(line, size, "%.8s %-5s %s ", at + 11, names[level], event);
	return (size_t)snprintf(line, size, "ts=%s level=%s event=%s ", at, names[level], event);
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
	char line[2048], json[4096];
	const char *text = line;
	va_list ap;
	size_t n;
	int more;

	if (level > sink_level)
		return;
	n = begin_line(line, sizeof line, level, event);
	va_start(ap, fmt);
	more = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	va_end(ap);
	n = MIN(n + (size_t)MAX(more, 0), sizeof line - 2);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20)
			line[i] = ' '; /* one event, one line, whatever slipped through */
	log_redact(line, n);
	if (sink_format == LOG_JSON) {
		n = log_to_json(str_make(line, n), json, sizeof json - 1);
		text = json;
		json[n++] = '\n';
	} else {
		line[n++] = '\n';
	}
	(void)!write(sink_fd, text, n); /* nowhere left to complain to */
}
