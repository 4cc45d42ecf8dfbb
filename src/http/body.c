/* Where a body ends. The same machine serves handlers, which get the payload, and the relay, which
 * passes the bytes on as they are: what it has accepted cannot be understood differently behind us.
 */
#include "http/http-internal.h"

enum {
	MAX_SIZE_DIGITS = 15,       /* below 2^60: no overflow to think about */
	MAX_EXTENSION_BYTES = 4096, /* all chunks together: nobody uses them but attackers */
	MAX_TRAILER_BYTES = 8192,
};

void body_start_length(struct body *b, int64_t length)
{
	*b = (struct body){
		.left = (uint64_t)length,
		.state = length > 0 ? BODY_LENGTH : BODY_DONE,
	};
}

void body_start_chunked(struct body *b)
{
	*b = (struct body){ .state = BODY_SIZE_FIRST };
}

void body_start_until_close(struct body *b)
{
	*b = (struct body){ .state = BODY_UNTIL_CLOSE };
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static enum body_state on_size(struct body *b, char c)
{
	int digit = hex_value(c);

	if (digit >= 0) {
		if (++b->size_digits > MAX_SIZE_DIGITS)
			return BODY_BAD;
		b->left = b->left * 16 + (uint64_t)digit;
		return BODY_SIZE;
	}
	if (b->state == BODY_SIZE_FIRST)
		return BODY_BAD;
	if (c == '\r')
		return BODY_SIZE_LF;
	return c == ';' ? BODY_EXTENSION : BODY_BAD;
}

static enum body_state on_extension(struct body *b, char c)
{
	if (c == '\r')
		return BODY_SIZE_LF;
	if (++b->extension_n > MAX_EXTENSION_BYTES || !is_field_value(str_make(&c, 1)))
		return BODY_BAD;
	return BODY_EXTENSION;
}

static enum body_state on_trailer(struct body *b, char c)
{
	if (++b->trailer_n > MAX_TRAILER_BYTES)
		return BODY_BAD;
	if (b->state == BODY_TRAILER_VALUE) {
		if (c == '\r')
			return BODY_TRAILER_LF;
		return is_field_value(str_make(&c, 1)) ? BODY_TRAILER_VALUE : BODY_BAD;
	}
	if (b->state == BODY_TRAILER_NAME && c == ':')
		return BODY_TRAILER_VALUE;
	if (b->state == BODY_TRAILER_FIRST && c == '\r')
		return BODY_END_LF;
	return is_token(str_make(&c, 1)) ? BODY_TRAILER_NAME : BODY_BAD;
}

static enum body_state on_size_lf(struct body *b, char c)
{
	if (c != '\n')
		return BODY_BAD;
	b->size_digits = 0;
	return b->left > 0 ? BODY_DATA : BODY_TRAILER_FIRST;
}

/* One byte of framing. */
static enum body_state on_byte(struct body *b, char c)
{
	switch (b->state) {
	case BODY_SIZE_FIRST:
	case BODY_SIZE:
		return on_size(b, c);
	case BODY_EXTENSION:
		return on_extension(b, c);
	case BODY_SIZE_LF:
		return on_size_lf(b, c);
	case BODY_DATA_CR:
		return c == '\r' ? BODY_DATA_LF : BODY_BAD;
	case BODY_DATA_LF:
		return c == '\n' ? BODY_SIZE_FIRST : BODY_BAD;
	case BODY_TRAILER_FIRST:
	case BODY_TRAILER_NAME:
	case BODY_TRAILER_VALUE:
		return on_trailer(b, c);
	case BODY_TRAILER_LF:
		return c == '\n' ? BODY_TRAILER_FIRST : BODY_BAD;
	case BODY_END_LF:
		return c == '\n' ? BODY_DONE : BODY_BAD;
	case BODY_LENGTH:
	case BODY_UNTIL_CLOSE:
	case BODY_DATA:
	case BODY_DONE:
	case BODY_BAD:
		break;
	}
	return BODY_BAD;
}

static bool in_payload(const struct body *b)
{
	return b->state == BODY_LENGTH || b->state == BODY_DATA || b->state == BODY_UNTIL_CLOSE;
}

static size_t take_payload(struct body *b, struct str in, struct str *piece)
{
	size_t n = in.n;

	if (b->state != BODY_UNTIL_CLOSE) {
		n = (size_t)MIN((uint64_t)n, b->left);
		b->left -= n;
		if (b->left == 0)
			b->state = b->state == BODY_LENGTH ? BODY_DONE : BODY_DATA_CR;
	}
	*piece = str_make(in.p, n);
	return n;
}

static bool in_trailers(const struct body *b)
{
	return b->state >= BODY_TRAILER_FIRST && b->state <= BODY_TRAILER_LF;
}

static ssize_t next(struct body *b, struct str in, struct str *piece, bool by_byte)
{
	size_t at = 0;

	*piece = STR_NONE;
	while (at < in.n && b->state != BODY_DONE) {
		if (by_byte && at > 0 && in_trailers(b))
			break;
		if (in_payload(b))
			return (ssize_t)(at + take_payload(b, str_from(in, at), piece));
		b->state = on_byte(b, in.p[at++]);
		if (b->state == BODY_BAD)
			return -EPROTO;
	}
	return b->state == BODY_BAD ? -EPROTO : (ssize_t)at;
}

ssize_t body_next(struct body *b, struct str in, struct str *piece)
{
	return next(b, in, piece, false);
}

ssize_t body_pass(struct body *b, struct str in)
{
	size_t at = 0;

	while (at < in.n && !body_is_done(b)) {
		struct str piece;
		ssize_t n = body_next(b, str_from(in, at), &piece);

		if (n < 0)
			return n;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

/* They are one run of bytes, before the empty line at the end. */
ssize_t body_pass_bare(struct body *b, struct str in, struct str kept[2])
{
	size_t at = 0, cut = SIZE_MAX, cut_end = 0;

	while (at < in.n && !body_is_done(b)) {
		bool is_end = b->state == BODY_TRAILER_FIRST && in.p[at] == '\r';
		bool is_cut = in_trailers(b) && !is_end;
		struct str piece;
		ssize_t n = next(b, str_from(in, at), &piece, true);

		if (n < 0)
			return n;
		if (is_cut) {
			cut = MIN(cut, at);
			cut_end = at + (size_t)n;
		}
		at += (size_t)n;
	}
	kept[0] = str_make(in.p, MIN(cut, at));
	kept[1] = cut_end ? str_make(in.p + cut_end, at - cut_end) : STR_NONE;
	return (ssize_t)at;
}
