/* Which snapshot is meant. An id means one snapshot's tags, whoever made them. A name means what
 * the asker itself has named so: an agent's key its own, then the team's; a key of the team only
 * the team's. So nobody starts another's files by a name that the other one chose: of what an agent
 * has named, the team has to write the id. */
#include "sandbox/sandbox-internal.h"

int snap_name_split(struct str text, struct str *name, struct str *tag)
{
	ptrdiff_t slash = str_find(text, '/'), colon;

	if (slash >= 0)
		text = str_from(text, (size_t)slash + 1);
	colon = str_find(text, ':');
	*name = colon < 0 ? text : (struct str){ text.p, (size_t)colon };
	*tag = colon < 0 ? STR_NONE : str_from(text, (size_t)colon + 1);
	return name->n && name->n < TEMPLATE_NAME_SIZE && tag->n < TEMPLATE_NAME_SIZE ? 0 : -EINVAL;
}

static const char *agent_of(const struct sandbox_owner *who)
{
	return who && who->agent_id ? who->agent_id : "";
}

/* An agent sees its own, and those that are the team's and no agent's; NULL: anybody's. */
bool snap_may_see(const struct sandbox_owner *who, const struct sandbox_snapshot *s)
{
	return !who || (strcmp(who->team_id, s->team_id) == 0 &&
			       (!agent_of(who)[0] || !s->agent_id[0] ||
				       strcmp(agent_of(who), s->agent_id) == 0));
}

struct wanted {
	const struct sandbox_owner *who;
	struct str name, tag;
	bool any_tag, is_id;
	const char *named_by; /* of a name: by whom */
};

static bool is_meant(const struct wanted *w, const struct sandbox_snapshot *s)
{
	if (!snap_may_see(w->who, s) || (!w->any_tag && !str_eq_nocase(w->tag, str_of(s->tag))))
		return false;
	if (w->is_id)
		return str_eq_nocase(w->name, str_of(s->template_id));
	return s->alias[0] && str_eq_nocase(w->name, str_of(s->alias)) &&
	       strcmp(s->named_by, w->named_by) == 0;
}

/* An agent's files do not stand in the place of the server's own template. */
static bool is_usurper(const struct sandbox_book *book, const struct sandbox_snapshot *s)
{
	struct template t;

	return s->agent_id[0] &&
	       template_find(book->config.templates, str_of(s->alias), &t, NULL) >= 0;
}

static const struct sandbox_snapshot *look(const struct sandbox_book *book, const struct wanted *w)
{
	LIST_EACH(&book->snaps, node)
	{
		const struct sandbox_snapshot *s = &container_of(node, struct snap, node)->view;

		if (is_meant(w, s))
			return w->is_id || !is_usurper(book, s) ? s : NULL;
	}
	return NULL;
}

static const struct sandbox_snapshot *find(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str text, bool any_tag)
{
	struct wanted w = { .who = who, .named_by = agent_of(who) };
	const struct sandbox_snapshot *found;

	if (snap_name_split(text, &w.name, &w.tag) < 0)
		return NULL;
	w.is_id = template_is_id(w.name);
	w.any_tag = any_tag && !w.tag.n;
	if (!w.tag.n)
		w.tag = STR("default");
	found = look(book, &w);
	if (found || w.is_id || !w.named_by[0])
		return found;
	w.named_by = "";
	return look(book, &w);
}

const struct sandbox_snapshot *sandbox_find_snapshot(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str wanted)
{
	return find(book, who, wanted, false);
}

const struct sandbox_snapshot *sandbox_newest_snapshot(const struct sandbox_book *book,
	const struct sandbox_owner *who, struct str wanted)
{
	return find(book, who, wanted, true);
}

void sandbox_each_snapshot(const struct sandbox_book *book, const struct sandbox_owner *who,
	void (*fn)(void *arg, const struct sandbox_snapshot *snap), void *arg)
{
	LIST_EACH(&book->snaps, node)
	{
		struct snap *snap = container_of(node, struct snap, node);

		if (snap_may_see(who, &snap->view))
			fn(arg, &snap->view);
	}
}

void sandbox_snapshot_id(const struct sandbox_snapshot *s, const struct sandbox_owner *who,
	char out[SANDBOX_SNAPSHOT_ID_SIZE])
{
	bool is_own_name =
		s->alias[0] && (!s->named_by[0] || strcmp(s->named_by, agent_of(who)) == 0);

	(void)snprintf(out, SANDBOX_SNAPSHOT_ID_SIZE, "%s:%s",
		is_own_name ? s->alias : s->template_id, s->tag);
}
