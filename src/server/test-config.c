#include "server/config.h"
#include "server/server.h"

#include "test.h"

static int read_words(const char *words, char **env, struct config *config, struct err *e)
{
	static char text[512];
	char *argv[16] = { text };
	int argc = 0;

	(void)snprintf(text, sizeof text, "%s", words);
	for (char *at = text; *at && argc < 15;) {
		argv[argc++] = at;
		at += strcspn(at, " ");
		if (*at)
			*at++ = '\0';
	}
	return config_read(argc, argv, env, config, e);
}

TEST(flags_win_over_variables_over_the_file_over_defaults)
{
	char path[] = "/tmp/atoll-config-XXXXXX", words[128];
	char *env[] = { (char[]){ "ATOLL_POOL=5" }, (char[]){ "ATOLL_LISTEN=[::1]:1" },
		(char[]){ "ATOLL_KEEP=unknown to serve" }, NULL };
	struct config c;
	struct err e = { 0 };
	int fd = mkstemp(path);

	ASSERT(fd >= 0);
	ASSERT_EQ(fd_write_all(fd, "pool = 4\ndata = \"/file\"\nmax_timeout = 9\n", 40), 0);
	(void)close(fd);
	(void)snprintf(words, sizeof words, "serve --config %s --listen=h:2 --stop-sandboxes",
		path);
	ASSERT_EQ(read_words(words, env, &c, &e), 0);
	ASSERT_EQ(c.pool, 5);
	ASSERT_STR(c.listen, "h:2");
	ASSERT_STR(c.data, "/file");
	ASSERT_EQ(c.max_timeout_s, 9);
	ASSERT_EQ(c.max_sandboxes, 1000);
	ASSERT(c.stop_sandboxes);
	config_done(&c);
	(void)unlink(path);
}

TEST(certificate_and_key_may_come_from_different_places)
{
	char *env[] = { (char[]){ "ATOLL_TLS_KEY=/k" }, NULL };
	struct err e = { 0 };
	struct config c;

	ASSERT_EQ(read_words("serve --tls-cert /c", env, &c, &e), 0);
	ASSERT_STR(c.tls_cert, "/c");
	ASSERT_STR(c.tls_key, "/k");
	config_done(&c);
}

TEST(mistakes_are_named)
{
	static const struct {
		const char *words, *says;
	} cases[] = {
		{ "serve --pol 3", "unknown option '--pol'" },
		{ "serve --pool many", "--pool" },
		{ "serve --pool 99999", "--pool" },
		{ "serve --listen", "--listen needs a value" },
		{ "serve --log-level loud", "use error, warn, info or debug" },
		{ "serve --config /nonexistent", "/nonexistent" },
		{ "serve extra", "unknown option 'extra'" },
		{ "serve --max_timeout 3", "unknown option" },
		{ "serve --tls-cert c", "--tls-cert is given without --tls-key" },
		{ "serve --tls-key k", "--tls-key is given without --tls-cert" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct config c;
		struct err e = { 0 };

		ASSERT(read_words(cases[i].words, NULL, &c, &e) < 0);
		if (!strstr(e.msg, cases[i].says))
			TEST_FAIL("'%s': '%s' does not say '%s'", cases[i].words, e.msg,
				cases[i].says);
	}
}

TEST(every_option_is_known_by_its_flag_and_its_variable)
{
	static const struct {
		const char *field, *flag, *value;
	} rows[] = {
#define IN_NO_FILE(flag, value, help)
#define OPTION_NAMES(field, flag, kind, least, most, value, help) { #field, flag, value },
		SERVER_OPTIONS(OPTION_NAMES, IN_NO_FILE)
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char words[64], variable[64];
		char *env[] = { variable, NULL };
		struct config c;
		struct err e = { 0 };

		(void)snprintf(words, sizeof words, "serve --%s", rows[i].flag);
		if (!rows[i].value) {
			ASSERT_EQ(read_words(words, NULL, &c, &e), 0);
			config_done(&c);
		} else {
			ASSERT_EQ(read_words(words, NULL, &c, &e), -EINVAL);
			ASSERT(strstr(e.msg, "needs a value"));
		}
		(void)snprintf(variable, sizeof variable, "ATOLL_%s=\n", rows[i].field);
		for (char *p = variable; *p != '='; p++)
			*p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
		ASSERT_EQ(read_words("serve", env, &c, &e), -EINVAL);
		ASSERT(strstr(e.msg, rows[i].field));
	}
}
