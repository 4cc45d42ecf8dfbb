/* A cleaned path is absolute, has no way up, and cleaning it again changes nothing. */
#include "volume/volume-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char once[PATH_MAX], twice[PATH_MAX];
	struct str rest, part;

	if (place_clean(str_make(data, size), once, NULL) < 0)
		return 0;
	assert(once[0] == '/' && strlen(once) <= size + 1);
	rest = str_from(str_of(once), 1);
	while (rest.n && str_split(&rest, '/', &part))
		assert(part.n > 0 && !str_is(part, ".") && !str_is(part, ".."));
	assert(place_clean(str_of(once), twice, NULL) == 0);
	assert(strcmp(once, twice) == 0);
	assert(place_base(once).n > 0);
	return 0;
}
