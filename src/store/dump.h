/* The file that a database is moved by: JSON, one document a line.
 *
 *   {"atoll":"database","format":1,"version":6}           first: what it is, and of which version
 *   {"table":"teams","row":{"id":"...","created_us":7}}   each row, all of its columns
 *   {"rows":42}                                           last: how many there were
 *
 * Tables and rows are in an order that does not depend on the database, so the same rows always
 * give the same bytes. What is sealed in the database stays sealed. */
#pragma once

#include "store/catalog.h"

#include "json/json.h"

enum {
	DUMP_FORMAT = 1,
	DUMP_LINE = 64 << 20, /* the longest line */
};

enum dump_kind {
	DUMP_HEADER,
	DUMP_ROW,
	DUMP_END,
};

struct dump_value {
	struct str column;
	struct store_param value;
};

struct dump_line {
	enum dump_kind kind;
	int64_t version; /* of a header */
	int64_t rows;    /* of the end */
	struct str table;
	struct dump_value *values;
	size_t n_values;
};

void dump_write(const struct dump_line *line, struct buf *out);
/* One line, without its end. Everything it holds is in the arena. */
int dump_parse(struct arena *arena, struct str text, struct dump_line *ret, struct err *e);

/* Bytes in, lines out: fn is called for each, in order; its failure stops. */
typedef int (*dump_fn)(void *arg, const struct dump_line *line, struct err *e);
struct dump_reader {
	struct buf rest; /* of a line that has not ended */
	int64_t n_lines;
	dump_fn fn;
	void *arg;
};
void dump_reader_init(struct dump_reader *reader, dump_fn fn, void *arg);
void dump_reader_done(struct dump_reader *reader);
int dump_reader_feed(struct dump_reader *reader, struct str bytes, struct err *e);
/* -EBADMSG: it ended in the middle of a line. */
int dump_reader_end(struct dump_reader *reader, struct err *e);
