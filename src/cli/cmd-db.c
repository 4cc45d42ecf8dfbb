/* `atoll db`: asks the server's room to do it, and says what came of it. */
#include "cli/cli.h"
#include "cli/cli-internal.h"
#include "server/server.h"

static void report_json(struct cli *cli, const struct store_report *report)
{
	struct jsonw *w = &cli->out.json_writer;

	jsonw_object(w, NULL);
	jsonw_int(w, "version", report->version);
	jsonw_int(w, "newest", report->newest);
	jsonw_int(w, "rows", report->rows);
	jsonw_object(w, "tables");
	for (size_t i = 0; i < report->n_tables; i++)
		jsonw_int(w, report->tables[i].name, report->tables[i].rows);
	jsonw_end_object(w);
	jsonw_array(w, "problems");
	for (size_t i = 0; i < report->n_problems; i++)
		jsonw_strz(w, NULL, report->problems[i]);
	jsonw_end_array(w);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

static void report_table(struct cli *cli, const struct store_report *report)
{
	static const char *const titles[] = { "TABLE", "ROWS" };
	CLEANUP(out_table_done) struct out_table t;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; i < report->n_tables; i++) {
		size_t row = out_table_add(&t);

		out_text(str_of(report->tables[i].name), out_table_cell(&t, row, 0));
		(void)snprintf(out_table_cell(&t, row, 1), OUT_CELL, "%" PRId64,
			report->tables[i].rows);
	}
	out_table_print(&cli->out, &t);
}

/* PostgreSQL's words are all there is to tell one refusal from another by; SQLite's is the file. */
static const char *refusal_hint(const char *text)
{
	if (strstr(text, "pg_hba.conf"))
		return "the database lets this user in from no such address: see its pg_hba.conf";
	if (strstr(text, "password"))
		return "is it the right password? --database-password-file names the file that has "
		       "it";
	if (strstr(text, "does not exist"))
		return "make it first: docs/database.md says how";
	if (strstr(text, "certificate") || strstr(text, "SSL"))
		return "the connection's TLS is at fault: docs/database.md has its options";
	if (strstr(text, "unable to open") || strstr(text, "readonly") || strstr(text, "denied"))
		return "root may, and who owns the database";
	return "look at the database's own log";
}

static int run(struct cli *cli, enum server_db what, struct store_report *ret)
{
	const struct server_db_request request = {
		.what = what,
		.data = args_value(&cli->args, "data"),
		.config = args_value(&cli->args, "config"),
		.database = args_value(&cli->args, "database"),
		.password_file = args_value(&cli->args, "database-password-file"),
		.to = args_value(&cli->args, "to"),
		.file = cli->args.n_words ? cli->args.words[0] : NULL,
		.replace = args_has(&cli->args, "force"),
	};
	int r = cli->parts->db(&request, ret, &cli->e);

	if (r == -EACCES)
		(void)snprintf(cli->hint, sizeof cli->hint, "%s", refusal_hint(cli->e.msg));
	if (r >= 0 && cli->out.json)
		report_json(cli, ret);
	return r;
}

int cmd_db_check(struct cli *cli)
{
	struct store_report report;
	int r = run(cli, SERVER_DB_CHECK, &report);

	if (r < 0)
		return r;
	if (!cli->out.json) {
		if (!cli->out.quiet)
			report_table(cli, &report);
		out_line(&cli->out, "version %" PRId64 " of %" PRId64 ", %" PRId64 " rows: %s",
			report.version, report.newest, report.rows,
			report.n_problems ? "something is wrong" : "sound");
		for (size_t i = 0; i < report.n_problems; i++) {
			char line[sizeof report.problems[i]];

			out_clean(str_of(report.problems[i]), line, sizeof line);
			out_line(&cli->out, "%s", line);
		}
		if (report.version < report.newest)
			out_note(&cli->out,
				"'atoll db migrate' or the next 'atoll serve' brings it "
				"up to date");
	}
	return report.n_problems ? EXIT_FAILED : EXIT_OK;
}

static int run_and_count(struct cli *cli, enum server_db what, const char *done)
{
	struct store_report report;
	int r = run(cli, what, &report);

	if (r >= 0 && !cli->out.json)
		out_line(&cli->out, "%" PRId64 " rows %s, version %" PRId64, report.rows, done,
			report.version);
	return r < 0 ? r : EXIT_OK;
}

int cmd_db_copy(struct cli *cli)
{
	if (!args_value(&cli->args, "to"))
		return err_set(&cli->e, -EINVAL, "--to URL is missing: where is it to go?");
	return run_and_count(cli, SERVER_DB_COPY, "copied");
}

int cmd_db_export(struct cli *cli)
{
	return run_and_count(cli, SERVER_DB_EXPORT, "written");
}

int cmd_db_import(struct cli *cli)
{
	return run_and_count(cli, SERVER_DB_IMPORT, "read");
}

int cmd_db_migrate(struct cli *cli)
{
	return run_and_count(cli, SERVER_DB_MIGRATE, "there");
}
