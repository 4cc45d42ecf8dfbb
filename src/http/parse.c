/* Heads, strictly: every line ends in CRLF, nothing is folded, and whatever could be understood in
 * two ways is refused. First the end is found, whatever the split; then the whole is parsed at
 * once. */
#include "http/http-internal.h"

static const bool token_chars[256] = {
	['0' ... '9'] = true,
	['A' ... 'Z'] = true,
	['a' ... 'z'] = true,
	['!'] = true,
	['#'] = true,
	['$'] = true,
	['%'] = true,
	['&'] = true,
	['\''] = true,
	['*'] = true,
	['+'] = true,
	['-'] = true,
	['.'] = true,
	['^'] = true,
	['_'] = true,
	['`'] = true,
	['|'] = true,
	['~'] = true,
};

/* Names, addresses and a port: no user, no path, nothing that a log or a header could trip over. */
static const bool host_chars[256] = {
	['0' ... '9'] = true,
	['A' ... 'Z'] = true,
	['a' ... 'z'] = true,
	['-'] = true,
	['.'] = true,
	['_'] = true,
	['~'] = true,
	[':'] = true,
	['['] = true,
	[']'] = true,
};

bool is_token(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!token_chars[(unsigned char)s.p[i]])
			return false;
	return s.n > 0;
}

bool is_field_value(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static bool is_host(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!host_chars[(unsigned char)s.p[i]])
			return false;
	return true;
}

int head_find_end(struct str in, size_t max, struct head_scan *scan, size_t *ret_end)
{
	/* A TLS hello or other noise is refused at its first byte instead of waited on. */
	if (in.n > 0 && in.p[0] != '\r' && !token_chars[(unsigned char)in.p[0]])
		return -EBADMSG;
	while (scan->at < in.n) {
		const char *lf = memchr(in.p + scan->at, '\n', in.n - scan->at);
		size_t at;

		if (!lf)
			break;
		at = (size_t)(lf - in.p);
		if (at + 1 > max)
			return -EMSGSIZE;
		if (at == scan->line || in.p[at - 1] != '\r')
			return -EBADMSG;
		if (at - 1 == scan->line) {
			*ret_end = at + 1;
			return 1;
		}
		scan->line = scan->at = (uint32_t)(at + 1);
	}
	if (in.n > max)
		return -EMSGSIZE;
	scan->at = (uint32_t)in.n;
	return 0;
}

struct str head_name(const struct head *h, uint32_t i)
{
	return str_make(h->base + h->fields[i].name, h->fields[i].name_n);
}

struct str head_value(const struct head *h, uint32_t i)
{
	return str_make(h->base + h->fields[i].value, h->fields[i].value_n);
}

struct str head_get(const struct head *h, struct str name)
{
	for (uint32_t i = 0; i < h->n_fields; i++)
		if (h->fields[i].name_n == name.n && str_eq_nocase(head_name(h, i), name))
			return head_value(h, i);
	return STR_NONE;
}

/* Digits only: no sign, no list, no space, at most what an int64_t holds. */
static int see_length(struct head *h, struct str value)
{
	int64_t length = 0;

	if (h->length >= 0 || value.n == 0 || value.n > 18)
		return 400;
	for (size_t i = 0; i < value.n; i++) {
		if (value.p[i] < '0' || value.p[i] > '9')
			return 400;
		length = length * 10 + (value.p[i] - '0');
	}
	h->length = length;
	return 0;
}

static int see_coding(struct head *h, struct str value)
{
	if (h->chunked || h->minor == 0)
		return 400;
	if (!str_eq_nocase(value, STR("chunked")))
		return 501;
	h->chunked = true;
	return 0;
}

static int see_connection(struct head *h, struct str value)
{
	struct str token;

	while (str_split(&value, ',', &token)) {
		if (++h->n_options > MAX_CONNECTION_OPTIONS)
			return 400;
		token = str_trim(token);
		if (str_eq_nocase(token, STR("close")))
			h->close = true;
		else if (str_eq_nocase(token, STR("keep-alive")))
			h->keep_alive = true;
		else if (str_eq_nocase(token, STR("upgrade")))
			h->connection_upgrade = true;
	}
	return 0;
}

static int see_expect(struct head *h, struct str value)
{
	if (!str_eq_nocase(value, STR("100-continue")))
		return 417;
	h->expect = h->minor > 0;
	return 0;
}

static int see_host(struct head *h, uint32_t i, struct str value)
{
	if (h->has_host || !is_host(value))
		return 400;
	h->has_host = true;
	h->host = i;
	return 0;
}

/* The fields that decide about framing and the connection. */
static int see_field(struct head *h, uint32_t i, bool request)
{
	struct str name = head_name(h, i), value = head_value(h, i);

	switch (name.n) {
	case 4:
		return request && str_eq_nocase(name, STR("Host")) ? see_host(h, i, value) : 0;
	case 6:
		return request && str_eq_nocase(name, STR("Expect")) ? see_expect(h, value) : 0;
	case 7:
		h->upgrade |= str_eq_nocase(name, STR("Upgrade"));
		return 0;
	case 10:
		return str_eq_nocase(name, STR("Connection")) ? see_connection(h, value) : 0;
	case 14:
		return str_eq_nocase(name, STR("Content-Length")) ? see_length(h, value) : 0;
	case 17:
		return str_eq_nocase(name, STR("Transfer-Encoding")) ? see_coding(h, value) : 0;
	}
	return 0;
}

/* The line at *at without its CRLF; head_find_end made sure that it has one. */
static struct str next_line(struct str text, size_t *at)
{
	const char *start = text.p + *at;
	const char *lf = memchr(start, '\n', text.n - *at);

	assert(lf);
	*at = (size_t)(lf + 1 - text.p);
	return str_make(start, (size_t)(lf - start) - 1);
}

static int parse_field(struct head *h, struct field *f, struct str line)
{
	ptrdiff_t colon = str_find(line, ':');
	struct str value;

	if (colon < 0 || !is_token(str_make(line.p, (size_t)colon)))
		return 400;
	value = str_trim(str_from(line, (size_t)colon + 1));
	if (!is_field_value(value))
		return 400;
	*f = (struct field){
		.name = (uint32_t)(line.p - h->base),
		.name_n = (uint32_t)colon,
		.value = (uint32_t)(value.p - h->base),
		.value_n = (uint32_t)value.n,
	};
	return 0;
}

static int parse_fields(struct str text, size_t at, struct field *fields, size_t max_fields,
	bool request, struct head *h)
{
	h->fields = fields;
	h->length = -1;
	for (;;) {
		struct str line = next_line(text, &at);
		int status;

		if (line.n == 0)
			break;
		if (h->n_fields >= max_fields)
			return 431;
		status = parse_field(h, &fields[h->n_fields], line);
		if (status == 0)
			status = see_field(h, h->n_fields++, request);
		if (status != 0)
			return status;
	}
	if (h->length >= 0 && h->chunked)
		return 400;
	h->upgrade = h->upgrade && h->connection_upgrade && h->minor > 0;
	h->keep_alive = !h->close && (h->minor > 0 || h->keep_alive);
	return 0;
}

static int parse_version(struct str s, int *ret_minor)
{
	if (s.n != 8 || memcmp(s.p, "HTTP/", 5) != 0 || s.p[6] != '.')
		return 400;
	if (s.p[5] < '0' || s.p[5] > '9' || s.p[7] < '0' || s.p[7] > '9')
		return 400;
	if (s.p[5] != '1' || s.p[7] > '1')
		return 505;
	*ret_minor = s.p[7] - '0';
	return 0;
}

/* Bytes above ASCII are let through, as common clients send them unescaped. */
static bool is_target(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c <= 0x20 || c == 0x7f || c == '#')
			return false;
	}
	return s.n > 0;
}

static int parse_request_line(struct head *h, struct str line)
{
	struct str method, target;
	int status;

	if (!str_split(&line, ' ', &method) || !is_token(method))
		return 400;
	if (!str_split(&line, ' ', &target) || !is_target(target))
		return 400;
	status = parse_version(line, &h->minor);
	if (status != 0)
		return status;
	if (str_is(method, "CONNECT"))
		return 501;
	h->method_n = (uint32_t)method.n;
	h->target = (uint32_t)(target.p - h->base);
	h->target_n = (uint32_t)target.n;
	return 0;
}

static bool has_prefix_nocase(struct str s, struct str prefix)
{
	return s.n >= prefix.n && str_eq_nocase(str_make(s.p, prefix.n), prefix);
}

/* "http://host/path" is accepted when it names the same host as the Host field, and becomes
 * "/path": two different hosts in one request are how caches and gates are fooled. */
static int settle_target(struct head *h)
{
	struct str target = str_make(h->base + h->target, h->target_n), authority;
	ptrdiff_t slash;

	if (target.p[0] == '/')
		return 0;
	if (str_is(target, "*"))
		return str_is(str_make(h->base, h->method_n), "OPTIONS") ? 0 : 400;
	if (has_prefix_nocase(target, STR("http://")))
		target = str_from(target, 7);
	else if (has_prefix_nocase(target, STR("https://")))
		target = str_from(target, 8);
	else
		return 400;
	slash = str_find(target, '/');
	if (slash < 0)
		return 400;
	authority = str_make(target.p, (size_t)slash);
	target = str_from(target, (size_t)slash);
	if (!h->has_host || !str_eq_nocase(authority, head_value(h, h->host)))
		return 400;
	h->target = (uint32_t)(target.p - h->base);
	h->target_n = (uint32_t)target.n;
	return 0;
}

int head_parse_request(struct str text, struct field *fields, size_t max_fields, struct head *ret)
{
	struct head h = { .base = text.p };
	size_t at = 0;
	int status;

	status = parse_request_line(&h, next_line(text, &at));
	if (status == 0)
		status = parse_fields(text, at, fields, max_fields, true, &h);
	if (status == 0 && h.minor > 0 && !h.has_host)
		status = 400;
	if (status == 0)
		status = settle_target(&h);
	if (status == 0)
		*ret = h;
	return status;
}

static int parse_status_line(struct head *h, struct str line)
{
	struct str version, code;
	int64_t status = 0;

	if (!str_split(&line, ' ', &version) || parse_version(version, &h->minor) != 0)
		return 502;
	if (!str_split(&line, ' ', &code) || code.n != 3 || str_to_int(code, 100, 999, &status) < 0)
		return 502;
	if (!is_field_value(line))
		return 502;
	h->status = (int)status;
	h->reason = line.n > 0 ? (uint32_t)(line.p - h->base) : 0;
	h->reason_n = (uint32_t)line.n;
	return 0;
}

int head_parse_response(struct str text, struct field *fields, size_t max_fields, struct head *ret)
{
	struct head h = { .base = text.p };
	size_t at = 0;

	if (parse_status_line(&h, next_line(text, &at)) != 0)
		return 502;
	if (parse_fields(text, at, fields, max_fields, false, &h) != 0)
		return 502;
	*ret = h;
	return 0;
}
