/* What is heard of what tar prints. */
#include "server/said.h"

#include "test.h"

#include <limits.h>

static void feed(struct said *said, const char *text)
{
	said_feed(said, text, strlen(text));
}

TEST(one_file_of_a_volume_fails_alone)
{
	static const struct {
		enum said_kind kind;
		const char *line;
		uint64_t lost;
		const char *cause;
	} cases[] = {
		{ SAID_WRITING, "tar: volumes/a/b: Cannot mkdir: File name too long\n", 1, "" },
		{ SAID_WRITING, "tar: volumes/a/b: Cannot open: File exists\n", 1, "" },
		{ SAID_WRITING,
			"tar: volumes/a: Cannot hard link to 'volumes/b': No such file or "
			"directory\n",
			1, "" },
		{ SAID_WRITING, "tar: volumes/a: Cannot write: No space left on device\n", 0,
			"volumes/a: Cannot write: No space left on device" },
		{ SAID_WRITING, "tar: saved/a: Cannot open: File exists\n", 0,
			"saved/a: Cannot open: File exists" },
		{ SAID_WRITING, "tar: volumes/.images/a: Cannot open: File exists\n", 0,
			"volumes/.images/a: Cannot open: File exists" },
		{ SAID_WRITING, "tar: Unexpected EOF in archive\n", 0,
			"Unexpected EOF in archive" },
		{ SAID_READING, "tar: volumes/a: Cannot stat: No such file or directory\n", 0, "" },
		{ SAID_READING, "tar: volumes/a: Cannot open: Not a directory\n", 1, "" },
		{ SAID_READING, "tar: volumes/a: Cannot open: Too many levels of symbolic links\n",
			1, "" },
		{ SAID_READING,
			"tar: volumes/a: Read error at byte 0, while reading 512 bytes: "
			"Input/output error\n",
			0,
			"volumes/a: Read error at byte 0, while reading 512 bytes: Input/output "
			"error" },
		{ SAID_READING, "tar: volumes/a: File shrank by 512 bytes; padding with zeros\n", 1,
			"" },
		{ SAID_READING, "tar: saved/a: File shrank by 512 bytes; padding with zeros\n", 0,
			"saved/a: File shrank by 512 bytes; padding with zeros" },
		{ SAID_READING, "tar: saved/a: Warning: Cannot llistxattrat: Permission denied\n",
			0, "" },
		{ SAID_READING, "tar: saved/a: Cannot stat: No such file or directory\n", 0,
			"saved/a: Cannot stat: No such file or directory" },
		{ SAID_READING, "tar: Exiting with failure status due to previous errors\n", 0,
			"" },
		/* A name cannot say what is not so: tar escapes it. */
		{ SAID_READING, "tar: volumes/a\\: File exists: Cannot open: Input/output error\n",
			0, "volumes/a\\: File exists: Cannot open: Input/output error" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct said said = { .kind = cases[i].kind };

		feed(&said, cases[i].line);
		ASSERT(said.has_spoken);
		ASSERT_EQ(said.lost.n, cases[i].lost);
		ASSERT_STR(said.cause, cases[i].cause);
	}
}

TEST(the_first_cause_stays)
{
	struct said said = { .kind = SAID_WRITING };

	feed(&said, "tar: one\ntar: two\ntar: volumes/a: x: File exists\n");
	ASSERT_STR(said.cause, "one");
	ASSERT_STR(said.lost.first, "volumes/a: x: File exists");
}

TEST(a_line_without_end_keeps_its_beginning_and_its_end)
{
	struct said said = { .kind = SAID_WRITING };

	feed(&said, "tar: volumes/");
	for (int i = 0; i < 100000; i++)
		feed(&said, "x");
	feed(&said, ": Cannot mkdir: File name too long\n");
	ASSERT_EQ(said.lost.n, 1);
	ASSERT(strlen(said.lost.first) < SAID_SIZE);
	ASSERT(strstr(said.lost.first, "volumes/xxx"));
	ASSERT(strstr(said.lost.first, "...xxx"));
	ASSERT(strstr(said.lost.first, ": Cannot mkdir: File name too long"));
}

TEST(names_are_as_long_as_they_are_on_disk)
{
	static const char *const one_byte[] = { "x", "\\n", "\\\\", "\\303" };

	for (size_t i = 0; i < ARRAY_SIZE(one_byte); i++) {
		struct said said = { .kind = SAID_NAMES };

		for (int at = 0; at < PATH_MAX - 1; at++)
			feed(&said, one_byte[i]);
		feed(&said, "\n");
		ASSERT_EQ(said.lost.n, 0);
		for (int at = 0; at < PATH_MAX; at++)
			feed(&said, one_byte[i]);
		feed(&said, "\nshort\n");
		ASSERT_EQ(said.lost.n, 1);
	}
}

TEST(losses_add_up_and_the_first_stays)
{
	struct said_lost all = { 0 }, one = { 2, "one" }, other = { 3, "other" };

	said_add_lost(&all, &one);
	said_add_lost(&all, &other);
	ASSERT_EQ(all.n, 5);
	ASSERT_STR(all.first, "one");
}
