#include "server/given.h"
#include "tls/tls.h"

enum {
	FILE_MAX_BYTES = 1 << 20,
	AUTHORITIES_MAX_BYTES = 256 << 10, /* half of what a guest takes */
	MAX_ENV = 2 * CONFIG_MAX_LIST,
	ARENA_BYTES = 1 << 20,
};

/* A later one takes the place of an earlier one. */
static void put(struct given *g, struct str name, struct str value)
{
	size_t at = 0;

	while (at < g->env.n && !str_eq(g->env.v[at].key, name))
		at++;
	g->env.v[at] = (struct json_pair){ name, value };
	if (at == g->env.n)
		g->env.n++;
}

static int add_env(struct given *g, const struct config *config, struct err *e)
{
	for (size_t i = 0; i < config->sandbox_env.n; i++) {
		struct str rest = str_of(config->sandbox_env.v[i]), name = rest;

		if (str_find(rest, '=') < 0 || !str_split(&rest, '=', &name) ||
			!str_is_variable(name))
			return err_set(e, -EINVAL,
				"--sandbox-env '%.*s': use NAME=VALUE, the name of letters, digits "
				"and _",
				(int)MIN(name.n, (size_t)40), name.p);
		put(g, name, rest);
	}
	return 0;
}

/* Who asks a proxy asks for names that only the proxy can resolve; so it is http, and no path. */
static int check_proxy(struct str url, struct err *e)
{
	struct str host = str_has_prefix(url, STR("http://"))    ? str_from(url, 7)
			  : str_has_prefix(url, STR("https://")) ? str_from(url, 8)
								 : STR_NONE;
	ptrdiff_t slash = str_find(host, '/');

	for (size_t i = 0; i < host.n; i++)
		if (host.p[i] <= ' ' || host.p[i] == 0x7f || host.p[i] == '"')
			host.n = 0;
	if (host.n && (slash < 0 || (size_t)slash == host.n - 1))
		return 0;
	return err_set(e, -EINVAL, "--sandbox-proxy: use http://[USER:PASSWORD@]HOST:PORT");
}

/* curl reads the first of a pair in lower case only, other programs the other. */
static int add_proxy(struct given *g, const struct config *config, struct err *e)
{
	static const char *const names[] = { "http_proxy", "https_proxy", "HTTP_PROXY",
		"HTTPS_PROXY" };
	static const char *const none[] = { "no_proxy", "NO_PROXY" };
	struct str proxy = str_of(config->sandbox_proxy);
	const char *more = config->sandbox_no_proxy, *text;
	int r;

	if (!proxy.n)
		return more ? err_set(e, -EINVAL, "--sandbox-no-proxy needs --sandbox-proxy") : 0;
	r = check_proxy(proxy, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		put(g, str_of(names[i]), proxy);
	text = arena_printf(g->arena, "localhost,127.0.0.1,::1%s%s", more ? "," : "", more ?: "");
	if (!text)
		return err_set(e, -ENOBUFS, "--sandbox-no-proxy: too long");
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		put(g, str_of(none[i]), str_of(text));
	put(g, STR("NODE_USE_ENV_PROXY"), STR("1"));
	return 0;
}

static int add_authorities(struct given *g, const char *path, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(FILE_MAX_BYTES);
	int r = file_read(AT_FDCWD, path, &text, e);

	if (r >= 0)
		r = tls_authorities_read(buf_str(&text), &g->authorities, e);
	if (text.p)
		explicit_bzero(text.p, text.n);
	return r < 0 ? err_wrap(e, r, "--sandbox-ca %s", path) : 0;
}

int given_read(const struct config *config, struct given *ret, struct err *e)
{
	struct given g = { .arena = arena_new(ARENA_BYTES),
		.authorities = BUF_INIT(AUTHORITIES_MAX_BYTES) };
	int r;

	g.env.v = arena_alloc(g.arena, MAX_ENV * sizeof *g.env.v);
	g.env.is_set = true;
	r = add_proxy(&g, config, e);
	if (r >= 0)
		r = add_env(&g, config, e);
	for (size_t i = 0; r >= 0 && i < config->sandbox_ca.n; i++)
		r = add_authorities(&g, config->sandbox_ca.v[i], e);
	if (r < 0) {
		given_done(&g);
		return r;
	}
	*ret = g;
	return 0;
}

void given_done(struct given *given)
{
	given->arena = arena_free(given->arena);
	buf_done(&given->authorities);
	given->env = (struct json_map){ 0 };
}
