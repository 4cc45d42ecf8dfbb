/* What is accepted as a name holds only a name's characters, and reads again as the same. */
#include "api/api-internal.h"

DEFINE_CLEANUP(struct arena, arena_free)
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct str text)
{
	for (size_t i = 0; i < text.n; i++)
		assert((text.p[i] >= 'a' && text.p[i] <= 'z') ||
			(text.p[i] >= '0' && text.p[i] <= '9') || text.p[i] == '-' ||
			text.p[i] == '_' || text.p[i] == '.');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
	struct api_name name, again;

	if (size > 4096 || api_name_read(arena, str_make(data, size), &name, NULL) < 0)
		return 0;
	check(name.space);
	check(name.alias);
	check(name.tag);
	assert(name.alias.n > 0);
	assert(api_name_read(arena, name.clean, &again, NULL) == 0);
	assert(str_eq(name.alias, again.alias) && str_eq(name.tag, again.tag) && !again.space.p);
	assert(str_eq(name.clean, again.clean));
	return 0;
}
