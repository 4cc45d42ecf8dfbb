/* Secrets: set, listed, removed. A value goes in by a file or stdin, never by the command line,
 * where others on the machine would see it; it never comes out again. */
#include "cli/cli-internal.h"

enum {
	VALUE_MAX = 128 << 10, /* the server takes 64 KiB */
	BODY_MAX = 1 << 20,
};

struct secret_info {
	struct str id, name, created_at, updated_at;
	struct json_int version;
	struct json_map metadata;
};
#define SECRET_FIELD(member, name, kind) \
	JSON_FIELD(struct secret_info, member, name, kind, .flags = JSON_LAX)
static const struct json_field secret_fields[] = {
	SECRET_FIELD(id, "id", JSON_STR),
	JSON_FIELD(struct secret_info, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	SECRET_FIELD(version, "version", JSON_INT),
	SECRET_FIELD(created_at, "created_at", JSON_STR),
	SECRET_FIELD(updated_at, "updated_at", JSON_STR),
	SECRET_FIELD(metadata, "metadata", JSON_MAP),
};
static const struct json_shape secret_shape =
	JSON_SHAPE(struct secret_info, secret_fields, .ignore_unknown = true);

/* ---- ls ---- */

static void show_row(struct cli *cli, const void *item, struct out_table *t, size_t row)
{
	const struct secret_info *s = item;

	out_text(s->name, out_table_cell(t, row, 0));
	(void)snprintf(out_table_cell(t, row, 1), OUT_CELL, "%" PRId64, s->version.value);
	out_time(&cli->out, s->created_at, out_table_cell(t, row, 2));
	out_time(&cli->out, s->updated_at, out_table_cell(t, row, 3));
	cli_map_cell(&s->metadata, out_table_cell(t, row, 4));
}

static struct str show_id(const void *item)
{
	return ((const struct secret_info *)item)->name;
}

int cmd_secret_ls(struct cli *cli)
{
	static const char *const titles[] = { "NAME", "VERSION", "CREATED", "SET", "METADATA" };
	const struct cli_listing listing = { .path = "/api/v1/secrets?limit=100",
		.shape = &secret_shape,
		.titles = titles,
		.n_titles = ARRAY_SIZE(titles),
		.row = show_row,
		.id = show_id,
		.none = "no secrets; 'atoll secret set NAME --file FILE' makes one" };

	return cli_show_listing(cli, &listing);
}

/* ---- set ---- */

static int read_value(struct cli *cli, struct buf *ret)
{
	const char *file = args_value(&cli->args, "file");
	int r;

	if (!file && isatty(STDIN_FILENO)) {
		(void)snprintf(cli->hint, sizeof cli->hint,
			"atoll secret set NAME --file FILE, or <FILE; typed: read -rs V; printf "
			"%%s "
			"\"$V\" | atoll secret set NAME");
		return err_set(&cli->e, -EINVAL, "the value is read from --file or stdin");
	}
	r = file_read(AT_FDCWD, file && strcmp(file, "-") != 0 ? file : "/dev/stdin", ret, &cli->e);
	if (r == 0 && ret->failed)
		r = err_set(&cli->e, -EINVAL, "the value is longer than %d KiB", VALUE_MAX >> 10);
	if (r < 0)
		return r;
	if (ret->n && ret->p[ret->n - 1] == '\n') /* what echo and editors put there */
		ret->n--;
	if (!ret->n || !str_is_utf8(buf_str(ret)))
		return err_set(&cli->e, -EINVAL,
			ret->n ? "the value is not UTF-8" : "the value is empty");
	return 0;
}

static int show_set(struct cli *cli, struct str body)
{
	struct secret_info made;

	if (json_decode(cli->arena, body, &secret_shape, &made, &cli->e) < 0)
		return err_wrap(&cli->e, -EPROTO, "the secret");
	if (cli->out.json)
		return cli_show_body(cli, body);
	out_line(&cli->out, "%.*s", STR_ARG(made.name));
	out_note(&cli->out, "give it to a sandbox: atoll sandbox create --secret %.*s=VARIABLE",
		STR_ARG(made.name));
	return EXIT_OK;
}

int cmd_secret_set(struct cli *cli)
{
	CLEANUP(buf_done) struct buf value = BUF_INIT(VALUE_MAX), body = BUF_INIT(BODY_MAX);
	struct api_request request = { .method = "PUT" };
	struct api_reply reply;
	struct jsonw w;
	int r = read_value(cli, &value);

	jsonw_init(&w, &body);
	jsonw_object(&w, NULL);
	jsonw_str(&w, "value", buf_str(&value));
	if (r == 0 && args_has(&cli->args, "meta"))
		r = cli_pairs(cli, "meta", "metadata", &w, &cli->e);
	jsonw_end_object(&w);
	if (r == 0 && body.failed)
		r = err_set(&cli->e, -EINVAL, "too much metadata");
	request.path = cli_path(cli, "/api/v1/secrets/", str_of(cli->args.words[0]), "");
	request.body = buf_str(&body);
	if (r == 0 && !request.path)
		r = err_set(&cli->e, -EINVAL, "the name is too long");
	if (r == 0)
		r = cli_api_call(cli, &request, &reply, &cli->e);
	if (value.p)
		explicit_bzero(value.p, value.cap);
	if (body.p)
		explicit_bzero(body.p, body.cap);
	return r < 0 ? r : show_set(cli, reply.body);
}

int cmd_secret_rm(struct cli *cli)
{
	struct api_request request = { .method = "DELETE" };
	struct str name = str_of(cli->args.words[0]);
	struct api_reply reply;
	int r;

	request.path = cli_path(cli, "/api/v1/secrets/", name, "");
	if (!request.path)
		return err_set(&cli->e, -EINVAL, "the name is too long");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r == -ENOENT)
		(void)snprintf(cli->hint, sizeof cli->hint, "'atoll secret ls' lists them");
	return r < 0 ? r : cli_show_gone(cli, "name", name);
}
