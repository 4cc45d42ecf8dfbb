#include "base/base.h"
#include "base/process.h"

#include "test.h"

#include <sys/socket.h>
#include <sys/stat.h>

TEST(err_says_context_cause_and_errno)
{
	struct err e;

	ASSERT_EQ(err_sys(&e, -EBUSY, "write '%d'", 4096), -EBUSY);
	ASSERT_EQ(err_wrap(&e, e.code, "sandbox '%s'", "i7"), -EBUSY);
	ASSERT_STR(e.msg, "sandbox 'i7': write '4096': Device or resource busy");
}

TEST(err_cut_short_stays_utf8)
{
	char text[400];
	struct err e;

	for (size_t shift = 0; shift < 4; shift++) {
		memset(text, 'a', sizeof text);
		for (size_t i = shift; i + 3 < sizeof text; i += 3)
			memcpy(text + i, "\xe2\x82\xac", 3);
		text[sizeof text - 1] = '\0';
		(void)err_set(&e, -EINVAL, "%s", text);
		ASSERT(str_is_utf8(str_of(e.msg)));
	}
}

TEST(buf_keeps_its_ceiling_and_says_so)
{
	CLEANUP(buf_done) struct buf b = BUF_INIT(8);

	ASSERT_EQ(buf_adds(&b, "12345678"), 0);
	ASSERT_EQ(buf_addc(&b, '9'), -ENOBUFS);
	ASSERT(b.failed);
	ASSERT_BYTES(buf_str(&b), "12345678");
	buf_consume(&b, 5);
	ASSERT_BYTES(buf_str(&b), "678");
}

TEST(numbers_are_whole_and_in_range)
{
	static const struct {
		const char *text;
		int r;
		int64_t value;
	} cases[] = {
		{ "0", 0, 0 },
		{ "-5", 0, -5 },
		{ "9223372036854775807", 0, INT64_MAX },
		{ "-9223372036854775808", 0, INT64_MIN },
		{ "9223372036854775808", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "-", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1a", -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int64_t got = 0;

		ASSERT_EQ(str_to_int(str_of(cases[i].text), INT64_MIN, INT64_MAX, &got),
			cases[i].r);
		ASSERT_EQ(got, cases[i].value);
	}
}

TEST(split_gives_empty_fields_too)
{
	struct str rest = STR("a,,b,"), field;

	ASSERT(str_split(&rest, ',', &field));
	ASSERT_BYTES(field, "a");
	ASSERT(str_split(&rest, ',', &field));
	ASSERT_BYTES(field, "");
	ASSERT(str_split(&rest, ',', &field));
	ASSERT_BYTES(field, "b");
	ASSERT(str_split(&rest, ',', &field));
	ASSERT_BYTES(field, "");
	ASSERT(!str_split(&rest, ',', &field));
}

TEST(base64_round_trips_and_refuses_what_is_malformed)
{
	static const char *const bad[] = { "A", "AAAAA", "AA=", "A===", "AA==A",
		"A A=", "AB==", "=", "====", "AAA==" };
	static const char *const same[] = { "+/8=", "-_8=", "-_8", "+/8" };
	char text[64], bytes[32];

	for (size_t n = 0; n < sizeof bytes; n++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(64);

		random_bytes(bytes, sizeof bytes);
		base64_encode(bytes, n, text);
		ASSERT_EQ(base64_decode(str_make(text, base64_size(n)), &out), 0);
		ASSERT_EQ(out.n, n);
		ASSERT(n == 0 || memcmp(out.p, bytes, n) == 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(64);

		if (base64_decode(str_of(bad[i]), &out) == 0)
			TEST_FAIL("accepted '%s'", bad[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(64);

		ASSERT_EQ(base64_decode(str_of(same[i]), &out), 0);
		ASSERT_EQ(out.n, 2);
		ASSERT(memcmp(out.p, "\xfb\xff", 2) == 0);
	}
}

TEST(percent_decoding)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(64);

	ASSERT_EQ(percent_decode(STR("a%2Fb+c"), true, &out), 0);
	ASSERT_BYTES(buf_str(&out), "a/b c");
	ASSERT_EQ(percent_decode(STR("%2"), false, &out), -EINVAL);
	ASSERT_EQ(percent_decode(STR("%zz"), false, &out), -EINVAL);
}

TEST(sha256_of_abc)
{
	uint8_t digest[SHA256_SIZE];
	char hex[65];

	sha256("abc", 3, digest);
	hex_encode(digest, sizeof digest, hex);
	ASSERT_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(map_survives_churn)
{
	struct map m = { 0 };
	static char keys[1000][8];
	size_t at = 0, n = 0;

	for (int i = 0; i < 1000; i++) {
		(void)snprintf(keys[i], sizeof keys[i], "k%d", i);
		ASSERT(!map_put(&m, str_of(keys[i]), keys[i]));
	}
	for (int i = 0; i < 1000; i += 3)
		ASSERT(map_remove(&m, str_of(keys[i])) == keys[i]);
	for (int i = 0; i < 1000; i++)
		ASSERT(map_get(&m, str_of(keys[i])) == (i % 3 ? keys[i] : NULL));
	while (map_next(&m, &at))
		n++;
	ASSERT_EQ(n, m.n);
	map_done(&m);
}

TEST(time_round_trips)
{
	static const char *const bad[] = { "", "2026-01-02", "2026-13-02T00:00:00Z",
		"2026-01-02T00:00:00", "2026-01-02T00:00:00+1:00", "2026-01-02T00:00:00Zx" };
	char text[RFC3339_SIZE];
	int64_t us;

	ASSERT_EQ(time_parse_rfc3339(STR("2026-01-02T03:04:05.678901Z"), &us), 0);
	time_rfc3339(us, text);
	ASSERT_STR(text, "2026-01-02T03:04:05.678901Z");
	ASSERT_EQ(time_parse_rfc3339(STR("2026-01-02T05:04:05.678901234+02:00"), &us), 0);
	time_rfc3339(us, text);
	ASSERT_STR(text, "2026-01-02T03:04:05.678901Z");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT_EQ(time_parse_rfc3339(str_of(bad[i]), &us), -EINVAL);
}

TEST(a_log_line_becomes_json)
{
	static const struct {
		const char *line, *want;
	} cases[] = {
		{ "ts=2026-01-02T03:04:05Z level=info event=a.b",
			"{\"ts\":\"2026-01-02T03:04:05Z\",\"level\":\"info\",\"event\":\"a.b\"}" },
		{ "ms=12 n=-3 id=007 big=1234567890123456 f=1.5",
			"{\"ms\":12,\"n\":-3,\"id\":\"007\",\"big\":\"1234567890123456\",\"f\":"
			"\"1.5\"}" },
		{ "err=\"a b=c \\\"q\\\" \\\\ \\x0a\" next=1",
			"{\"err\":\"a b=c \\\"q\\\" \\\\ \\\\x0a\",\"next\":1}" },
		{ "word", "{\"word\":\"\"}" },
		{ "a= b=\"\" ", "{\"a\":\"\",\"b\":\"\"}" },
		{ "raw=x\"y\\z\xff", "{\"raw\":\"x\\\"y\\\\z?\"}" },
		{ "open=\"never closed", "{\"open\":\"never closed\"}" },
		{ "", "{}" },
	};
	char out[512];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t n = log_to_json(str_of(cases[i].line), out, sizeof out);

		ASSERT(n < sizeof out);
		out[n] = '\0';
		ASSERT_STR(out, cases[i].want);
	}
}

/* However small the room: what is written is whole. */
TEST(a_log_line_that_is_too_long_is_cut_between_members)
{
	const struct str line = STR("a=1 bb=\"x y\" ccc=dddd");
	char out[64];

	for (size_t size = 3; size < sizeof out; size++) {
		size_t n = log_to_json(line, out, size);

		ASSERT(n <= size && n >= 2);
		ASSERT_EQ(out[n - 1], '}');
		ASSERT(n == 2 || strchr("1\"", out[n - 2]));
	}
}

TEST(log_masks_keys_and_tokens_and_leaves_ids)
{
	char line[] = "key=e2b_0123456789abcdef0123456789abcdef01234567 id=iabc123 "
		      "t=0123456789abcdef0123456789abcdef";

	log_redact(line, sizeof line - 1);
	ASSERT_STR(line, "key=e2b_01************************************** id=iabc123 "
			 "t=0123****************************");
}

TEST(descriptors_travel_with_a_message)
{
	int pair[2], got[FD_MAX_PASS], n = 0;
	char text[8] = "";

	ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ASSERT_EQ(fd_send(pair[0], "hi", 2, pair, 2), 0);
	ASSERT_EQ(fd_recv(pair[1], text, sizeof text, got, &n), 2);
	ASSERT_EQ(n, 2);
	ASSERT_STR(text, "hi");
	for (int i = 0; i < n; i++)
		(void)close(got[i]);
	(void)close(pair[0]);
	ASSERT_EQ(fd_recv(pair[1], text, sizeof text, got, &n), 0);
	(void)close(pair[1]);
}

TEST(trees_are_removed_and_files_replaced_whole)
{
	char path[] = "/tmp/atoll-test-XXXXXX";
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	struct err e = { 0 };
	struct stat st;
	int dir;

	ASSERT(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_EQ(dir_make(dir, "a", 0700, &e), 0);
	ASSERT_EQ(dir_make(dir, "a/b", 0700, &e), 0);
	ASSERT_EQ(file_create(dir, "a/b/f", STR("none"), 0600, &e), 0);
	ASSERT_EQ(file_create(dir, "a/b/f", STR("two"), 0600, NULL), -EEXIST);
	ASSERT_EQ(symlinkat("nowhere", dir, "a/dangling"), 0);
	ASSERT_EQ(file_create(dir, "a/dangling", STR("two"), 0600, NULL), -EEXIST);
	ASSERT(faccessat(dir, "a/nowhere", F_OK, 0) < 0);
	ASSERT_EQ(file_replace(dir, "a/b/f", STR("one"), 0600, &e), 0);
	ASSERT_EQ(file_replace(dir, "a/b/f", STR("two"), 0640, &e), 0);
	ASSERT_EQ(file_read(dir, "a/b/f", &text, &e), 0);
	ASSERT_BYTES(buf_str(&text), "two");
	ASSERT_EQ(symlinkat("/etc", dir, "a/link"), 0);
	(void)close(dir);
	ASSERT_EQ(dir_remove_tree(AT_FDCWD, path, &e), 0);
	ASSERT(stat(path, &st) < 0);
	ASSERT(stat("/etc/passwd", &st) == 0);
}

/* Deeper than any path may be long, and than descriptors may be open. */
static int make_deep(int dir_fd, int depth)
{
	int at = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0), r = 0;

	for (int i = 0; r == 0 && i < depth; i++) {
		int next;

		r = mkdirat(at, "deeper", 0700);
		next = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (i % 100 == 0)
			(void)close(openat(at, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		(void)close(at);
		at = next;
	}
	(void)fchmod(at, 0);
	(void)close(at);
	return r;
}

TEST(only_a_plain_file_of_its_owner_is_opened_as_his_own)
{
	static const struct {
		const char *name;
		int code;
	} cases[] = { { "none", -ENOENT }, { "link", -EPERM }, { "pipe", -EPERM },
		{ "directory", -EPERM }, { "twice", -EPERM } };
	char dir[] = "/tmp/test-own-XXXXXX";
	cleanup_close int dir_fd = -EBADF, fd = -EBADF;
	int r[ARRAY_SIZE(cases)], others;

	ASSERT(mkdtemp(dir));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_EQ(file_replace(dir_fd, "plain", STR("x"), 0600, NULL), 0);
	ASSERT_EQ(file_replace(dir_fd, "twice", STR("x"), 0600, NULL), 0);
	ASSERT(linkat(dir_fd, "twice", dir_fd, "other", 0) == 0);
	ASSERT(symlinkat("plain", dir_fd, "link") == 0);
	ASSERT(mkfifoat(dir_fd, "pipe", 0600) == 0 && mkdirat(dir_fd, "directory", 0700) == 0);
	fd = file_open_own(dir_fd, "plain", geteuid(), NULL);
	others = file_open_own(dir_fd, "plain", geteuid() + 1, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		r[i] = file_open_own(dir_fd, cases[i].name, geteuid(), NULL);
	(void)dir_remove_tree(AT_FDCWD, dir, NULL);
	ASSERT(fd >= 0);
	ASSERT_EQ(others, -EPERM);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ASSERT_EQ(r[i], cases[i].code);
}

TEST(a_tree_of_any_depth_is_removed_at_once_or_bit_by_bit)
{
	char path[] = "/tmp/atoll-test-XXXXXX";
	struct err e = { 0 };
	struct stat st;
	int dir, r = -EAGAIN, rounds = 0;

	ASSERT(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ASSERT_EQ(make_deep(dir, 2000), 0);
	ASSERT_EQ(dir_remove_tree(dir, "deeper", &e), 0);
	ASSERT(fstatat(dir, "deeper", &st, 0) < 0 && errno == ENOENT);
	ASSERT_EQ(make_deep(dir, 2000), 0);
	(void)close(dir);
	ASSERT_EQ(dir_remove_some(AT_FDCWD, path, 1), -EAGAIN);
	for (; r == -EAGAIN; rounds++)
		r = dir_remove_some(AT_FDCWD, path, time_now_us() + 5000);
	ASSERT_EQ(r, 0);
	ASSERT(rounds > 1);
	ASSERT(stat(path, &st) < 0 && errno == ENOENT);
	ASSERT_EQ(dir_remove_some(AT_FDCWD, path, 1), 0);
}

TEST(a_uuid_is_told_from_what_looks_like_one)
{
	static const char *const bad[] = { "", "5e6a4c1e-1b2c-4d3e-8f4a-5b6c7d8e9f0",
		"5e6a4c1e-1b2c-4d3e-8f4a-5b6c7d8e9f0a1", "5E6a4c1e-1b2c-4d3e-8f4a-5b6c7d8e9f0a",
		"5e6a4c1e+1b2c-4d3e-8f4a-5b6c7d8e9f0a", "5e6a4c1e-1b2c-4d3e-8f4a-5b6c7d8e9f-a" };
	char made[UUID_SIZE];

	uuid_make(made);
	ASSERT(str_is_uuid(str_of(made)));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ASSERT(!str_is_uuid(str_of(bad[i])));
}

TEST(what_is_old_is_said_by_a_clock_that_was_left_alone)
{
	struct time_past past = { 0 };
	int64_t before_us;

	ASSERT_EQ(time_past_us(&past, 86400), 0); /* who knows */
	past.since_ms -= 3599 * 1000;
	ASSERT_EQ(time_past_us(&past, 86400), 0);
	past.since_ms -= 1000;
	before_us = time_past_us(&past, 86400);
	ASSERT(llabs(time_wall_us() - 86400 * INT64_C(1000000) - before_us) < 60 * 1000000);
	ASSERT(time_past_us(&past, 60) > before_us);
	past.offset_us -= 7200 * INT64_C(1000000); /* it was set */
	ASSERT_EQ(time_past_us(&past, 86400), 0);
	past.since_ms -= 61 * 1000;
	ASSERT_EQ(time_past_us(&past, 86400), 0);
	ASSERT(time_past_us(&past, 60) != 0);
}

TEST(a_process_is_known_by_its_start_time)
{
	uint64_t one = 0, two = 0;

	ASSERT_EQ(process_start_time(getpid(), &one), 0);
	ASSERT_EQ(process_start_time(getpid(), &two), 0);
	ASSERT(one > 0);
	ASSERT_EQ(one, two);
	ASSERT(process_start_time(0x3fffffff, &one) < 0);
}
