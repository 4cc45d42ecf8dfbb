/* The command table: what sandboxes start from and are given, keys, and what was run in them. */
#include "cli/table.h"

static const struct cli_option snapshot_ls_options[] = {
	{ "name", 0, "NAME", "only of this name, or name:tag" },
	{ "sandbox", 0, "SANDBOX", "only those taken of this sandbox, by its whole id" },
};

static const struct cli_option secret_set_options[] = {
	{ "file", 0, "FILE", "where the value is read from (default: stdin)" },
	{ "meta", 0, "K=V", "metadata; may be repeated" },
};

static const struct cli_option network_set_options[] = {
	ALLOW_OPTION,
	DENY_OPTION,
	{ "internet", 0, NULL, "it reaches everything public but what is denied" },
	NO_INTERNET_OPTION,
	{ "reset", 0, NULL, "what is not named is as for a new sandbox" },
	{ "rules", 0, "FILE", "headers set on the way out, as JSON; - is stdin" },
};

static const struct cli_option execution_ls_options[] = {
	{ "limit", 0, "N", "the most that are shown (default: 50)" },
};

static const struct cli_option execution_logs_options[] = {
	{ "follow", 'f', NULL, "go on with what comes, until the command ends" },
};

static const struct cli_option execution_cancel_options[] = {
	{ "signal", 0, "NAME", "SIGTERM (then SIGKILL), or another one alone" },
};

static const struct cli_option artifacts_options[] = {
	{ "task", 0, "NAME", "only of this task" },
};

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
		.group = "network",
		.name = "show",
		.guess = "get",
		.words = "SANDBOX",
		.summary = "show what a sandbox may reach, and what was refused it",
		.examples = "atoll network show i3k9\n"
			    "atoll network show i3k9 --json | jq .denied",
		.see_also = "network set, sandbox info",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_network_show,
	},
	{
		.group = "network",
		.name = "set",
		.words = "SANDBOX",
		.summary = "change what a running sandbox may reach",
		.detail = "What is not named stays as it is. An empty list, --allow '', takes one "
			  "away. It holds when the\n"
			  "command ends, and cuts connections that are open and no longer allowed. "
			  "Names in --allow need\n"
			  "--no-internet or --deny 0.0.0.0/0.",
		.examples =
			"atoll network set i3k9 --no-internet --allow pypi.org,*.pythonhosted.org\n"
			"atoll network set i3k9 --deny 203.0.113.0/24\n"
			"atoll network set i3k9 --reset",
		.see_also = "network show, sandbox create",
		OPTIONS(network_set_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_network_set,
	},
	{
		.group = "execution",
		.name = "ls",
		.guess = "list",
		.words = "SANDBOX",
		.summary = "list the commands that were run in a sandbox, newest first",
		.detail = "Those of POST /api/v1/.../execute and /run, which are recorded with "
			  "what they printed. What\n"
			  "'atoll run', 'exec' and the E2B SDKs run stands in 'atoll events'.",
		.examples = "atoll execution ls i3k9\n"
			    "atoll execution ls i3k9 --limit 500 --json",
		.see_also = "execution logs, events",
		OPTIONS(execution_ls_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_execution_ls,
	},
	{
		.group = "execution",
		.name = "info",
		.guess = "get",
		.words = "SANDBOX N",
		.summary = "show one command, and how it ended",
		.examples = "atoll execution info i3k9 2",
		.see_also = "execution ls, execution logs",
		.min_words = 2,
		.max_words = 2,
		.run = cmd_execution_info,
	},
	{
		.group = "execution",
		.name = "logs",
		.words = "SANDBOX N",
		.summary = "print what a command printed",
		.detail = "Its stdout on stdout, its stderr on stderr. With -f and --json every "
			  "piece is a document on a\n"
			  "line of its own.",
		.examples = "atoll execution logs i3k9 2\n"
			    "atoll execution logs -f i3k9 3",
		.see_also = "execution ls, execution cancel",
		OPTIONS(execution_logs_options),
		.min_words = 2,
		.max_words = 2,
		.run = cmd_execution_logs,
	},
	{
		.group = "execution",
		.name = "cancel",
		.guess = "kill",
		.words = "SANDBOX N",
		.summary = "end a command that runs",
		.examples = "atoll execution cancel i3k9 3\n"
			    "atoll execution cancel i3k9 3 --signal SIGINT",
		.see_also = "execution ls",
		OPTIONS(execution_cancel_options),
		.min_words = 2,
		.max_words = 2,
		.run = cmd_execution_cancel,
	},
	{
		.group = "execution",
		.name = "artifacts",
		.words = "[SANDBOX]",
		.summary = "list what runs left behind, newest first",
		.examples = "atoll execution artifacts\n"
			    "atoll execution artifacts i3k9 --json",
		.see_also = "execution fetch",
		OPTIONS(artifacts_options),
		.max_words = 1,
		.run = cmd_execution_artifacts,
	},
	{
		.group = "execution",
		.name = "fetch",
		.guess = "download",
		.words = "ARTIFACT FILE",
		.summary = "bring an artifact here",
		.detail = "FILE must not exist; - is stdout.",
		.examples =
			"atoll execution fetch 0d9f6a2e-7a3c-4c1e-9f55-0c2b6f2d9a10 report.html",
		.see_also = "execution artifacts",
		.min_words = 2,
		.max_words = 2,
		.run = cmd_execution_fetch,
	},
	{
		.group = "template",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list the templates of the server",
		.detail = "Snapshots can be started from too: 'atoll snapshot ls' lists them.",
		.examples = "atoll template ls\n"
			    "atoll template ls -q",
		.see_also = "template info, snapshot ls, sandbox create",
		.run = cmd_template_ls,
	},
	{
		.group = "template",
		.name = "info",
		.guess = "get",
		.words = "TEMPLATE",
		.summary = "show one template, or a snapshot as the template it is",
		.examples = "atoll template info base",
		.see_also = "template ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_template_info,
	},
	{
		.group = "template",
		.name = "rm",
		.guess = "delete",
		.words = "TEMPLATE",
		.summary = "remove what a snapshot has made, with all its tags",
		.detail = "A directory of the server is its operator's, who removes it there.",
		.examples = "atoll template rm work",
		.see_also = "snapshot rm",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_template_rm,
	},
	{
		.group = "snapshot",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list snapshots, newest first",
		.examples = "atoll snapshot ls\natoll snapshot ls --name work",
		.see_also = "sandbox snapshot",
		OPTIONS(snapshot_ls_options),
		.run = cmd_snapshot_ls,
	},
	{
		.group = "snapshot",
		.name = "info",
		.guess = "get",
		.words = "SNAPSHOT",
		.summary = "show one snapshot",
		.examples = "atoll snapshot info work",
		.see_also = "snapshot ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_snapshot_info,
	},
	{
		.group = "snapshot",
		.name = "name",
		.guess = "rename",
		.words = "SNAPSHOT NAME",
		.summary = "give a snapshot another name",
		.detail = "NAME is like work or work:v2, and nothing else has it. The old one "
			  "stands for "
			  "nothing then.",
		.examples = "atoll snapshot name work work:v1",
		.see_also = "snapshot ls, sandbox snapshot",
		.min_words = 2,
		.max_words = 2,
		.run = cmd_snapshot_name,
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
		.group = "volume",
		.name = "create",
		.words = "NAME",
		.summary = "make a volume and print its id",
		.examples = "atoll volume create data\n"
			    "atoll sandbox create --volume data:/data",
		.see_also = "volume ls, sandbox create",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_volume_create,
	},
	{
		.group = "volume",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list volumes",
		.detail = "LIMIT says who enforces a volume's size: the kernel, at once (hard), or "
			  "the\n"
			  "server, by measuring it from time to time.",
		.examples = "atoll volume ls",
		.see_also = "volume rotate-token",
		.run = cmd_volume_ls,
	},
	{
		.group = "volume",
		.name = "info",
		.guess = "get",
		.words = "VOLUME",
		.summary = "show one volume, and how much it takes",
		.detail = "VOLUME is an id, a prefix of one, or a name. The token that opens its "
			  "content is in --json alone.",
		.examples = "atoll volume info data",
		.see_also = "volume ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_volume_info,
	},
	{
		.group = "volume",
		.name = "rm",
		.guess = "delete",
		.words = "VOLUME",
		.summary = "remove a volume and all that is in it",
		.examples = "atoll volume rm data",
		.see_also = "volume ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_volume_rm,
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
	{
		.group = "secret",
		.name = "set",
		.guess = "create",
		.words = "NAME",
		.summary = "set a secret: a new one, or a new version of one",
		.detail = "The value is read from a file or stdin, never from the command line, "
			  "and never shown again. One\n"
			  "line's end behind it is left out.",
		.examples = "printf %s \"$TOKEN\" | atoll secret set deploy\n"
			    "atoll secret set deploy --file token.txt",
		.see_also = "secret ls, sandbox create",
		OPTIONS(secret_set_options),
		.min_words = 1,
		.max_words = 1,
		.run = cmd_secret_set,
	},
	{
		.group = "secret",
		.name = "ls",
		.guess = "list",
		.words = "",
		.summary = "list secrets by name, without their values",
		.examples = "atoll secret ls\n"
			    "atoll secret ls -q",
		.see_also = "secret set",
		.run = cmd_secret_ls,
	},
	{
		.group = "secret",
		.name = "rm",
		.guess = "delete",
		.words = "SECRET",
		.summary = "remove a secret",
		.detail = "Sandboxes that have it keep it until they end.",
		.examples = "atoll secret rm deploy",
		.see_also = "secret ls",
		.min_words = 1,
		.max_words = 1,
		.run = cmd_secret_rm,
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
};
TABLE(cli_resource_commands, commands);
