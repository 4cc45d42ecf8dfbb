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
	struct warden_message got;
	uint64_t tag;

	return wire_decode(q, sizeof *q, n_fds, &got, &tag, NULL);
}

TEST(a_proper_request_comes_through_unchanged)
{
	struct warden_request q = create_request();
	struct warden_message got = { 0 };
	struct err e = { 0 };
	uint64_t tag = 0;

	ASSERT_EQ(wire_decode(&q, sizeof q, 1, &got, &tag, &e), 0);
	ASSERT_EQ(tag, 7);
	ASSERT_EQ(memcmp(&q, &got.request, sizeof q), 0);
}

TEST(wrong_sizes_are_refused)
{
	struct warden_request q = create_request();
	struct warden_message got;
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
	q.disk_inodes = UINT64_MAX;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.shm_bytes = q.memory_bytes + 1;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.cpu_percent = 0;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.max_pids = 0;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.engine = WARDEN_ENGINES;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q = create_request();
	q.is_nested = 1;
	ASSERT_EQ(decode(&q, 1), 0);
	q.is_nested = 2;
	ASSERT_EQ(decode(&q, 1), -ERANGE);
	q.is_nested = 1;
	q.zero = 1;
	ASSERT_EQ(decode(&q, 1), -EINVAL);
}

TEST(versions_operations_and_descriptor_counts_are_checked)
{
	struct warden_request q = create_request();

	q.version++;
	ASSERT_EQ(decode(&q, 1), -EPROTONOSUPPORT);
	q = create_request();
	q.op = 0;
	ASSERT_EQ(decode(&q, 0), -EOPNOTSUPP);
	q.op = WARDEN_OPS;
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

TEST(policies_are_counted_and_go_with_the_operations_that_have_them)
{
	static const struct {
		enum warden_op op;
		uint32_t flags, n_ranges;
		int n_fds, want;
	} cases[] = {
		{ WARDEN_CREATE, 0, 1, 2, 0 },
		{ WARDEN_CREATE, 0, 1, 1, -EINVAL },
		{ WARDEN_CREATE, WARDEN_PROXIED, 0, 1, 0 },
		{ WARDEN_CREATE, WARDEN_PROXIED, 0, 2, -EINVAL },
		{ WARDEN_POLICY, 0, 0, 0, 0 },
		{ WARDEN_POLICY, 0, 0, 1, -EINVAL },
		{ WARDEN_POLICY, WARDEN_PROXIED, WARDEN_MAX_RANGES, 1, 0 },
		{ WARDEN_POLICY, 0, WARDEN_MAX_RANGES + 1, 1, -ERANGE },
		{ WARDEN_POLICY, 0, UINT32_MAX, 1, -ERANGE },
		{ WARDEN_POLICY, 2, 0, 0, -EINVAL },
		{ WARDEN_DESTROY, 0, 1, 1, -EINVAL },
		{ WARDEN_DESTROY, WARDEN_PROXIED, 0, 0, -EINVAL },
		{ WARDEN_DENIALS, 0, 0, 0, 0 },
		{ WARDEN_USAGE, 0, 0, 0, 0 },
		{ WARDEN_USAGE, 0, 0, 1, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct warden_request q = create_request();

		q.op = cases[i].op;
		q.reach_flags = cases[i].flags;
		q.n_ranges = cases[i].n_ranges;
		ASSERT_EQ(decode(&q, cases[i].n_fds), cases[i].want);
	}
}

#define VOLUME "0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55"

static int decode_mounts(const char *const *paths, uint32_t n, const char *volume)
{
	struct warden_message m = { .request = create_request() }, got;
	uint64_t tag;

	m.request.n_mounts = n;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(m.mounts[i].volume, volume, MIN(strlen(volume), sizeof m.mounts[i].volume));
		memcpy(m.mounts[i].path, paths[i], MIN(strlen(paths[i]), sizeof m.mounts[i].path));
	}
	return wire_decode(&m, warden_message_size(n), 1, &got, &tag, NULL);
}

TEST(mounts_are_taken_at_proper_paths_in_order)
{
	static const char *const good[] = { "/a", "/a b", "/a/b", "/data/\303\244", "/procs",
		"/run/x" };
	static const char *const wrong[] = { "", "a", "/", "//", "/a/", "/a//b", "/./a", "/a/.",
		"/a/../b", "/..", "/proc", "/proc/x", "/sys", "/sys/fs", "/dev", "/dev/shm", "/run",
		"/run/e2b", "/run/e2b/x", "/\377" };
	static const char *const twice[] = { "/a", "/a" }, *const back[] = { "/b", "/a" };
	static const char *const ids[] = { "", "..", "0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e5",
		"0F8A6C1E-11D2-4A57-9F3B-6F2A0C9D7E55", "0f8a6c1e/11d2-4a57-9f3b-6f2a0c9d7e55",
		"0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e555" };
	char longest[WARDEN_PATH_SIZE + 1];
	const char *one = longest;

	ASSERT_EQ(decode_mounts(good, ARRAY_SIZE(good), VOLUME), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		ASSERT_EQ(decode_mounts(&wrong[i], 1, VOLUME), -EINVAL);
	ASSERT_EQ(decode_mounts(twice, 2, VOLUME), -EINVAL);
	ASSERT_EQ(decode_mounts(back, 2, VOLUME), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		ASSERT_EQ(decode_mounts(good, 1, ids[i]), -EINVAL);
	memset(longest, 'p', sizeof longest);
	longest[0] = '/';
	longest[WARDEN_PATH_SIZE] = '\0';
	ASSERT_EQ(decode_mounts(&one, 1, VOLUME), -EINVAL); /* no room for its end */
	longest[WARDEN_PATH_SIZE - 1] = '\0';
	ASSERT_EQ(decode_mounts(&one, 1, VOLUME), 0);
}

TEST(mounts_that_are_not_all_there_are_refused)
{
	struct warden_message m = { .request = create_request() }, got;
	uint64_t tag;

	m.request.n_mounts = 1;
	memcpy(m.mounts[0].volume, VOLUME, sizeof m.mounts[0].volume);
	memcpy(m.mounts[0].path, "/a", 3);
	ASSERT_EQ(wire_decode(&m, warden_message_size(1), 1, &got, &tag, NULL), 0);
	ASSERT_STR(got.mounts[0].path, "/a");
	ASSERT_EQ(wire_decode(&m, warden_message_size(1) - 1, 1, &got, &tag, NULL), -EMSGSIZE);
	ASSERT_EQ(wire_decode(&m, warden_message_size(2), 1, &got, &tag, NULL), -EMSGSIZE);
	m.request.n_mounts = UINT32_MAX;
	ASSERT_EQ(wire_decode(&m, sizeof m, 1, &got, &tag, NULL), -EMSGSIZE);
	ASSERT_EQ(wire_decode(&m, warden_message_size(1), 1, &got, &tag, NULL), -EMSGSIZE);
	m.request.n_mounts = 1;
	m.mounts[0].path[100] = 'x'; /* what stands behind the end */
	ASSERT_EQ(wire_decode(&m, warden_message_size(1), 1, &got, &tag, NULL), -EINVAL);
	m.mounts[0].path[100] = '\0';
	m.request.op = WARDEN_DESTROY;
	ASSERT_EQ(wire_decode(&m, warden_message_size(1), 0, &got, &tag, NULL), -EINVAL);
}

TEST(volumes_are_named_alone_and_only_by_a_uuid)
{
	static const uint32_t ops[] = { WARDEN_VOLUME_MAKE, WARDEN_VOLUME_OPEN,
		WARDEN_VOLUME_REMOVE };
	static const char *const bad[] = { "", "..", "/etc", "0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e5",
		"0F8A6C1E-11d2-4a57-9f3b-6f2a0c9d7e55", "../a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55",
		".new-111-11d2-4a57-9f3b-6f2a0c9d7e55" };
	struct warden_message got;
	uint64_t tag;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct warden_message m = { .request = { .version = WARDEN_VERSION,
						    .op = ops[i],
						    .n_mounts = 1,
						    .disk_bytes = UINT64_C(1) << 30 },
			.mounts = { { .volume = "0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55" } } };
		struct warden_message wrong;

		ASSERT_EQ(wire_decode(&m, warden_message_size(1), 0, &got, &tag, NULL), 0);
		ASSERT_EQ(wire_decode(&m, warden_message_size(1), 1, &got, &tag, NULL), -EINVAL);
		for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
			wrong = m;
			memset(wrong.mounts[0].volume, 0, sizeof wrong.mounts[0].volume);
			memcpy(wrong.mounts[0].volume, bad[k], strlen(bad[k]));
			ASSERT_EQ(wire_decode(&wrong, warden_message_size(1), 0, &got, &tag, NULL),
				-EINVAL);
		}
		wrong = m;
		wrong.mounts[0].path[0] = '/';
		ASSERT_EQ(wire_decode(&wrong, warden_message_size(1), 0, &got, &tag, NULL),
			-EINVAL);
		wrong = m;
		wrong.request.n_mounts = 0;
		ASSERT_EQ(wire_decode(&wrong, warden_message_size(0), 0, &got, &tag, NULL),
			-EINVAL);
		wrong = m;
		wrong.request.n_mounts = 2;
		wrong.mounts[1] = wrong.mounts[0];
		ASSERT_EQ(wire_decode(&wrong, warden_message_size(2), 0, &got, &tag, NULL),
			-EINVAL);
		wrong = m;
		wrong.request.disk_bytes = WIRE_MAX_DISK_BYTES + 1;
		ASSERT_EQ(wire_decode(&wrong, warden_message_size(1), 0, &got, &tag, NULL),
			ops[i] == WARDEN_VOLUME_MAKE ? -ERANGE : 0);
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
