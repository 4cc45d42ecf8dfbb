/* multipart - multipart/form-data as it comes, however it is cut, in constant memory.
 * Only the headers of one part are ever held; the bytes of a part are handed on as they arrive. */
#pragma once

#include "base/base.h"

enum {
	MULTIPART_MAX_BOUNDARY = 70,     /* RFC 2046 */
	MULTIPART_MAX_HEADERS = 16 << 10 /* of one part */
};

struct multipart_part {
	struct str name;     /* p NULL: none */
	struct str filename; /* as sent, directories included; p NULL: none */
};

/* Each may refuse with a negative code, which multipart_feed returns; the parser is of no use then.
 */
struct multipart_ops {
	int (*begin)(void *arg, const struct multipart_part *part, struct err *e);
	int (*data)(void *arg, struct str bytes, struct err *e);
	int (*end)(void *arg, struct err *e);
};

enum multipart_state {
	MULTIPART_PREAMBLE,
	MULTIPART_DELIMITED, /* right behind a boundary: padding, then CRLF or "--" */
	MULTIPART_HEADERS,
	MULTIPART_BODY,
	MULTIPART_EPILOGUE,
};

struct multipart {
	const struct multipart_ops *ops;
	void *arg;
	enum multipart_state state;
	char delimiter[MULTIPART_MAX_BOUNDARY + 5]; /* CR LF - - boundary NUL */
	size_t delimiter_n;
	size_t matched; /* of the delimiter, at the end of what has come so far */
	char mark;      /* DELIMITED: the first character of CRLF or "--"; 0: none yet */
	struct buf headers;
};

/* The boundary parameter of a Content-Type; -EINVAL when it is missing or impossible. */
int multipart_boundary(struct str content_type, char out[MULTIPART_MAX_BOUNDARY + 1],
	struct err *e);
void multipart_init(struct multipart *m, const char *boundary, const struct multipart_ops *ops,
	void *arg);
void multipart_done(struct multipart *m);
int multipart_feed(struct multipart *m, struct str bytes, struct err *e); /* -EPROTO: malformed */
int multipart_finish(const struct multipart *m, struct err *e);           /* -EPROTO: cut short */

/* A parameter of a header such as `form-data; name="file"`, unquoted, appended to out. False:
 * absent or malformed. */
bool header_param(struct str header, const char *name, struct buf *out);
