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
	CLEANUP(buf_done) struct buf shown = BUF_INIT(OUT_MAX);
	int r;

	if (out->stdout_tty)
		out_for_terminal(&shown, buf_str(&out->text));
	if (out->text.failed || shown.failed)
		return err_set(e, -ENOBUFS, "the output is longer than %d MiB", OUT_MAX >> 20);
	if (out->stdout_tty)
		r = fd_write_all(STDOUT_FILENO, buf_str(&shown).p, shown.n);
	else
		r = fd_write_all(STDOUT_FILENO, buf_str(&out->text).p, out->text.n);
	buf_clear(&out->text);
	return r < 0 ? err_sys(e, r, "write to stdout") : 0;
}

void out_line(struct out *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	out_format(&out->text, fmt, ap);
	va_end(ap);
	(void)buf_addc(&out->text, '\n');
}

void out_marked(struct out *out, enum out_style style, const char *mark, const char *fmt, ...)
{
	va_list ap;

	(void)buf_adds(&out->text, out_color(out->stdout_color, style));
	(void)buf_adds(&out->text, mark);
	(void)buf_adds(&out->text, out_color(out->stdout_color, OUT_PLAIN));
	va_start(ap, fmt);
	out_format(&out->text, fmt, ap);
	va_end(ap);
	(void)buf_addc(&out->text, '\n');
}

void out_own(struct out *out, const char *text)
{
	(void)buf_adds(&out->text, text);
	(void)buf_addc(&out->text, '\n');
}

void out_body(struct out *out, struct str body)
{
	(void)buf_add_str(&out->text, body);
}

void out_error_body(const struct out *out, struct str body)
{
	CLEANUP(buf_done) struct buf clean = BUF_INIT(OUT_MAX);

	if (out->stderr_tty) {
		out_for_terminal(&clean, body);
		body = buf_str(&clean);
	}
	(void)fd_write_all(STDERR_FILENO, body.p, body.n);
}

void out_pair(struct out *out, const char *name, const char *value)
{
	if (out->stdout_tty)
		out_line(out, "%-16s %s", name, value);
	else
		out_line(out, "%s\t%s", name, value);
}

/* A line on stderr: a mark of ours in its style, then the rest; without a mark the style is all of
 * the line's. */
static void say(const struct out *out, enum out_style style, const char *mark, const char *fmt,
	va_list ap) __attribute__((format(printf, 4, 0)));

static void say(const struct out *out, enum out_style style, const char *mark, const char *fmt,
	va_list ap)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(OUT_MAX);
	const char *begin = style ? out_color(out->stderr_color, style) : "";
	const char *end = style ? out_color(out->stderr_color, OUT_PLAIN) : "";

	(void)buf_printf(&line, "%s%s%s", begin, mark, mark[0] ? end : "");
	out_format(&line, fmt, ap);
	(void)buf_printf(&line, "%s\n", mark[0] ? "" : end);
	(void)fd_write_all(STDERR_FILENO, buf_str(&line).p, line.n);
}

void out_note(const struct out *out, const char *fmt, ...)
{
	va_list ap;

	if (!out->stderr_tty || out->quiet || out->json)
		return;
	va_start(ap, fmt);
	say(out, OUT_DIM, "", fmt, ap);
	va_end(ap);
}

void out_warn(const struct out *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(out, OUT_RED, "atoll: ", fmt, ap);
	va_end(ap);
}

void out_aside(const struct out *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(out, OUT_PLAIN, "", fmt, ap);
	va_end(ap);
}

void out_progress(const struct out *out, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(OUT_MAX);
	va_list ap;

	(void)buf_adds(&line, out->redraws ? "\r\033[K" : "");
	va_start(ap, fmt);
	out_format(&line, fmt, ap);
	va_end(ap);
	(void)buf_adds(&line, out->redraws ? "" : "\n");
	(void)fd_write_all(STDERR_FILENO, buf_str(&line).p, line.n);
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

/* An empty one would be lost by whoever takes tabs for blanks, as shells do. */
static const char *shown(const char *cell)
{
	return cell[0] ? cell : "-";
}

static void print_cell(struct out *out, const char *cell)
{
	char clean[OUT_CELL];

	out_clean(str_of(shown(cell)), clean, sizeof clean);
	(void)buf_adds(&out->text, clean);
}

static void print_row(struct out *out, const char *const *cells, size_t n, const size_t *width)
{
	for (size_t c = 0; c < n; c++) {
		print_cell(out, cells[c]);
		for (size_t at = MIN(width_of(shown(cells[c])), width[c]);
			c + 1 < n && at < width[c] + 2; at++)
			(void)buf_addc(&out->text, ' ');
	}
}

static void print_tabbed(struct out *out, const struct out_table *t, size_t from, size_t to)
{
	for (size_t i = from * t->n_columns; i < to * t->n_columns; i++) {
		print_cell(out, t->cells[i]);
		(void)buf_addc(&out->text, (i + 1) % t->n_columns ? '\t' : '\n');
	}
}

static void print_aligned(struct out *out, const struct out_table *t, size_t row,
	const size_t *width)
{
	const char *cells[OUT_MAX_COLUMNS];

	for (size_t c = 0; c < t->n_columns; c++)
		cells[c] = t->cells[row * t->n_columns + c];
	print_row(out, cells, t->n_columns, width);
	(void)buf_addc(&out->text, '\n');
}

void out_table_row(struct out *out, const struct out_table *t, size_t row, const size_t *width)
{
	if (out->stdout_tty)
		print_aligned(out, t, row, width);
	else
		print_tabbed(out, t, row, row + 1);
}

void out_table_print(struct out *out, const struct out_table *t)
{
	size_t width[OUT_MAX_COLUMNS];

	if (!out->stdout_tty) {
		print_tabbed(out, t, 0, t->n_rows);
		return;
	}
	for (size_t c = 0; c < t->n_columns; c++) {
		width[c] = width_of(t->titles[c]);
		for (size_t r = 0; r < t->n_rows; r++)
			width[c] = MAX(width[c], width_of(shown(t->cells[r * t->n_columns + c])));
	}
	(void)buf_adds(&out->text, out_color(out->stdout_color, OUT_BOLD));
	print_row(out, t->titles, t->n_columns, width);
	(void)buf_adds(&out->text, out_color(out->stdout_color, OUT_PLAIN));
	(void)buf_addc(&out->text, '\n');
	for (size_t r = 0; r < t->n_rows; r++)
		print_aligned(out, t, r, width);
}
