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

bool request_trace(struct str text, char ret[SANDBOX_TRACE_SIZE])
{
	struct observe_parent parent;
	bool is_one = observe_parent_read(text, &parent) >= 0;

	ret[0] = '\0';
	if (is_one)
		(void)snprintf(ret, SANDBOX_TRACE_SIZE, "00-%s-%s-%s", parent.trace_id,
			parent.span_id, parent.flags);
	return is_one;
}

struct str request_list(struct http_exchange *x, const char *header)
{
	CLEANUP(buf_done) struct buf list = BUF_INIT(REQUEST_LIST_BYTES);
	struct str name, value;
	const char *copy;

	for (size_t i = 0; http_header_at(x, i, &name, &value); i++) {
		if (!value.n || !str_eq_nocase(name, str_of(header)))
			continue;
		if (list.n)
			(void)buf_addc(&list, ',');
		(void)buf_add_str(&list, value);
	}
	for (size_t i = 0; i < list.n; i++)
		if (list.p[i] < ' ' || list.p[i] > '~')
			return STR_NONE;
	copy = list.failed || !list.n ? NULL : arena_dup(http_arena(x), buf_str(&list));
	return (struct str){ copy, copy ? list.n : 0 };
}
