#include "egress/egress-internal.h"

enum {
	METHOD_MAX_CHARS = 32,
	LINE_MAX_BYTES = 12 * 1024,
	TLS_HANDSHAKE = 0x16,
};

static bool is_method_char(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

static bool ends_in_version(struct str line)
{
	static const struct str mark = { " HTTP/1.", 8 };

	return line.n > mark.n + 1 && str_eq(str_make(line.p + line.n - 9, 8), mark);
}

/* "GET /path HTTP/1.1": the rest is for whoever reads the request. */
static enum sniffed sniff_line(struct str bytes)
{
	const char *lf = memchr(bytes.p, '\n', bytes.n);
	size_t n = 0;
	struct str line;

	while (n < bytes.n && n <= METHOD_MAX_CHARS && is_method_char(bytes.p[n]))
		n++;
	if (n < bytes.n && (n == 0 || bytes.p[n] != ' '))
		return SNIFF_OTHER;
	if (!lf)
		return bytes.n > LINE_MAX_BYTES ? SNIFF_OTHER : SNIFF_MORE;
	line = str_make(bytes.p, (size_t)(lf - bytes.p));
	if (line.n > 0 && line.p[line.n - 1] == '\r')
		line.n--;
	return ends_in_version(line) ? SNIFF_HTTP : SNIFF_OTHER;
}

enum sniffed sniff(struct str bytes, char name[DNS_TEXT_SIZE])
{
	enum sniffed what;

	name[0] = '\0';
	if (bytes.n == 0)
		return SNIFF_MORE;
	what = bytes.p[0] == TLS_HANDSHAKE ? hello_parse(bytes, name) : sniff_line(bytes);
	if (what == SNIFF_MORE && bytes.n >= SNIFF_MAX_BYTES)
		return SNIFF_OTHER;
	return what;
}
