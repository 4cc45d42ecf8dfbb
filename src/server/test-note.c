#include "server/note.h"

#include "test.h"

static struct note full(void)
{
	return (struct note){ .pid = 4711,
		.start_time = 123456789012,
		.state = NOTE_STARTING,
		.asked = 3,
		.is_refused = true,
		.why = "it says no",
		.now = { "0.2.0", "abcdef" },
		.before = { "0.1.0", "" },
		.stopped_ms = 99,
		.away_ms = 1234,
		.had = -1,
		.has = 70 };
}

TEST(what_was_written_is_read_again)
{
	struct note note = full(), got;
	char text[NOTE_TEXT_SIZE], again[NOTE_TEXT_SIZE];
	size_t n = note_format(&note, text);

	ASSERT_EQ(note_parse(str_make(text, n), &got), 0);
	ASSERT_EQ(got.pid, 4711);
	ASSERT_EQ(got.start_time, 123456789012);
	ASSERT_EQ(got.state, NOTE_STARTING);
	ASSERT(got.is_refused);
	ASSERT_STR(got.why, "it says no");
	ASSERT_STR(got.before.version, "0.1.0");
	ASSERT_STR(got.before.build, "");
	ASSERT_EQ(got.had, -1);
	ASSERT_EQ(note_format(&got, again), n);
	ASSERT_STR(again, text);
}

TEST(the_longest_fits)
{
	struct note note = full();
	char text[NOTE_TEXT_SIZE];
	struct note got;

	memset(note.why, 'w', sizeof note.why - 1);
	memset(note.now.version, 'v', sizeof note.now.version - 1);
	memset(note.now.build, 'b', sizeof note.now.build - 1);
	note.before = note.now;
	note.pid = INT32_MAX;
	note.start_time = INT64_MAX;
	note.asked = note.stopped_ms = note.away_ms = note.had = note.has = INT64_MAX;
	ASSERT(note_format(&note, text) < sizeof text);
	ASSERT_EQ(note_parse(str_of(text), &got), 0);
}

TEST(a_reason_is_one_line)
{
	struct note note = full(), got;
	char text[NOTE_TEXT_SIZE];

	(void)snprintf(note.why, sizeof note.why, "one\nhas 9\n\033[2J");
	(void)note_format(&note, text);
	ASSERT_EQ(note_parse(str_of(text), &got), 0);
	ASSERT_STR(got.why, "one has 9  [2J");
	ASSERT_EQ(got.has, 70);
}

TEST(what_a_later_keeper_adds_is_no_fault_and_half_a_note_is)
{
	struct note note = full(), got = { .asked = 1 };
	char text[NOTE_TEXT_SIZE + 32];
	size_t n = note_format(&note, text);

	(void)snprintf(text + n, 32, "more 1\n");
	ASSERT_EQ(note_parse(str_of(text), &got), 0);
	got.asked = 1;
	for (size_t i = 0; i < n - 1; i++)
		if (text[i] == '\n')
			ASSERT_EQ(note_parse(str_make(text, i + 1), &got), -EBADMSG);
	ASSERT_EQ(got.asked, 1);
	ASSERT_EQ(note_parse(STR("atoll-keeper 2\n"), &got), -EBADMSG);
}

TEST(a_program_knows_itself)
{
	struct note_program own;

	note_program_own(&own);
	ASSERT_STR(own.version, ATOLL_VERSION);
	ASSERT(strlen(own.build) >= 16);
}
