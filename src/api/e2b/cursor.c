/* The tokens that lead to the next page of a list. */
#include "api/e2b/e2b.h"

/* "<µs>.<id>[.asc]" of the last row shown, base64url. */
void e2b_cursor_add(struct api_call *call, int64_t at_us, const char *id, bool ascending)
{
	char text[96], encoded[160] = "";
	int n = snprintf(text, sizeof text, "%" PRId64 ".%s%s", at_us, id, ascending ? ".asc" : "");
	size_t size = base64_size((size_t)n);

	base64_encode(text, (size_t)n, encoded);
	for (size_t i = 0; i < size; i++)
		encoded[i] = encoded[i] == '+' ? '-' : encoded[i] == '/' ? '_' : encoded[i];
	while (size && encoded[size - 1] == '=')
		size--;
	http_add_header(call->x, "X-Next-Token", str_make(encoded, size));
}

int e2b_cursor_read(struct api_call *call, bool ascending, struct e2b_cursor *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(256);
	struct str token = http_query_value(call->x, "nextToken"), rest, at, order = STR_NONE;

	*ret = (struct e2b_cursor){ .ascending = ascending };
	if (!token.n)
		return 0;
	if (base64_decode(token, &text) < 0)
		return -EINVAL;
	rest = str_of(arena_dup(http_arena(call->x), buf_str(&text)));
	if (!str_split(&rest, '.', &at) || !str_split(&rest, '.', &ret->id) ||
		str_to_int(at, 0, INT64_MAX, &ret->at_us) < 0)
		return -EINVAL;
	(void)str_split(&rest, '.', &order);
	if (ret->id.n == 0 || str_is(order, "asc") != ascending)
		return -EINVAL;
	ret->is_set = true;
	return 0;
}

bool e2b_cursor_passed(const struct e2b_cursor *cursor, int64_t at_us, const char *id)
{
	int order = at_us != cursor->at_us ? (at_us < cursor->at_us ? 1 : -1)
					   : strncmp(id, cursor->id.p, cursor->id.n);

	return !cursor->is_set || (cursor->ascending ? order < 0 : order > 0);
}
