#include "guest/env.h"
#include "guest/compat.h"
#include "guest/trust.h"

struct env {
	struct arena *arena;
	char **v;
	size_t n;
	bool failed;
};

static bool has_name(const char *entry, struct str name)
{
	return strncmp(entry, name.p, name.n) == 0 && entry[name.n] == '=';
}

static void set(struct env *env, struct str name, struct str value)
{
	char *entry;
	size_t at = 0;

	if (!name.n)
		return;
	entry = arena_printf(env->arena, "%.*s=%.*s", STR_ARG(name), STR_ARG(value));
	if (!entry) {
		env->failed = true;
		return;
	}
	while (at < env->n && !has_name(env->v[at], name))
		at++;
	env->v[at] = entry;
	if (at == env->n)
		env->n++;
}

static void set_all(struct env *env, const struct json_map *map)
{
	for (size_t i = 0; map && i < map->n; i++)
		set(env, map->v[i].key, map->v[i].value);
}

struct system_var {
	const char *name;
	const char *value;
};

enum {
	SYSTEM_VARS = 3,
	USER_VARS = 12,
};

static size_t system_vars(const struct settings *s, struct system_var out[SYSTEM_VARS])
{
	size_t n = 0;

	out[n++] = (struct system_var){ "E2B_SANDBOX", "true" };
	if (s->sandbox_id)
		out[n++] = (struct system_var){ "E2B_SANDBOX_ID", s->sandbox_id };
	if (s->template_id)
		out[n++] = (struct system_var){ "E2B_TEMPLATE_ID", s->template_id };
	return n;
}

/* What `pip install --user`, pipx, uv and installers without root leave is found by any command,
 * not by login shells alone. */
static void set_path(struct env *env, const struct user *user)
{
	char path[USER_HOME_SIZE + sizeof ENV_USER_BIN + sizeof ENV_PATH];

	if (user->home[0] != '/' || strchr(user->home, ':'))
		(void)snprintf(path, sizeof path, "%s", ENV_PATH);
	else
		(void)snprintf(path, sizeof path, "%s" ENV_USER_BIN ":" ENV_PATH, user->home);
	set(env, STR("PATH"), str_of(path));
}

/* For programs that bring their own list of authorities instead of the system's. */
static void set_trust(struct env *env, const struct settings *s)
{
	static const char *const bundles[] = { "AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
		"PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE" };

	static_assert(ARRAY_SIZE(bundles) + 1 + 5 <= USER_VARS, "there is room for all");
	if (!s->is_trusted)
		return;
	set(env, STR("NODE_EXTRA_CA_CERTS"), STR(TRUST_OWN));
	for (size_t i = 0; s->has_bundle && i < ARRAY_SIZE(bundles); i++)
		set(env, str_of(bundles[i]), STR(TRUST_BUNDLE));
}

int env_build(struct arena *a, const struct settings *s, const struct user *user,
	const struct json_map *request, char ***ret)
{
	struct system_var vars[SYSTEM_VARS];
	size_t n_vars = system_vars(s, vars);
	size_t most = USER_VARS + s->env.n + n_vars + (request ? request->n : 0);
	struct env env = { .arena = a };

	env.v = arena_alloc(a, (most + 1) * sizeof *env.v); /* zeroed: terminated */
	if (!env.v)
		return -ENOBUFS;
	set_path(&env, user);
	set(&env, STR("HOME"), str_of(user->home));
	set(&env, STR("USER"), str_of(user->name));
	set(&env, STR("LOGNAME"), str_of(user->name));
	set_trust(&env, s);
	if (s->needs_preload)
		set(&env, STR("LD_PRELOAD"), STR(COMPAT_PRELOAD));
	set_all(&env, &s->env);
	for (size_t i = 0; i < n_vars; i++)
		set(&env, str_of(vars[i].name), str_of(vars[i].value));
	set_all(&env, request);
	if (env.failed)
		return -ENOBUFS;
	*ret = env.v;
	return 0;
}

const char *env_get(char *const *env, const char *name)
{
	struct str key = str_of(name);

	for (; *env; env++)
		if (has_name(*env, key))
			return *env + key.n + 1;
	return NULL;
}

static bool is_system_var(const struct system_var *vars, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++)
		if (str_is(name, vars[i].name))
			return true;
	return false;
}

void env_write_defaults(struct jsonw *w, const struct settings *s)
{
	struct system_var vars[SYSTEM_VARS];
	size_t n = system_vars(s, vars);

	jsonw_object(w, NULL);
	for (size_t i = 0; i < s->env.n; i++)
		if (!is_system_var(vars, n, s->env.v[i].key))
			jsonw_pair(w, s->env.v[i].key, s->env.v[i].value);
	for (size_t i = 0; i < n; i++)
		jsonw_strz(w, vars[i].name, vars[i].value);
	jsonw_end_object(w);
}
