#include "connect/connect-internal.h"

enum {
	SCAN_MAX_DEPTH = 64 /* of a value that is passed over */
};

char scan_peek(struct scan *s)
{
	while (s->rest.n && strchr(" \t\r\n", s->rest.p[0]) && s->rest.p[0])
		s->rest = str_from(s->rest, 1);
	return s->rest.n ? s->rest.p[0] : '\0';
}

bool scan_eat(struct scan *s, char c)
{
	if (scan_peek(s) != c || s->rest.n == 0)
		return false;
	s->rest = str_from(s->rest, 1);
	return true;
}

/* A quote is escaped when an odd number of backslashes stands before it. */
static bool is_escaped(struct str text, size_t quote)
{
	size_t n = 0;

	while (n < quote && text.p[quote - n - 1] == '\\')
		n++;
	return n % 2 == 1;
}

int scan_string(struct scan *s, struct str *ret)
{
	struct str text;
	size_t at = 0;

	if (!scan_eat(s, '"'))
		return -EINVAL;
	text = s->rest;
	for (;; at++) {
		const char *quote = at < text.n ? memchr(text.p + at, '"', text.n - at) : NULL;

		if (!quote)
			return -EINVAL;
		at = (size_t)(quote - text.p);
		if (!is_escaped(text, at))
			break;
	}
	*ret = str_make(text.p, at);
	s->rest = str_from(text, at + 1);
	return 0;
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+' ||
	       c == '.' || c == 'E';
}

int scan_word(struct scan *s, struct str *ret)
{
	size_t n = 0;

	(void)scan_peek(s);
	while (n < s->rest.n && is_word(s->rest.p[n]))
		n++;
	if (n == 0)
		return -EINVAL;
	*ret = str_make(s->rest.p, n);
	s->rest = str_from(s->rest, n);
	return 0;
}

int scan_next(struct scan *s, char close, bool *first)
{
	if (scan_eat(s, close))
		return 0;
	if (!*first && !scan_eat(s, ','))
		return -EINVAL;
	*first = false;
	return 1;
}

/* Only the brackets are looked at: what is passed over need not be told apart. */
int scan_skip(struct scan *s)
{
	unsigned depth = 0;
	struct str text;
	int r = 0;

	do {
		char c = scan_peek(s);

		if (c == '"')
			r = scan_string(s, &text);
		else if (c == '{' || c == '[')
			depth++;
		else if (c == '}' || c == ']')
			r = depth-- > 0 ? 0 : -EINVAL;
		else if (c != ',' && c != ':')
			r = scan_word(s, &text);
		else if (depth == 0)
			r = -EINVAL;
		if (r == 0 && c && strchr("{}[],:", c))
			s->rest = str_from(s->rest, 1);
		if (r < 0 || depth > SCAN_MAX_DEPTH)
			return -EINVAL;
	} while (depth > 0);
	return 0;
}

/* ---- escapes ---- */

static int read_unit(struct str *text, uint32_t *ret)
{
	uint8_t bytes[2];

	if (text->n < 4 || hex_decode(str_make(text->p, 4), bytes, sizeof bytes) < 0)
		return -EINVAL;
	*ret = (uint32_t)bytes[0] << 8 | bytes[1];
	*text = str_from(*text, 4);
	return 0;
}

/* Behind "\u": a character, or the two halves of one beyond the first 65,536. */
static int read_code_point(struct str *text, uint32_t *ret)
{
	uint32_t low;

	if (read_unit(text, ret) < 0)
		return -EINVAL;
	if (*ret < 0xd800 || *ret > 0xdfff)
		return 0;
	if (*ret > 0xdbff || !str_has_prefix(*text, STR("\\u")))
		return -EINVAL;
	*text = str_from(*text, 2);
	if (read_unit(text, &low) < 0 || low < 0xdc00 || low > 0xdfff)
		return -EINVAL;
	*ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
	return 0;
}

static void add_utf8(struct buf *out, uint32_t c)
{
	char b[4] = { (char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)),
		(char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)) };
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (n == 1)
		b[3] = (char)c;
	else if (n == 2)
		b[2] = (char)(0xc0 | c >> 6);
	else if (n == 3)
		b[1] = (char)(0xe0 | c >> 12);
	(void)buf_add(out, b + 4 - n, n);
}

/* Behind the backslash. */
static int unescape_one(struct str *text, struct buf *out)
{
	static const char stands_for[256] = { ['"'] = '"',
		['\\'] = '\\',
		['/'] = '/',
		['n'] = '\n',
		['r'] = '\r',
		['t'] = '\t',
		['b'] = '\b',
		['f'] = '\f' };
	char c = text->p[0];
	uint32_t code;

	*text = str_from(*text, 1);
	if (stands_for[(unsigned char)c]) {
		(void)buf_addc(out, stands_for[(unsigned char)c]);
		return 0;
	}
	if (c != 'u' || read_code_point(text, &code) < 0)
		return -EINVAL;
	add_utf8(out, code);
	return 0;
}

int scan_unescape(struct str text, struct buf *out)
{
	while (text.n) {
		const char *escape = memchr(text.p, '\\', text.n);
		size_t n = escape ? (size_t)(escape - text.p) : text.n;

		(void)buf_add(out, text.p, n);
		text = str_from(text, n);
		if (!escape)
			break;
		text = str_from(text, 1);
		if (text.n == 0 || unescape_one(&text, out) < 0)
			return -EINVAL;
	}
	return out->failed ? -ENOBUFS : 0;
}
