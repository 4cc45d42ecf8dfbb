/* Names of templates and snapshots as clients write them, on both surfaces, and what they stand
 * for.
 */
#include "api/api-internal.h"

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

int api_name_read(struct arena *arena, struct str text, struct api_name *ret, struct err *e)
{
	struct str rest = str_trim(text), name = cut(&rest, ':'), before = cut(&name, '/');

	*ret = (struct api_name){ .alias = fold(arena, name.p ? name : before) };
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

int api_name_read_own(struct api_call *call, struct str text, struct api_name *ret)
{
	const struct access_team *team =
		access_team(call->api->config.access, str_of(call->key.team_id));
	struct err e = { 0 };

	if (api_name_read(http_arena(call->x), text, ret, &e) < 0)
		(void)err_wrap(&e, -EINVAL, "Invalid name");
	else if (ret->space.n && team && !str_eq_nocase(ret->space, str_of(team->name)) &&
		 !str_is(ret->space, team->id))
		(void)err_set(&e, -EINVAL, "namespace '%.*s' must match your team '%s'",
			STR_ARG(ret->space), team->name);
	if (e.code < 0)
		api_fail(call, &e);
	return e.code;
}

int api_template_look(struct api_call *call, struct str wanted, struct api_template *ret,
	struct err *e)
{
	struct api_name name;
	int r = api_name_read(http_arena(call->x), wanted, &name, e);

	if (r < 0)
		return err_wrap(e, r, "Invalid template ID");
	ret->snap = sandbox_newest_snapshot(call->api->config.sandboxes, &call->owner, name.clean);
	return ret->snap ? 0 : template_find(call->api->config.templates, name.clean, &ret->t, e);
}

int api_template_find(struct api_call *call, struct str wanted, struct api_template *ret)
{
	struct err e = { 0 };
	int r = api_template_look(call, wanted, ret, &e);

	if (r < 0)
		api_fail(call, &e);
	return r;
}
