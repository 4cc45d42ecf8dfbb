/* The configuration file: what is accepted once is accepted again with comments and blank lines
 * around it, and gives the same values. */
#include "server/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse(struct str text, struct config *config)
{
	*config = (struct config){ .pool = -1, .arena = arena_new(1 << 20) };
	return config_parse_file(text, config, NULL);
}

static bool same(const char *a, const char *b)
{
	return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf padded = BUF_INIT(1 << 20);
	struct config once, twice;

	if (parse(str_make(data, size), &once) == 0) {
		(void)buf_adds(&padded, "# first\n\n");
		(void)buf_add(&padded, data, size);
		(void)buf_adds(&padded, "\n\n# last\n");
		assert(parse(buf_str(&padded), &twice) == 0);
		assert(same(once.data, twice.data) && same(once.listen, twice.listen));
		assert(same(once.network, twice.network) && same(once.domain, twice.domain));
		assert(once.sandbox_env.n == twice.sandbox_env.n &&
			once.sandbox_ca.n == twice.sandbox_ca.n);
		assert(once.pool == twice.pool && once.stop_sandboxes == twice.stop_sandboxes);
		config_done(&twice);
	}
	config_done(&once);
	return 0;
}
