#include "server/config.h"
#include "server/front.h"
#include "server/server.h"

#include "test.h"

#include <sys/resource.h>

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
	ASSERT(c.max_sandboxes >= 100 && c.max_sandboxes <= 4000); /* as the machine is */
	ASSERT(c.stop_sandboxes);
	config_done(&c);
	(void)unlink(path);
}

TEST(traces_go_where_any_of_the_usual_names_say)
{
	char *otel[] = { (char[]){ "OTEL_EXPORTER_OTLP_ENDPOINT=http://a:4318/" },
		(char[]){ "OTEL_EXPORTER_OTLP_HEADERS=k=v%20w" },
		(char[]){ "LANGFUSE_BASE_URL=http://b" }, (char[]){ "LANGFUSE_PUBLIC_KEY=p" },
		(char[]){ "LANGFUSE_SECRET_KEY=s" }, NULL };
	const struct {
		const char *words;
		char **env;
		const char *url, *header;
	} cases[] = {
		{ "serve", NULL, NULL, NULL },
		{ "serve --trace-endpoint http://c", otel, "http://c/v1/traces", NULL },
		{ "serve --trace-endpoint https://c/v1/traces", NULL, "https://c/v1/traces", NULL },
		{ "serve --trace-endpoint http://c --trace-header A:b", NULL, "http://c/v1/traces",
			"A: b" },
		{ "serve", otel, "http://a:4318/v1/traces", "k: v w" },
		{ "serve", otel + 2, "http://b/api/public/otel/v1/traces",
			"Authorization: Basic cDpz" },
		{ "serve", otel + 3, NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };
		struct config c;

		ASSERT_EQ(read_words(cases[i].words, cases[i].env, &c, &e), 0);
		ASSERT_STR(c.trace_url ? c.trace_url : "-", cases[i].url ? cases[i].url : "-");
		ASSERT_STR(c.trace_headers[0] ? c.trace_headers[0] : "-",
			cases[i].header ? cases[i].header : "-");
		config_done(&c);
	}
}

TEST(prices_are_amounts)
{
	struct err e = { 0 };
	struct config c;

	ASSERT_EQ(read_words("serve --price-vcpu-hour 0.05 --price-currency EUR", NULL, &c, &e), 0);
	ASSERT(c.prices.is_set);
	ASSERT_EQ(c.prices.vcpu_hour, 50000000);
	ASSERT_STR(c.prices.currency, "EUR");
	config_done(&c);
	ASSERT_EQ(read_words("serve", NULL, &c, &e), 0);
	ASSERT(!c.prices.is_set);
	config_done(&c);
	ASSERT_EQ(read_words("serve --price-egress-gib -1", NULL, &c, &e), -EINVAL);
	ASSERT_EQ(read_words("serve --trace-endpoint nowhere", NULL, &c, &e), -EINVAL);
	ASSERT_EQ(read_words("serve --log-format xml", NULL, &c, &e), -EINVAL);
}

TEST(what_becomes_of_forgotten_ones_can_be_said)
{
	struct err e = { 0 };
	struct config c;

	ASSERT_EQ(read_words("serve", NULL, &c, &e), 0);
	ASSERT_EQ(c.max_age_s, 86400);
	ASSERT_EQ(c.unresponsive_after_s, 300);
	ASSERT_STR(c.unresponsive, "end");
	config_done(&c);
	ASSERT_EQ(read_words("serve --max-age 0 --unresponsive keep --unresponsive-after 9", NULL,
			  &c, &e),
		0);
	ASSERT_EQ(c.max_age_s, 0);
	ASSERT_EQ(c.unresponsive_after_s, 9);
	ASSERT_STR(c.unresponsive, "keep");
	config_done(&c);
	ASSERT_EQ(read_words("serve --unresponsive maybe", NULL, &c, &e), -EINVAL);
	ASSERT_STR(e.msg, "--unresponsive 'maybe': use end or keep");
	ASSERT_EQ(read_words("serve --unresponsive-after 0", NULL, &c, &e), -EINVAL);
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
		{ "serve --ceilings memoryMB=much", "--ceilings: memoryMB: must be a number" },
		{ "serve --ceilings memory=512", "'memory' is no limit" },
		{ "serve --default-limits snapshots=5",
			"--default-limits: 'snapshots' is no limit" },
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

TEST(ceilings_and_defaults_are_lists)
{
	struct config c;
	struct err e = { 0 };

	ASSERT_EQ(
		read_words("serve --ceilings memoryMB=512,snapshots=3 --default-limits cpuCount=1",
			NULL, &c, &e),
		0);
	ASSERT_EQ(c.ceilings.v[LIMIT_MEMORY], 512);
	ASSERT_EQ(c.ceilings.v[LIMIT_SNAPSHOTS], 3);
	ASSERT_EQ(c.default_limits.v[LIMIT_CPU], 1);
	ASSERT_EQ(c.default_limits.v[LIMIT_MEMORY], 0);
	config_done(&c);
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

TEST(a_database_password_is_taken_from_anywhere_but_the_command_line)
{
	static const struct {
		const char *url;
		bool has_password;
	} cases[] = {
		{ "sqlite:/a:b@c", false },
		{ "postgresql:///d", false },
		{ "postgresql://u@h:5432/d", false },
		{ "postgresql://[::1]:5432/d", false },
		{ "postgresql://u@h/d?application_name=a:b@c", false },
		{ "postgresql://u:p@h/d", true },
		{ "postgresql://:p@h/d", true },
		{ "postgresql://u:p@[::1]:5432/d", true },
		{ "postgresql:///d?user=u&password=p", true },
		{ "postgresql:///d?sslpassword=p", true },
	};
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char words[256], variable[256];
		char *env[] = { variable, NULL };
		struct config c;

		(void)snprintf(words, sizeof words, "serve --database %s", cases[i].url);
		(void)snprintf(variable, sizeof variable, "ATOLL_DATABASE=%s", cases[i].url);
		ASSERT_EQ(config_read(1, (char *[]){ words, NULL }, env, &c, &e), 0);
		ASSERT_STR(c.database, cases[i].url);
		config_hide_env(env);
		ASSERT_STR(variable, "ATOLL_DATABASE=");
		ASSERT_STR(c.database, cases[i].url);
		config_done(&c);
		if (read_words(words, NULL, &c, &e) != (cases[i].has_password ? -EINVAL : 0))
			TEST_FAIL("%s: %s", cases[i].url, e.msg);
		if (!cases[i].has_password)
			config_done(&c);
		else
			ASSERT(strstr(e.msg, "seen by every user") && !strstr(e.msg, "p@h"));
	}
}

TEST(connections_follow_the_file_limit)
{
	struct rlimit before, few;
	struct http_limits limits;
	struct err e = { 0 };
	struct config c;

	ASSERT_EQ(read_words("serve --max-connections 1000 --max-queued-mb 2", NULL, &c, &e), 0);
	ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){ 800, before.rlim_max };
	ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	front_limits(&c, &limits);
	ASSERT_EQ(limits.max_connections, 300);
	c.tls_cert = "cert.pem";
	front_limits(&c, &limits);
	ASSERT_EQ(limits.max_connections, 150);
	c.max_connections = 100;
	front_limits(&c, &limits);
	ASSERT_EQ(limits.max_connections, 100);
	ASSERT_EQ(limits.max_queued_bytes, 2 << 20);
	(void)setrlimit(RLIMIT_NOFILE, &before);
	config_done(&c);
}
