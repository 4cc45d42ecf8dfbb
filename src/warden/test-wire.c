#include "warden/wire.h"

#include "test.h"

#include <sys/mman.h>

static struct warden_request create_request(void)
{
	return (struct warden_request){ .version = WARDEN_VERSION,
		.op = WARDEN_CREATE,
		.tag = 7,
		.id = "i0abc",
		.template_name = "base",
		.memory_bytes = 512 << 20,
		.disk_bytes = UINT64_C(10) << 30,
		.cpu_percent = 200,
		.max_pids = 4096 };
}

static int decode(const struct warden_request *q, int n_fds)
{
	struct warden_request got;
	uint64_t tag;

	return wire_decode(q, sizeof *q, n_fds, &got, &tag, NULL);
}

TEST(a_proper_request_comes_through_unchanged)
{
	struct warden_request q = create_request(), got = { 0 };
	struct err e = { 0 };
	uint64_t tag = 0;

	ASSERT_EQ(wire_decode(&q, sizeof q, 1, &got, &tag, &e), 0);
	ASSERT_EQ(tag, 7);
	ASSERT_EQ(memcmp(&q, &got, sizeof q), 0);
}

TEST(wrong_sizes_are_refused)
{
	struct warden_request q = create_request(), got;
	uint64_t tag;

	ASSERT_EQ(wire_decode(&q, sizeof q - 1, 1, &got, &tag, NULL), -EMSGSIZE);
	ASSERT_EQ(wire_decode(&q, 0, 1, &got, &tag, NULL), -EMSGSIZE);
}

TEST(hostile_ids_and_names_are_refused)
{
	static const char *const bad[] = { "", ".", "..", "../x", "a/b", "A", "a b", "-a", "a\n" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct warden_request q = create_request();

		memset(q.id, 0, sizeof q.id);
		memcpy(q.id, bad[i], strlen(bad[i]));
		ASSERT_EQ(decode(&q, 1), -EINVAL);
		q = create_request();
		memset(q.template_name, 0, sizeof q.template_name);
		memcpy(q.template_name, bad[i], strlen(bad[i]));
		ASSERT_EQ(decode(&q, 1), -EINVAL);
	}
}

TEST(unterminated_and_trailing_bytes_are_refused)
{
	struct warden_request q = create_request();

	memset(q.id, 'a', sizeof q.id);
	ASSERT_EQ(decode(&q, 1), -EINVAL);
	q = create_request();
	q.id[10] = 'x';
	ASSERT_EQ(decode(&q, 1), -EINVAL);
}

TEST(limits_out_of_range_are_refused)
{
	struct warden_request q = create_request();

	q.memory_bytes = 0;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.memory_bytes = UINT64_MAX;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.disk_bytes = UINT64_MAX;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.cpu_percent = 0;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.max_pids = 0;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
}

TEST(versions_operations_and_descriptor_counts_are_checked)
{
	struct warden_request q = create_request();

	q.version++;
	ASSERT_EQ(decode(&q, 1), -EPROTONOSUPPORT);
	q = create_request();
	q.op = 0;
	ASSERT_EQ(decode(&q, 0), -EOPNOTSUPP);
	q.op = WARDEN_IMAGES + 1;
	ASSERT_EQ(decode(&q, 0), -EOPNOTSUPP);
	q = create_request();
	ASSERT_EQ(decode(&q, 0), -EINVAL);
	ASSERT_EQ(decode(&q, 2), -EINVAL);
	q.op = WARDEN_DESTROY;
	ASSERT_EQ(decode(&q, 1), -EINVAL);
	ASSERT_EQ(decode(&q, 0), 0);
}

TEST(images_are_named_where_they_are_needed_and_only_properly)
{
	static const struct {
		enum warden_op op;
		const char *id, *image;
		int want;
	} cases[] = {
		{ WARDEN_SAVE, "i0abc", "s1", 0 },
		{ WARDEN_SAVE, "i0abc", "", -EINVAL },
		{ WARDEN_SAVE, "", "s1", -EINVAL },
		{ WARDEN_SAVE, "i0abc", "../s1", -EINVAL },
		{ WARDEN_SAVE, "i0abc", ".s1", -EINVAL },
		{ WARDEN_DISCARD, "", "s1", 0 },
		{ WARDEN_DISCARD, "", "", -EINVAL },
		{ WARDEN_DISCARD, "", "a/b", -EINVAL },
		{ WARDEN_IMAGES, "", "", 0 },
		{ WARDEN_FREEZE, "i0abc", "", 0 },
		{ WARDEN_FREEZE, "", "", -EINVAL },
		{ WARDEN_THAW, "i0abc", "", 0 },
		{ WARDEN_THAW, "..", "", -EINVAL },
		{ WARDEN_CREATE, "i0abc", "", 0 },
		{ WARDEN_CREATE, "i0abc", "s1", 0 },
		{ WARDEN_CREATE, "i0abc", "S1", -EINVAL },
		{ WARDEN_CREATE, "i0abc", "s_1", -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct warden_request q = create_request();
		int n_fds = cases[i].op == WARDEN_CREATE ? 1 : 0;

		q.op = cases[i].op;
		memset(q.id, 0, sizeof q.id);
		memcpy(q.id, cases[i].id, strlen(cases[i].id));
		memcpy(q.image_name, cases[i].image, strlen(cases[i].image));
		ASSERT_EQ(decode(&q, n_fds), cases[i].want);
		ASSERT_EQ(decode(&q, 1 - n_fds), -EINVAL);
		/* Whatever comes after the name's end is not there by chance. */
		q.image_name[sizeof q.image_name - 1] = 'x';
		if (cases[i].image[0] || cases[i].op == WARDEN_CREATE)
			ASSERT_EQ(decode(&q, n_fds), -EINVAL);
	}
}

TEST(only_a_sealed_memfd_passes_as_settings)
{
	cleanup_close int mem = memfd_create("settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cleanup_close int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ASSERT_EQ(wire_check_settings(dir, NULL), -EINVAL);
	ASSERT_EQ(wire_check_settings(null, NULL), -EINVAL);
	ASSERT_EQ(wire_check_settings(mem, NULL), -EINVAL);
	ASSERT(fcntl(mem, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) ==
		0);
	ASSERT_EQ(wire_check_settings(mem, NULL), 0);
}
