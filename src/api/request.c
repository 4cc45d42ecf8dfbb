/* What a request says of itself in its head: checked before it goes into rows, logs and answers. */
#include "api/api-internal.h"

static bool is_alphanumeric(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool request_id_is_sane(struct str id)
{
	for (size_t i = 0; i < id.n; i++)
		if (!is_alphanumeric(id.p[i]) && (!id.p[i] || !strchr("._:-", id.p[i])))
			return false;
	return id.n > 0 && id.n < API_REQUEST_ID_SIZE;
}

static bool is_hex_field(struct str s, size_t n)
{
	bool is_zero = true;

	for (size_t i = 0; i < s.n; i++) {
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
		is_zero = is_zero && s.p[i] == '0';
	}
	return s.n == n && (!is_zero || n == 2);
}

bool request_trace(struct str text, char ret[SANDBOX_TRACE_SIZE])
{
	struct str rest = text, version, trace, span, flags;

	ret[0] = '\0';
	if (!rest.p || !str_split(&rest, '-', &version) || !str_split(&rest, '-', &trace) ||
		!str_split(&rest, '-', &span) || !str_split(&rest, '-', &flags))
		return false;
	if (!is_hex_field(version, 2) || str_is(version, "ff") || !is_hex_field(trace, 32) ||
		!is_hex_field(span, 16) || !is_hex_field(flags, 2) ||
		(rest.p && str_is(version, "00")))
		return false;
	(void)snprintf(ret, SANDBOX_TRACE_SIZE, "00-%.*s-%.*s-%.*s", STR_ARG(trace), STR_ARG(span),
		STR_ARG(flags));
	return true;
}
