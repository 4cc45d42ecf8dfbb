/* The command table: what sandboxes start from and are given, keys, and what was run in them. */
#include "cli/table.h"

static const struct cli_option key_create_options[] = {
	{ "agent", 0, "NAME", "it acts for this agent alone" },
	{ "expires", 0, "TIME", "it works so long (default: for ever)" },
	{ "scope", 0, "SCOPE", "what it may do; may be repeated (default: everything)" },
};

static const struct cli_option key_rotate_options[] = {
	{ "overlap", 0, "TIME", "the old key works so long yet (default: 24h; 0: not at all)" },
};

static const struct cli_command commands[] = {
	{
		.group = "snapshot",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list snapshots, newest first",
		.examples = "atoll snapshot ls\natoll snapshot ls -q",
		.see_also = "sandbox snapshot",
		.run = cmd_snapshot_ls,
	},
	{
		.group = "snapshot",
		.name = "rm",
		.guess = "delete",
		.words = "SNAPSHOT",
		.summary = "remove a snapshot",
		.detail = "Refused while sandboxes that started from it are there.",
		.examples = "atoll snapshot rm work",
		.see_also = "snapshot ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_snapshot_rm,
	},
	{
		.group = "key",
		.name = "create",
		.words = "[NAME]",
		.summary = "make an API key and print it, this once",
		.detail = "Scopes: sandboxes:read, sandboxes:write, execute, files, templates, "
			  "volumes,\n"
			  "secrets:use, secrets, keys, audit, usage, admin. TIME is seconds, or "
			  "like 90s,\n"
			  "5m, 2h, 30d.",
		.examples =
			"atoll key create ci\nexport E2B_API_KEY=$(atoll key create laptop)\n"
			"atoll key create --agent reviewer --expires 30d --scope sandboxes:write "
			"--scope execute",
		.see_also = "key ls, key rotate, key revoke",
		OPTIONS(key_create_options),
		.max_words = 1,
		.run = cmd_key_create,
	},
	{
		.group = "key",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list API keys, without their secret part",
		.examples = "atoll key ls",
		.see_also = "key create",
		.run = cmd_key_ls,
	},
	{
		.group = "key",
		.name = "rotate",
		.words = "KEY",
		.summary = "replace an API key, and print the new one, this once",
		.detail = "It is as the old one, which works beside it until the overlap ends. KEY "
			  "is an id,\n"
			  "a prefix of one, or a name that only one key has.",
		.examples = "atoll key rotate ci --overlap 1h",
		.see_also = "key create, key revoke",
		OPTIONS(key_rotate_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_key_rotate,
	},
	{
		.group = "key",
		.name = "revoke",
		.guess = "rm",
		.words = "KEY",
		.summary = "make an API key useless",
		.detail = "KEY is an id, a prefix of one, or a name that only one key has.",
		.examples = "atoll key revoke ci",
		.see_also = "key ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_key_revoke,
	},
	{
		.group = "volume",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list volumes",
		.detail = "LIMIT says who enforces a volume's size: the kernel, at once (hard), or the\n"
			  "server, by measuring it from time to time.",
		.examples = "atoll volume ls",
		.see_also = "volume rotate-token",
		.run = cmd_volume_ls,
	},
	{
		.group = "volume",
		.name = "rotate-token",
		.words = "VOLUME",
		.summary = "replace the token that opens a volume's content, and print the new one",
		.detail = "The old token opens nothing from then on, and what it is still reading\n"
			  "or writing is cut. VOLUME is an id, a prefix of one, or a name.",
		.examples = "atoll volume rotate-token data",
		.see_also = "volume ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_volume_rotate_token,
	},
};
TABLE(cli_resource_commands, commands);
