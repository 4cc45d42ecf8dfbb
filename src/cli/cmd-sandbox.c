#include "cli/cli-internal.h"

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

/* The API's own names, without the access token: it is a secret nobody asked for. */
static void info_json(struct jsonw *w, const struct sandbox_info *info)
{
	static const struct json_map none;

	jsonw_object(w, NULL);
	jsonw_str(w, "sandboxID", info->id);
	jsonw_str(w, "templateID", info->template_id);
	if (info->alias.p)
		jsonw_str(w, "alias", info->alias);
	jsonw_str(w, "state", info->state);
	jsonw_str(w, "startedAt", info->started_at);
	jsonw_str(w, "endAt", info->end_at);
	jsonw_int(w, "cpuCount", info->cpu_count.value);
	jsonw_int(w, "memoryMB", info->memory_mb.value);
	jsonw_int(w, "diskSizeMB", info->disk_mb.value);
	jsonw_map(w, "metadata", info->metadata.is_set ? &info->metadata : &none);
	jsonw_end_object(w);
}

static void list_json(struct cli *cli, const struct sandbox_info *all, size_t n)
{
	struct jsonw *w = &cli->out.json_writer;

	jsonw_array(w, NULL);
	for (size_t i = 0; i < n; i++)
		info_json(w, &all[i]);
	jsonw_end_array(w);
	(void)buf_addc(&cli->out.text, '\n');
}

static struct str shown_template(const struct sandbox_info *info)
{
	return info->alias.n ? info->alias : info->template_id;
}

static void list_table(struct cli *cli, const struct sandbox_info *all, size_t n)
{
	static const char *const titles[] = { "ID", "TEMPLATE", "STATE", "STARTED", "ENDS", "CPU",
		"MEMORY" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < n; i++) {
		size_t row = out_table_add(&t);

		out_text(all[i].id, out_table_cell(&t, row, 0));
		out_text(shown_template(&all[i]), out_table_cell(&t, row, 1));
		out_text(all[i].state, out_table_cell(&t, row, 2));
		out_time(&cli->out, all[i].started_at, out_table_cell(&t, row, 3));
		out_time(&cli->out, all[i].end_at, out_table_cell(&t, row, 4));
		(void)snprintf(out_table_cell(&t, row, 5), OUT_CELL, "%" PRId64,
			all[i].cpu_count.value);
		out_size((uint64_t)all[i].memory_mb.value << 20, out_table_cell(&t, row, 6));
	}
	out_table_print(&cli->out, &t);
}

int cmd_sandbox_ls(struct cli *cli)
{
	cleanup_free struct sandbox_info *all = NULL;
	size_t n = 0;
	int r = cli_sandbox_list(cli, &all, &n, &cli->e);

	if (r < 0)
		return r;
	if (cli->out.json) {
		list_json(cli, all, n);
	} else if (cli->out.quiet) {
		for (size_t i = 0; i < n; i++)
			out_line(&cli->out, "%.*s", STR_ARG(all[i].id));
	} else if (n == 0) {
		out_note(&cli->out, "no sandboxes; 'atoll sandbox create' makes one");
	} else {
		list_table(cli, all, n);
	}
	return EXIT_OK;
}

static void info_lines(struct cli *cli, const struct sandbox_info *info)
{
	char cell[OUT_CELL], key[OUT_CELL], line[2 * OUT_CELL + 1];

	out_text(info->id, cell);
	out_pair(&cli->out, "id", cell);
	out_text(shown_template(info), cell);
	out_pair(&cli->out, "template", cell);
	out_text(info->state, cell);
	out_pair(&cli->out, "state", cell);
	out_time(&cli->out, info->started_at, cell);
	out_pair(&cli->out, "started", cell);
	out_time(&cli->out, info->end_at, cell);
	out_pair(&cli->out, "ends", cell);
	(void)snprintf(cell, sizeof cell, "%" PRId64, info->cpu_count.value);
	out_pair(&cli->out, "cpu", cell);
	out_size((uint64_t)info->memory_mb.value << 20, cell);
	out_pair(&cli->out, "memory", cell);
	out_size((uint64_t)info->disk_mb.value << 20, cell);
	out_pair(&cli->out, "disk", cell);
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
	int r = sandbox_look_up(cli, cli->args.words[0], &info, &cli->e);

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
