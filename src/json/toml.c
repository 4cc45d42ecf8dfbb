/* The TOML subset of the door: one pass over the lines builds the same tree that JSON gives, and
 * beside it a table from paths to lines, so that an error found later by the field tables still
 * names its line. What TOML has and this subset has not is refused by name, never read as something
 * else. */
#include "json/json-internal.h"

enum {
	MAX_KEY_BYTES = 256,
	MAX_STRING_BYTES = 64 << 10,
	MAX_PATH_BYTES = 1024, /* of a table's header */
};

struct toml {
	struct json_t *root;
	struct json_t *table;   /* where keys go now: borrowed from root */
	struct json_t *headers; /* tables that had their header, by path */
	struct json_t *lines;   /* path -> line */
	struct buf prefix;      /* path of `table` with a dot behind it; empty at the top */
	int line;
	struct err *e;
};

static void toml_done(struct toml *t)
{
	t->root = json_node_free(t->root);
	t->headers = json_node_free(t->headers);
	t->lines = json_node_free(t->lines);
	buf_done(&t->prefix);
}

__attribute__((format(printf, 2, 3))) static int fail(const struct toml *t, const char *fmt, ...)
{
	char text[sizeof t->e->msg];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	return err_set(t->e, -EINVAL, "line %d: %s", t->line, text);
}

static int no_memory(const struct toml *t)
{
	return err_set(t->e, -ENOBUFS, "line %d: no memory for the document", t->line);
}

static char peek(struct str s)
{
	if (s.n == 0)
		return '\0'; /* lines hold no NUL of their own */
	return s.p[0];
}

static void skip_blank(struct str *s)
{
	while (peek(*s) == ' ' || peek(*s) == '\t')
		*s = str_from(*s, 1);
}

static int expect_end(const struct toml *t, struct str s)
{
	skip_blank(&s);
	if (s.n && s.p[0] != '#')
		return fail(t, "unexpected text after the value or header");
	return 0;
}

/* Tab is the only control character that TOML allows, in comments too. */
static int check_text(const struct toml *t, struct str line)
{
	if (!str_is_utf8(line))
		return fail(t, "not UTF-8 text");
	for (size_t i = 0; i < line.n; i++)
		if (((unsigned char)line.p[i] < 0x20 && line.p[i] != '\t') || line.p[i] == 0x7f)
			return fail(t, "control character in the text");
	return 0;
}

static void add_utf8(struct buf *out, uint32_t c)
{
	if (c < 0x80) {
		buf_addc(out, (char)c);
	} else if (c < 0x800) {
		buf_addc(out, (char)(0xc0 | c >> 6));
		buf_addc(out, (char)(0x80 | (c & 0x3f)));
	} else {
		if (c < 0x10000) {
			buf_addc(out, (char)(0xe0 | c >> 12));
		} else {
			buf_addc(out, (char)(0xf0 | c >> 18));
			buf_addc(out, (char)(0x80 | (c >> 12 & 0x3f)));
		}
		buf_addc(out, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_addc(out, (char)(0x80 | (c & 0x3f)));
	}
}

/* \uXXXX and \UXXXXXXXX: the digits at s. */
static int unicode_escape(const struct toml *t, struct str *s, size_t digits, struct buf *out)
{
	uint8_t bytes[4] = { 0 };
	uint32_t c;

	if (s->n < digits ||
		hex_decode(str_make(s->p, digits), bytes + 4 - digits / 2, digits / 2) < 0)
		return fail(t, "an escape needs %zu hexadecimal digits", digits);
	c = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	    bytes[3];
	if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return fail(t, "an escape names no character");
	add_utf8(out, c);
	*s = str_from(*s, digits);
	return 0;
}

/* s is behind the backslash. */
static int parse_escape(const struct toml *t, struct str *s, struct buf *out)
{
	static const char plain[256] = { ['b'] = '\b',
		['t'] = '\t',
		['n'] = '\n',
		['f'] = '\f',
		['r'] = '\r',
		['"'] = '"',
		['\\'] = '\\' };
	char c = peek(*s);

	*s = str_from(*s, 1);
	if (c == 'u')
		return unicode_escape(t, s, 4, out);
	if (c == 'U')
		return unicode_escape(t, s, 8, out);
	if (!plain[(unsigned char)c])
		return fail(t, "unknown escape in a string");
	buf_addc(out, plain[(unsigned char)c]);
	return 0;
}

/* "basic" with escapes or 'literal' without, on one line; s is at the quote. */
static int parse_string(const struct toml *t, struct str *s, struct buf *out)
{
	char quote = peek(*s);
	int r = 0;

	if (s->n >= 3 && s->p[1] == quote && s->p[2] == quote)
		return fail(t, "strings over several lines are not supported");
	*s = str_from(*s, 1);
	while (r == 0 && s->n && s->p[0] != quote) {
		char c = s->p[0];

		*s = str_from(*s, 1);
		if (c == '\\' && quote == '"')
			r = parse_escape(t, s, out);
		else
			buf_addc(out, c);
	}
	if (r < 0)
		return r;
	if (!s->n)
		return fail(t, "a string lacks its closing quote");
	*s = str_from(*s, 1);
	return out->failed ? fail(t, "a string is longer than %zu bytes", out->max) : 0;
}

static bool is_bare(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-';
}

static int parse_key(const struct toml *t, struct str *s, struct buf *out)
{
	size_t n = 0;

	skip_blank(s);
	if (peek(*s) == '"' || peek(*s) == '\'')
		return parse_string(t, s, out);
	while (n < s->n && is_bare(s->p[n]))
		n++;
	if (n == 0)
		return fail(t, "expected a key");
	if (buf_add(out, s->p, n) < 0)
		return fail(t, "a key is longer than %zu bytes", out->max);
	*s = str_from(*s, n);
	return 0;
}

static int parse_string_value(const struct toml *t, struct str *s, struct json_t **ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(MAX_STRING_BYTES);
	int r = parse_string(t, s, &text);

	if (r < 0)
		return r;
	*ret = json_node_new_string(buf_str(&text));
	return *ret ? 0 : no_memory(t);
}

static int parse_array(const struct toml *t, struct str *s, struct json_t **ret)
{
	CLEANUP(json_node_freep) struct json_t *array = json_node_new_array();
	int r;

	*s = str_from(*s, 1);
	for (skip_blank(s); peek(*s) != ']'; skip_blank(s)) {
		struct json_t *item = NULL;

		if (peek(*s) != '"' && peek(*s) != '\'')
			return fail(t, "an array must be on one line and hold strings only");
		r = parse_string_value(t, s, &item);
		if (r < 0)
			return r;
		if (json_node_take_item(array, item) < 0)
			return no_memory(t);
		skip_blank(s);
		if (peek(*s) == ',')
			*s = str_from(*s, 1);
		else if (peek(*s) != ']')
			return fail(t, "expected ',' or ']' in an array");
	}
	*s = str_from(*s, 1);
	*ret = TAKE(array);
	return 0;
}

/* Decimal, with an optional sign, and '_' between digits. */
static bool read_integer(struct str word, int64_t *ret)
{
	char digits[24];
	size_t n = 0, first = peek(word) == '+' || peek(word) == '-';

	for (size_t i = 0; i < word.n; i++) {
		char c = word.p[i];

		if (n == sizeof digits || (c == '_' && (i == first || i + 1 == word.n)))
			return false;
		if (c == '_' && word.p[i - 1] == '_')
			return false;
		if (c != '_' && !(c == '+' && i == 0))
			digits[n++] = c;
	}
	if (word.n > first + 1 && word.p[first] == '0')
		return false; /* 010 is eight to some and ten to others */
	return str_to_int(str_make(digits, n), INT64_MIN, INT64_MAX, ret) == 0;
}

static int parse_word(const struct toml *t, struct str *s, struct json_t **ret)
{
	struct str word = { s->p, 0 };
	int64_t number;

	while (word.n < s->n && !strchr(" \t,]#", s->p[word.n]))
		word.n++;
	*s = str_from(*s, word.n);
	if (str_is(word, "true") || str_is(word, "false"))
		*ret = json_node_new_bool(str_is(word, "true"));
	else if (read_integer(word, &number))
		*ret = json_node_new_int(number);
	else
		return fail(t, "expected a \"string\", a decimal integer, true, false or an array");
	return *ret ? 0 : no_memory(t);
}

static int parse_value(const struct toml *t, struct str *s, struct json_t **ret)
{
	skip_blank(s);
	if (peek(*s) == '"' || peek(*s) == '\'')
		return parse_string_value(t, s, ret);
	if (peek(*s) == '[')
		return parse_array(t, s, ret);
	return parse_word(t, s, ret);
}

/* Remembers where `path` + `key` stands. A path too long to remember only costs the line number. */
static int note_line(const struct toml *t, struct str path, struct str key)
{
	CLEANUP(buf_done) struct buf full = BUF_INIT(MAX_PATH_BYTES + MAX_KEY_BYTES);

	buf_add_str(&full, path);
	buf_add_str(&full, key);
	if (full.failed || json_node_get(t->lines, buf_str(&full)))
		return 0;
	if (json_node_take_member(t->lines, buf_str(&full), json_node_new_int(t->line)) < 0)
		return no_memory(t);
	return 0;
}

/* key = value */
static int parse_assignment(struct toml *t, struct str s)
{
	CLEANUP(json_node_freep) struct json_t *value = NULL;
	CLEANUP(buf_done) struct buf key = BUF_INIT(MAX_KEY_BYTES);
	int r;

	r = parse_key(t, &s, &key);
	if (r < 0)
		return r;
	skip_blank(&s);
	if (peek(s) == '.')
		return fail(t, "dotted keys are not supported: use a [table]");
	if (peek(s) != '=')
		return fail(t, "expected '=' after the key");
	s = str_from(s, 1);
	r = parse_value(t, &s, &value);
	if (r < 0)
		return r;
	r = expect_end(t, s);
	if (r < 0)
		return r;
	if (json_node_get(t->table, buf_str(&key)))
		return fail(t, "'%s' is there already", buf_str(&key).p);
	if (json_node_take_member(t->table, buf_str(&key), TAKE(value)) < 0)
		return no_memory(t);
	return note_line(t, buf_str(&t->prefix), buf_str(&key));
}

/* One step down: the table of that name, made when it is not there. */
static int enter_table(struct toml *t, struct str key)
{
	struct json_t *next = json_node_get(t->table, key);
	int r;

	if (str_find(key, '.') >= 0)
		return fail(t, "a table's name must not have a '.' in quotes");
	if (next && json_node_kind(next) != NODE_OBJECT)
		return fail(t, "'%.*s' is there already, and is no table", STR_ARG(key));
	if (!next) {
		if (json_node_take_member(t->table, key, json_node_new_object()) < 0)
			return no_memory(t);
		next = json_node_get(t->table, key);
	}
	r = note_line(t, buf_str(&t->prefix), key);
	if (r < 0)
		return r;
	t->table = next;
	buf_add_str(&t->prefix, key);
	buf_addc(&t->prefix, '.');
	return t->prefix.failed ? fail(t, "a table's name is too long") : 0;
}

/* Names behind the bracket, each entered in turn, up to the closing one. */
static int enter_path(struct toml *t, struct str *s)
{
	int r;

	for (int depth = 1;; depth++) {
		CLEANUP(buf_done) struct buf key = BUF_INIT(MAX_KEY_BYTES);

		if (depth >= JSON_MAX_DEPTH)
			return fail(t, "nested deeper than %d", JSON_MAX_DEPTH);
		r = parse_key(t, s, &key);
		if (r < 0)
			return r;
		r = enter_table(t, buf_str(&key));
		if (r < 0)
			return r;
		skip_blank(s);
		if (peek(*s) != '.')
			return 0;
		*s = str_from(*s, 1);
	}
}

/* [table] or [outer.inner] */
static int parse_header(struct toml *t, struct str s)
{
	int r;

	if (str_has_prefix(s, STR("[[")))
		return fail(t, "arrays of tables are not supported");
	s = str_from(s, 1);
	t->table = t->root;
	buf_clear(&t->prefix);
	r = enter_path(t, &s);
	if (r < 0)
		return r;
	if (peek(s) != ']')
		return fail(t, "expected ']' at the end of the table's name");
	r = expect_end(t, str_from(s, 1));
	if (r < 0)
		return r;
	if (json_node_get(t->headers, buf_str(&t->prefix)))
		return fail(t, "the table is there already");
	if (json_node_take_member(t->headers, buf_str(&t->prefix), json_node_new_bool(true)) < 0)
		return no_memory(t);
	return 0;
}

static int parse_line(struct toml *t, struct str line)
{
	int r;

	t->line++;
	if (line.n && line.p[line.n - 1] == '\r')
		line.n--;
	r = check_text(t, line);
	if (r < 0)
		return r;
	skip_blank(&line);
	if (!line.n || line.p[0] == '#')
		return 0;
	return line.p[0] == '[' ? parse_header(t, line) : parse_assignment(t, line);
}

/* Cuts the last step off a path such as a.b[3]; false when there was only one. */
static bool cut_last_step(char *path)
{
	for (size_t n = strlen(path); n-- > 0;) {
		if (path[n] == '.' || path[n] == '[') {
			path[n] = '\0';
			return true;
		}
	}
	return false;
}

/* Puts the line in front of an error at `where`: the value's own, or that of the nearest table
 * around it (for a key that is missing). */
static int say_line(const struct toml *t, int r, const char *where)
{
	const struct json_t *line;
	char path[JSON_PATH_SIZE];

	if (!*where)
		return r;
	(void)err_wrap(t->e, r, "%s", where);
	(void)snprintf(path, sizeof path, "%s", where);
	do
		line = json_node_get(t->lines, str_of(path));
	while (!line && cut_last_step(path));
	return line ? err_wrap(t->e, r, "line %d", (int)json_node_int(line)) : r;
}

int toml_decode(struct arena *a, struct str text, const struct json_shape *shape, void *out,
	struct err *e)
{
	CLEANUP(toml_done) struct toml t = { .prefix = BUF_INIT(MAX_PATH_BYTES), .e = e };
	char where[JSON_PATH_SIZE] = "";
	struct str line;
	int r;

	memset(out, 0, shape->size);
	t.root = t.table = json_node_new_object();
	t.headers = json_node_new_object();
	t.lines = json_node_new_object();
	if (!t.root || !t.headers || !t.lines)
		return no_memory(&t);
	while (str_split(&text, '\n', &line)) {
		r = parse_line(&t, line);
		if (r < 0)
			return r;
	}
	r = json_node_decode(a, t.root, shape, out, where, e);
	return r < 0 ? say_line(&t, r, where) : 0;
}
