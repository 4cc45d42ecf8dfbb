/* What sandboxes used, and what it costs. */
#include "cli/cli-internal.h"

struct amounts {
	struct str team, agent, task, template_name, sandbox;
	struct json_int sandboxes, egress;
	struct str sandbox_s, vcpu_s, memory_s, disk_s, cpu_s, cost; /* numbers' texts */
	struct str currency;
};
static const struct json_field amounts_fields[] = {
	JSON_FIELD(struct amounts, team, "team", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, agent, "agent", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, task, "task", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, template_name, "template", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, sandbox, "sandbox", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, sandboxes, "sandboxes", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, egress, "egress_bytes", JSON_INT, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, sandbox_s, "sandbox_seconds", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, vcpu_s, "vcpu_seconds", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, memory_s, "memory_mib_seconds", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, disk_s, "disk_mib_seconds", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, cpu_s, "cpu_used_seconds", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, cost, "cost", JSON_RAW, .flags = JSON_LAX),
	JSON_FIELD(struct amounts, currency, "currency", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape amounts_shape =
	JSON_SHAPE(struct amounts, amounts_fields, .ignore_unknown = true);

struct usage {
	struct json_list items;
	struct amounts total;
};
static const struct json_field usage_fields[] = {
	JSON_FIELD(struct usage, items, "items", JSON_OBJECTS, .flags = JSON_REQUIRED,
		.shape = &amounts_shape),
	JSON_FIELD(struct usage, total, "total", JSON_OBJECT, .flags = JSON_REQUIRED,
		.shape = &amounts_shape),
};
static const struct json_shape usage_shape =
	JSON_SHAPE(struct usage, usage_fields, .ignore_unknown = true);

static void add_query(struct buf *path, const char *name, const char *value)
{
	if (!value)
		return;
	(void)buf_printf(path, "&%s=", name);
	(void)percent_encode(str_of(value), path);
}

static double number(struct str text)
{
	return text.n ? strtod(text.p, NULL) : 0; /* terminated, as all decoded texts */
}

static void hours(char *cell, double seconds)
{
	(void)snprintf(cell, OUT_CELL, "%.3f", seconds / 3600);
}

/* The names that were grouped by, or what there is one of. */
static void show_name(const struct amounts *a, bool is_total, char *cell)
{
	const struct str parts[] = { a->team, a->agent, a->task, a->template_name, a->sandbox };
	CLEANUP(buf_done) struct buf text = BUF_INIT(2048);

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i].n) {
			(void)buf_adds(&text, text.n ? " " : "");
			(void)buf_add_str(&text, parts[i]);
		}
	out_text(is_total ? STR("total") : text.n ? buf_str(&text) : STR("-"), cell);
}

static void show_row(struct out_table *t, const struct amounts *a, bool is_total)
{
	size_t row = out_table_add(t);
	char cost[64], currency[OUT_CELL];

	show_name(a, is_total, out_table_cell(t, row, 0));
	(void)snprintf(out_table_cell(t, row, 1), OUT_CELL, "%" PRId64, a->sandboxes.value);
	hours(out_table_cell(t, row, 2), number(a->sandbox_s));
	hours(out_table_cell(t, row, 3), number(a->vcpu_s));
	hours(out_table_cell(t, row, 4), number(a->memory_s) / 1024);
	hours(out_table_cell(t, row, 5), number(a->disk_s) / 1024);
	hours(out_table_cell(t, row, 6), number(a->cpu_s));
	out_size((uint64_t)MAX(a->egress.value, 0), out_table_cell(t, row, 7));
	(void)snprintf(cost, sizeof cost, "%.4f", number(a->cost));
	out_text(a->currency, currency);
	(void)snprintf(out_table_cell(t, row, 8), OUT_CELL, "%s%.8s", a->currency.n ? cost : "-",
		a->currency.n ? currency : "");
}

static void show(struct cli *cli, const struct usage *usage)
{
	static const char *const titles[] = { "OF", "SANDBOXES", "HOURS", "VCPU-H", "MEM-GIB-H",
		"DISK-GIB-H", "CPU-USED-H", "EGRESS", "COST" };
	CLEANUP(out_table_done) struct out_table t;
	const struct amounts *v = usage->items.v;
	bool grouped = args_value(&cli->args, "by") != NULL;

	out_table_init(&t, titles, ARRAY_SIZE(titles));
	for (size_t i = 0; grouped && i < usage->items.n; i++)
		show_row(&t, &v[i], false);
	show_row(&t, &usage->total, true);
	out_table_print(&cli->out, &t);
}

int cmd_usage(struct cli *cli)
{
	CLEANUP(buf_done) struct buf path = BUF_INIT(64 << 10);
	const char *since = args_value(&cli->args, "since");
	struct api_request request = { .method = "GET" };
	struct api_reply reply;
	struct usage usage;
	int64_t seconds = (int64_t)30 * 86400;
	char from[24];
	int r = since ? args_seconds("since", since, &seconds, &cli->e) : 0;

	if (r < 0)
		return r;
	(void)snprintf(from, sizeof from, "%" PRId64,
		MAX(cli->out.now_us / 1000000 - seconds, (int64_t)0));
	(void)buf_printf(&path, "/api/v1/usage?from=%s", from);
	add_query(&path, "group_by", args_value(&cli->args, "by"));
	add_query(&path, "agent_id", args_value(&cli->args, "agent"));
	add_query(&path, "task_id", args_value(&cli->args, "task"));
	add_query(&path, "template", args_value(&cli->args, "template"));
	add_query(&path, "sandbox_id", args_value(&cli->args, "sandbox"));
	request.path = arena_dup(cli->arena, buf_str(&path));
	r = cli_api_call(cli, &request, &reply, &cli->e);
	if (r < 0)
		return r;
	if (cli->out.json) {
		out_body(&cli->out, reply.body);
		(void)buf_addc(&cli->out.text, '\n');
		return EXIT_OK;
	}
	if (json_decode(cli->arena, reply.body, &usage_shape, &usage, &cli->e) < 0)
		return err_wrap(&cli->e, -EPROTO, "the server's sums");
	show(cli, &usage);
	return EXIT_OK;
}
