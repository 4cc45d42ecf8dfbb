/* Text from outside, on its way to whoever reads. Whatever it holds, a terminal shows it and obeys
 * none of it. Every line that this program writes is formatted here, so that no caller has to think
 * of it. */
#include "cli/out.h"

/* ---- characters ---- */

static size_t utf8_length(struct str s)
{
	unsigned char c = (unsigned char)s.p[0];
	size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

	return n <= s.n && str_is_utf8(str_make(s.p, n)) ? n : 0;
}

static bool is_control(struct str s, size_t n)
{
	unsigned char c = (unsigned char)s.p[0];

	return (n == 1 && (c < 0x20 || c == 0x7f)) ||
	       (n == 2 && c == 0xc2 && (unsigned char)s.p[1] < 0xa0);
}

/* Lines of their own kind, and what turns around the text beside it. */
static bool is_trick(struct str s, size_t n)
{
	static const char *const marks[] = { "\u2028", "\u2029", "\u202a", "\u202b", "\u202c",
		"\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069" };

	for (size_t i = 0; n == 3 && i < ARRAY_SIZE(marks); i++)
		if (memcmp(s.p, marks[i], 3) == 0)
			return true;
	return false;
}

static bool is_blank(char c)
{
	return c == '\t' || c == '\r' || c == '\n';
}

/* Takes a character off the text; its clean form is at *ret. */
static struct str next_clean(struct str *text)
{
	size_t n = utf8_length(*text);
	struct str got = str_make(text->p, n);

	*text = str_from(*text, n ? n : 1);
	if (n && !is_control(got, n) && !is_trick(got, n))
		return got;
	return n && is_blank(got.p[0]) ? STR(" ") : STR("?");
}

void out_clean(struct str text, char *p, size_t n)
{
	size_t at = 0;

	while (text.n > 0) {
		struct str c = next_clean(&text);

		if (at + c.n >= n)
			break;
		memcpy(p + at, c.p, c.n);
		at += c.n;
	}
	p[at] = '\0';
}

/* How many columns it takes, roughly: one a character. */
static size_t add_clean(struct buf *to, struct str text)
{
	size_t n = 0;

	for (; text.n > 0; n++)
		(void)buf_add_str(to, next_clean(&text));
	return n;
}

/* ---- lines ---- */

struct spec { /* of one value in a format */
	bool is_left, is_wide;
	int width, precision; /* precision -1: none */
};

static int read_number(const char **p, va_list *ap)
{
	int n = 0;

	if (**p == '*') {
		(*p)++;
		return va_arg(*ap, int);
	}
	for (; **p >= '0' && **p <= '9' && n < OUT_CELL; (*p)++)
		n = 10 * n + (**p - '0');
	return n;
}

static struct spec read_spec(const char **p, va_list *ap)
{
	struct spec s = { .precision = -1 };

	if (**p == '-') {
		s.is_left = true;
		(*p)++;
	}
	s.width = read_number(p, ap);
	if (**p == '.') {
		(*p)++;
		s.precision = read_number(p, ap);
	}
	for (; **p == 'l' || **p == 'z'; (*p)++) /* both as wide as an int64_t */
		s.is_wide = true;
	return s;
}

static void add_padded(struct buf *to, const struct spec *s, struct str text)
{
	CLEANUP(buf_done) struct buf clean = BUF_INIT(OUT_MAX);
	size_t n = add_clean(&clean, text);

	for (size_t i = n; !s->is_left && i < (size_t)s->width; i++)
		(void)buf_addc(to, ' ');
	(void)buf_add_str(to, buf_str(&clean));
	for (size_t i = n; s->is_left && i < (size_t)s->width; i++)
		(void)buf_addc(to, ' ');
}

static void add_text(struct buf *to, const struct spec *s, const char *text)
{
	size_t most = s->precision < 0 ? OUT_MAX : (size_t)s->precision;

	add_padded(to, s, text ? str_make(text, strnlen(text, most)) : STR("-"));
}

static void add_int(struct buf *to, const struct spec *s, char kind, va_list *ap)
{
	char digits[24];
	int64_t value;

	if (s->is_wide)
		value = va_arg(*ap, int64_t);
	else
		value = kind == 'u' ? (int64_t)va_arg(*ap, unsigned) : va_arg(*ap, int);
	if (kind == 'u')
		(void)snprintf(digits, sizeof digits, "%" PRIu64, (uint64_t)value);
	else
		(void)snprintf(digits, sizeof digits, "%" PRId64, value);
	add_padded(to, s, str_of(digits));
}

/* The value whose '%' stands before p; returns what follows it. */
static const char *add_value(struct buf *to, const char *p, va_list *ap)
{
	struct spec s = read_spec(&p, ap);

	assert(strchr("sdu%", *p) && *p); /* our own formats need no more */
	if (*p == 's')
		add_text(to, &s, va_arg(*ap, const char *));
	else if (*p == '%')
		(void)buf_addc(to, '%');
	else
		add_int(to, &s, *p, ap);
	return p + 1;
}

void out_format(struct buf *to, const char *fmt, va_list args)
{
	va_list ap;

	va_copy(ap, args);
	while (*fmt) {
		const char *mark = strchrnul(fmt, '%');

		(void)buf_add(to, fmt, (size_t)(mark - fmt));
		fmt = *mark ? add_value(to, mark + 1, &ap) : mark;
	}
	va_end(ap);
}

/* ---- all that goes to a terminal ---- */

/* The length of one of our own marks at the start of the text; 0: there is none. */
static size_t own_mark(struct str text)
{
	for (int style = OUT_PLAIN; style <= OUT_RED; style++) {
		struct str mark = str_of(out_color(true, (enum out_style)style));

		if (str_has_prefix(text, mark))
			return mark.n;
	}
	return 0;
}

static bool may_pass(struct str text, size_t n)
{
	unsigned char c = (unsigned char)text.p[0];

	if (n == 0) /* not UTF-8; but some terminals take a byte of these for a control */
		return c >= 0xa0;
	return !is_control(text, n) || c == '\n' || c == '\t';
}

void out_for_terminal(struct buf *to, struct str text)
{
	while (text.n > 0) {
		size_t mark = own_mark(text), n = mark ? mark : utf8_length(text);
		struct str got = str_make(text.p, n ? n : 1);

		if (mark || may_pass(text, n))
			(void)buf_add_str(to, got);
		else
			(void)buf_addc(to, '?');
		text = str_from(text, got.n);
	}
}
