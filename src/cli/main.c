#include "cli/cli.h"
#include "server/server.h"

#include <string.h>

static int wants_help(int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return 1;
	return 0;
}

/* `serve` is a program of its own that shares the name; its help is in the table with the others.
 */
int main(int argc, char **argv)
{
	static const struct cli_parts parts = { .db = server_db,
		.upgrade = server_upgrade,
		.backup = server_backup,
		.restore = server_restore,
		.base_look = server_base_look };

	if (argc > 1 && strcmp(argv[1], "serve") == 0 && !wants_help(argc, argv))
		return server_main(argc - 1, argv + 1);
	return cli_main(argc, argv, &parts);
}
