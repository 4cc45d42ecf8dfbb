#include "cli/config.h"
#include "test.h"

#include <sys/stat.h>

TEST(assignments_are_read_as_a_shell_would)
{
	static const struct {
		const char *text;
		int r;
		const char *value;
	} cases[] = {
		{ "K=v", 0, "v" },
		{ "A=1\nK=v\nB=2\n", 0, "v" },
		{ "K=old\nK=new\n", 0, "new" },
		{ "export K=v", 0, "v" },
		{ "  export  K='a $b \"c\"'  \n", 0, "a $b \"c\"" },
		{ "K=\"a b\"", 0, "a b" },
		{ "K=", 0, "" },
		{ "K=''", 0, "" },
		{ "K=a=b", 0, "a=b" },
		{ "# K=v", -ENOENT, "" },
		{ "KK=v", -ENOENT, "" },
		{ "K", -ENOENT, "" },
		{ "", -ENOENT, "" },
		{ "K=$HOME", -EINVAL, "" },
		{ "K=\"$(id)\"", -EINVAL, "" },
		{ "K=`id`", -EINVAL, "" },
		{ "K=a b", -EINVAL, "" },
		{ "K='a", -EINVAL, "" },
		{ "K='a'b'", -EINVAL, "" },
		{ "K=a;b", -EINVAL, "" },
		{ "K=12345678901234567890", -EINVAL, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char value[16] = "";
		int r = cli_config_assignment(str_of(cases[i].text), "K", value, sizeof value);

		if (r != cases[i].r)
			TEST_FAIL("'%s': got %d, want %d", cases[i].text, r, cases[i].r);
		if (r == 0)
			ASSERT_STR(value, cases[i].value);
	}
}

struct place {
	char data[64], env[80];
};

static void place_done(struct place *p)
{
	(void)unlink(p->env);
	(void)rmdir(p->data);
}

static void place_init(struct place *p, const char *text)
{
	int fd;

	(void)snprintf(p->data, sizeof p->data, "/tmp/test-cli-config.%d", getpid());
	(void)snprintf(p->env, sizeof p->env, "%s/env", p->data);
	(void)mkdir(p->data, 0700);
	fd = open(p->env, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		abort();
	(void)close(fd);
}

TEST(first_source_is_taken_whole)
{
	CLEANUP(place_done) struct place p = { 0 };
	struct config_input in = { 0 };
	struct config c;

	place_init(&p, "E2B_API_KEY=e2b_file\nE2B_API_URL=http://file:1/\n");
	in.env_data = p.data;
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.api_url, "http://file:1");
	ASSERT_STR(c.sandbox_url, "http://file:1");
	ASSERT_STR(c.api_key, "e2b_file");
	ASSERT_STR(c.data, p.data);

	in.env_api_key = "e2b_env"; /* the file's address must not get this key */
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.api_url, "http://127.0.0.1:3000");
	ASSERT_STR(c.api_key, "e2b_env");

	in.env_api_url = "http://env:2";
	in.env_api_key = NULL; /* and the file's key not go to this address */
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.api_url, "http://env:2");
	ASSERT_STR(c.api_key, "");

	in.flag_data = p.data;
	in.env_sandbox_url = "http://env:3";
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.api_url, "http://file:1");
	ASSERT_STR(c.sandbox_url, "http://file:1");

	in.flag_api_url = "http://flag:4";
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.api_url, "http://flag:4");
	ASSERT_STR(c.sandbox_url, "http://flag:4");
	ASSERT_STR(c.api_key, "e2b_file");
}

TEST(authorities_that_are_named_must_be_there)
{
	CLEANUP(place_done) struct place p = { 0 };
	struct config_input in = { .env_ssl_cert_file = "/no/such/file" };
	struct err e = { 0 };
	struct config c;

	place_init(&p, "");
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0); /* stale, and meant for others */
	ASSERT_STR(c.ca_file, "");
	in.env_ssl_cert_file = p.env;
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.ca_file, p.env);
	in.env_ca_file = "/dev/null";
	ASSERT_EQ(cli_config_load(&in, &c, NULL), 0);
	ASSERT_STR(c.ca_file, "/dev/null");
	in.flag_ca_file = "/no/such/file";
	ASSERT_EQ(cli_config_load(&in, &c, &e), -EINVAL);
	ASSERT_STR(e.msg, "--ca-file: /no/such/file: No such file or directory");
}

TEST(a_named_directory_must_be_there)
{
	struct config_input in = { .flag_data = "/no/such/directory" };
	struct config c;

	ASSERT_EQ(cli_config_load(&in, &c, NULL), -ENOENT);
	in = (struct config_input){ .env_data = "/no/such/directory" };
	ASSERT_EQ(cli_config_load(&in, &c, NULL), -ENOENT);
}
