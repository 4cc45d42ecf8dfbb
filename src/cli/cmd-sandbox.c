/* Sandboxes: made, listed, shown, ended. */
#include "cli/cli-internal.h"

enum {
	LISTED = 1000, /* of those that have ended, unless --limit says */
	MOST_LISTED = 100000,
	PAGE = 500,
	PATH_BYTES = 64 << 10,
};

static int lifetime(struct cli *cli, int64_t *ret, struct err *e)
{
	const char *text = args_value(&cli->args, "timeout");

	*ret = 0;
	return text ? args_seconds("timeout", text, ret, e) : 0;
}

int cmd_sandbox_create(struct cli *cli)
{
	const char *template_id = cli->args.n_words ? cli->args.words[0] : "base";
	struct jsonw *w = &cli->out.json_writer;
	struct target target = { 0 };
	int64_t timeout_s;
	int r = lifetime(cli, &timeout_s, &cli->e);

	if (r == 0)
		r = cli_sandbox_make(cli, template_id, timeout_s, &target, &cli->e);
	if (r < 0)
		return r;
	if (!cli->out.json) {
		out_line(&cli->out, "%s", target.id);
		out_note(&cli->out,
			"shell: atoll sandbox exec -it %s bash     end: atoll sandbox kill %s",
			target.id, target.id);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_strz(w, "sandboxID", target.id);
	jsonw_strz(w, "templateID", template_id);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}

/* ---- what is shown of one ---- */

static void optional_json(struct jsonw *w, const char *name, struct str value)
{
	if (value.n)
		jsonw_str(w, name, value);
	else
		jsonw_null(w, name);
}

static void raw_json(struct jsonw *w, const char *name, struct str value)
{
	jsonw_raw(w, name, value.n ? value : STR("null"));
}

/* Without the access token: it is a secret nobody asked for. */
static void info_json(struct jsonw *w, const void *item)
{
	static const struct json_map none;
	const struct sandbox_info *info = item;

	jsonw_object(w, NULL);
	jsonw_str(w, "sandboxID", info->id);
	jsonw_str(w, "templateID", info->template_id);
	jsonw_str(w, "alias", info->template_name);
	jsonw_str(w, "state", info->state);
	optional_json(w, "agentID", info->agent_id);
	optional_json(w, "taskID", info->task_id);
	optional_json(w, "runtime", info->runtime);
	optional_json(w, "startedAt", info->started_at);
	optional_json(w, "endAt", info->end_at);
	optional_json(w, "endedAt", info->ended_at);
	optional_json(w, "endedBy", info->ended_by);
	optional_json(w, "endedWhy", info->ended_why);
	jsonw_int(w, "cpuCount", cli_sandbox_limit(info, "cpu"));
	jsonw_int(w, "memoryMB", cli_sandbox_limit(info, "memory_mb"));
	jsonw_int(w, "diskSizeMB", cli_sandbox_limit(info, "disk_mb"));
	jsonw_object(w, "limits");
	for (size_t i = 0; i < info->limits.n; i++) {
		char name[64];

		(void)snprintf(name, sizeof name, "%.*s", STR_ARG(info->limits.v[i].key));
		jsonw_raw(w, name, info->limits.v[i].value);
	}
	jsonw_end_object(w);
	jsonw_map(w, "metadata", info->metadata.is_set ? &info->metadata : &none);
	if (info->internet.is_set)
		jsonw_bool(w, "internet", info->internet.value);
	raw_json(w, "network", info->network);
	raw_json(w, "volumes", info->volumes);
	jsonw_end_object(w);
}

static struct str shown_template(const struct sandbox_info *info)
{
	return info->template_name.n ? info->template_name : info->template_id;
}

/* ---- ls ---- */

static void list_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct sandbox_info *info = item;

	out_text(info->id, out_table_cell(t, row, 0));
	out_text(shown_template(info), out_table_cell(t, row, 1));
	out_text(info->state, out_table_cell(t, row, 2));
	out_time(&cli->out, info->started_at, out_table_cell(t, row, 3));
	out_time(&cli->out, info->ended_at.n ? info->ended_at : info->end_at,
		out_table_cell(t, row, 4));
	(void)snprintf(out_table_cell(t, row, 5), OUT_CELL, "%" PRId64,
		cli_sandbox_limit(info, "cpu"));
	out_size((uint64_t)cli_sandbox_limit(info, "memory_mb") << 20, out_table_cell(t, row, 6));
	out_text(info->agent_id, out_table_cell(t, row, 7));
	out_text(info->task_id, out_table_cell(t, row, 8));
	cli_map_cell(&info->metadata, out_table_cell(t, row, 9));
}

static struct str list_id(const void *item)
{
	return ((const struct sandbox_info *)item)->id;
}

/* "K=V,K=V": the API looks for all of them. */
static int add_metadata(struct cli *cli, struct buf *path, struct err *e)
{
	CLEANUP(buf_done) struct buf pairs = BUF_INIT(PATH_BYTES);
	const char *pair;
	size_t at = 0;

	while ((pair = args_next(&cli->args, "meta", &at))) {
		const char *equals = strchr(pair, '=');

		if (!equals || equals == pair || strchr(pair, ','))
			return err_set(e, -EINVAL,
				"--meta: '%s' is not of the form K=V, without commas", pair);
		(void)buf_printf(&pairs, "%s%s", pairs.n ? "," : "", pair);
	}
	cli_add_query(path, "metadata", pairs.n ? buf_str(&pairs).p : NULL);
	return 0;
}

static int list_path(struct cli *cli, struct buf *path, int64_t *ret_most, struct err *e)
{
	const char *limit = args_value(&cli->args, "limit"),
		   *state = args_value(&cli->args, "state");
	bool all = args_has(&cli->args, "all");
	int r = 0;

	if (all && state)
		return err_set(e, -EINVAL, "--all and --state do not go together");
	*ret_most = all || state ? LISTED : 0;
	if (limit)
		r = args_number("--limit", limit, 1, MOST_LISTED, ret_most, e);
	(void)buf_printf(path, "/api/v1/sandboxes?limit=%" PRId64,
		*ret_most ? MIN(*ret_most, (int64_t)PAGE) : PAGE);
	cli_add_query(path, "state", all ? "running,paused,ended" : state);
	cli_add_query(path, "agent_id", args_value(&cli->args, "agent"));
	cli_add_query(path, "task_id", args_value(&cli->args, "task"));
	cli_add_query(path, "template", args_value(&cli->args, "template"));
	return r == 0 ? add_metadata(cli, path, e) : r;
}

int cmd_sandbox_ls(struct cli *cli)
{
	static const char *const titles[] = { "ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "CPU",
		"MEMORY", "AGENT", "TASK", "METADATA" };
	CLEANUP(buf_done) struct buf path = BUF_INIT(PATH_BYTES);
	struct cli_listing listing = { .shape = &cli_sandbox_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = list_row,
		.id = list_id,
		.json = info_json,
		.none = "no sandboxes; 'atoll sandbox create' makes one" };
	int r = list_path(cli, &path, &listing.most, &cli->e);

	if (r < 0)
		return r;
	if (path.failed)
		return err_set(&cli->e, -EINVAL, "too much to look for");
	listing.path = path.p;
	return cli_show_listing(cli, &listing);
}

/* ---- info ---- */

static void pair_time(struct cli *cli, const char *name, struct str value)
{
	char cell[OUT_CELL];

	if (!value.n)
		return;
	out_time(&cli->out, value, cell);
	out_pair(&cli->out, name, cell);
}

static void info_lines(struct cli *cli, const struct sandbox_info *info)
{
	char key[OUT_CELL], cell[OUT_CELL], line[2 * OUT_CELL + 1];
	const char *url = cli_port_url(cli, info, "PORT");

	cli_pair(cli, "id", info->id);
	cli_pair(cli, "template", shown_template(info));
	cli_pair(cli, "state", info->state);
	cli_pair(cli, "agent", info->agent_id);
	cli_pair(cli, "task", info->task_id);
	cli_pair(cli, "runtime", info->runtime);
	pair_time(cli, "started", info->started_at);
	pair_time(cli, "ends", info->end_at);
	pair_time(cli, "ended", info->ended_at);
	cli_pair(cli, "ended by", info->ended_by);
	cli_pair(cli, "because", info->ended_why);
	cli_pair_limits(cli, &info->limits);
	if (info->internet.is_set)
		out_pair(&cli->out, "internet", info->internet.value ? "yes" : "no");
	cli_pair(cli, "network", info->network);
	if (info->volumes.n > strlen("[]"))
		cli_pair(cli, "volumes", info->volumes);
	if (url)
		out_pair(&cli->out, "address", url);
	for (size_t i = 0; i < info->metadata.n; i++) {
		out_text(info->metadata.v[i].key, key);
		out_text(info->metadata.v[i].value, cell);
		(void)snprintf(line, sizeof line, "%s=%s", key, cell);
		out_pair(&cli->out, "meta", line);
	}
}

int cmd_sandbox_info(struct cli *cli)
{
	struct sandbox_info info;
	int r = args_has(&cli->args, "all")
			? sandbox_look_up_any(cli, cli->args.words[0], &info, &cli->e)
			: sandbox_look_up(cli, cli->args.words[0], &info, &cli->e);

	if (r < 0)
		return r;
	if (cli->out.json) {
		info_json(&cli->out.json_writer, &info);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (cli->out.quiet) {
		out_line(&cli->out, "%.*s", STR_ARG(info.id));
	} else {
		info_lines(cli, &info);
	}
	return EXIT_OK;
}

/* ---- kill ---- */

struct killing {
	struct cli *cli;
	struct jsonw *w;
	struct err first; /* failure, which decides the exit code */
	size_t failed;
};

static void kill_one(struct killing *k, const char *typed)
{
	struct cli *cli = k->cli;
	struct err e = { 0 };
	char id[CLI_ID] = "";
	int r = cli_sandbox_resolve(cli, typed, id, &e);

	if (r == 0)
		r = cli_sandbox_remove(cli, id, &e);
	if (r < 0 && k->failed++ == 0)
		k->first = e;
	if (cli->out.json) {
		jsonw_object(k->w, NULL);
		jsonw_strz(k->w, "sandboxID", id[0] ? id : typed);
		jsonw_bool(k->w, "killed", r == 0);
		if (r < 0) {
			jsonw_strz(k->w, "code", cli_failure_of(r)->name);
			jsonw_strz(k->w, "message", e.msg);
		}
		jsonw_end_object(k->w);
	} else if (r == 0) {
		out_line(&cli->out, "%s", id);
	} else if (k->failed > 1) { /* the first is told when the program ends */
		out_warn(&cli->out, "%s", e.msg);
	}
}

static int kill_all(struct killing *k)
{
	cleanup_free struct sandbox_info *all = NULL;
	size_t n = 0;
	int r = cli_sandbox_list(k->cli, &all, &n, &k->cli->e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		char id[CLI_ID];

		(void)snprintf(id, sizeof id, "%.*s", STR_ARG(all[i].id));
		kill_one(k, id);
	}
	return r;
}

int cmd_sandbox_kill(struct cli *cli)
{
	struct killing k = { .cli = cli, .w = &cli->out.json_writer };
	bool all = args_has(&cli->args, "all");
	int r = 0;

	if (all == (cli->args.n_words > 0))
		return err_set(&cli->e, -EINVAL, "name the sandboxes to end, or say --all");
	if (cli->out.json)
		jsonw_array(k.w, NULL);
	if (all)
		r = kill_all(&k);
	for (size_t i = 0; i < cli->args.n_words; i++)
		kill_one(&k, cli->args.words[i]);
	if (r < 0)
		return r;
	/* One name, one answer: then the document is the failure itself, as with every command. */
	if (k.failed > 0 && (!cli->out.json || cli->args.n_words == 1)) {
		cli->e = k.first;
		return cli->e.code;
	}
	if (cli->out.json) {
		jsonw_end_array(k.w);
		(void)buf_addc(&cli->out.text, '\n');
	}
	return k.failed > 0 ? (int)cli_failure_of(k.first.code)->exit : EXIT_OK;
}
