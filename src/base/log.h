/* One line per handled error or event: `log_info("sandbox.created", "sandbox_id=%s ms=%d", ...)`.
 * The text is logfmt whatever is written; other formats are made of it. Levels 0-3 of the house
 * never log above debug. Values from outside go through log_quote(). Text that looks like one of
 * our secrets is masked in the sink, as the last line of defence. */
#pragma once

#include "base/str.h"

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_init(enum log_level level, int fd); /* in main, once; default: info to stderr */
enum log_format {
	LOG_LOGFMT, /* ts=... level=info event=sandbox.created sandbox_id=... */
	LOG_JSON,   /* {"ts":...,"level":"info","event":"sandbox.created","sandbox_id":...} */
	LOG_TEXT,   /* 12:34:56 info  sandbox.created sandbox_id=... */
};
int log_format_find(struct str name); /* -EINVAL: no such one */
void log_set_format(int format);      /* as log_init */
/* A line of logfmt as one JSON object; for the sink and its test. Returns its length, cut at a
 * whole member when there is no room. */
size_t log_to_json(struct str line, char *out, size_t size);
enum log_level log_get_level(void);
void log_write(enum log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(event, ...) log_write(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...) log_write(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_info(event, ...) log_write(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...)                                           \
	do {                                                            \
		if (log_get_level() >= LOG_LEVEL_DEBUG)                 \
			log_write(LOG_LEVEL_DEBUG, event, __VA_ARGS__); \
	} while (0)

/* Quotes and escapes an outside value into one of a few rotating buffers: use it at once. */
const char *log_quote(struct str s);
/* Masks `e2b_<hex>` keys and long hex tokens in place, keeping the first characters. */
void log_redact(char *line, size_t n);
