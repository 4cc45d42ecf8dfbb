#include "store/store-internal.h"
#include "store/test-scratch.h"

#include "test.h"

#include <sys/stat.h>

static int add_odd_rows(struct store_tx *tx, void *arg, struct err *e)
{
	static const char *const names[] = { "", "a", "B", "\xc3\xa4 \xf0\x9f\x98\x80",
		"\"quoted\"\\\t\n\x01", "null", "0" };
	int r = 0;

	(void)arg;
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(names); i++) {
		struct store_event event = { "test", names[i], "s", STR("{\"a\":1}") };

		r = store_exec(tx, "INSERT INTO teams (id, name, created_us) VALUES ($1, $2, $3)",
			STORE_PARAMS(P_TEXT(names[i]), P_TEXT(names[i]),
				P_INT(i % 2 ? INT64_MAX : INT64_MIN)),
			e);
		if (r >= 0)
			r = store_add_event(tx, &event, e);
	}
	return r;
}

static int export_to(const char *url, const char *path, struct err *e)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	CLEANUP(store_freep) struct store *store = NULL;
	cleanup_close int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	const struct store_config config = { .url = url };
	struct store_report report;
	int r = loop_new(&loop, e);

	if (r >= 0)
		r = store_open_offline(loop, &config, false, &store, e);
	return r < 0 ? r : store_export(store, fd, &report, e);
}

static int import_from(const char *url, const char *path, bool replace, struct err *e)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	CLEANUP(store_freep) struct store *store = NULL;
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct store_config config = { .url = url };
	struct store_report report;
	int r = loop_new(&loop, e);

	if (r >= 0)
		r = store_open_offline(loop, &config, true, &store, e);
	return r < 0 ? r : store_import(store, fd, replace, &report, e);
}

static bool are_equal(const char *a, const char *b)
{
	CLEANUP(buf_done) struct buf x = BUF_INIT(1 << 20), y = BUF_INIT(1 << 20);

	return file_read(AT_FDCWD, a, &x, NULL) >= 0 && file_read(AT_FDCWD, b, &y, NULL) >= 0 &&
	       x.n > 500 && str_eq(buf_str(&x), buf_str(&y));
}

TEST(what_is_written_out_and_read_in_again_is_the_same_in_any_database)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char files[3][80], urls[2][256];
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_odd_rows, NULL, &e), 1);
	s.store = store_free(s.store);
	for (size_t i = 0; i < 3; i++)
		(void)snprintf(files[i], sizeof files[i], "%s/%zu.jsonl", s.dir, i);
	(void)snprintf(urls[0], sizeof urls[0], "sqlite:%s/other.db", s.dir);
	ASSERT_EQ(export_to(s.url, files[0], &e), 0);
	ASSERT_EQ(import_from(urls[0], files[0], false, &e), 0);
	ASSERT_EQ(export_to(urls[0], files[1], &e), 0);
	ASSERT(are_equal(files[0], files[1]));
	(void)snprintf(urls[1], sizeof urls[1], "%s/sub", s.dir);
	ASSERT_EQ(mkdir(urls[1], 0700), 0);
	ASSERT_EQ(database_url(urls[1], urls[0], sizeof urls[0]), 0);
	ASSERT_EQ(import_from(urls[0], files[1], false, &e), 0);
	ASSERT_EQ(import_from(urls[0], files[1], false, &e), -ENOTEMPTY);
	ASSERT_EQ(import_from(urls[0], files[1], true, &e), 0);
	ASSERT_EQ(export_to(urls[0], files[2], &e), 0);
	ASSERT(are_equal(files[0], files[2]));
}

TEST(a_file_that_is_damaged_changes_nothing)
{
	static const struct {
		const char *text;
		int code;
	} cases[] = {
		{ "", -EBADMSG },
		{ "{}\n", -EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":2,\"version\":1}\n{\"rows\":0}\n", -EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":9999}\n{\"rows\":0}\n",
			-ENOTSUP },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n", -EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n{\"rows\":1}\n", -EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n{\"rows\":0}", -EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n{\"table\":\"nothing\","
		  "\"row\":{}}\n{\"rows\":1}\n",
			-EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n{\"table\":\"teams\","
		  "\"row\":{\"id\":\"a\",\"name\":\"n\"}}\n{\"rows\":1}\n",
			-EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n{\"table\":\"teams\","
		  "\"row\":{\"id\":\"a\",\"name\":\"n\",\"created_us\":\"7\"}}\n{\"rows\":1}\n",
			-EBADMSG },
		{ "{\"atoll\":\"database\",\"format\":1,\"version\":1}\n{\"table\":\"teams\","
		  "\"row\":{\"id\":\"a\",\"name\":null,\"created_us\":7}}\n{\"rows\":1}\n",
			-EEXIST },
	};
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char path[80];
	struct err e = { 0 };
	int64_t n = -1;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	s.store = store_free(s.store);
	(void)snprintf(path, sizeof path, "%s/file", s.dir);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char sub[80], url[256];

		(void)snprintf(sub, sizeof sub, "%s/%zu", s.dir, i);
		ASSERT_EQ(mkdir(sub, 0700), 0);
		ASSERT_EQ(database_url(sub, url, sizeof url), 0);
		ASSERT_EQ(file_replace(AT_FDCWD, path, str_of(cases[i].text), 0600, &e), 0);
		if (import_from(url, path, false, &e) != cases[i].code)
			TEST_FAIL("case %zu: %s", i, e.msg);
		ASSERT_EQ(store_open(s.loop, url, &s.store, &e), 0);
		ASSERT_EQ(store_run_now(s.store, count_teams, &n, &e), 0);
		ASSERT_EQ(n, 0);
		s.store = store_free(s.store);
	}
}

static int add_anothers(struct store_tx *tx, void *arg, struct err *e)
{
	int r = store_script(tx, "CREATE TABLE anothers (id TEXT, \"When\" DATE)", e);

	(void)arg;
	return r < 0 ? r
		     : store_exec(tx, "INSERT INTO anothers (id) VALUES ($1)",
			       STORE_PARAMS(P_TEXT("mine")), e);
}

static int count_anothers(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx, "SELECT COUNT(*) FROM anothers", NULL, 0, count_row, arg, e);
}

TEST(tables_of_others_are_neither_moved_nor_emptied)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	char first[80], second[80];
	struct store_report report;
	struct err e = { 0 };
	int64_t n = 0;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_odd_rows, NULL, &e), 1);
	ASSERT_EQ(store_run_now(s.store, add_anothers, NULL, &e), 1);
	s.store = store_free(s.store);
	(void)snprintf(first, sizeof first, "%s/1.jsonl", s.dir);
	(void)snprintf(second, sizeof second, "%s/2.jsonl", s.dir);
	ASSERT_EQ(export_to(s.url, first, &e), 0);
	ASSERT_EQ(import_from(s.url, first, true, &e), 0);
	ASSERT_EQ(export_to(s.url, second, &e), 0);
	ASSERT(are_equal(first, second));
	ASSERT_EQ(store_open(s.loop, s.url, &s.store, &e), 0);
	ASSERT_EQ(store_run_now(s.store, count_anothers, &n, &e), 0);
	ASSERT_EQ(n, 1);
	ASSERT_EQ(store_check(s.store, &report, &e), 0);
	ASSERT_EQ(report.n_problems, 1);
}

static int spoil(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return MIN(store_exec(tx, "DROP TABLE volumes", NULL, 0, e), 0);
}

TEST(a_check_counts_rows_and_names_what_is_wrong)
{
	CLEANUP(scratch_done) struct scratch s = { 0 };
	struct store_report report;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(store_run_now(s.store, add_odd_rows, NULL, &e), 1);
	ASSERT_EQ(store_check(s.store, &report, &e), 0);
	ASSERT_EQ(report.version, report.newest);
	ASSERT_EQ(report.rows, 14);
	ASSERT_EQ(report.n_problems, 0);
	ASSERT_EQ(store_run_now(s.store, spoil, NULL, &e), 0);
	ASSERT_EQ(store_check(s.store, &report, &e), 0);
	ASSERT_EQ(report.n_problems, 1);
	ASSERT(strstr(report.problems[0], "volumes"));
}
