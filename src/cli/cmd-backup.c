/* `atoll backup` and `atoll restore`: ask the server's room to do it, and say how far it is. */
#include "cli/cli.h"
#include "cli/cli-internal.h"
#include "server/server.h"

enum {
	FIRST_MS = 1000,
	REPEAT_MS = 10 * 1000,
};

struct told {
	struct cli *cli;
	const char *name;
	int64_t began_ms, next_ms;
	bool is_drawn;
};

static void tell(void *arg, uint64_t bytes)
{
	struct told *t = arg;
	const struct out *out = &t->cli->out;
	int64_t now_ms = time_now_ms();
	char done[OUT_CELL], speed[OUT_CELL];

	if (out->quiet || out->json || now_ms < t->next_ms)
		return;
	out_size(bytes, done);
	out_size(bytes * 1000 / (uint64_t)MAX(now_ms - t->began_ms, 1), speed);
	out_progress(out, "%s  %s  %s/s", t->name, done, speed);
	t->is_drawn = out->redraws;
	t->next_ms = out->redraws ? now_ms : now_ms + REPEAT_MS;
}

static void begin(struct told *t, struct cli *cli, const char *name)
{
	*t = (struct told){ .cli = cli, .name = name, .began_ms = time_now_ms() };
	t->next_ms = t->began_ms + (cli->out.redraws ? FIRST_MS : REPEAT_MS);
}

static void end(const struct told *t)
{
	if (t->is_drawn)
		out_progress(&t->cli->out, "%s", "");
}

static struct server_backup_request request_of(struct cli *cli, struct told *t)
{
	return (struct server_backup_request){
		.data = args_value(&cli->args, "data"),
		.config = args_value(&cli->args, "config"),
		.database = args_value(&cli->args, "database"),
		.password_file = args_value(&cli->args, "database-password-file"),
		.seed = args_value(&cli->args, "seed"),
		.new_seed = args_has(&cli->args, "new-seed"),
		.replace = args_has(&cli->args, "force"),
		.path = cli->args.words[0],
		.fn = tell,
		.arg = t,
	};
}

static void report(struct cli *cli, const struct server_backup_report *done, const char *verb)
{
	struct jsonw *w = &cli->out.json_writer;
	char size[OUT_CELL];

	if (cli->out.json) {
		jsonw_object(w, NULL);
		jsonw_int(w, "version", done->version);
		jsonw_int(w, "rows", done->rows);
		if (done->bytes)
			jsonw_int(w, "bytes", (int64_t)done->bytes);
		jsonw_int(w, "lost", (int64_t)done->lost);
		if (done->lost)
			jsonw_strz(w, "first_lost", done->first_lost);
		jsonw_end_object(w);
		(void)buf_addc(&cli->out.text, '\n');
		return;
	}
	out_size(done->bytes, size);
	out_line(&cli->out, "%" PRId64 " rows %s, version %" PRId64 "%s%s", done->rows, verb,
		done->version, done->bytes ? ", " : "", done->bytes ? size : "");
}

static int run(struct cli *cli, const char *name, const char *verb, const char *loss,
	int (*work)(const struct server_backup_request *request, struct server_backup_report *ret,
		struct err *e))
{
	struct server_backup_report done = { 0 };
	struct server_backup_request request;
	struct told told;
	int r;

	begin(&told, cli, name);
	request = request_of(cli, &told);
	r = work(&request, &done, &cli->e);
	end(&told);
	if (r == -EPERM)
		(void)snprintf(cli->hint, sizeof cli->hint, "root may");
	if (r < 0)
		return r;
	report(cli, &done, verb);
	if (done.lost)
		out_warn(&cli->out, "%" PRIu64 " files of volumes %s, the first: %s", done.lost,
			loss, done.first_lost);
	return EXIT_OK;
}

int cmd_backup(struct cli *cli)
{
	int r = run(cli, "backup", "written", "cannot be restored", cli->parts->backup);

	if (r == EXIT_OK)
		out_note(&cli->out,
			"keep the data directory's file 'seed' somewhere else: without it "
			"secrets in the backup stay sealed");
	return r;
}

int cmd_restore(struct cli *cli)
{
	return run(cli, "restore", "read", "are missing", cli->parts->restore);
}
