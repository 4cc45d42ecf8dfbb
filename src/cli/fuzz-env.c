/* A value that is taken from an env file is one line of plain text that assigns itself again. */
#include "cli/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char value[64], again[64], line[80];

	if (cli_config_assignment(str_make(data, size), "K", value, sizeof value) < 0)
		return 0;
	for (size_t i = 0; value[i]; i++)
		assert((unsigned char)value[i] >= 0x20);
	if (strchr(value, '\''))
		return 0;
	(void)snprintf(line, sizeof line, "K='%s'", value);
	assert(cli_config_assignment(str_of(line), "K", again, sizeof again) == 0);
	assert(strcmp(value, again) == 0);
	return 0;
}
