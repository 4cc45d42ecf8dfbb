/* State files are written by the warden, but read from a directory inside the server's. */
#include "warden/net.h"
#include "warden/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct state s;

	if (state_parse(str_make(data, size), &s) < 0)
		return 0;
	if (strlen(s.key) != sizeof s.key - 1 || strchr(s.key, '/') || s.pid < 2 || s.number < 1 ||
		s.number > NET_MAX_NUMBER || s.loop < -1)
		abort();
	return 0;
}
