/* Lists of /api/v1, page by page, shown in the one way that all of them have: a table, ids alone,
 * or one JSON array. */
#include "cli/cli-internal.h"

enum {
	MAX_PAGES = 1000,
	PATH_BYTES = 64 << 10,
};

struct page {
	struct str items, next; /* items: the array's own text */
};
static const struct json_field page_fields[] = {
	JSON_FIELD(struct page, items, "items", JSON_RAW, .flags = JSON_REQUIRED),
	JSON_FIELD(struct page, next, "next_cursor", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape page_shape =
	JSON_SHAPE(struct page, page_fields, .ignore_unknown = true);

static int read_page(struct cli *cli, const char *path, struct str cursor, struct page *ret,
	struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(PATH_BYTES);
	struct api_request request = { .method = "GET" };
	struct api_reply reply;
	int r;

	(void)buf_adds(&text, path);
	if (cursor.n) {
		(void)buf_adds(&text, "&cursor=");
		(void)percent_encode(cursor, &text);
	}
	request.path = arena_dup(cli->arena, buf_str(&text));
	if (!request.path)
		return err_set(e, -ENOMEM, "the answers do not fit into memory");
	r = cli_api_call(cli, &request, &reply, e);
	if (r < 0)
		return r;
	r = json_decode(cli->arena, reply.body, &page_shape, ret, e);
	return r < 0 ? err_wrap(e, -EPROTO, "%s", path) : 0;
}

int cli_api_each_item(struct cli *cli, const char *path, const struct json_shape *shape,
	cli_page_fn fn, void *arg, struct err *e)
{
	struct page page = { 0 };
	int r = 0;

	for (int i = 0; r == 0 && (i == 0 || page.next.n); i++) {
		struct json_list rows;

		if (i == MAX_PAGES)
			return err_set(e, -EPROTO, "the list does not end: %s", path);
		r = read_page(cli, path, page.next, &page, e);
		if (r == 0 && json_decode_list(cli->arena, page.items, shape, &rows, e) < 0)
			r = err_wrap(e, -EPROTO, "%s", path);
		if (r == 0)
			r = fn(arg, &rows, e);
	}
	return r;
}

/* ---- shown ---- */

/* The next element of an array's text, which is compact and was found right before: "[a,b]", begun
 * behind its bracket. */
static struct str next_element(struct str *rest)
{
	size_t depth = 0, n = 0;
	bool in_text = false;
	struct str one;

	for (; n < rest->n; n++) {
		char c = rest->p[n];

		if (in_text) {
			n += c == '\\';
			in_text = c != '"';
		} else if (c == '"') {
			in_text = true;
		} else if (c == '{' || c == '[') {
			depth++;
		} else if ((c == ',' || c == ']' || c == '}') && depth == 0) {
			break;
		} else if (c == ']' || c == '}') {
			depth--;
		}
	}
	one = str_make(rest->p, n);
	*rest = str_from(*rest, MIN(n + 1, rest->n));
	return one;
}

struct showing {
	struct cli *cli;
	const struct cli_listing *listing;
	struct out_table table;
	int64_t shown;
	bool has_more;
};

static void show_item(struct showing *s, const void *item, struct str text)
{
	struct cli *cli = s->cli;

	if (cli->out.json && s->listing->json)
		s->listing->json(&cli->out.json_writer, item);
	else if (cli->out.json)
		jsonw_raw(&cli->out.json_writer, NULL, text);
	else if (cli->out.quiet)
		out_line(&cli->out, "%.*s", STR_ARG(s->listing->id(item)));
	else
		s->listing->row(cli, item, &s->table, out_table_add(&s->table));
}

static int show_page(struct showing *s, const struct page *page, struct err *e)
{
	struct str rest = str_from(page->items, 1);
	struct json_list rows;
	int64_t most = s->listing->most;
	const char *p;

	if (json_decode_list(s->cli->arena, page->items, s->listing->shape, &rows, e) < 0)
		return err_wrap(e, -EPROTO, "%s", s->listing->path);
	p = rows.v;
	for (size_t i = 0; i < rows.n && !s->has_more; i++) {
		if (most && s->shown == most) {
			s->has_more = true;
			break;
		}
		show_item(s, p + i * s->listing->shape->size, next_element(&rest));
		s->shown++;
	}
	s->has_more |= most && s->shown == most && page->next.n;
	return 0;
}

/* Each page has an arena of its own: a history is long. */
static int show_pages(struct showing *s, struct err *e)
{
	CLEANUP(buf_done) struct buf next = BUF_INIT(PATH_BYTES);
	struct cli *cli = s->cli;
	struct arena *whole_run = cli->arena;
	struct page page = { 0 };
	int r = 0;

	for (int i = 0; r == 0 && !s->has_more && (i == 0 || next.n); i++) {
		cli->arena = arena_new(CLI_ARENA);
		r = read_page(cli, s->listing->path, buf_str(&next), &page, e);
		if (r == 0)
			r = show_page(s, &page, e);
		buf_clear(&next);
		if (r == 0)
			(void)buf_add_str(&next, page.next);
		(void)arena_free(cli->arena);
		cli->arena = whole_run;
	}
	return r;
}

int cli_show_listing(struct cli *cli, const struct cli_listing *listing)
{
	struct showing s = { .cli = cli, .listing = listing };
	int r;

	out_table_init(&s.table, listing->titles, listing->n_titles);
	if (cli->out.json)
		jsonw_array(&cli->out.json_writer, NULL);
	r = show_pages(&s, &cli->e);
	if (cli->out.json) {
		jsonw_end_array(&cli->out.json_writer);
		(void)buf_addc(&cli->out.text, '\n');
	} else if (r == 0 && s.table.n_rows) {
		out_table_print(&cli->out, &s.table);
	} else if (r == 0 && !s.shown && !cli->out.quiet) {
		out_note(&cli->out, "%s", listing->none);
	}
	out_table_done(&s.table);
	if (r == 0 && s.has_more)
		out_note(&cli->out, "there are more: use --limit");
	return r < 0 ? r : EXIT_OK;
}

/* ---- what most commands end with ---- */

int cli_show_body(struct cli *cli, struct str body)
{
	out_body(&cli->out, body);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}

int cli_show_gone(struct cli *cli, const char *key, struct str id)
{
	struct jsonw *w = &cli->out.json_writer;
	char cell[OUT_CELL];

	if (!cli->out.json) {
		out_text(id, cell);
		out_line(&cli->out, "%s", cell);
		return EXIT_OK;
	}
	jsonw_object(w, NULL);
	jsonw_str(w, key, id);
	jsonw_bool(w, "removed", true);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
	return EXIT_OK;
}

void cli_map_cell(const struct json_map *map, char cell[OUT_CELL])
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);

	for (size_t i = 0; i < map->n; i++)
		(void)buf_printf(&text, "%s%.*s=%.*s", i ? "," : "", STR_ARG(map->v[i].key),
			STR_ARG(map->v[i].value));
	out_text(buf_str(&text), cell);
}

void cli_pair(struct cli *cli, const char *name, struct str value)
{
	char cell[OUT_CELL];

	if (!value.n)
		return;
	out_text(value, cell);
	out_pair(&cli->out, name, cell);
}

void cli_pair_limits(struct cli *cli, const struct json_map *limits)
{
	for (size_t i = 0; i < limits->n; i++) {
		struct str key = limits->v[i].key, value = limits->v[i].value;
		char name[OUT_CELL], cell[OUT_CELL];
		int64_t mib;

		out_text(value, cell);
		if (key.n > 3 && str_is(str_from(key, key.n - 3), "_mb") &&
			str_to_int(value, 0, INT64_MAX >> 20, &mib) == 0) {
			key.n -= 3;
			out_size((uint64_t)mib << 20, cell);
		}
		out_text(key, name);
		out_pair(&cli->out, name, cell);
	}
}

const char *cli_path(struct cli *cli, const char *before, struct str id, const char *after)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(PATH_BYTES);

	(void)buf_adds(&path, before);
	(void)percent_encode(id, &path);
	(void)buf_adds(&path, after);
	return path.failed ? NULL : arena_dup(cli->arena, buf_str(&path));
}

void cli_add_query(struct buf *path, const char *name, const char *value)
{
	if (!value)
		return;
	(void)buf_printf(path, "%c%s=", memchr(path->p, '?', path->n) ? '&' : '?', name);
	(void)percent_encode(str_of(value), path);
}

int cli_get(struct cli *cli, const char *path, const struct json_shape *shape, void *ret,
	struct str *ret_body)
{
	struct api_request request = { .method = "GET", .path = path };
	struct api_reply reply;
	int r;

	if (!path)
		return err_set(&cli->e, -EINVAL, "the name is too long");
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (json_decode(cli->arena, reply.body, shape, ret, &cli->e) < 0)
		return err_wrap(&cli->e, -EPROTO, "%s", path);
	if (ret_body)
		*ret_body = reply.body;
	return 0;
}
