/* Scopes by name, and the names of agents. */
#include "access/access.h"

static const struct {
	unsigned scope;
	const char *name;
} table[] = {
	{ ACCESS_SANDBOXES_READ, "sandboxes:read" },
	{ ACCESS_SANDBOXES_WRITE, "sandboxes:write" },
	{ ACCESS_EXECUTE, "execute" },
	{ ACCESS_FILES, "files" },
	{ ACCESS_TEMPLATES, "templates" },
	{ ACCESS_VOLUMES, "volumes" },
	{ ACCESS_SECRETS_USE, "secrets:use" },
	{ ACCESS_SECRETS, "secrets" },
	{ ACCESS_KEYS, "keys" },
	{ ACCESS_AUDIT, "audit" },
	{ ACCESS_USAGE, "usage" },
	{ ACCESS_ADMIN, "admin" },
};

unsigned access_scope_find(struct str name)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (str_is(name, table[i].name))
			return table[i].scope;
	return 0;
}

void access_scopes_write(struct buf *out, unsigned scopes, const char *between)
{
	size_t begin = out->n;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (scopes & table[i].scope)
			(void)buf_printf(out, "%s%s", out->n > begin ? between : "", table[i].name);
}

unsigned access_scopes_usual(bool is_agents)
{
	unsigned of_the_team =
		ACCESS_NEVER_AGENTS | ACCESS_TEMPLATES | ACCESS_VOLUMES | ACCESS_SECRETS;

	return is_agents ? ACCESS_ALL & ~of_the_team : ACCESS_ALL;
}

unsigned access_scopes_read(struct str words, bool is_agents)
{
	unsigned scopes = 0;
	struct str word;

	if (!words.n)
		return access_scopes_usual(is_agents);
	while (words.n && str_split(&words, ' ', &word))
		scopes |= access_scope_find(
			word); /* one that this version does not know gives nothing */
	return is_agents ? scopes & ~(unsigned)ACCESS_NEVER_AGENTS : scopes;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("._:/@-", c));
}

bool access_is_agent(struct str name)
{
	if (name.n == 0 || name.n >= ACCESS_AGENT_SIZE || strchr("._:/@-", name.p[0]))
		return false;
	for (size_t i = 0; i < name.n; i++)
		if (!is_name_char(name.p[i]))
			return false;
	return true;
}
