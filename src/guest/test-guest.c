/* The parts that decide by rules: paths, users, modes, endings, environments, signatures, metadata,
 * ranges, names. What needs a running guest is in tests/system/test_guest.py. */
#include "guest/accept.h"
#include "guest/auth.h"
#include "base/sign.h"
#include "guest/ending.h"
#include "guest/entry.h"
#include "guest/env.h"
#include "guest/metadata.h"
#include "guest/mime.h"
#include "guest/path.h"
#include "guest/range.h"
#include "guest/settings.h"

#include "test.h"

#include <signal.h>

#define STR_CONST(literal)                     \
	{                                      \
		(literal), sizeof(literal) - 1 \
	}

static const struct user someone = { .name = "user",
	.home = "/home/user",
	.uid = 1000,
	.gid = 1000 };

TEST(paths_follow_the_rules)
{
	static const struct {
		const char *path, *workdir, *want; /* want NULL: refused */
	} cases[] = {
		{ "", NULL, "/home/user" },
		{ "", "/app", "/app" },
		{ "", "~/src", "/home/user/src" },
		{ "~", NULL, "/home/user" },
		{ "~/", NULL, "/home/user" },
		{ "~/a/../b", NULL, "/home/user/b" },
		{ "~other", NULL, NULL },
		{ "~other/x", NULL, NULL },
		{ "a.txt", NULL, "/home/user/a.txt" },
		{ "a.txt", "/app", "/home/user/a.txt" }, /* home, not the working directory */
		{ "./a//b/./c/", NULL, "/home/user/a/b/c" },
		{ "../../../x", NULL, "/x" },
		{ "..", NULL, "/home" },
		{ "/a/../b//c/", NULL, "/a/../b//c/" }, /* as it is */
		{ "/", NULL, "/" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char got[PATH_MAX];
		int r = path_resolve(&someone, cases[i].workdir, str_of(cases[i].path), got, NULL);

		ASSERT_EQ(r, cases[i].want ? 0 : -EINVAL);
		if (cases[i].want)
			ASSERT_STR(got, cases[i].want);
	}
}

TEST(paths_too_long_or_with_nul_are_refused)
{
	static char path[PATH_MAX + 1];
	char got[PATH_MAX];

	memset(path, 'a', PATH_MAX);
	ASSERT_EQ(path_resolve(&someone, NULL, str_of(path), got, NULL), -ENAMETOOLONG);
	path[0] = '/';
	ASSERT_EQ(path_resolve(&someone, NULL, str_of(path), got, NULL), -ENAMETOOLONG);
	ASSERT_EQ(path_resolve(&someone, NULL, str_make("/a\0b", 4), got, NULL), -EINVAL);
}

TEST(paths_have_a_base_and_a_parent)
{
	static const struct {
		const char *path, *base, *parent;
	} cases[] = {
		{ "/a/b.txt", "b.txt", "/a" },
		{ "/a/b/", "b", "/a/b" },
		{ "/a", "a", "/" },
		{ "/", "/", "/" },
		{ "/a/../b/c", "c", "/b" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char parent[PATH_MAX];

		path_parent(cases[i].path, parent);
		ASSERT_BYTES(path_base(cases[i].path), cases[i].base);
		ASSERT_STR(parent, cases[i].parent);
	}
}

static const struct str passwd = STR_CONST("root:x:0:0:root:/root:/bin/bash\n"
					   "broken:x:y:0::/:\n"
					   "user:x:1000:1001:,,,:/home/user:/bin/bash\n"
					   "homeless:x:1002:1002:::/bin/sh\n"
					   "minus:x:4294967295:1::/:\n"
					   "user2:x:1000:1000::/home/user2:/bin/sh");
static const struct str group = STR_CONST("root:x:0:\n"
					  "sudo:x:27:someone,user\n"
					  "users:x:100:user2\n"
					  "docker:x:999:user\n"
					  "user:x:1001:user\n");

TEST(users_are_found_with_their_groups)
{
	struct user u;

	ASSERT(passwd_find_name(passwd, STR("user"), &u));
	group_add_members(group, &u);
	ASSERT_STR(u.home, "/home/user");
	ASSERT_EQ(u.uid, 1000);
	ASSERT_EQ(u.gid, 1001);
	ASSERT_EQ(u.n_groups, 3); /* its own one once */
	ASSERT_EQ(u.groups[0], 1001);
	ASSERT_EQ(u.groups[1], 27);
	ASSERT_EQ(u.groups[2], 999);
}

TEST(users_that_do_not_parse_do_not_exist)
{
	struct user u;

	ASSERT(!passwd_find_name(passwd, STR("broken"), &u));
	ASSERT(!passwd_find_name(passwd, STR("minus"), &u));
	ASSERT(!passwd_find_name(passwd, STR("use"), &u));
	ASSERT(!passwd_find_name(passwd, STR(""), &u));
	ASSERT(passwd_find_name(passwd, STR("homeless"), &u));
	ASSERT_STR(u.home, "/");
	ASSERT(passwd_find_name(passwd, STR("user2"), &u)); /* no newline at the end */
}

TEST(ids_have_names)
{
	char name[USER_NAME_SIZE];
	struct user u;

	ASSERT(passwd_find_id(passwd, 1000, &u));
	ASSERT_STR(u.name, "user"); /* the first of two */
	ASSERT(!passwd_find_id(passwd, 4242, &u));
	ASSERT(group_find_id(group, 999, name));
	ASSERT_STR(name, "docker");
	ASSERT(!group_find_id(group, 4242, name));
}

TEST(modes_read_as_in_go)
{
	static const struct {
		mode_t mode;
		const char *want;
	} cases[] = {
		{ S_IFREG | 0644, "-rw-r--r--" },
		{ S_IFREG, "----------" },
		{ S_IFDIR | 0755, "drwxr-xr-x" },
		{ S_IFDIR | 01777, "dtrwxrwxrwx" },
		{ S_IFLNK | 0777, "Lrwxrwxrwx" },
		{ S_IFREG | 04755, "urwxr-xr-x" },
		{ S_IFREG | 02755, "grwxr-xr-x" },
		{ S_IFIFO | 0600, "prw-------" },
		{ S_IFSOCK | 0600, "Srw-------" },
		{ S_IFBLK | 0660, "Drw-rw----" },
		{ S_IFCHR | 0666, "Dcrw-rw-rw-" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char got[ENTRY_MODE_SIZE];

		entry_mode_text(cases[i].mode, got);
		ASSERT_STR(got, cases[i].want);
	}
}

TEST(endings_read_as_in_go)
{
	static const struct {
		int status, code;
		const char *text;
	} cases[] = {
		{ 0, 0, "exit status 0" },
		{ 3 << 8, 3, "exit status 3" },
		{ 255 << 8, 255, "exit status 255" },
		{ SIGKILL, -1, "signal: killed" },
		{ SIGTERM, -1, "signal: terminated" },
		{ SIGSEGV | 0x80, -1, "signal: segmentation fault (core dumped)" },
		{ SIGABRT, -1, "signal: aborted" },
		{ SIGHUP, -1, "signal: hangup" },
		{ 40, -1, "signal: signal 40" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ending got;

		ending_from_status(cases[i].status, &got);
		ASSERT_EQ(got.exit_code, cases[i].code);
		ASSERT_EQ(got.exited, cases[i].code >= 0);
		ASSERT_STR(got.status, cases[i].text);
		if (cases[i].code == 0)
			ASSERT(!got.error);
		else
			ASSERT_STR(got.error, cases[i].text);
	}
}

/* Itself, or what a shell waited for. */
TEST(endings_by_a_foreign_call_are_explained)
{
	static const struct {
		int status;
		bool is_foreign;
	} cases[] = { { SIGSYS, true }, { (128 + SIGSYS) << 8, true }, { SIGSEGV, false },
		{ SIGSYS << 8, false }, { 0, false } };
	struct ending got;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_EQ(ending_is_foreign(cases[i].status), cases[i].is_foreign);
	ending_from_status(SIGSYS, &got);
	ending_blame_foreign(&got);
	ASSERT_STR(got.status, "signal: bad system call");
	ASSERT(strstr(got.error, "32-bit programs do not run"));
}

/* The sandbox's settings with a few variables, as the tests below use them. */
static int some_settings(struct settings *s)
{
	settings_init(s);
	return settings_apply(s,
		STR("{\"envVars\":{\"A\":\"sandbox\",\"B\":\"sandbox\",\"PATH\":\"/"
		    "opt\",\"E2B_SANDBOX\":\"no\"},"
		    "\"sandboxId\":\"i1\",\"templateId\":\"base\",\"accessToken\":\"t0k\","
		    "\"ignored\":[1]}"),
		SETTINGS_BOOT, NULL);
}

TEST(environments_let_the_last_word_win)
{
	struct json_pair wanted[] = { { STR("B"), STR("call") }, { STR("HOME"), STR("/x") },
		{ STR("E2B_SANDBOX_ID"), STR("mine") }, { STR(""), STR("nameless") } };
	struct json_map request = { .v = wanted, .n = ARRAY_SIZE(wanted) };
	struct arena *a = arena_new(1 << 20);
	struct settings s;
	char **env = NULL;
	int n = 0;

	ASSERT_EQ(some_settings(&s), 0);
	ASSERT_EQ(env_build(a, &s, &someone, &request, &env), 0);
	while (env[n])
		n++;
	ASSERT_EQ(n, 9); /* each name once */
	ASSERT_STR(env_get(env, "PATH"), "/opt");
	ASSERT_STR(env_get(env, "HOME"), "/x");
	ASSERT_STR(env_get(env, "USER"), "user");
	ASSERT_STR(env_get(env, "LOGNAME"), "user");
	ASSERT_STR(env_get(env, "A"), "sandbox");
	ASSERT_STR(env_get(env, "B"), "call");
	ASSERT_STR(env_get(env, "E2B_SANDBOX"), "true");    /* the sandbox's own cannot change it */
	ASSERT_STR(env_get(env, "E2B_SANDBOX_ID"), "mine"); /* a call's can */
	ASSERT_STR(env_get(env, "E2B_TEMPLATE_ID"), "base");
	settings_done(&s);
	(void)arena_free(a);
}

TEST(a_users_own_programs_are_found)
{
	static const struct {
		const char *home, *path;
	} cases[] = {
		{ "/home/user", "/home/user/.local/bin:" ENV_PATH },
		{ "/root", "/root/.local/bin:" ENV_PATH },
		{ "/strange:place", ENV_PATH }, /* it would be two directories */
		{ "nowhere", ENV_PATH },
		{ "", ENV_PATH },
	};
	struct settings s;

	settings_init(&s);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct arena *a = arena_new(1 << 20);
		struct user user = someone;
		char **env = NULL;

		(void)snprintf(user.home, sizeof user.home, "%s", cases[i].home);
		ASSERT_EQ(env_build(a, &s, &user, NULL, &env), 0);
		ASSERT_STR(env_get(env, "PATH"), cases[i].path);
		(void)arena_free(a);
	}
	settings_done(&s);
}

TEST(settings_are_kept_by_whoever_has_the_token)
{
	struct settings s;

	ASSERT_EQ(some_settings(&s), 0);
	ASSERT_EQ(settings_apply(&s, STR("{}"), SETTINGS_INIT, NULL), -EACCES);
	ASSERT_EQ(settings_apply(&s, STR("{\"accessToken\":\"bad\"}"), SETTINGS_INIT, NULL),
		-EACCES);
	ASSERT_EQ(settings_apply(&s, STR("{\"accessToken\":\"t0k\",\"defaultUser\":7}"),
			  SETTINGS_INIT, NULL),
		-EINVAL);
	ASSERT_STR(s.default_user, "root");
	ASSERT_EQ(settings_apply(&s,
			  STR("{\"accessToken\":\"t0k\",\"defaultUser\":\"user\",\"envVars\":{"
			      "\"C\":\"1\"}}"),
			  SETTINGS_INIT, NULL),
		0);
	ASSERT_STR(s.default_user, "user");
	ASSERT_EQ(s.env.n, 1); /* replaced, not merged */
	ASSERT_STR(s.sandbox_id, "i1");
	settings_done(&s);
}

TEST(settings_older_than_the_newest_change_nothing)
{
	struct settings s;

	settings_init(&s);
	ASSERT_EQ(settings_apply(&s,
			  STR("{\"defaultUser\":\"new\",\"timestamp\":\"2026-01-02T03:04:05Z\"}"),
			  SETTINGS_INIT, NULL),
		0);
	ASSERT_EQ(settings_apply(&s,
			  STR("{\"defaultUser\":\"old\",\"timestamp\":\"2026-01-02T03:04:04Z\"}"),
			  SETTINGS_INIT, NULL),
		0);
	ASSERT_STR(s.default_user, "new");
	settings_done(&s);
}

TEST(files_open_by_token_or_signature)
{
	static const char token[] = "secret";
	struct auth_claim claim = { .path = STR("a"),
		.operation = "read",
		.expiration = STR("100") };
	struct sign_claim signed_claim = { .path = STR("a"),
		.operation = "read",
		.expires = true,
		.expires_s = 100 };
	struct signer signer;
	char sig[SIGN_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(auth_file_check(NULL, &claim, 0, &e), 0);
	ASSERT_EQ(auth_file_check(token, &claim, 0, &e), -EACCES);
	ASSERT_STR(e.msg, "missing signature query parameter");

	sign_begin(&signer, &signed_claim);
	sign_with(&signer, token, sig);
	claim.signature = str_of(sig);
	ASSERT_EQ(auth_file_check(token, &claim, 100, &e), 0);
	ASSERT_EQ(auth_file_check(token, &claim, 101, &e), -EACCES);
	ASSERT_STR(e.msg, "signature is already expired");
	claim.operation = "write";
	ASSERT_EQ(auth_file_check(token, &claim, 100, &e), -EACCES);
	ASSERT_STR(e.msg, "invalid signature");
	claim.expiration = STR("soon");
	ASSERT_EQ(auth_file_check(token, &claim, 100, &e), -EINVAL);

	claim.given_token = STR("secreT");
	ASSERT_EQ(auth_file_check(token, &claim, 0, &e), -EACCES);
	ASSERT_STR(e.msg, "access token present in header but does not match");
	claim.given_token = STR("secret");
	ASSERT_EQ(auth_file_check(token, &claim, 0, &e), 0);
}

TEST(metadata_is_printable_and_small)
{
	static char long_key[300], long_value[4096];
	static const struct {
		struct str key, value;
		bool fine;
	} cases[] = {
		{ STR_CONST("a"), STR_CONST("b c~"), true },
		{ STR_CONST("a"), STR_CONST(""), true },
		{ STR_CONST(""), STR_CONST("b"), false },
		{ STR_CONST("a\x7f"), STR_CONST("b"), false },
		{ STR_CONST("a"), STR_CONST("\xc3\xa4"), false },
		{ { long_key, 246 }, STR_CONST("b"), true },
		{ { long_key, 247 }, STR_CONST("b"), false },
		{ STR_CONST("a"), { long_value, 4086 }, true },
		{ STR_CONST("a"), { long_value, 4087 }, false },
	};

	memset(long_key, 'k', sizeof long_key);
	memset(long_value, 'v', sizeof long_value);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct json_pair pair = { cases[i].key, cases[i].value };
		struct json_map m = { .v = &pair, .n = 1 };

		ASSERT_EQ(metadata_check(&m, NULL), cases[i].fine ? 0 : -EINVAL);
	}
}

TEST(ranges_choose_a_part_or_the_whole)
{
	static const struct {
		const char *header;
		enum range_result want;
		int64_t offset, length;
	} cases[] = {
		{ "bytes=0-0", RANGE_PART, 0, 1 },
		{ "bytes=2-5", RANGE_PART, 2, 4 },
		{ "bytes=2-", RANGE_PART, 2, 8 },
		{ "bytes=2-999", RANGE_PART, 2, 8 },
		{ "bytes=-3", RANGE_PART, 7, 3 },
		{ "bytes=-99", RANGE_PART, 0, 10 },
		{ "bytes=10-", RANGE_IMPOSSIBLE, 0, 0 },
		{ "bytes=-0", RANGE_IMPOSSIBLE, 0, 0 },
		{ "bytes=5-2", RANGE_WHOLE, 0, 0 },
		{ "bytes=a-b", RANGE_WHOLE, 0, 0 },
		{ "bytes=-", RANGE_WHOLE, 0, 0 },
		{ "bytes=0-1,3-4", RANGE_WHOLE, 0, 0 },
		{ "lines=1-2", RANGE_WHOLE, 0, 0 },
		{ "", RANGE_WHOLE, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct range got = { 0 };

		ASSERT_EQ(range_choose(str_of(cases[i].header), STR_NONE, "", 10, &got),
			cases[i].want);
		ASSERT_EQ(got.offset, cases[i].offset);
		ASSERT_EQ(got.length, cases[i].length);
	}
}

TEST(conditions_compare_dates)
{
	char date[64];

	range_http_date(784111777, date);
	ASSERT_STR(date, "Sun, 06 Nov 1994 08:49:37 GMT");
	ASSERT(range_not_modified(str_of(date), 784111777));
	ASSERT(!range_not_modified(str_of(date), 784111778));
	ASSERT(!range_not_modified(STR("yesterday"), 0));
	ASSERT(!range_not_modified(STR_NONE, 0));
}

TEST(the_form_of_a_file_is_plain_unless_refused_or_valued_less)
{
	static const struct {
		const char *header;
		enum accept_form want;
	} cases[] = {
		{ "", ACCEPT_PLAIN },
		{ "gzip, deflate", ACCEPT_PLAIN },
		{ "gzip,", ACCEPT_PLAIN },
		{ "gzip;q=1", ACCEPT_PLAIN },
		{ "*", ACCEPT_PLAIN },
		{ "identity;q=0.5", ACCEPT_PLAIN },
		{ "*;q=0, identity", ACCEPT_PLAIN },
		{ "gzip;q=0.5, identity;q=0.5", ACCEPT_PLAIN },
		{ "gzip;q=0, identity;q=0.001", ACCEPT_PLAIN },
		{ "gzip, identity;q=0", ACCEPT_GZIP },
		{ "x-gzip, IDENTITY; q=0.0", ACCEPT_GZIP },
		{ "gzip, *;q=0", ACCEPT_GZIP },
		{ "*, identity;q=0", ACCEPT_GZIP },
		{ "gzip;q=0.8, identity;q=0.79", ACCEPT_GZIP },
		{ "gzip ; q=1.0 , * ; q=0.1", ACCEPT_GZIP },
		{ "*;q=0", ACCEPT_NOTHING },
		{ "identity;q=0", ACCEPT_NOTHING },
		{ "br, identity;q=0.000", ACCEPT_NOTHING },
		{ "gzip;q=0, identity;q=0", ACCEPT_NOTHING },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_EQ(accept_choose(str_of(cases[i].header)), cases[i].want);
	ASSERT(accept_plain(STR("gzip, identity;q=0.1")));
	ASSERT(!accept_plain(STR("gzip, *;q=0")));
}

TEST(names_travel_in_headers)
{
	static const struct {
		const char *name, *want;
	} cases[] = {
		{ "a.txt", "inline; filename=a.txt" },
		{ "a b.txt", "inline; filename=\"a b.txt\"" },
		{ "a\"b\\c", "inline; filename=\"a\\\"b\\\\c\"" },
		{ "\xc3\xa4.txt", "inline; filename*=utf-8''%C3%A4.txt" },
		{ "a\nb", "inline; filename*=utf-8''a%0Ab" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf got = BUF_INIT(1024);

		mime_disposition(str_of(cases[i].name), &got);
		ASSERT_STR(got.p, cases[i].want);
		buf_done(&got);
	}
	ASSERT_STR(mime_of(STR("x.PNG")), "image/png");
	ASSERT_STR(mime_of(STR("Makefile")), "application/octet-stream");
}
