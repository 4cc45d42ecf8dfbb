/* out - what people and scripts read: data on stdout, everything else on stderr.
 * On a terminal tables are aligned, times relative, marks coloured; in a pipe the same columns come
 * separated by tabs, times are ISO, and no escape byte is ever written. Values in lines, notes and
 * tables are cleaned of control characters in both cases, whoever they are from; and whatever goes
 * to a terminal is looked through once more as it is written, JSON and bodies too. Nothing else in
 * this room writes to stdout or stderr, but for the output of commands in a sandbox and files that
 * are copied to stdout (outlet.h), which are what was asked for. */
#pragma once

#include "base/base.h"
#include "json/json.h"

#include <stdarg.h>

enum {
	OUT_MAX = 64 << 20,
	OUT_MAX_COLUMNS = 10,
	OUT_CELL = 256,
};

enum out_style {
	OUT_PLAIN,
	OUT_BOLD,
	OUT_DIM,
	OUT_GREEN,
	OUT_YELLOW,
	OUT_RED,
};

struct out {
	struct buf text; /* of stdout, written at once at the end */
	struct jsonw json_writer;
	int64_t now_us; /* wall clock; one value for all relative times of a run */
	bool json, quiet;
	bool stdout_tty, stderr_tty;
	bool stdout_color, stderr_color;
	bool redraws; /* stderr is a terminal that can go back in a line */
};

/* color: "auto" (NULL too), "always" or "never". no_color: the environment's NO_COLOR was set.
 * term: its TERM, or NULL; a dumb one is neither coloured nor redrawn. Usable also when it fails,
 * so that the failure can be told. */
int out_init(struct out *out, const char *color, bool no_color, const char *term, struct err *e);
void out_done(struct out *out);
/* Writes what was collected. -EPIPE when nobody reads any more. */
int out_flush(struct out *out, struct err *e);

/* What stands in the format is ours; what is put into it (%s, %d, %u, l and z, widths) is cleaned,
 * so that it neither moves the cursor nor begins a line. */
void out_line(struct out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same behind a mark of ours in a style. */
void out_marked(struct out *out, enum out_style style, const char *mark, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void out_own(struct out *out, const char *text); /* lines of the program's own text */
void out_body(struct out *out, struct str body); /* as it came; a terminal gets it cleaned */
/* The same on stderr, at once. */
void out_error_body(const struct out *out, struct str body);
/* One of a few lines that describe a thing: a name and its value. */
void out_pair(struct out *out, const char *name, const char *value);
/* On stderr, at once, and only where somebody sits and did not ask for silence. */
void out_note(const struct out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* On stderr, at once: what went wrong and is not the end. */
void out_warn(const struct out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same without a word in front: what a script may read there. */
void out_aside(const struct out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line on stderr that is drawn again in its place, where that can be done. */
void out_progress(const struct out *out, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
const char *out_color(bool on, enum out_style style); /* "" when off */

/* Tables. Cells are copied; a row has as many as there are titles. An empty one is shown as "-". */
struct out_table {
	const char *const *titles;
	size_t n_columns, n_rows, cap_rows;
	char (*cells)[OUT_CELL];
};
void out_table_init(struct out_table *t, const char *const *titles, size_t n_columns);
void out_table_done(struct out_table *t);
/* The cell to print into: row by row, left to right. */
char *out_table_cell(struct out_table *t, size_t row, size_t column);
size_t out_table_add(struct out_table *t); /* a new row's number */
void out_table_print(struct out *out, const struct out_table *t);
/* One row as that prints it, where the others are not known yet: in columns of these widths. */
void out_table_row(struct out *out, const struct out_table *t, size_t row, const size_t *width);

/* "3 min ago", "in 2 h" on a terminal, ISO as given elsewhere; "-" when the text is no time. */
void out_time(const struct out *out, struct str rfc3339, char cell[OUT_CELL]);
void out_size(uint64_t bytes, char cell[OUT_CELL]); /* "1.5 GiB" */
void out_text(struct str text, char cell[OUT_CELL]);
/* Control characters, in ASCII or as UTF-8 C1, become '?', tabs and line ends a space; bytes that
 * are not UTF-8 become '?'. n counts the NUL. */
void out_clean(struct str text, char *p, size_t n);
/* What all of the above is made of. */
void out_format(struct buf *to, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
/* Lines, tabs and our own styles stay; other controls become '?'. */
void out_for_terminal(struct buf *to, struct str text);
