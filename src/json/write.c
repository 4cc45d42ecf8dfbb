#include "json/json-internal.h"

#include <math.h>

/* Length of the well-formed UTF-8 sequence at p (RFC 3629: no surrogates, nothing overlong), or 0.
 */
static size_t sequence_length(const unsigned char *p, size_t n)
{
	static const unsigned char lead_bits[] = { 0, 0, 0x1f, 0x0f, 0x07 };
	static const uint32_t lowest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
	uint32_t code;

	if (length == 0 || length > n)
		return 0;
	code = p[0] & lead_bits[length];
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (p[i] & 0x3f);
	}
	if (code < lowest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return length;
}

/* Where the run of bytes that need no escape ends. */
static size_t plain_run(const unsigned char *p, size_t n)
{
	size_t i = 0, length;

	while (i < n) {
		if (p[i] >= 0x80) {
			length = sequence_length(p + i, n - i);
			if (length == 0)
				break;
			i += length;
		} else if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\') {
			break;
		} else {
			i++;
		}
	}
	return i;
}

static void escape(struct buf *out, unsigned char c)
{
	static const char short_form[256] = { ['"'] = '"',
		['\\'] = '\\',
		['\n'] = 'n',
		['\r'] = 'r',
		['\t'] = 't',
		['\b'] = 'b',
		['\f'] = 'f' };
	char pair[2] = { '\\', short_form[c] };

	if (pair[1])
		buf_add(out, pair, sizeof pair);
	else if (c >= 0x80)
		buf_adds(out, "\xef\xbf\xbd"); /* U+FFFD */
	else
		buf_printf(out, "\\u%04x", (unsigned)c);
}

void json_quote(struct buf *out, struct str s)
{
	const unsigned char *p = (const unsigned char *)s.p;
	size_t i = 0, run;

	buf_addc(out, '"');
	while (i < s.n) {
		run = plain_run(p + i, s.n - i);
		buf_add(out, p + i, run);
		i += run;
		if (i < s.n)
			escape(out, p[i++]);
	}
	buf_addc(out, '"');
}

void jsonw_init(struct jsonw *w, struct buf *out)
{
	*w = (struct jsonw){ .out = out };
}

/* Comma and key, as what comes next needs them. */
static void begin(struct jsonw *w, const char *key)
{
	uint64_t bit = UINT64_C(1) << w->depth;

	if (w->comma & bit)
		buf_addc(w->out, ',');
	w->comma |= bit;
	if (key) {
		json_quote(w->out, str_of(key));
		buf_addc(w->out, ':');
	}
}

static void open_level(struct jsonw *w, const char *key, char bracket)
{
	begin(w, key);
	buf_addc(w->out, bracket);
	w->depth++;
	assert(w->depth < 64);
	w->comma &= ~(UINT64_C(1) << w->depth);
}

static void close_level(struct jsonw *w, char bracket)
{
	assert(w->depth > 0);
	w->depth--;
	buf_addc(w->out, bracket);
}

void jsonw_object(struct jsonw *w, const char *key)
{
	open_level(w, key, '{');
}

void jsonw_array(struct jsonw *w, const char *key)
{
	open_level(w, key, '[');
}

void jsonw_end_object(struct jsonw *w)
{
	close_level(w, '}');
}

void jsonw_end_array(struct jsonw *w)
{
	close_level(w, ']');
}

void jsonw_str(struct jsonw *w, const char *key, struct str value)
{
	begin(w, key);
	json_quote(w->out, value);
}

void jsonw_strz(struct jsonw *w, const char *key, const char *value)
{
	if (value)
		jsonw_str(w, key, str_of(value));
	else
		jsonw_null(w, key);
}

void jsonw_pair(struct jsonw *w, struct str key, struct str value)
{
	begin(w, NULL);
	json_quote(w->out, key);
	buf_addc(w->out, ':');
	json_quote(w->out, value);
}

void jsonw_int(struct jsonw *w, const char *key, int64_t value)
{
	begin(w, key);
	buf_printf(w->out, "%" PRId64, value);
}

void jsonw_int64_str(struct jsonw *w, const char *key, int64_t value)
{
	begin(w, key);
	buf_printf(w->out, "\"%" PRId64 "\"", value);
}

/* What is not finite has no JSON form; null keeps the document valid. */
void jsonw_num(struct jsonw *w, const char *key, double value)
{
	begin(w, key);
	if (isfinite(value))
		buf_printf(w->out, "%.2f", value);
	else
		buf_adds(w->out, "null");
}

void jsonw_bool(struct jsonw *w, const char *key, bool value)
{
	begin(w, key);
	buf_adds(w->out, value ? "true" : "false");
}

void jsonw_null(struct jsonw *w, const char *key)
{
	begin(w, key);
	buf_adds(w->out, "null");
}

/* Process output goes through here: encoded once, straight into its place. */
void jsonw_base64(struct jsonw *w, const char *key, struct str bytes)
{
	size_t size = base64_size(bytes.n);
	char *to;

	begin(w, key);
	to = buf_reserve(w->out, size + 2);
	if (!to)
		return;
	to[0] = '"';
	base64_encode(bytes.p, bytes.n, to + 1);
	w->out->n += size + 1;
	buf_addc(w->out, '"');
}

void jsonw_raw(struct jsonw *w, const char *key, struct str json)
{
	begin(w, key);
	buf_add_str(w->out, json);
}

void jsonw_map(struct jsonw *w, const char *key, const struct json_map *map)
{
	jsonw_object(w, key);
	for (size_t i = 0; i < map->n; i++)
		jsonw_pair(w, map->v[i].key, map->v[i].value);
	jsonw_end_object(w);
}

/* ---- members of an object that is text already ---- */

/* Behind the string that begins at `at`, which is a quote. */
static size_t skip_string(struct str s, size_t at)
{
	for (at++; at < s.n && s.p[at] != '"'; at++)
		at += s.p[at] == '\\';
	return MIN(at + 1, s.n);
}

/* Behind the value that begins at `at`: at the ',' or '}' that ends it. */
static size_t skip_value(struct str s, size_t at)
{
	size_t depth = 0;

	while (at < s.n) {
		char c = s.p[at];

		if (c == '"') {
			at = skip_string(s, at);
			continue;
		}
		if (depth == 0 && (c == ',' || c == '}'))
			break;
		depth += c == '{' || c == '[';
		depth -= c == '}' || c == ']';
		at++;
	}
	return at;
}

void jsonw_members(struct jsonw *w, const char *key, struct str object,
	const struct json_rename *names, size_t n_names)
{
	size_t at = 1; /* behind the brace */

	jsonw_object(w, key);
	while (at < object.n && object.p[at] == '"') {
		size_t colon = skip_string(object, at), end = skip_value(object, colon + 1);
		struct str name = str_make(object.p + at + 1, colon - at - 2);

		for (size_t i = 0; i < n_names; i++)
			if (str_is(name, names[i].from))
				jsonw_raw(w, names[i].to,
					str_make(object.p + colon + 1, end - colon - 1));
		at = end + 1;
	}
	jsonw_end_object(w);
}
