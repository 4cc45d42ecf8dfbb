/* `atoll upgrade`: asks the server's room to do it, and says what came of it. */
#include "cli/cli.h"
#include "cli/cli-internal.h"
#include "server/server.h"

enum {
	DEFAULT_SECONDS = 120
};

static void build_json(struct jsonw *w, const char *name, const struct server_build *build)
{
	jsonw_object(w, name);
	jsonw_strz(w, "version", build->version);
	jsonw_strz(w, "build", build->build);
	jsonw_end_object(w);
}

static void count_json(struct jsonw *w, const char *name, int64_t n)
{
	if (n >= 0)
		jsonw_int(w, name, n);
	else
		jsonw_null(w, name);
}

static void report_json(struct cli *cli, const struct server_upgrade_report *report)
{
	struct jsonw *w = &cli->out.json_writer;

	jsonw_object(w, NULL);
	build_json(w, "before", &report->before);
	build_json(w, "after", &report->after);
	jsonw_int(w, "away_ms", report->away_ms);
	jsonw_object(w, "sandboxes");
	count_json(w, "before", report->had);
	count_json(w, "after", report->has);
	jsonw_end_object(w);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

static void report_lines(struct cli *cli, const struct server_upgrade_report *report)
{
	out_line(&cli->out, "from       %s (%.12s)", report->before.version, report->before.build);
	out_line(&cli->out, "to         %s (%.12s)", report->after.version, report->after.build);
	out_line(&cli->out, "waited     %" PRId64 " ms, for whoever came meanwhile",
		report->away_ms);
	if (report->had >= 0)
		out_line(&cli->out, "sandboxes  %" PRId64 " before, %" PRId64 " after", report->had,
			report->has);
	else
		out_line(&cli->out, "sandboxes  %" PRId64 " after", report->has);
}

/* The server's own default, where it has one. */
static const char *data_dir(const struct cli *cli)
{
	const char *data = args_value(&cli->args, "data");

	data = data ? data : cli->env_data;
	return data ? data : "atoll-data";
}

int cmd_upgrade(struct cli *cli)
{
	const char *timeout = args_value(&cli->args, "timeout");
	struct server_upgrade_report report;
	int64_t seconds = DEFAULT_SECONDS;
	int r = timeout ? args_seconds("--timeout", timeout, &seconds, &cli->e) : 0;

	if (r >= 0)
		r = cli->parts->upgrade(data_dir(cli), seconds * 1000, &report, &cli->e);
	if (r == -EACCES || r == -EPERM)
		(void)snprintf(cli->hint, sizeof cli->hint, "root may");
	if (r < 0)
		return r;
	if (cli->out.json)
		report_json(cli, &report);
	else
		report_lines(cli, &report);
	return EXIT_OK;
}
