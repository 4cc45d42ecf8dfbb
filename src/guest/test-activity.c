#include "guest/activity.h"

#include "json/json.h"

#include "test.h"

#include <signal.h>

#define WORD(text) ((char *)(uintptr_t)(text)) /* nobody writes to it */

static struct str answer(struct activity *a, int64_t after, struct buf *out)
{
	buf_clear(out);
	activity_answer(a, str_of(a->epoch), after, out);
	return buf_str(out);
}

static bool has(struct str text, const char *wanted)
{
	return memmem(text.p, text.n, wanted, strlen(wanted)) != NULL;
}

static void start(struct activity *a, char **argv, struct activity_begun *begun)
{
	activity_started(a, 7,
		&(struct activity_process){ .argv = argv, .user = "user", .cwd = "/home/user" },
		begun);
}

TEST(a_process_is_told_with_its_beginning_and_its_end)
{
	char *argv[] = { WORD("/bin/echo"), WORD("one"), WORD("two words"), NULL };
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
	struct activity_begun begun;
	struct activity a;
	struct str text;

	activity_init(&a);
	start(&a, argv, &begun);
	activity_ended(&a, 7, &begun, 3 << 8, NULL);
	text = answer(&a, 0, &out);
	ASSERT(has(text, "\"seq\":1,"));
	ASSERT(has(text,
		"\"program\":\"/bin/echo\",\"args\":[\"one\",\"two words\"],\"user\":\"user\""));
	ASSERT(has(text, "\"begun\":1,"));
	ASSERT(has(text, "\"exit_code\":3,\"cause\":\"exit\""));
	ASSERT(has(text, "\"more\":false"));
	activity_done(&a);
}

TEST(how_it_was_ended_is_told)
{
	static const struct {
		int status;
		const char *fault, *wanted;
	} cases[] = {
		{ 0, NULL, "\"exit_code\":0,\"cause\":\"exit\"" },
		{ SIGTERM, NULL, "\"signal\":15,\"cause\":\"signal\"" },
		{ SIGKILL, "timeout", "\"signal\":9,\"cause\":\"timeout\"" },
		{ SIGKILL, "memory", "\"signal\":9,\"cause\":\"memory\"" },
	};
	char *argv[] = { WORD("/bin/true"), NULL };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
		struct activity_begun begun;
		struct activity a;

		activity_init(&a);
		start(&a, argv, &begun);
		activity_ended(&a, 7, &begun, cases[i].status, cases[i].fault);
		ASSERT(has(answer(&a, 1, &out), cases[i].wanted));
		activity_done(&a);
	}
}

TEST(what_was_written_is_let_go_and_nothing_else)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
	struct activity a;

	activity_init(&a);
	for (int i = 0; i < 5; i++)
		activity_file(&a, &(struct activity_file){ .kind = "file.written",
					  .path = "/f",
					  .bytes = i });
	(void)answer(&a, 3, &out);
	ASSERT_EQ(a.n, 2);
	ASSERT(!has(buf_str(&out), "\"seq\":3,"));
	ASSERT(has(buf_str(&out), "\"seq\":4,"));
	buf_clear(&out);
	activity_answer(&a, STR("another guest"), 5, &out);
	ASSERT_EQ(a.n, 2);
	ASSERT(has(buf_str(&out), "\"seq\":4,"));
	activity_done(&a);
}

TEST(of_too_many_the_first_stay_and_the_others_take_numbers)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4 << 20);
	struct activity a;

	activity_init(&a);
	for (int i = 0; i < 3 * ACTIVITY_MAX_RECORDS; i++)
		activity_file(&a, &(struct activity_file){ .kind = "file.written",
					  .path = "/f",
					  .bytes = i });
	ASSERT_EQ(a.n, ACTIVITY_MAX_RECORDS);
	ASSERT_EQ(a.last, 3 * ACTIVITY_MAX_RECORDS);
	(void)answer(&a, a.last, &out);
	ASSERT_EQ(a.n, 0);
	ASSERT_EQ(a.bytes, 0);
	activity_file(&a, &(struct activity_file){ .kind = "file.written", .path = "/f" });
	ASSERT(has(answer(&a, a.last - 1, &out), "\"seq\":1537,"));
	activity_done(&a);
}

TEST(bytes_are_bounded_in_each_record_and_in_all)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(4 << 20);
	cleanup_free char *big = xcalloc(1, 100001);
	char *argv[] = { big, WORD("small"), big, WORD("after it"), NULL };
	struct activity a;
	int pages = 0;
	int64_t after = 0;

	memset(big, '\1', 100000); /* as JSON six bytes each */
	activity_init(&a);
	for (int i = 0; i < ACTIVITY_MAX_RECORDS; i++) {
		struct activity_begun begun;

		start(&a, argv, &begun);
		activity_begun_done(&begun);
	}
	ASSERT(a.bytes <= ACTIVITY_MAX_BYTES);
	ASSERT(a.n > 0);
	while (a.n > 0 && pages < 100) {
		ASSERT(answer(&a, after, &out).n <= ACTIVITY_PAGE_BYTES + 256);
		after += has(buf_str(&out), "\"more\":true") ? 5 : ACTIVITY_MAX_RECORDS;
		pages++;
	}
	ASSERT(pages > 1);
	ASSERT(pages < 100);
	activity_done(&a);
}

TEST(a_long_list_of_arguments_is_cut_and_says_so)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
	char *many[ACTIVITY_MAX_ARGS + 8] = { WORD("/bin/x") };
	struct activity_begun begun;
	struct activity a;

	activity_init(&a);
	for (size_t i = 1; i < ARRAY_SIZE(many) - 1; i++)
		many[i] = WORD("a");
	start(&a, many, &begun);
	activity_begun_done(&begun);
	ASSERT(has(answer(&a, 0, &out), "\"cut\":true"));
	activity_done(&a);
}

TEST(a_cut_is_between_two_characters)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
	char path[ACTIVITY_PATH + 8];
	struct activity a;

	activity_init(&a);
	memset(path, 'a', sizeof path);
	memcpy(path + ACTIVITY_PATH - 1, "\xe2\x82\xac", 4); /* a euro across the cut */
	activity_file(&a, &(struct activity_file){ .kind = "file.written", .path = path });
	ASSERT(!has(answer(&a, 0, &out), "\xef\xbf\xbd"));
	activity_done(&a);
}

TEST(what_the_server_tells_itself_is_not_told_twice)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(1 << 20);
	char *argv[] = { WORD("/bin/sh"), WORD("-c"), WORD("the-line"), NULL };
	struct activity_process process = { .asker = { .is_recorded = true },
		.argv = argv,
		.user = "user",
		.cwd = "/",
		.tag = STR("exec-1") };
	struct activity_begun begun;
	struct activity a;

	activity_init(&a);
	activity_file(&a, &(struct activity_file){ .asker = { .is_recorded = true },
				  .kind = "file.written",
				  .path = "/f" });
	ASSERT_EQ(a.last, 0);
	activity_file(&a, &(struct activity_file){ .asker = { .is_recorded = true },
				  .kind = "file.written",
				  .path = "/f",
				  .is_partly = true });
	ASSERT_EQ(a.last, 1);
	activity_started(&a, 7, &process, &begun);
	activity_begun_done(&begun);
	ASSERT(has(answer(&a, 1, &out),
		"\"pid\":7,\"user\":\"user\",\"tag\":\"exec-1\",\"recorded\":true}"));
	ASSERT(!has(buf_str(&out), "the-line"));
	activity_done(&a);
}
