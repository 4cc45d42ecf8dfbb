#include "sandbox/activity-read.h"

#include "test.h"

struct rig {
	struct arena *arena;
	struct activity_page page;
	struct err e;
};

static int parse(struct rig *rig, const char *json)
{
	rig->arena = arena_free(rig->arena);
	rig->arena = arena_new(8 << 20);
	rig->e = (struct err){ 0 };
	return activity_read(rig->arena, str_of(json), &rig->page, &rig->e);
}

#define PAGE(records) "{\"epoch\":\"e1\",\"last\":9,\"records\":[" records "],\"more\":false}"
#define STARTED "\"at\":5,\"kind\":\"process.started\",\"pid\":3,\"program\":\"/bin/sh\""

TEST(a_page_is_read)
{
	struct rig rig = { 0 };

	ASSERT_EQ(
		parse(&rig,
			PAGE("{\"seq\":1," STARTED ",\"args\":[\"-c\",\"x\"]},"
			     "{\"seq\":4,\"kind\":\"file.moved\",\"path\":\"/a\",\"to\":\"/b\"}")),
		0);
	ASSERT_BYTES(str_of(rig.page.epoch), "e1");
	ASSERT_EQ(rig.page.last, 9);
	ASSERT_EQ(rig.page.n, 2);
	ASSERT_EQ(rig.page.v[0].args.n, 2);
	ASSERT_EQ(rig.page.v[1].kind, ACTIVITY_FILE_MOVED);
	ASSERT(activity_is_file(rig.page.v[1].kind));
	ASSERT(!activity_is_file(rig.page.v[0].kind));
	rig.arena = arena_free(rig.arena);
}

TEST(what_no_guest_says_is_refused)
{
	static const char *const cases[] = {
		"",
		"[]",
		"{}",
		"{\"epoch\":\"\",\"last\":1,\"records\":[]}",
		"{\"epoch\":\"e\",\"last\":-1,\"records\":[]}",
		"{\"epoch\":\"an epoch that is longer than any guest's is\",\"last\":1}",
		PAGE("{\"seq\":0," STARTED "}"),
		PAGE("{\"seq\":10," STARTED "}"), /* above the last that it says there is */
		PAGE("{\"seq\":2," STARTED "},{\"seq\":2," STARTED "}"),
		PAGE("{\"seq\":2," STARTED "},{\"seq\":1," STARTED "}"),
		PAGE("{\"seq\":1,\"kind\":7}"),
		PAGE("{\"seq\":1," STARTED ",\"args\":\"x\"}"),
	};
	struct rig rig = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT(parse(&rig, cases[i]) < 0);
	rig.arena = arena_free(rig.arena);
}

TEST(kinds_of_a_newer_guest_are_left_out)
{
	struct rig rig = { 0 };

	ASSERT_EQ(parse(&rig, PAGE("{\"seq\":1,\"kind\":\"moon.landed\",\"who\":{}},"
				   "{\"seq\":2," STARTED "}")),
		0);
	ASSERT_EQ(rig.page.n, 1);
	ASSERT_EQ(rig.page.v[0].seq, 2);
	rig.arena = arena_free(rig.arena);
}

TEST(a_source_that_is_no_address_is_none)
{
	struct rig rig = { 0 };

	ASSERT_EQ(parse(&rig, PAGE("{\"seq\":1," STARTED ",\"source\":\"192.0.2.7\"},"
				   "{\"seq\":2," STARTED ",\"source\":\"admin 1\"},"
				   "{\"seq\":3," STARTED ",\"source\":\"2001:db8::1\"}")),
		0);
	ASSERT_BYTES(rig.page.v[0].source, "192.0.2.7");
	ASSERT_EQ(rig.page.v[1].source.n, 0);
	ASSERT_BYTES(rig.page.v[2].source, "2001:db8::1");
	rig.arena = arena_free(rig.arena);
}

static struct mask_needles *needles_of(const char *value)
{
	struct mask_needles *needles = mask_needles_new();

	(void)mask_needles_add(needles, STR("KEY"), str_of(value), NULL);
	return needles;
}

static bool has(const struct buf *text, const char *wanted)
{
	return memmem(text->p, text->n, wanted, strlen(wanted)) != NULL;
}

TEST(a_secret_is_masked_wherever_it_stands)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *needles = needles_of("hunter2-hunter2");
	CLEANUP(buf_done) struct buf out = BUF_INIT(ACTIVITY_DATA_BYTES);
	struct rig rig = { 0 };

	ASSERT_EQ(parse(&rig, PAGE("{\"seq\":1,\"kind\":\"process.started\",\"program\":\"/"
				   "hunter2-hunter2\","
				   "\"args\":[\"-p\",\"x=hunter2-hunter2;y\"],"
				   "\"cwd\":\"/hunter2-hunter2\",\"path\":\"/hunter2-hunter2\","
				   "\"to\":\"hunter2-hunter2\",\"tag\":\"hunter2-hunter2\","
				   "\"user\":\"hunter2-hunter2\"}")),
		0);
	activity_write(&rig.page.v[0], needles, &out);
	ASSERT(!has(&out, "hunter2"));
	ASSERT(has(&out, "\"args\":[\"-p\",\"x=[secret:KEY];y\"]"));
	rig.arena = arena_free(rig.arena);
}

TEST(the_beginning_of_a_secret_that_was_cut_off_is_left_out)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *needles = needles_of("hunter2-hunter2");
	CLEANUP(buf_done) struct buf out = BUF_INIT(ACTIVITY_DATA_BYTES);
	struct rig rig = { 0 };

	ASSERT_EQ(parse(&rig, PAGE("{\"seq\":1," STARTED
				   ",\"cut\":true,\"args\":[\"hunter\",\"x=hunter2-hun\"]}")),
		0);
	activity_write(&rig.page.v[0], needles, &out);
	ASSERT(has(&out, "\"args\":[\"hunter\",\"x=\"],\"args_cut\":true"));
	rig.arena = arena_free(rig.arena);
}

TEST(without_knowing_the_secrets_no_text_is_told)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(ACTIVITY_DATA_BYTES);
	struct rig rig = { 0 };

	ASSERT_EQ(parse(&rig,
			  PAGE("{\"seq\":1," STARTED ",\"args\":[\"hunter2\"],\"path\":\"/p\"}")),
		0);
	activity_write(&rig.page.v[0], NULL, &out);
	ASSERT_BYTES(buf_str(&out), "{\"pid\":3,\"hidden\":true,\"guest_seq\":1}");
	rig.arena = arena_free(rig.arena);
}

TEST(signals_have_names_and_causes_are_known_words)
{
	CLEANUP(mask_needles_unrefp) struct mask_needles *needles = mask_needles_new();
	CLEANUP(buf_done) struct buf out = BUF_INIT(ACTIVITY_DATA_BYTES);
	struct rig rig = { 0 };

	ASSERT_EQ(parse(&rig, PAGE("{\"seq\":2,\"kind\":\"process.ended\",\"pid\":3,\"begun\":1,"
				   "\"us\":5,\"signal\":9,\"cause\":\"memory\"},"
				   "{\"seq\":3,\"kind\":\"process.ended\",\"exit_code\":0,"
				   "\"cause\":\"magic\"}")),
		0);
	activity_write(&rig.page.v[0], needles, &out);
	ASSERT_BYTES(buf_str(&out),
		"{\"pid\":3,\"signal\":\"SIGKILL\",\"cause\":\"memory\",\"us\":5,"
		"\"begun\":1,\"guest_seq\":2}");
	buf_clear(&out);
	activity_write(&rig.page.v[1], needles, &out);
	ASSERT_BYTES(buf_str(&out), "{\"exit_code\":0,\"guest_seq\":3}");
	rig.arena = arena_free(rig.arena);
}
