#include "http/http.h"

#include "test.h"

TEST(what_could_run_loses_its_type)
{
	static const char *const kept[] = { "text/plain", "text/plain; charset=utf-8", "Image/PNG",
		"video/mp4", "audio/ogg;codecs=opus", "application/json", " text/csv ;x=y" };
	static const char *const lost[] = { "", "text/html", "TEXT/HTML; charset=x",
		"image/svg+xml", "text/javascript", "application/javascript", "application/xml",
		"text/css", "application/wasm", "application/pdf", "text/plain, text/html",
		"multipart/x-mixed-replace", "video/", "text/plainx", "application/xhtml+xml" };

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		ASSERT_BYTES(http_inert_type(str_of(kept[i])), kept[i]);
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
		ASSERT_BYTES(http_inert_type(str_of(lost[i])), "application/octet-stream");
}

TEST(whatever_was_meant_to_be_shown_is_saved)
{
	static const char *const cases[][2] = {
		{ "", "attachment" },
		{ "inline", "attachment" },
		{ "inline; filename=\"a.html\"", "attachment; filename=\"a.html\"" },
		{ "attachment;filename=a", "attachment;filename=a" },
		{ "; inline", "attachment; inline" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(256);

		http_attachment(str_of(cases[i][0]), &out);
		ASSERT_STR(out.p, cases[i][1]);
	}
}
