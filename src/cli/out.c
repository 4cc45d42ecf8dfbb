#include "cli/out.h"

int out_init(struct out *out, const char *color, bool no_color, const char *term, struct err *e)
{
	bool always = color && strcmp(color, "always") == 0;
	bool dumb = !term || !*term || strcmp(term, "dumb") == 0;
	bool never = (color && strcmp(color, "never") == 0) || (!always && (no_color || dumb));

	out->stdout_tty = isatty(STDOUT_FILENO);
	out->stderr_tty = isatty(STDERR_FILENO);
	out->stdout_color = always || (!never && out->stdout_tty);
	out->stderr_color = always || (!never && out->stderr_tty);
	out->redraws = out->stderr_tty && !dumb;
	out->text = BUF_INIT(OUT_MAX);
	out->now_us = time_wall_us();
	jsonw_init(&out->json_writer, &out->text);
	if (color && !always && strcmp(color, "never") != 0 && strcmp(color, "auto") != 0)
		return err_set(e, -EINVAL, "--color: '%s' is not one of auto, always, never",
			color);
	return 0;
}

void out_done(struct out *out)
{
	buf_done(&out->text);
}

int out_flush(struct out *out, struct err *e)
{
	int r;

	if (out->text.failed)
		return err_set(e, -ENOBUFS, "the output is longer than %d MiB", OUT_MAX >> 20);
	r = fd_write_all(STDOUT_FILENO, out->text.p, out->text.n);
	buf_clear(&out->text);
	return r < 0 ? err_sys(e, r, "write to stdout") : 0;
}

void out_line(struct out *out, const char *fmt, ...)
{
	char line[4096];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	(void)buf_adds(&out->text, line);
	(void)buf_addc(&out->text, '\n');
}

void out_pair(struct out *out, const char *name, const char *value)
{
	out_line(out, out->stdout_tty ? "%-10s%s" : "%s\t%s", name, value);
}

void out_note(const struct out *out, const char *fmt, ...)
{
	va_list ap;

	if (!out->stderr_tty || out->quiet || out->json)
		return;
	(void)fputs(out_color(out->stderr_color, OUT_DIM), stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, "%s\n", out_color(out->stderr_color, OUT_PLAIN));
}

const char *out_color(bool on, enum out_style style)
{
	static const char *const codes[] = {
		[OUT_PLAIN] = "\033[0m",
		[OUT_BOLD] = "\033[1m",
		[OUT_DIM] = "\033[2m",
		[OUT_GREEN] = "\033[32m",
		[OUT_YELLOW] = "\033[33m",
		[OUT_RED] = "\033[31m",
	};

	return on ? codes[style] : "";
}

/* ---- cells ---- */

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

static bool is_blank(char c)
{
	return c == '\t' || c == '\r' || c == '\n';
}

void out_clean(struct str text, char *p, size_t n)
{
	size_t at = 0;

	while (text.n > 0) {
		size_t len = utf8_length(text);
		bool bad = len == 0 || is_control(text, len);

		if (at + (bad ? 1 : len) >= n)
			break;
		if (bad)
			p[at++] = is_blank(text.p[0]) ? ' ' : '?';
		else
			memcpy(p + at, text.p, len);
		at += bad ? 0 : len;
		text = str_from(text, len ? len : 1);
	}
	p[at] = '\0';
}

void out_text(struct str text, char cell[OUT_CELL])
{
	out_clean(text.n ? text : STR("-"), cell, OUT_CELL);
}

static void relative(int64_t seconds, char cell[OUT_CELL])
{
	static const struct {
		int64_t from, unit;
		const char *name;
	} steps[] = { { 172800, 86400, "d" }, { 7200, 3600, "h" }, { 120, 60, "min" },
		{ 0, 1, "s" } };
	int64_t away = seconds < 0 ? -seconds : seconds;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (away >= steps[i].from) {
			(void)snprintf(cell, OUT_CELL, "%s%" PRId64 " %s%s",
				seconds > 0 ? "in " : "", away / steps[i].unit, steps[i].name,
				seconds > 0 ? "" : " ago");
			return;
		}
}

void out_time(const struct out *out, struct str rfc3339, char cell[OUT_CELL])
{
	int64_t us;

	if (!rfc3339.p || time_parse_rfc3339(rfc3339, &us) < 0)
		out_text(STR("-"), cell);
	else if (!out->stdout_tty)
		out_text(rfc3339, cell);
	else
		relative((us - out->now_us) / 1000000, cell);
}

void out_size(uint64_t bytes, char cell[OUT_CELL])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double n = (double)bytes;
	size_t unit = 0;

	while (n >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
		n /= 1024;
		unit++;
	}
	(void)snprintf(cell, OUT_CELL, unit && n < 10 ? "%.1f %s" : "%.0f %s", n, units[unit]);
}

/* ---- tables ---- */

void out_table_init(struct out_table *t, const char *const *titles, size_t n_columns)
{
	assert(n_columns <= OUT_MAX_COLUMNS);
	*t = (struct out_table){ .titles = titles, .n_columns = n_columns };
}

void out_table_done(struct out_table *t)
{
	free(t->cells);
	t->cells = NULL;
}

size_t out_table_add(struct out_table *t)
{
	if (t->n_rows == t->cap_rows) {
		t->cap_rows = t->cap_rows ? t->cap_rows * 2 : 16;
		t->cells = reallocarray(t->cells, t->cap_rows * t->n_columns, OUT_CELL);
		if (!t->cells)
			abort();
	}
	memset(t->cells + t->n_rows * t->n_columns, 0, t->n_columns * OUT_CELL);
	return t->n_rows++;
}

char *out_table_cell(struct out_table *t, size_t row, size_t column)
{
	return t->cells[row * t->n_columns + column];
}

static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void print_row(struct out *out, const char *const *cells, size_t n, const size_t *width)
{
	for (size_t c = 0; c < n; c++) {
		(void)buf_adds(&out->text, cells[c]);
		for (size_t at = width_of(cells[c]); c + 1 < n && at < width[c] + 2; at++)
			(void)buf_addc(&out->text, ' ');
	}
}

static void print_tabbed(struct out *out, const struct out_table *t)
{
	for (size_t i = 0; i < t->n_rows * t->n_columns; i++) {
		(void)buf_adds(&out->text, t->cells[i]);
		(void)buf_addc(&out->text, (i + 1) % t->n_columns ? '\t' : '\n');
	}
}

void out_table_print(struct out *out, const struct out_table *t)
{
	size_t width[OUT_MAX_COLUMNS];

	if (!out->stdout_tty) {
		print_tabbed(out, t);
		return;
	}
	for (size_t c = 0; c < t->n_columns; c++) {
		width[c] = width_of(t->titles[c]);
		for (size_t r = 0; r < t->n_rows; r++)
			width[c] = MAX(width[c], width_of(t->cells[r * t->n_columns + c]));
	}
	(void)buf_adds(&out->text, out_color(out->stdout_color, OUT_BOLD));
	print_row(out, t->titles, t->n_columns, width);
	(void)buf_adds(&out->text, out_color(out->stdout_color, OUT_PLAIN));
	(void)buf_addc(&out->text, '\n');
	for (size_t r = 0; r < t->n_rows; r++) {
		const char *cells[OUT_MAX_COLUMNS];

		for (size_t c = 0; c < t->n_columns; c++)
			cells[c] = t->cells[r * t->n_columns + c];
		print_row(out, cells, t->n_columns, width);
		(void)buf_addc(&out->text, '\n');
	}
}
