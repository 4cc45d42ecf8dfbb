/* How it works: the delimiter is CRLF "--" boundary, and CR occurs in it only at its start. So a
 * delimiter that is broken off never hides the start of another one within what was already
 * matched: the matched part is given out as data and the search goes on at the same byte. That
 * makes the number `matched` the whole memory between two pieces of input. */
#include "guest/multipart.h"

#include <ctype.h>

void multipart_init(struct multipart *m, const char *boundary, const struct multipart_ops *ops,
	void *arg)
{
	int n;

	*m = (struct multipart){ .ops = ops,
		.arg = arg,
		.headers = BUF_INIT(MULTIPART_MAX_HEADERS) };
	n = snprintf(m->delimiter, sizeof m->delimiter, "\r\n--%s", boundary);
	m->delimiter_n = (size_t)n;
	m->matched = 2; /* the first boundary needs no line end before it */
}

void multipart_done(struct multipart *m)
{
	buf_done(&m->headers);
}

/* ---- header parameters ---- */

static bool is_token_char(char c)
{
	return c > 0x20 && c < 0x7f && !strchr("()<>@,;:\\\"/[]?=", c);
}

static struct str cut_token(struct str *rest)
{
	size_t n = 0;

	while (n < rest->n && is_token_char(rest->p[n]))
		n++;
	return (struct str){ rest->p, n };
}

/* A quoted string up to its closing quote. Browsers send paths with bare backslashes, so one
 * escapes only a quote or another backslash. */
static bool cut_quoted(struct str *rest, struct buf *out)
{
	size_t i = 1;

	for (; i < rest->n && rest->p[i] != '"'; i++) {
		bool escapes = rest->p[i] == '\\' && i + 1 < rest->n &&
			       (rest->p[i + 1] == '"' || rest->p[i + 1] == '\\');

		if (escapes)
			i++;
		buf_addc(out, rest->p[i]);
	}
	if (i >= rest->n)
		return false;
	*rest = str_from(*rest, i + 1);
	return true;
}

/* One `; name=value`; false at the end or when malformed. */
static bool next_param(struct str *rest, struct str *name, struct buf *value)
{
	*rest = str_trim(*rest);
	if (!rest->n || rest->p[0] != ';')
		return false;
	*rest = str_trim(str_from(*rest, 1));
	*name = cut_token(rest);
	*rest = str_trim(str_from(*rest, name->n));
	if (!name->n || !rest->n || rest->p[0] != '=')
		return false;
	*rest = str_trim(str_from(*rest, 1));
	buf_clear(value);
	if (rest->n && rest->p[0] == '"')
		return cut_quoted(rest, value);
	struct str token = cut_token(rest);
	*rest = str_from(*rest, token.n);
	return token.n > 0 && buf_add_str(value, token) == 0;
}

bool header_param(struct str header, const char *name, struct buf *out)
{
	CLEANUP(buf_done) struct buf value = BUF_INIT(MULTIPART_MAX_HEADERS);
	ptrdiff_t semicolon = str_find(header, ';');
	struct str rest, found;

	if (semicolon < 0)
		return false;
	rest = str_from(header, (size_t)semicolon);
	while (next_param(&rest, &found, &value))
		if (str_eq_nocase(found, str_of(name)))
			return buf_add_str(out, buf_str(&value)) == 0;
	return false;
}

int multipart_boundary(struct str content_type, char out[MULTIPART_MAX_BOUNDARY + 1], struct err *e)
{
	CLEANUP(buf_done) struct buf value = BUF_INIT(MULTIPART_MAX_HEADERS);

	if (!header_param(content_type, "boundary", &value) || !value.n)
		return err_set(e, -EINVAL, "no multipart boundary param in Content-Type");
	if (value.n > MULTIPART_MAX_BOUNDARY)
		return err_set(e, -EINVAL, "multipart boundary is longer than %d characters",
			MULTIPART_MAX_BOUNDARY);
	for (size_t i = 0; i < value.n; i++)
		if (value.p[i] < 0x20 || value.p[i] > 0x7e)
			return err_set(e, -EINVAL, "malformed multipart boundary");
	memcpy(out, value.p, value.n + 1);
	return 0;
}

/* ---- headers of a part ---- */

/* filename*=utf-8''per%20cent, which wins over the plain one. */
static bool extended_filename(struct str header, struct buf *out)
{
	CLEANUP(buf_done) struct buf value = BUF_INIT(MULTIPART_MAX_HEADERS);
	static const struct str charset = { "utf-8'", 6 };
	struct str text, language;

	if (!header_param(header, "filename*", &value))
		return false;
	text = buf_str(&value);
	if (text.n < charset.n || !str_eq_nocase(str_make(text.p, charset.n), charset))
		return false;
	text = str_from(text, charset.n);
	return str_split(&text, '\'', &language) && text.p && percent_decode(text, false, out) == 0;
}

static bool disposition(struct str headers, struct str *ret)
{
	static const struct str name = { "content-disposition", 19 };
	struct str line;

	while (str_split(&headers, '\n', &line)) {
		ptrdiff_t colon = str_find(line, ':');

		if (colon < 0 || !str_eq_nocase(str_make(line.p, (size_t)colon), name))
			continue;
		*ret = str_trim(str_from(line, (size_t)colon + 1));
		if (ret->n && ret->p[ret->n - 1] == '\r')
			ret->n--;
		return true;
	}
	return false;
}

static int part_begin(struct multipart *m, struct err *e)
{
	CLEANUP(buf_done) struct buf name = BUF_INIT(MULTIPART_MAX_HEADERS);
	CLEANUP(buf_done) struct buf filename = BUF_INIT(MULTIPART_MAX_HEADERS);
	struct multipart_part part = { 0 };
	struct str header;

	if (disposition(buf_str(&m->headers), &header)) {
		if (header_param(header, "name", &name))
			part.name = buf_str(&name);
		if (extended_filename(header, &filename) ||
			header_param(header, "filename", &filename))
			part.filename = buf_str(&filename);
	}
	buf_clear(&m->headers);
	m->state = MULTIPART_BODY;
	m->matched = 0;
	return m->ops->begin(m->arg, &part, e);
}

/* ---- the states ---- */

static bool headers_are_whole(const struct buf *h)
{
	return (h->n == 2 && memcmp(h->p, "\r\n", 2) == 0) ||
	       (h->n >= 4 && memcmp(h->p + h->n - 4, "\r\n\r\n", 4) == 0);
}

static int feed_headers(struct multipart *m, struct str *bytes, struct err *e)
{
	while (bytes->n) {
		if (buf_addc(&m->headers, bytes->p[0]) < 0)
			return err_set(e, -EPROTO, "multipart: headers of a part exceed %d bytes",
				MULTIPART_MAX_HEADERS);
		*bytes = str_from(*bytes, 1);
		if (headers_are_whole(&m->headers))
			return part_begin(m, e);
	}
	return 0;
}

static int feed_delimited(struct multipart *m, struct str *bytes, struct err *e)
{
	char c = bytes->p[0];

	*bytes = str_from(*bytes, 1);
	if (m->mark == '\r' && c == '\n')
		m->state = MULTIPART_HEADERS;
	else if (m->mark == '-' && c == '-')
		m->state = MULTIPART_EPILOGUE;
	else if (!m->mark && (c == '\r' || c == '-'))
		m->mark = c;
	else if (m->mark || (c != ' ' && c != '\t'))
		return err_set(e, -EPROTO, "multipart: unexpected text after a boundary");
	return 0;
}

static int give(const struct multipart *m, const char *p, size_t n, struct err *e)
{
	if (!n || m->state == MULTIPART_PREAMBLE)
		return 0;
	return m->ops->data(m->arg, str_make(p, n), e);
}

static int delimiter_found(struct multipart *m, struct err *e)
{
	bool was_body = m->state == MULTIPART_BODY;

	m->state = MULTIPART_DELIMITED;
	m->matched = 0;
	m->mark = 0;
	return was_body ? m->ops->end(m->arg, e) : 0;
}

/* Goes on with a delimiter whose beginning came before. */
static int feed_matched(struct multipart *m, struct str *bytes, struct err *e)
{
	while (bytes->n && m->matched < m->delimiter_n && bytes->p[0] == m->delimiter[m->matched]) {
		m->matched++;
		*bytes = str_from(*bytes, 1);
	}
	if (m->matched == m->delimiter_n)
		return delimiter_found(m, e);
	if (bytes->n) {
		size_t n = m->matched;

		m->matched = 0;
		return give(m, m->delimiter, n, e);
	}
	return 0;
}

/* How many of the last bytes may be the beginning of a delimiter. */
static size_t tail_match(const struct multipart *m, struct str bytes)
{
	size_t most = MIN(bytes.n, m->delimiter_n - 1);
	const char *cr = memrchr(bytes.p + bytes.n - most, '\r', most);
	size_t n = cr ? (size_t)(bytes.p + bytes.n - cr) : 0;

	return n && memcmp(cr, m->delimiter, n) == 0 ? n : 0;
}

static int feed_body(struct multipart *m, struct str *bytes, struct err *e)
{
	const char *at;
	size_t n;
	int r;

	if (m->matched)
		return feed_matched(m, bytes, e);
	at = memmem(bytes->p, bytes->n, m->delimiter, m->delimiter_n);
	if (at) {
		n = (size_t)(at - bytes->p);
		r = give(m, bytes->p, n, e);
		*bytes = str_from(*bytes, n + m->delimiter_n);
		return r < 0 ? r : delimiter_found(m, e);
	}
	m->matched = tail_match(m, *bytes);
	r = give(m, bytes->p, bytes->n - m->matched, e);
	*bytes = str_from(*bytes, bytes->n);
	return r;
}

int multipart_feed(struct multipart *m, struct str bytes, struct err *e)
{
	int r = 0;

	while (bytes.n && r >= 0) {
		switch (m->state) {
		case MULTIPART_PREAMBLE:
		case MULTIPART_BODY:
			r = feed_body(m, &bytes, e);
			break;
		case MULTIPART_DELIMITED:
			r = feed_delimited(m, &bytes, e);
			break;
		case MULTIPART_HEADERS:
			r = feed_headers(m, &bytes, e);
			break;
		case MULTIPART_EPILOGUE:
			return 0;
		}
	}
	return MIN(r, 0);
}

int multipart_finish(const struct multipart *m, struct err *e)
{
	if (m->state == MULTIPART_EPILOGUE)
		return 0;
	return err_set(e, -EPROTO, "multipart: unexpected end of the form");
}
