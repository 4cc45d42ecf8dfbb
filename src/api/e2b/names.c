/* Names of templates and snapshots as clients write them, and the tokens that lead to the next page
 * of a list. */
#include "api/e2b/e2b.h"

static bool is_name(struct str text, const char *also)
{
	for (size_t i = 0; i < text.n; i++) {
		char c = text.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(also, c))))
			return false;
	}
	return text.n > 0;
}

/* Blanks around it and letter case do not count. */
static struct str fold(struct arena *arena, struct str text)
{
	struct str trimmed = str_trim(text);
	char *kept = arena_dup(arena, trimmed);

	for (size_t i = 0; kept && i < trimmed.n; i++)
		if (kept[i] >= 'A' && kept[i] <= 'Z')
			kept[i] = (char)(kept[i] - 'A' + 'a');
	return (struct str){ kept, kept ? trimmed.n : 0 };
}

/* Cuts off what stands before the mark; the text is what follows, or p NULL when there is no mark.
 */
static struct str cut(struct str *text, char mark)
{
	ptrdiff_t at = str_find(*text, mark);
	struct str before = *text;

	if (at < 0) {
		*text = STR_NONE;
		return before;
	}
	*text = str_from(*text, (size_t)at + 1);
	return (struct str){ before.p, (size_t)at };
}

int e2b_name_read(struct arena *arena, struct str text, struct e2b_name *ret, struct err *e)
{
	struct str rest = str_trim(text), name = cut(&rest, ':'), before = cut(&name, '/');

	*ret = (struct e2b_name){ .alias = fold(arena, name.p ? name : before) };
	if (name.p)
		ret->space = fold(arena, before);
	if (rest.p)
		ret->tag = fold(arena, rest);
	if (rest.p && !is_name(ret->tag, "-_."))
		return err_set(e, -EINVAL, "invalid tag: %.*s", STR_ARG(rest));
	if (name.p && !is_name(ret->space, "-_"))
		return err_set(e, -EINVAL, "invalid namespace: %.*s", STR_ARG(before));
	if (!is_name(ret->alias, "-_"))
		return err_set(e, -EINVAL, "invalid template ID: %.*s", STR_ARG(text));
	ret->clean = ret->alias;
	if (ret->tag.n)
		ret->clean = str_of(
			arena_printf(arena, "%.*s:%.*s", STR_ARG(ret->alias), STR_ARG(ret->tag)));
	return 0;
}

int e2b_name_read_own(struct api_call *call, struct str text, struct e2b_name *ret)
{
	const struct access_team *team =
		access_team(call->api->config.access, str_of(call->key.team_id));
	struct err e = { 0 };

	if (e2b_name_read(http_arena(call->x), text, ret, &e) < 0)
		(void)err_wrap(&e, -EINVAL, "Invalid name");
	else if (ret->space.n && team && !str_eq_nocase(ret->space, str_of(team->name)) &&
		 !str_is(ret->space, team->id))
		(void)err_set(&e, -EINVAL, "namespace '%.*s' must match your team '%s'",
			STR_ARG(ret->space), team->name);
	if (e.code < 0)
		api_fail(call, &e);
	return e.code;
}

/* ---- pages ---- */

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
