#include "server/given.h"
#include "tls/tls.h"

#include "test.h"

static int read_words(const char *words, char **env, struct given *ret, struct err *e)
{
	cleanup_free char *copy = xstrdup(words);
	struct str rest = str_of(copy), word;
	char *argv[32];
	int argc = 0, r;
	struct config config;

	while (argc < 31 && str_split(&rest, ' ', &word)) {
		argv[argc++] = copy + (word.p - copy);
		copy[word.p - copy + (ptrdiff_t)word.n] = '\0';
	}
	argv[argc] = NULL;
	r = config_read(argc, argv, env, &config, e);
	if (r < 0)
		return r;
	r = given_read(&config, ret, e);
	if (r >= 0) /* what it holds of the configuration goes with that */
		for (size_t i = 0; i < ret->env.n; i++) {
			struct json_pair *pair = &ret->env.v[i];

			pair->key.p = arena_dup(ret->arena, pair->key);
			pair->value.p = arena_dup(ret->arena, pair->value);
		}
	config_done(&config);
	return r;
}

static const char *value_of(const struct given *g, const char *name)
{
	for (size_t i = 0; i < g->env.n; i++)
		if (str_is(g->env.v[i].key, name))
			return g->env.v[i].value.p;
	return "(none)";
}

TEST(nothing_is_given_unless_it_was_asked_for)
{
	struct given g;

	ASSERT_EQ(read_words("serve", NULL, &g, NULL), 0);
	ASSERT(g.env.n == 0 && g.authorities.n == 0);
	given_done(&g);
}

TEST(a_proxy_is_told_to_all_kinds_of_programs)
{
	char secret[] = "ATOLL_SANDBOX_PROXY=http://me:secret@proxy.example:3128";
	char *env[] = { secret, NULL };
	struct given g;
	struct err e = { 0 };

	ASSERT_EQ(read_words("serve --sandbox-proxy http://10.0.0.5:3128 --sandbox-no-proxy "
			     ".corp.example,10.0.0.0/8",
			  NULL, &g, NULL),
		0);
	ASSERT_STR(value_of(&g, "http_proxy"), "http://10.0.0.5:3128");
	ASSERT_STR(value_of(&g, "HTTPS_PROXY"), "http://10.0.0.5:3128");
	ASSERT_STR(value_of(&g, "NODE_USE_ENV_PROXY"), "1");
	ASSERT_STR(value_of(&g, "NO_PROXY"), "localhost,127.0.0.1,::1,.corp.example,10.0.0.0/8");
	given_done(&g);
	ASSERT_EQ(read_words("serve", env, &g, NULL), 0);
	ASSERT_STR(value_of(&g, "https_proxy"), "http://me:secret@proxy.example:3128");
	given_done(&g);
	ASSERT_EQ(read_words("serve --sandbox-proxy http://me:secret@proxy.example:3128", NULL, &g,
			  &e),
		-EINVAL);
	ASSERT(strstr(e.msg, "seen by every user") && !strstr(e.msg, "secret"));
}

TEST(variables_may_be_repeated_and_go_before_what_the_proxy_makes)
{
	char variable[] = "ATOLL_SANDBOX_ENV=A=from the environment";
	char *env[] = { variable, NULL };
	struct given g;

	ASSERT_EQ(read_words("serve --sandbox-env A=1 --sandbox-env=B=x=y,z --sandbox-env A=2 "
			     "--sandbox-proxy http://p:1 --sandbox-env no_proxy=*",
			  env, &g, NULL),
		0);
	ASSERT_STR(value_of(&g, "A"), "2");
	ASSERT_STR(value_of(&g, "B"), "x=y,z");
	ASSERT_STR(value_of(&g, "no_proxy"), "*");
	given_done(&g);
	ASSERT_EQ(read_words("serve", env, &g, NULL), 0);
	ASSERT_STR(value_of(&g, "A"), "from the environment");
	given_done(&g);
}

TEST(what_cannot_be_meant_is_refused_with_the_option)
{
	static const struct {
		const char *words, *says;
	} cases[] = {
		{ "serve --sandbox-env A", "use NAME=VALUE" },
		{ "serve --sandbox-env =1", "use NAME=VALUE" },
		{ "serve --sandbox-env A-B=1", "--sandbox-env 'A-B'" },
		{ "serve --sandbox-env 1A=1", "--sandbox-env '1A'" },
		{ "serve --sandbox-proxy proxy:3128", "--sandbox-proxy: use http://" },
		{ "serve --sandbox-proxy http://", "--sandbox-proxy: use http://" },
		{ "serve --sandbox-proxy http://p/path", "--sandbox-proxy: use http://" },
		{ "serve --sandbox-proxy socks5://p:1", "--sandbox-proxy: use http://" },
		{ "serve --sandbox-no-proxy a", "needs --sandbox-proxy" },
		{ "serve --sandbox-ca /nowhere/ca.pem", "--sandbox-ca /nowhere/ca.pem: " },
		{ "serve --sandbox-ca /dev/null", "it must be PEM" },
		{ "serve --allow-private 127.0.0.1:3128", "--allow-private: '127.0.0.1:3128'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct given g;
		struct err e = { 0 };

		ASSERT(read_words(cases[i].words, NULL, &g, &e) < 0);
		if (!strstr(e.msg, cases[i].says))
			TEST_FAIL("'%s': '%s' does not say '%s'", cases[i].words, e.msg,
				cases[i].says);
	}
}

TEST(authorities_come_from_several_files_and_keys_from_none)
{
	char dir[] = "/tmp/atoll-given-XXXXXX", words[256];
	CLEANUP(tls_authority_freep) struct tls_authority *a = NULL, *b = NULL;
	struct given g;
	struct err e = { 0 };
	cleanup_close int fd = -EBADF;

	ASSERT(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_EQ(tls_authority_open(fd, "a.key", &a, NULL), 0);
	ASSERT_EQ(tls_authority_open(fd, "b.key", &b, NULL), 0);
	ASSERT_EQ(file_create(fd, "a.pem", tls_authority_certificate(a), 0644, NULL), 0);
	ASSERT_EQ(file_create(fd, "b.pem", tls_authority_certificate(b), 0644, NULL), 0);
	(void)snprintf(words, sizeof words, "serve --sandbox-ca %s/a.pem --sandbox-ca %s/b.pem",
		dir, dir);
	ASSERT_EQ(read_words(words, NULL, &g, &e), 0);
	ASSERT(str_has_prefix(buf_str(&g.authorities), STR("# ")));
	ASSERT(strstr(g.authorities.p, tls_authority_certificate(a).p));
	ASSERT(strstr(g.authorities.p, tls_authority_certificate(b).p));
	given_done(&g);
	(void)snprintf(words, sizeof words, "serve --sandbox-ca %s/a.key", dir);
	ASSERT_EQ(read_words(words, NULL, &g, &e), -EINVAL);
	ASSERT(strstr(e.msg, "private key"));
	(void)dir_remove_tree(AT_FDCWD, dir, NULL);
}
