/* Teams, their ceilings and what is told of them: the operator's business, but for looking at one's
 * own. */
#include "cli/cli-internal.h"

enum {
	TOKEN_MAX = 4096,
	BODY_MAX = 16 << 10,
	ENV_MAX = 256 << 10,
	MAX_NUMBER = 1 << 30,
};

/* As the API calls it, and how an option of `team limits` sets it. */
static const struct ceiling {
	const char *option, *field;
	bool is_size; /* in MiB */
} ceilings[] = {
	{ "max-cpu", "cpuCount", false },
	{ "max-memory", "memoryMB", true },
	{ "max-disk", "diskSizeMB", true },
	{ "max-inodes", "inodes", false },
	{ "max-processes", "processes", false },
	{ "max-open-files", "openFiles", false },
	{ "max-shm", "shmSizeMB", true },
	{ "max-log-lines", "logLines", false },
	{ "max-log-rate", "logLinesPerMinute", false },
	{ "max-connections", "connections", false },
	{ "max-snapshots", "snapshots", false },
	{ "max-snapshot-storage", "snapshotStorageMB", true },
	{ "max-volumes", "volumes", false },
	{ "max-volume", "volumeSizeMB", true },
	{ "max-volume-storage", "volumeStorageMB", true },
	{ "max-artifact-storage", "artifactStorageMB", true },
	{ "max-history", "historyMB", true },
	{ "max-commands", "commandsMB", true },
	{ "max-output", "outputMB", true },
	{ "max-events", "eventsMB", true },
	{ "max-secrets", "secrets", false },
	{ "max-api-keys", "apiKeys", false },
	{ "max-command-rules", "commandRules", false },
};

struct team_info {
	struct str id, name;
	struct json_map limits, ceilings, used; /* its own, those that hold, what it keeps */
};
static const struct json_field team_fields[] = {
	JSON_FIELD(struct team_info, id, "teamID", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct team_info, name, "name", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct team_info, limits, "limits", JSON_RAW_MAP, .flags = JSON_LAX),
	JSON_FIELD(struct team_info, ceilings, "ceilings", JSON_RAW_MAP, .flags = JSON_LAX),
	JSON_FIELD(struct team_info, used, "used", JSON_RAW_MAP, .flags = JSON_LAX),
};
static const struct json_shape team_shape =
	JSON_SHAPE(struct team_info, team_fields, .ignore_unknown = true);

/* ---- asking ---- */

/* The one line of the file that the server was given. */
static int read_token(struct cli *cli, const char **ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TOKEN_MAX);
	const char *path = args_value(&cli->args, "admin-token-file");
	struct str token;
	int r;

	if (!path)
		path = cli->admin_token_file;
	if (!path || !*path) {
		(void)snprintf(cli->hint, sizeof cli->hint,
			"--admin-token-file FILE or ATOLL_ADMIN_TOKEN_FILE names the file that "
			"'atoll serve' was given");
		return err_set(&cli->e, -EACCES,
			"teams are the operator's: the operator's token is needed");
	}
	r = file_read(AT_FDCWD, path, &text, &cli->e);
	if (r < 0)
		return r;
	token = buf_str(&text);
	while (token.n && (token.p[token.n - 1] == '\n' || token.p[token.n - 1] == '\r'))
		token.n--;
	if (!token.n || !str_is_utf8(token) || str_find(token, '\n') >= 0)
		return err_set(&cli->e, -EINVAL, "%s does not hold a token", path);
	*ret = arena_dup(cli->arena, token);
	explicit_bzero(text.p, text.n);
	return *ret ? 0 : err_set(&cli->e, -ENOMEM, "%s is too large", path);
}

static int list(struct cli *cli, const char *token, struct json_list *ret)
{
	struct api_request request = { .method = "GET",
		.path = "/admin/teams",
		.admin_token = token };
	struct api_reply reply;
	int r = cli_api_call(cli, &request, &reply, &cli->e);

	if (r < 0)
		return r;
	r = json_decode_list(cli->arena, reply.body, &team_shape, ret, &cli->e);
	return r < 0 ? err_wrap(&cli->e, -EPROTO, "list of teams") : 0;
}

/* By prefix of the id, or by the whole name. */
static int find(struct cli *cli, const char *token, const char *typed, struct team_info *ret)
{
	const struct team_info *v, *match = NULL;
	struct json_list teams = { 0 };
	size_t matches = 0;
	int r = list(cli, token, &teams);

	if (r < 0)
		return r;
	v = teams.v;
	for (size_t i = 0; i < teams.n; i++)
		if (str_has_prefix(v[i].id, str_of(typed)) || str_is(v[i].name, typed)) {
			match = &v[i];
			matches++;
		}
	if (matches > 1)
		return err_set(&cli->e, -ENOTUNIQ, "several teams are called or begin with '%s'",
			typed);
	if (!match)
		return err_set(&cli->e, -ENOENT, "there is no team '%s'", typed);
	*ret = *match;
	return 0;
}

/* The key's own team, which needs no operator. */
static int find_own(struct cli *cli, struct team_info *ret)
{
	struct api_request request = { .method = "GET", .path = "/teams" };
	struct team_info limits = { 0 };
	struct api_reply reply;
	struct json_list teams = { 0 };
	int r = cli_api_call(cli, &request, &reply, &cli->e);

	if (r >= 0)
		r = json_decode_list(cli->arena, reply.body, &team_shape, &teams, &cli->e);
	if (r >= 0 && teams.n == 0)
		r = err_set(&cli->e, -EPROTO, "the server names no team");
	if (r < 0)
		return r;
	*ret = *(const struct team_info *)teams.v;
	request.path = arena_printf(cli->arena, "/teams/%.*s/limits", STR_ARG(ret->id));
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r >= 0)
		r = json_decode(cli->arena, reply.body, &team_shape, &limits, &cli->e);
	ret->ceilings = limits.ceilings;
	ret->used = limits.used;
	return r;
}

/* ---- showing ---- */

static struct str value_of(const struct json_map *map, const char *field)
{
	for (size_t i = 0; i < map->n; i++)
		if (str_is(map->v[i].key, field))
			return map->v[i].value;
	return STR_NONE;
}

static void write_map(struct jsonw *w, const char *key, const struct json_map *map)
{
	if (!map->is_set)
		return;
	jsonw_object(w, key);
	for (size_t i = 0; i < map->n; i++) {
		char name[64];

		(void)snprintf(name, sizeof name, "%.*s", STR_ARG(map->v[i].key));
		jsonw_raw(w, name, map->v[i].value);
	}
	jsonw_end_object(w);
}

static void team_json(struct jsonw *w, const struct team_info *team)
{
	jsonw_object(w, NULL);
	jsonw_str(w, "teamID", team->id);
	jsonw_str(w, "name", team->name);
	write_map(w, "limits", &team->limits);
	write_map(w, "ceilings", &team->ceilings);
	write_map(w, "used", &team->used);
	jsonw_end_object(w);
}

static void show_number(const struct ceiling *c, struct str value, char cell[OUT_CELL])
{
	int64_t n;

	if (c->is_size && str_to_int(value, 0, INT64_MAX >> 20, &n) >= 0)
		out_size((uint64_t)n << 20, cell);
	else
		out_text(value.n ? value : STR("-"), cell);
}

static void show_limits(struct cli *cli, const struct team_info *team)
{
	static const char *const titles[] = { "LIMIT", "CEILING", "SET", "USED" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < ARRAY_SIZE(ceilings); i++) {
		const struct ceiling *c = &ceilings[i];
		size_t row = out_table_add(&t);

		out_text(str_of(c->field), out_table_cell(&t, row, 0));
		show_number(c, value_of(&team->ceilings, c->field), out_table_cell(&t, row, 1));
		show_number(c, value_of(&team->limits, c->field), out_table_cell(&t, row, 2));
		show_number(c, value_of(&team->used, c->field), out_table_cell(&t, row, 3));
	}
	out_table_print(&cli->out, &t);
}

static void show_teams(struct cli *cli, const struct team_info *v, size_t n)
{
	static const char *const titles[] = { "ID", "NAME", "SNAPSHOTS", "VOLUMES", "SET" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < n; i++) {
		size_t row = out_table_add(&t);

		out_text(v[i].id, out_table_cell(&t, row, 0));
		out_text(v[i].name, out_table_cell(&t, row, 1));
		out_text(value_of(&v[i].used, "snapshots"), out_table_cell(&t, row, 2));
		out_text(value_of(&v[i].used, "volumes"), out_table_cell(&t, row, 3));
		(void)snprintf(out_table_cell(&t, row, 4), OUT_CELL, "%zu", v[i].limits.n);
	}
	out_table_print(&cli->out, &t);
}

int cmd_team_ls(struct cli *cli)
{
	struct json_list teams = { 0 };
	const struct team_info *v;
	const char *token = NULL;
	int r = read_token(cli, &token);

	if (r >= 0)
		r = list(cli, token, &teams);
	if (r < 0)
		return r;
	v = teams.v;
	if (cli->out.json) {
		jsonw_array(&cli->out.json_writer, NULL);
		for (size_t i = 0; i < teams.n; i++)
			team_json(&cli->out.json_writer, &v[i]);
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (cli->out.quiet) {
		for (size_t i = 0; i < teams.n; i++)
			out_line(&cli->out, "%.*s", STR_ARG(v[i].id));
	} else {
		show_teams(cli, v, teams.n);
	}
	return EXIT_OK;
}

/* ---- setting ---- */

static int read_size(const char *option, const char *text, int64_t *ret, struct err *e)
{
	if (args_mib(text, ret) == 0)
		return 0;
	return err_set(e, -EINVAL, "--%s must be a size like 512MiB or 4GiB, or 'usual', not '%s'",
		option, text);
}

static int write_one(struct cli *cli, const struct ceiling *c, struct jsonw *w)
{
	const char *text = args_value(&cli->args, c->option);
	char what[40];
	int64_t n = 0;
	int r;

	if (!text && !args_has(&cli->args, "reset"))
		return 0;
	if (!text || strcmp(text, "usual") == 0) {
		jsonw_null(w, c->field);
		return 1;
	}
	(void)snprintf(what, sizeof what, "--%s", c->option);
	r = c->is_size ? read_size(c->option, text, &n, &cli->e)
		       : args_number(what, text, 1, MAX_NUMBER, &n, &cli->e);
	if (r < 0)
		return r;
	jsonw_int(w, c->field, n);
	return 1;
}

/* The body of the change; 0: nothing is to be changed. */
static int write_change(struct cli *cli, struct buf *body)
{
	struct jsonw w;
	int n = 0, r = 0;

	jsonw_init(&w, body);
	jsonw_object(&w, NULL);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(ceilings); i++) {
		r = write_one(cli, &ceilings[i], &w);
		n += r > 0;
	}
	jsonw_end_object(&w);
	return r < 0 ? r : n;
}

static int change(struct cli *cli, const char *token, struct team_info *team, struct str body)
{
	struct api_request request = { .method = "PATCH", .admin_token = token, .body = body };
	const char *id = arena_dup(cli->arena, team->id);
	struct api_reply reply;
	int r;

	request.path = arena_printf(cli->arena, "/admin/teams/%s/limits", id);
	r = cli_api_call(cli, &request, &reply, &cli->e);
	return r < 0 ? r : find(cli, token, id, team);
}

/* Another team's, or a change: the operator's business. */
static int limits_of(struct cli *cli, const char *typed, struct team_info *ret)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	const char *token = NULL;
	int changes = write_change(cli, &body), r = changes;

	if (r >= 0 && !typed && changes == 0)
		return find_own(cli, ret);
	if (r >= 0 && !typed)
		r = err_set(&cli->e, -EINVAL, "which team? name it before what is to change");
	if (r >= 0)
		r = read_token(cli, &token);
	if (r >= 0)
		r = find(cli, token, typed, ret);
	if (r >= 0 && changes > 0)
		r = change(cli, token, ret, buf_str(&body));
	return r;
}

int cmd_team_limits(struct cli *cli)
{
	struct team_info team = { 0 };
	int r = limits_of(cli, cli->args.n_words ? cli->args.words[0] : NULL, &team);

	if (r < 0)
		return r;
	if (cli->out.json) {
		team_json(&cli->out.json_writer, &team);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (cli->out.quiet) {
		out_line(&cli->out, "%.*s", STR_ARG(team.id));
	} else {
		show_limits(cli, &team);
	}
	return EXIT_OK;
}

/* ---- the environment of its sandboxes ---- */

struct env_info {
	struct json_map variables;
};
static const struct json_field env_fields[] = {
	JSON_FIELD(struct env_info, variables, "variables", JSON_MAP, .flags = JSON_REQUIRED),
};
static const struct json_shape env_shape =
	JSON_SHAPE(struct env_info, env_fields, .ignore_unknown = true);

static int get_env(struct cli *cli, struct api_request *request, struct json_map *ret)
{
	struct api_reply reply;
	struct env_info info = { 0 };
	int r;

	request->method = "GET";
	request->body = STR_NONE;
	r = cli_api_call(cli, request, &reply, &cli->e);
	if (r >= 0 && json_decode(cli->arena, reply.body, &env_shape, &info, &cli->e) < 0)
		r = err_wrap(&cli->e, -EPROTO, "variables of the team");
	*ret = info.variables;
	return r;
}

static bool is_unset(struct cli *cli, struct str name)
{
	const char *unset;
	size_t at = 0;

	while ((unset = args_next(&cli->args, "unset", &at)))
		if (str_is(name, unset))
			return true;
	return false;
}

/* The last word on a name counts. */
static bool is_set_after(struct cli *cli, size_t from, struct str name)
{
	for (size_t i = from; i < cli->args.n_words; i++) {
		struct str word = str_of(cli->args.words[i]);

		if (word.n > name.n && word.p[name.n] == '=' && str_has_prefix(word, name))
			return true;
	}
	return false;
}

/* 1: something is to be changed. */
static int write_env(struct cli *cli, const struct json_map *old, struct buf *body)
{
	struct jsonw w;

	jsonw_init(&w, body);
	jsonw_object(&w, NULL);
	jsonw_object(&w, "variables");
	for (size_t i = 0; i < old->n; i++)
		if (!is_unset(cli, old->v[i].key) && !is_set_after(cli, 1, old->v[i].key))
			jsonw_pair(&w, old->v[i].key, old->v[i].value);
	for (size_t i = 1; i < cli->args.n_words; i++) {
		struct str value = str_of(cli->args.words[i]), name = STR_NONE;

		if (str_find(value, '=') <= 0 || !str_split(&value, '=', &name))
			return err_set(&cli->e, -EINVAL, "'%s': use NAME=VALUE",
				cli->args.words[i]);
		if (!is_set_after(cli, i + 1, name))
			jsonw_pair(&w, name, value);
	}
	jsonw_end_object(&w);
	jsonw_end_object(&w);
	if (body->failed)
		return err_set(&cli->e, -E2BIG, "too many variables");
	return cli->args.n_words > 1 || args_has(&cli->args, "unset");
}

static void show_env(struct cli *cli, const struct json_map *env)
{
	static const char *const titles[] = { "NAME", "VALUE" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < env->n; i++) {
		size_t row = out_table_add(&t);

		out_text(env->v[i].key, out_table_cell(&t, row, 0));
		out_text(env->v[i].value, out_table_cell(&t, row, 1));
	}
	out_table_print(&cli->out, &t);
}

int cmd_team_env(struct cli *cli)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(ENV_MAX);
	struct api_request request = { 0 };
	struct team_info team = { 0 };
	struct json_map env = { 0 };
	struct api_reply reply;
	int r = read_token(cli, &request.admin_token);

	if (r >= 0)
		r = find(cli, request.admin_token, cli->args.words[0], &team);
	if (r < 0)
		return r;
	request.path = arena_printf(cli->arena, "/admin/teams/%.*s/environment", STR_ARG(team.id));
	r = get_env(cli, &request, &env);
	if (r >= 0)
		r = write_env(cli, &env, &body);
	if (r > 0) {
		request.method = "PUT";
		request.body = buf_str(&body);
		r = cli_api_call(cli, &request, &reply, &cli->e);
		if (r >= 0)
			r = get_env(cli, &request, &env);
	}
	if (r < 0)
		return r;
	if (cli->out.json) {
		jsonw_object(&cli->out.json_writer, NULL);
		jsonw_str(&cli->out.json_writer, "teamID", team.id);
		jsonw_map(&cli->out.json_writer, "variables", &env);
		jsonw_end_object(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (!cli->out.quiet) {
		show_env(cli, &env);
	}
	return 0;
}

/* ---- how much is told of what is done in its sandboxes ---- */

struct activity_info {
	struct str activity, holds;
};
static const struct json_field activity_fields[] = {
	JSON_FIELD(struct activity_info, activity, "activity", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct activity_info, holds, "holds", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape activity_shape =
	JSON_SHAPE(struct activity_info, activity_fields, .ignore_unknown = true);

static int check_activity(const char *word, struct err *e)
{
	static const char *const words[] = { "all", "processes", "none", "usual" };

	for (size_t i = 0; word && i < ARRAY_SIZE(words); i++)
		if (strcmp(word, words[i]) == 0)
			return 0;
	return word ? err_set(e, -EINVAL, "activity is all, processes, none or usual, not '%s'",
			      word)
		    : 0;
}

static int set_activity(struct cli *cli, const char *token, const char *path, const char *word)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	struct api_request request = { .method = "PUT", .path = path, .admin_token = token };
	struct api_reply reply;
	struct jsonw w;

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "activity", strcmp(word, "usual") == 0 ? NULL : word);
	jsonw_end_object(&w);
	request.body = buf_str(&body);
	return cli_api_call(cli, &request, &reply, &cli->e);
}

static int get_activity(struct cli *cli, const char *token, const char *path,
	struct activity_info *ret)
{
	struct api_request request = { .method = "GET", .path = path, .admin_token = token };
	struct api_reply reply;
	int r = cli_api_call(cli, &request, &reply, &cli->e);

	return r < 0 ? r : json_decode(cli->arena, reply.body, &activity_shape, ret, &cli->e);
}

static void show_activity(struct cli *cli, const struct team_info *team,
	const struct activity_info *info)
{
	struct jsonw *w = &cli->out.json_writer;

	if (!cli->out.json) {
		out_line(&cli->out, "%.*s%s", STR_ARG(info->holds),
			info->activity.n ? "" : " (as the server was started)");
		return;
	}
	jsonw_object(w, NULL);
	jsonw_str(w, "teamID", team->id);
	jsonw_strz(w, "activity", info->activity.p);
	jsonw_str(w, "holds", info->holds);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

int cmd_team_activity(struct cli *cli)
{
	const char *word = cli->args.n_words > 1 ? cli->args.words[1] : NULL;
	struct activity_info info = { 0 };
	struct team_info team = { 0 };
	const char *token = NULL, *path = NULL;
	int r = check_activity(word, &cli->e);

	if (r >= 0)
		r = read_token(cli, &token);
	if (r >= 0)
		r = find(cli, token, cli->args.words[0], &team);
	if (r >= 0)
		path = arena_printf(cli->arena, "/admin/teams/%.*s/activity", STR_ARG(team.id));
	if (r >= 0 && word)
		r = set_activity(cli, token, path, word);
	if (r >= 0)
		r = get_activity(cli, token, path, &info);
	if (r < 0)
		return r;
	show_activity(cli, &team, &info);
	return EXIT_OK;
}
