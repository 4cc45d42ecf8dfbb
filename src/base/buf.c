#include "base/base.h"

#include <ctype.h>

void buf_done(struct buf *b)
{
	free(b->p);
	*b = (struct buf){ .max = b->max };
}

char *buf_reserve(struct buf *b, size_t n)
{
	size_t need = b->n + n, cap = b->cap ? b->cap : 64;
	char *p;

	if (b->failed || n > b->max || b->n > b->max - n) {
		b->failed = true;
		return NULL;
	}
	if (need < b->cap)
		return b->p + b->n;
	while (cap <= need)
		cap *= 2;
	p = realloc(b->p, cap);
	if (!p) {
		b->failed = true;
		return NULL;
	}
	b->p = p;
	b->cap = cap;
	return p + b->n;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
	char *to = buf_reserve(b, n);

	if (!to)
		return -ENOBUFS;
	if (n)
		memcpy(to, p, n);
	b->n += n;
	b->p[b->n] = '\0';
	return 0;
}

int buf_adds(struct buf *b, const char *z)
{
	return buf_add(b, z, strlen(z));
}

int buf_add_str(struct buf *b, struct str s)
{
	return buf_add(b, s.p, s.n);
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	char *to;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	to = n < 0 ? NULL : buf_reserve(b, (size_t)n);
	if (!to)
		return -ENOBUFS;
	va_start(ap, fmt);
	(void)vsnprintf(to, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
	return 0;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->n);
	b->n -= n;
	if (b->n)
		memmove(b->p, b->p + n, b->n);
	if (b->p)
		b->p[b->n] = '\0';
}

void buf_clear(struct buf *b)
{
	b->n = 0;
	b->failed = false;
	if (b->p)
		b->p[0] = '\0';
}

bool str_eq_nocase(struct str a, struct str b)
{
	if (a.n != b.n)
		return false;
	for (size_t i = 0; i < a.n; i++)
		if (tolower((unsigned char)a.p[i]) != tolower((unsigned char)b.p[i]))
			return false;
	return true;
}

struct str str_trim(struct str s)
{
	while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
		s = str_from(s, 1);
	while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
		s.n--;
	return s;
}

ptrdiff_t str_find(struct str s, char c)
{
	const char *at = s.n ? memchr(s.p, c, s.n) : NULL;

	return at ? at - s.p : -1;
}

bool str_split(struct str *rest, char sep, struct str *field)
{
	ptrdiff_t at;

	if (!rest->p)
		return false;
	at = str_find(*rest, sep);
	if (at < 0) {
		*field = *rest;
		*rest = STR_NONE;
		return true;
	}
	*field = (struct str){ rest->p, (size_t)at };
	*rest = str_from(*rest, (size_t)at + 1);
	return true;
}

int str_to_int(struct str s, int64_t min, int64_t max, int64_t *ret)
{
	bool negative = s.n && s.p[0] == '-';
	int64_t v = 0;

	if (negative)
		s = str_from(s, 1);
	if (!s.n)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++) {
		int digit = s.p[i] - '0';

		if (digit < 0 || digit > 9)
			return -EINVAL;
		if (__builtin_mul_overflow(v, 10, &v) ||
			__builtin_sub_overflow(v, digit, &v)) /* downwards: INT64_MIN fits */
			return -ERANGE;
	}
	if (!negative && __builtin_sub_overflow(0, v, &v))
		return -ERANGE;
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

/* Length of the well-formed sequence at s, 0 if there is none (overlong, surrogate, cut, NUL). */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	if (s[0] < 0x80)
		return s[0] != 0;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		return n >= 2 && (s[1] & 0xc0) == 0x80 ? 2 : 0;
	if (n < 3 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80)
		return 0;
	if (s[0] >= 0xe0 && s[0] <= 0xef) {
		if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))
			return 0;
		return 3;
	}
	if (n < 4 || (s[3] & 0xc0) != 0x80 || s[0] < 0xf0 || s[0] > 0xf4)
		return 0;
	if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return 4;
}

bool str_is_variable(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
			    (i > 0 && c >= '0' && c <= '9')))
			return false;
	}
	return s.n > 0;
}

bool str_is_utf8(struct str s)
{
	for (size_t i = 0; i < s.n;) {
		size_t step = utf8_len((const unsigned char *)s.p + i, s.n - i);

		if (!step)
			return false;
		i += step;
	}
	return true;
}
