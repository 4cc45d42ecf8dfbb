#include "cli/cli-internal.h"
#include "cli/doctor.h"
#include "test.h"

TEST(cleans_what_a_terminal_would_obey)
{
	static const struct {
		struct str in;
		const char *out;
	} cases[] = {
		{ STR("plain"), "plain" },
		{ STR("\033[31mred"), "?[31mred" },
		{ STR("a\tb\nc"), "a b c" },
		{ STR("\302\233boo"), "?boo" }, /* C1 CSI as UTF-8 */
		{ STR("gr\303\274n"), "gr\303\274n" },
		{ STR("\377\376"), "??" },
		{ STR("a\0b"), "a?b" },
		{ STR("cut \303"), "cut ?" },
	};
	char out[32];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		out_clean(cases[i].in, out, sizeof out);
		ASSERT_STR(out, cases[i].out);
	}
	out_clean(STR("12345\303\274"), out, 7); /* a character is kept whole or not at all */
	ASSERT_STR(out, "12345");
}

TEST(values_in_lines_are_cleaned_and_formats_are_not)
{
	struct out out = { .text = BUF_INIT(4096), .stdout_color = true };

	out_line(&out, "a\tb\n%s|%.*s|%-4s|%4s|%d|%" PRId64 "|%zu|%%", "x\n\033[2Jy", 2, "12345",
		"\303\274", "r", -7, INT64_C(-8), (size_t)9);
	ASSERT_STR(out.text.p, "a\tb\nx ?[2Jy|12|\303\274   |   r|-7|-8|9|%\n");
	buf_clear(&out.text);
	out_line(&out, "%*s%s %s", 3, "", "\342\200\256evil", "\302\233m");
	ASSERT_STR(out.text.p, "   ?evil ?m\n");
	buf_clear(&out.text);
	out_marked(&out, OUT_RED, "ok", " %s", "\033[32m");
	ASSERT_STR(out.text.p, "\033[31mok\033[0m ?[32m\n");
	buf_done(&out.text);
}

TEST(a_terminal_gets_lines_and_our_own_styles_only)
{
	CLEANUP(buf_done) struct buf shown = BUF_INIT(4096);

	out_for_terminal(&shown, STR("a\tb\n\033[31mred\033[0m \033]0;title\007 \033[2J\r\177 "
				     "\302\233 \233 gr\303\274n"));
	ASSERT_STR(shown.p, "a\tb\n\033[31mred\033[0m ?]0;title? ?[2J?? ? ? gr\303\274n");
}

TEST(sizes_and_times_read_well)
{
	struct out out = { .stdout_tty = true };
	char cell[OUT_CELL];

	out_size(512, cell);
	ASSERT_STR(cell, "512 B");
	out_size(1536, cell);
	ASSERT_STR(cell, "1.5 KiB");
	out_size((uint64_t)20 << 30, cell);
	ASSERT_STR(cell, "20 GiB");
	ASSERT_EQ(time_parse_rfc3339(STR("2026-01-02T03:04:05Z"), &out.now_us), 0);
	out_time(&out, STR("2026-01-02T03:04:00Z"), cell);
	ASSERT_STR(cell, "5 s ago");
	out_time(&out, STR("2026-01-02T03:14:05Z"), cell);
	ASSERT_STR(cell, "in 10 min");
	out_time(&out, STR("2025-12-30T03:04:05Z"), cell);
	ASSERT_STR(cell, "3 d ago");
	out_time(&out, STR_NONE, cell);
	ASSERT_STR(cell, "-");
	out.stdout_tty = false;
	out_time(&out, STR("2026-01-02T03:04:00Z"), cell);
	ASSERT_STR(cell, "2026-01-02T03:04:00Z");
}

static void print_table(struct out *out)
{
	static const char *const titles[] = { "ID", "NAME" };
	CLEANUP(out_table_done) struct out_table t;

	out->text = BUF_INIT(4096);
	out_table_init(&t, titles, 2);
	for (size_t i = 0; i < 20; i++) { /* past the first growth */
		size_t row = out_table_add(&t);

		(void)snprintf(out_table_cell(&t, row, 0), OUT_CELL, "%s",
			i == 3   ? "a-long-id"
			: i == 4 ? "i\033" /* also by who did not clean it */
				 : "id");
		out_text(i == 3 ? STR("x\ty") : STR(""), out_table_cell(&t, row, 1));
	}
	out_table_print(out, &t);
}

TEST(tables_are_aligned_for_people_and_tabbed_for_pipes)
{
	struct out person = { .stdout_tty = true }, pipe = { 0 };

	print_table(&person);
	print_table(&pipe);
	ASSERT(str_has_prefix(buf_str(&person.text), STR("ID         NAME\nid         -\n")));
	ASSERT(strstr(person.text.p, "a-long-id  x y\ni?         -\n"));
	ASSERT(str_has_prefix(buf_str(&pipe.text), STR("id\t-\nid\t-\nid\t-\na-long-id\tx y\n")));
	ASSERT(!strstr(person.text.p, "\033"));
	buf_done(&person.text);
	buf_done(&pipe.text);
}

TEST(an_empty_cell_is_a_field_for_everybody)
{
	static const char *const titles[] = { "A", "B", "C" };
	static const size_t widths[] = { 4, 1, 2 };
	struct out person = { .text = BUF_INIT(4096), .stdout_tty = true },
		   pipe = { .text = BUF_INIT(4096) };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, 3);
	(void)out_table_add(&t);
	(void)snprintf(out_table_cell(&t, 0, 1), OUT_CELL, "long");
	out_table_print(&pipe, &t);
	ASSERT_STR(pipe.text.p, "-\tlong\t-\n");
	out_table_print(&person, &t);
	ASSERT_STR(person.text.p, "A  B     C\n-  long  -\n");
	buf_clear(&person.text);
	out_table_row(&person, &t, 0, widths); /* what is too long for its column still ends */
	ASSERT_STR(person.text.p, "-     long  -\n");
	buf_clear(&pipe.text);
	out_table_row(&pipe, &t, 0, widths);
	ASSERT_STR(pipe.text.p, "-\tlong\t-\n");
	buf_done(&person.text);
	buf_done(&pipe.text);
}

TEST(colour_follows_flag_then_environment)
{
	struct out out = { 0 };

	ASSERT_EQ(out_init(&out, "always", true, "dumb", NULL), 0);
	ASSERT(out.stdout_color && out.stderr_color);
	out_done(&out);
	ASSERT_EQ(out_init(&out, "never", false, "xterm", NULL), 0);
	ASSERT(!out.stdout_color);
	out_done(&out);
	ASSERT_EQ(out_init(&out, "pink", false, NULL, NULL), -EINVAL);
	out_done(&out);
	ASSERT_STR(out_color(false, OUT_RED), "");
}

TEST(errors_have_exit_codes_and_names)
{
	static const struct {
		int code, exit;
		const char *name;
	} cases[] = { { -EINVAL, 2, "usage" }, { -ENOENT, 3, "not_found" },
		{ -EACCES, 4, "unauthorized" }, { -EBUSY, 5, "wrong_state" },
		{ -EDQUOT, 6, "limit" }, { -ECONNREFUSED, 7, "unreachable" },
		{ -ETIMEDOUT, 7, "timeout" }, { -EIO, 1, "failed" }, { -EPIPE, 141, "pipe" } };
	static const struct {
		int status, code;
	} statuses[] = { { 400, -EBADMSG }, { 401, -EACCES }, { 404, -ENOENT }, { 409, -EBUSY },
		{ 429, -EDQUOT }, { 500, -EIO }, { 502, -ENOENT }, { 507, -ENOSPC } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		ASSERT_EQ(cli_failure_of(cases[i].code)->exit, cases[i].exit);
		ASSERT_STR(cli_failure_of(cases[i].code)->name, cases[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		ASSERT_EQ(cli_api_code_of(statuses[i].status), statuses[i].code);
}

TEST(probe_lines_become_checks)
{
	struct doctor d = { 0 };

	ASSERT_EQ(doctor_probe_line(&d, STR("overlay\tok\tworks\t")), 0);
	ASSERT_EQ(doctor_probe_line(&d, STR("root\tfail\tnot \033root\tbecome root")), 0);
	ASSERT_EQ(doctor_probe_line(&d, STR("x\tmaybe\ttext\tfix")), -EPROTO);
	ASSERT_EQ(doctor_probe_line(&d, STR("x\tok")), -EPROTO);
	ASSERT_EQ(doctor_probe_line(&d, STR("\tok\ttext\t")), -EPROTO);
	ASSERT_EQ(d.n, 2);
	ASSERT_EQ(d.checks[0].status, CHECK_OK);
	ASSERT_STR(d.checks[0].text, "works");
	ASSERT_EQ(d.checks[1].status, CHECK_FAIL);
	ASSERT_STR(d.checks[1].text, "not ?root");
	ASSERT_STR(d.checks[1].fix, "become root");
	while (doctor_probe_line(&d, STR("a\tok\tb\t")) == 0)
		ASSERT(d.n < DOCTOR_MAX);
}
