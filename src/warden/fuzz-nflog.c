/* The kernel hands on what a sandbox sent. */
#include "warden/nflog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct logged_packet packet;

	if (nflog_parse(str_make(data, size), &packet) && packet.port && packet.protocol != 6 &&
		packet.protocol != 17)
		abort();
	return 0;
}
