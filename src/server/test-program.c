/* Which programs root takes for its own, and what it learns of them. */
#include "server/program.h"

#include "test.h"

#include <sys/stat.h>

static void write_program(const char *path, const char *text)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	(void)fd_write_all(fd, text, strlen(text));
	(void)fchmod(fd, 0755);
}

TEST(root_executes_what_is_roots_alone)
{
	char dir[] = "/tmp/test-keep-XXXXXX", path[64];
	struct err e = { 0 };

	if (geteuid() != 0)
		TEST_SKIP("it gives files away");
	ASSERT(mkdtemp(dir));
	(void)snprintf(path, sizeof path, "%s/program", dir);
	ASSERT_EQ(program_check_owner(path, &e), -ENOENT);
	write_program(path, "#!/bin/sh\n");
	ASSERT_EQ(program_check_owner(path, &e), 0);
	(void)chmod(path, 0775);
	ASSERT_EQ(program_check_owner(path, &e), -EPERM);
	(void)chmod(path, 0644);
	ASSERT_EQ(program_check_owner(path, &e), -EACCES);
	(void)chmod(path, 0755);
	(void)chmod(dir, 0777);
	ASSERT_EQ(program_check_owner(path, &e), -EPERM);
	(void)chmod(dir, 0755);
	ASSERT_EQ(chown(dir, 1, 1), 0);
	ASSERT_EQ(program_check_owner(path, &e), -EPERM);
	ASSERT_EQ(chown(dir, 0, 0), 0);
	ASSERT_EQ(chown(path, 1, 1), 0);
	ASSERT_EQ(program_check_owner(path, &e), -EPERM);
	(void)unlink(path);
	(void)rmdir(dir);
}

TEST(a_program_that_gives_up_says_why)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "#!/bin/sh\necho one; echo 'atoll: two' >&2; exit 1\n", "two" },
		{ "#!/bin/sh\nexit 3\n", "ended with 3" },
		{ "#!/bin/sh\nkill -9 $$\n", "signal 9" },
		{ "#!/bin/sh\nsleep 60\n", "did not end" },
		{ "nothing that can be executed", "cannot be executed" },
	};
	char path[] = "/tmp/test-keep-program-XXXXXX";
	const char *const argv[] = { path, NULL };
	CLEANUP(buf_done) struct buf said = BUF_INIT(4096);

	(void)close(mkstemp(path));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };

		write_program(path, cases[i].text);
		ASSERT(program_try(argv, i == 3 ? 200 : 30000, NULL, &e) < 0);
		if (!strstr(e.msg, cases[i].want))
			TEST_FAIL("got '%s', want '%s'", e.msg, cases[i].want);
	}
	write_program(path, "#!/bin/sh\necho fine\n");
	ASSERT_EQ(program_try(argv, 30000, &said, NULL), 0);
	ASSERT(str_is(buf_str(&said), "fine\n"));
	(void)unlink(path);
	ASSERT(program_try(argv, 30000, NULL, NULL) < 0);
}
