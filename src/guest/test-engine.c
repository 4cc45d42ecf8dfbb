#include "guest/engine.h"
#include "json/json.h"

#include "test.h"

struct config {
	struct str version, process, root, mounts, linux_part;
};
static const struct json_field config_fields[] = {
	JSON_FIELD(struct config, version, "ociVersion", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct config, process, "process", JSON_RAW, .flags = JSON_REQUIRED),
	JSON_FIELD(struct config, root, "root", JSON_RAW, .flags = JSON_REQUIRED),
	JSON_FIELD(struct config, mounts, "mounts", JSON_RAW, .flags = JSON_REQUIRED),
	JSON_FIELD(struct config, linux_part, "linux", JSON_RAW, .flags = JSON_REQUIRED),
};
static const struct json_shape config_shape =
	JSON_SHAPE(struct config, config_fields, .ignore_unknown = true);

enum {
	SHM_BYTES = 32 << 20,
};
static const enum warden_engine all[] = { WARDEN_GVISOR, WARDEN_RUNC, WARDEN_CRUN };

/* In the arena, so every text is terminated. */
static int describe(struct arena *arena, enum warden_engine engine, struct config *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);

	const struct guest_boot message = { .engine = engine, .shm_bytes = SHM_BYTES };

	engine_config(&message, &text);
	return text.failed ? -ENOBUFS
			   : json_decode(arena, buf_str(&text), &config_shape, ret, NULL);
}

DEFINE_CLEANUP(struct arena, arena_free)

TEST(every_engine_gets_a_whole_description)
{
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
		struct config c = { 0 };

		ASSERT_EQ(describe(arena, all[i], &c), 0);
		ASSERT(strstr(c.root.p, ENGINE_ROOT));
		ASSERT(strstr(c.process.p, "\"" ENGINE_GUEST "\""));
		/* sudo must work where the engine can do it. */
		ASSERT(strstr(c.process.p, "\"noNewPrivileges\":false"));
	}
}

TEST(the_user_and_the_network_stay_those_of_the_slot)
{
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
		struct config c = { 0 };
		bool gvisor = all[i] == WARDEN_GVISOR;

		ASSERT_EQ(describe(arena, all[i], &c), 0);
		ASSERT(!strstr(c.linux_part.p, "\"user\""));
		/* runsc makes a new one unless it is told where to look; a container stays. */
		ASSERT_EQ(!strstr(c.linux_part.p, "\"network\""), !gvisor);
		ASSERT_EQ(!strstr(c.linux_part.p, "/proc/self/ns/net"), !gvisor);
	}
}

TEST(only_gvisor_has_a_door)
{
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
		struct config c = { 0 };
		bool gvisor = all[i] == WARDEN_GVISOR;

		ASSERT_EQ(describe(arena, all[i], &c), 0);
		ASSERT_EQ(!strstr(c.mounts.p, "\"" ENGINE_DOOR "\""), !gvisor);
		ASSERT_EQ(!strstr(c.process.p, "\"gvisor\""), !gvisor);
		ASSERT_EQ(!strstr(c.process.p, "\"container\""), gvisor);
	}
}

TEST(shared_memory_is_as_large_as_was_asked_for)
{
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
		struct config c = { 0 };
		const char *shm, *size;

		ASSERT_EQ(describe(arena, all[i], &c), 0);
		shm = strstr(c.mounts.p, "\"/dev/shm\"");
		ASSERT(shm);
		size = strstr(shm, "\"size=33554432\"");
		ASSERT(size && size < strchr(shm, '}'));
		ASSERT(!strstr(size + 1, "\"size=")); /* and nothing else is */
	}
}
