/* `atoll api`: any request to the server, with the key and address that all commands use. */
#include "cli/cli-internal.h"

enum {
	BODY_MAX = 16 << 20,
	MAX_HEADERS = 32,
	PATH_BYTES = 64 << 10,
};

/* -d JSON, -d @FILE, -d - */
static int read_body(struct cli *cli, struct buf *text, struct str *ret)
{
	const char *given = args_value(&cli->args, "body");
	int r = 0;

	if (!given)
		return 0;
	if (strcmp(given, "-") == 0)
		r = file_read(AT_FDCWD, "/dev/stdin", text, &cli->e);
	else if (given[0] == '@')
		r = file_read(AT_FDCWD, given + 1, text, &cli->e);
	else
		(void)buf_adds(text, given);
	if (r == 0 && text->failed)
		r = err_set(&cli->e, -EINVAL, "--body: more than %d MiB", BODY_MAX >> 20);
	*ret = buf_str(text);
	return r;
}

static int read_headers(struct cli *cli, const char **lines)
{
	const char *line;
	size_t at = 0, n = 0;

	while ((line = args_next(&cli->args, "header", &at))) {
		const char *colon = strchr(line, ':');

		if (!colon || colon == line || strpbrk(line, "\r\n"))
			return err_set(&cli->e, -EINVAL, "--header: '%s' is not 'Name: value'",
				line);
		if (n == MAX_HEADERS)
			return err_set(&cli->e, -EINVAL, "--header: more than %d", MAX_HEADERS);
		lines[n++] = line;
	}
	return 0;
}

static int check_method(struct cli *cli, const char *method)
{
	static const char *const known[] = { "GET", "POST", "PUT", "PATCH", "DELETE" };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(method, known[i]) == 0)
			return 0;
	return err_set(&cli->e, -EINVAL, "'%s': METHOD is GET, POST, PUT, PATCH or DELETE", method);
}

int cmd_api(struct cli *cli)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	const char *path = cli->args.words[1], *headers[MAX_HEADERS + 1] = { 0 };
	struct api_request request = { .method = cli->args.words[0], .more_headers = headers };
	struct api_reply reply;
	int r = check_method(cli, request.method);

	if (r == 0)
		r = read_headers(cli, headers);
	if (r == 0)
		r = read_body(cli, &body, &request.body);
	if (r < 0)
		return r;
	if (strlen(path) > PATH_BYTES || strpbrk(path, " \r\n\t#"))
		return err_set(&cli->e, -EINVAL,
			"PATH: too long, or a character that must be percent-encoded");
	request.path = arena_printf(cli->arena, "%s%s", path[0] == '/' ? "" : "/api/v1/", path);
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	out_body(&cli->out, reply.body);
	if (reply.body.n && reply.body.p[reply.body.n - 1] != '\n')
		(void)buf_addc(&cli->out.text, '\n');
	if (!reply.body.n && cli->out.json)
		(void)buf_adds(&cli->out.text, "null\n");
	return EXIT_OK;
}
