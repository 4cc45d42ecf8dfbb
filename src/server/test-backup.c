/* What says that a file is a backup, and the words that tar is called with. */
#include "server/archive.h"
#include "server/backup.h"
#include "server/interrupt.h"

#include "test.h"

enum {
	ARENA_BYTES = 1 << 20
};

TEST(what_a_backup_says_of_itself_is_read)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct backup_about about;
	struct err e = { 0 };

	ASSERT_EQ(backup_parse_about(arena,
			  STR("{\"atoll\":\"backup\",\"format\":1,\"program\":\"0.1.0\",\"rows\":7,"
			      "\"seed\":\"00ff\",\"later\":[1]}\n"),
			  &about, &e),
		0);
	ASSERT_BYTES(about.seed, "00ff");
	ASSERT_EQ(about.rows.value, 7);
}

TEST(what_is_none_or_of_a_newer_version_is_refused)
{
	static const struct {
		const char *text;
		int want;
	} cases[] = {
		{ "", -EBADMSG },
		{ "{", -EBADMSG },
		{ "[]", -EBADMSG },
		{ "{\"atoll\":\"backup\",\"format\":1}", -EBADMSG },
		{ "{\"atoll\":\"backup\",\"format\":0,\"seed\":\"\"}", -EBADMSG },
		{ "{\"atoll\":\"backup\",\"format\":\"1\",\"seed\":\"\"}", -EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"seed\":\"\"}", -EBADMSG },
		{ "{\"atoll\":\"backup\",\"format\":2,\"seed\":\"\"}", -ENOTSUP },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
		struct backup_about about = { .rows = { true, 77 } };
		struct err e = { 0 };

		ASSERT_EQ(backup_parse_about(arena, str_of(cases[i].text), &about, &e),
			cases[i].want);
		ASSERT_EQ(about.rows.value, 77);
		ASSERT(e.msg[0]);
	}
}

TEST(another_seed_gives_another_mark_and_neither_shows_the_seed)
{
	uint8_t seed[SHA256_SIZE] = { 1, 2, 3 };
	char one[BACKUP_CHECK_SIZE], other[BACKUP_CHECK_SIZE], hex[2 * SHA256_SIZE + 1];

	backup_check_of(seed, one);
	hex_encode(seed, sizeof seed, hex);
	ASSERT(!strstr(hex, one));
	seed[31] ^= 1;
	backup_check_of(seed, other);
	ASSERT(strcmp(one, other) != 0);
	ASSERT_EQ(strlen(one), BACKUP_CHECK_SIZE - 1);
}

TEST(too_many_words_are_a_failure_and_not_fewer_words)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };
	struct said_lost lost = { 0 };
	const struct archive_run run = { .create = &words, .lost = &lost };
	struct err e = { 0 };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(words.v); i++)
		archive_add(&words, "%s", "--version");
	ASSERT(words.failed);
	ASSERT_EQ(archive_run(&run, &e), -E2BIG);
}

TEST(what_tar_says_is_the_cause)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };
	struct said_lost lost = { 0 };
	const struct archive_run run = { .extract = &words, .lost = &lost };
	struct err e = { 0 };

	archive_add(&words, "tar");
	archive_add(&words, "--extract");
	archive_add(&words, "--file=/nonexistent/archive");
	ASSERT_EQ(archive_run(&run, &e), -EIO);
	ASSERT(strstr(e.msg, "/nonexistent/archive"));
}

TEST(a_signal_waits_unless_it_is_ignored)
{
	struct interrupt held;

	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGTERM, SIG_DFL);
	interrupt_hold(&held);
	(void)raise(SIGHUP);
	ASSERT(!interrupt_came());
	(void)raise(SIGTERM);
	ASSERT(interrupt_came());
	(void)signal(SIGTERM, SIG_IGN); /* which takes it away */
	interrupt_release(&held);
	ASSERT(!interrupt_came());
}

TEST(an_archive_that_is_interrupted_ends)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_BYTES);
	struct archive_words words = { .arena = arena };
	struct said_lost lost = { 0 };
	const struct archive_run run = { .extract = &words, .lost = &lost };
	struct interrupt held;
	struct err e = { 0 };

	archive_add(&words, "tar");
	archive_add(&words, "--version");
	(void)signal(SIGTERM, SIG_DFL);
	interrupt_hold(&held);
	(void)raise(SIGTERM);
	ASSERT_EQ(archive_run(&run, &e), -EINTR);
	(void)signal(SIGTERM, SIG_IGN);
	interrupt_release(&held);
}
