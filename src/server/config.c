#include "server/config.h"
#include "json/json.h"
#include "server/server.h"

#include <sys/resource.h>

enum {
	MOST_SANDBOXES = 4000, /* as many addresses and blocks of user ids there are */
	LEAST_SANDBOXES = 100,
	SANDBOX_SHARE_BYTES = 8 << 20,
	SANDBOX_FILES = 6,
};

#define NOT_IN_FILE(flag, value, help)

struct file_in {
#define KIND_STR struct str
#define KIND_INT struct json_int
#define KIND_BOOL struct json_bool
#define KIND_STRS struct json_strs
#define MEMBER(field, flag, kind, least, most, value, help) KIND_##kind field;
	SERVER_OPTIONS(MEMBER, NOT_IN_FILE)
};

/* One table for all three sources: the TOML name is also the flag's (with '-') and the variable's.
 */
static const struct json_field file_fields[] = {
#define FIELD(field, flag, kind, least, most, value, help) \
	JSON_FIELD(struct file_in, field, #field, JSON_##kind, .min = (least), .max = (most)),
	SERVER_OPTIONS(FIELD, NOT_IN_FILE)
};
static const struct json_shape file_shape = JSON_SHAPE(struct file_in, file_fields);

static void set_str(const char **to, struct str from)
{
	if (from.n)
		*to = from.p; /* terminated, in the arena */
}

static void set_int(int64_t *to, struct json_int from)
{
	if (from.is_set)
		*to = from.value;
}

static void set_list(struct config *config, struct config_list *to, struct json_strs from)
{
	if (!from.is_set)
		return;
	if (to->source != config->source)
		*to = (struct config_list){ .source = config->source };
	/* One more than there is room for is counted: read_lists tells. */
	for (size_t i = 0; i < from.n && to->n <= CONFIG_MAX_LIST; i++) {
		if (to->n < CONFIG_MAX_LIST)
			to->v[to->n] = from.v[i].p;
		to->n++;
	}
}

static void merge(struct config *config, const struct file_in *in)
{
	set_str(&config->data, in->data);
	set_str(&config->database, in->database);
	set_str(&config->database_password_file, in->database_password_file);
	set_str(&config->listen, in->listen);
	set_str(&config->template_cache, in->template_cache);
	set_str(&config->network, in->network);
	set_str(&config->domain, in->domain);
	set_str(&config->log_level, in->log_level);
	set_str(&config->log_format, in->log_format);
	set_str(&config->trace_endpoint, in->trace_endpoint);
	set_str(&config->trace_header, in->trace_header);
	set_str(&config->trace_header_file, in->trace_header_file);
	set_str(&config->price_currency, in->price_currency);
	set_str(&config->price_disk_gib_hour, in->price_disk_gib_hour);
	set_str(&config->price_egress_gib, in->price_egress_gib);
	set_str(&config->price_memory_gib_hour, in->price_memory_gib_hour);
	set_str(&config->price_vcpu_hour, in->price_vcpu_hour);
	set_str(&config->tls_cert, in->tls_cert);
	set_str(&config->tls_key, in->tls_key);
	set_str(&config->admin_token_file, in->admin_token_file);
	set_str(&config->dns_server, in->dns_server);
	set_str(&config->sandbox_proxy, in->sandbox_proxy);
	set_str(&config->sandbox_no_proxy, in->sandbox_no_proxy);
	set_list(config, &config->allow_private, in->allow_private);
	set_list(config, &config->sandbox_ca, in->sandbox_ca);
	set_list(config, &config->sandbox_env, in->sandbox_env);
	set_str(&config->ceilings_text, in->ceilings);
	set_str(&config->quota_text, in->quota);
	set_str(&config->activity_text, in->activity);
	set_str(&config->default_limits_text, in->default_limits);
	set_int(&config->pool, in->pool);
	set_int(&config->artifact_retention_s, in->artifact_retention);
	set_int(&config->artifact_mb, in->artifact_mb);
	set_int(&config->output_mb, in->output_mb);
	set_int(&config->output_retention_s, in->output_retention);
	set_int(&config->history_retention_s, in->history_retention);
	set_int(&config->max_connections, in->max_connections);
	set_int(&config->max_queued_mb, in->max_queued_mb);
	set_int(&config->max_sandboxes, in->max_sandboxes);
	set_int(&config->max_team_connections, in->max_team_connections);
	set_int(&config->max_timeout_s, in->max_timeout);
	set_int(&config->max_age_s, in->max_age);
	set_int(&config->unresponsive_after_s, in->unresponsive_after);
	set_str(&config->unresponsive, in->unresponsive);
	set_int(&config->disk_mb, in->disk_mb);
	set_int(&config->upgrade_grace_s, in->upgrade_grace);
	set_int(&config->disk_hold_s, in->disk_hold);
	set_int(&config->disk_overcommit, in->disk_overcommit);
	if (in->stop_sandboxes.is_set)
		config->stop_sandboxes = in->stop_sandboxes.value;
	if (in->metrics_open.is_set)
		config->metrics_open = in->metrics_open.value;
	if (in->no_nested.is_set)
		config->no_nested = in->no_nested.value;
	if (in->no_restart.is_set)
		config->no_restart = in->no_restart.value;
}

int config_parse_file(struct str text, struct config *config, struct err *e)
{
	struct file_in in;
	int r = toml_decode(config->arena, text, &file_shape, &in, e);

	if (r >= 0)
		merge(config, &in);
	return r;
}

static int read_file(struct config *config, const char *path, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);
	int r = file_read(AT_FDCWD, path, &text, e);

	if (r >= 0)
		r = config_parse_file(buf_str(&text), config, e);
	return r < 0 ? err_wrap(e, r, "configuration %s", path) : 0;
}

/* "--max-timeout" and "ATOLL_MAX_TIMEOUT" both name the field "max_timeout". */
static const struct json_field *field_of(struct str name, bool upper)
{
	for (size_t i = 0; i < ARRAY_SIZE(file_fields); i++) {
		const char *want = file_fields[i].name;
		size_t k = 0;

		for (; k < name.n && want[k]; k++) {
			char c = name.p[k];

			if (!upper && c == '_')
				break;
			if (c == '-')
				c = '_';
			if (upper && c >= 'A' && c <= 'Z')
				c = (char)(c - 'A' + 'a');
			if (c != want[k])
				break;
		}
		if (k == name.n && !want[k])
			return &file_fields[i];
	}
	return NULL;
}

/* Sets one field from text by writing it as a line of TOML: one set of checks for all sources. */
static int set_field(struct config *config, const struct json_field *field, struct str value,
	struct err *e)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(16 << 10);
	struct jsonw w;

	(void)buf_printf(&line, "%s = ", field->name);
	if (field->kind == JSON_STR || field->kind == JSON_STRS) {
		jsonw_init(&w, &line);
		if (field->kind == JSON_STRS)
			jsonw_array(&w, NULL);
		jsonw_str(&w, NULL, value);
		if (field->kind == JSON_STRS)
			jsonw_end_array(&w);
	} else {
		(void)buf_add_str(&line, value);
	}
	if (line.failed || str_find(value, '\n') >= 0)
		return err_set(e, -EINVAL, "%s: too long or with a line break", field->name);
	return config_parse_file(buf_str(&line), config, e);
}

static int read_env(struct config *config, char **env, struct err *e)
{
	static const struct str prefix = { "ATOLL_", 6 };

	for (; env && *env; env++) {
		struct str rest = str_of(*env), name;
		const struct json_field *field;
		int r;

		if (!str_has_prefix(rest, prefix) || !str_split(&rest, '=', &name))
			continue;
		field = field_of(str_from(name, prefix.n), true);
		if (!field) /* other ATOLL_ variables belong to the command line and to tests */
			continue;
		r = set_field(config, field, rest, e);
		if (r < 0)
			return err_wrap(e, r, "%.*s", STR_ARG(name));
	}
	return 0;
}

struct flag {
	struct str name, value;
	bool has_value;
};

static bool next_flag(int argc, char **argv, int *at, struct flag *flag)
{
	struct str text;
	ptrdiff_t equals;

	if (*at >= argc)
		return false;
	text = str_of(argv[(*at)++]);
	*flag = (struct flag){ .name = text };
	equals = str_find(text, '=');
	if (equals >= 0) {
		flag->name.n = (size_t)equals;
		flag->value = str_from(text, (size_t)equals + 1);
		flag->has_value = true;
	}
	return true;
}

static void take_value(int argc, char **argv, int *at, struct flag *flag)
{
	if (!flag->has_value && *at < argc) {
		flag->value = str_of(argv[(*at)++]);
		flag->has_value = true;
	}
}

bool config_has_password(struct str url)
{
	const char *from = memmem(url.p, url.n, "://", 3);
	struct str rest = from ? str_from(url, (size_t)(from - url.p) + 3) : STR_NONE;
	ptrdiff_t at, colon = str_find(rest, ':');
	size_t end = 0;

	if (memmem(url.p, url.n, "password=", 9))
		return true;
	while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?')
		end++;
	rest.n = end;
	at = str_find(rest, '@');
	return colon >= 0 && colon < at;
}

/* Every user of the host can read the command lines of all processes. */
static int check_flag(const struct json_field *field, struct str value, struct err *e)
{
	bool is_database = strcmp(field->name, "database") == 0;

	if ((!is_database && strcmp(field->name, "sandbox_proxy") != 0) ||
		!config_has_password(value))
		return 0;
	return err_set(e, -EINVAL, "a password here is seen by every user of the host: use %s",
		is_database ? "--database-password-file, ATOLL_DATABASE or --config"
			    : "ATOLL_SANDBOX_PROXY or --config");
}

static int apply_flag(struct config *config, int argc, char **argv, int *at, struct flag *flag,
	struct err *e)
{
	const struct json_field *field;
	int r;

	if (str_is(flag->name, "--check") && !flag->has_value) {
		config->check = true;
		return 0;
	}
	field = flag->name.n > 2 && str_has_prefix(flag->name, STR("--"))
			? field_of(str_from(flag->name, 2), false)
			: NULL;
	if (!field && !str_is(flag->name, "--config"))
		return err_set(e, -EINVAL, "unknown option '%.*s': see atoll serve --help",
			STR_ARG(flag->name));
	if (field && field->kind == JSON_BOOL && !flag->has_value)
		return set_field(config, field, STR("true"), e);
	take_value(argc, argv, at, flag);
	if (!flag->has_value)
		return err_set(e, -EINVAL, "%.*s needs a value", STR_ARG(flag->name));
	if (!field)
		return 0; /* --config was read before */
	r = check_flag(field, flag->value, e);
	if (r >= 0)
		r = set_field(config, field, flag->value, e);
	return r < 0 ? err_wrap(e, r, "%.*s", STR_ARG(flag->name)) : 0;
}

static const char *find_config_flag(int argc, char **argv)
{
	struct flag flag;

	for (int at = 1; next_flag(argc, argv, &at, &flag);)
		if (str_is(flag.name, "--config")) {
			take_value(argc, argv, &at, &flag);
			return flag.value.p;
		}
	return NULL;
}

static int check_level(const struct config *config, struct err *e)
{
	static const char *const levels[] = { "error", "warn", "info", "debug" };

	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (strcmp(config->log_level, levels[i]) == 0)
			return (int)i;
	return err_set(e, -EINVAL, "log level '%s': use error, warn, info or debug",
		config->log_level);
}

static int check_format(const struct config *config, struct err *e)
{
	if (log_format_find(str_of(config->log_format)) >= 0)
		return 0;
	return err_set(e, -EINVAL, "log format '%s': use logfmt, json or text", config->log_format);
}

static int check_unresponsive(const struct config *config, struct err *e)
{
	if (strcmp(config->unresponsive, "end") == 0 || strcmp(config->unresponsive, "keep") == 0)
		return 0;
	return err_set(e, -EINVAL, "--unresponsive '%s': use end or keep", config->unresponsive);
}

static int check_tls(const struct config *config, struct err *e)
{
	if (!config->tls_cert == !config->tls_key)
		return 0;
	return err_set(e, -EINVAL, "%s is given without %s: TLS needs both",
		config->tls_cert ? "--tls-cert" : "--tls-key",
		config->tls_cert ? "--tls-key" : "--tls-cert");
}

static int read_lists(struct config *config, struct err *e)
{
	const struct config_list *lists[] = { &config->allow_private, &config->sandbox_ca,
		&config->sandbox_env };
	static const char *const names[] = { "allow-private", "sandbox-ca", "sandbox-env" };
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (lists[i]->n > CONFIG_MAX_LIST)
			return err_set(e, -E2BIG, "--%s: more than %d of them", names[i],
				CONFIG_MAX_LIST);
	for (size_t i = 0; r >= 0 && i < config->allow_private.n; i++)
		r = private_list_add(&config->opened, str_of(config->allow_private.v[i]), e);
	return r < 0 ? err_wrap(e, r, "--allow-private") : 0;
}

/* Read when all sources have been: a later one replaces the whole list. */
static int read_limits(struct config *config, struct err *e)
{
	int r = limit_quota_parse_list(str_of(config->quota_text), &config->quota, e);

	if (r < 0)
		return err_wrap(e, r, "--quota");
	if (config->activity_text)
		r = limit_activity_parse(str_of(config->activity_text), &config->activity, e);
	if (r < 0)
		return err_wrap(e, r, "--activity");
	r = limit_ceilings_parse_list(str_of(config->ceilings_text), &config->ceilings, e);
	if (r < 0)
		return err_wrap(e, r, "--ceilings");
	r = limit_set_parse_list(str_of(config->default_limits_text), &config->default_limits, e);
	return r < 0 ? err_wrap(e, r, "--default-limits") : 0;
}

/* As many as this machine can hold when they do little: each takes about 1.5 MiB, and the warden
 * holds some descriptors of each. */
static int64_t most_sandboxes(void)
{
	int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	struct rlimit files = { .rlim_max = 0 };
	int64_t n = MIN(bytes / SANDBOX_SHARE_BYTES, (int64_t)MOST_SANDBOXES);

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY)
		n = MIN(n, (int64_t)(files.rlim_max / SANDBOX_FILES));
	return MAX(n, (int64_t)LEAST_SANDBOXES);
}

int config_read(int argc, char **argv, char **env, struct config *ret, struct err *e)
{
	const char *file = find_config_flag(argc, argv);
	struct config c = {
		.data = "atoll-data",
		.listen = "127.0.0.1:3000",
		.network = "10.199.0.0/16",
		.log_level = "info",
		.log_format = "logfmt",
		.price_currency = "USD",
		.pool = 16,
		.artifact_retention_s = 86400,
		.artifact_mb = 100,
		.output_mb = 10,
		.output_retention_s = 604800,
		.history_retention_s = 31536000,
		.max_connections = 16384,
		.max_queued_mb = 256,
		.max_sandboxes = most_sandboxes(),
		.max_timeout_s = 86400,
		.max_age_s = 86400,
		.unresponsive = "end",
		.unresponsive_after_s = 300,
		.disk_mb = 10240,
		.disk_hold_s = 60,
		.upgrade_grace_s = 1,
	};
	struct flag flag;
	int r = 0;

	c.arena = arena_new(1 << 20);
	c.source = CONFIG_FILE;
	if (file)
		r = read_file(&c, file, e);
	c.source = CONFIG_ENV;
	if (r >= 0)
		r = read_env(&c, env, e);
	c.source = CONFIG_FLAGS;
	for (int at = 1; r >= 0 && next_flag(argc, argv, &at, &flag);)
		r = apply_flag(&c, argc, argv, &at, &flag, e);
	if (r >= 0)
		r = check_level(&c, e);
	if (r >= 0)
		r = check_format(&c, e);
	if (r >= 0)
		r = check_unresponsive(&c, e);
	if (r >= 0)
		r = check_tls(&c, e);
	if (r >= 0)
		r = read_limits(&c, e);
	if (r >= 0)
		r = read_lists(&c, e);
	if (r >= 0)
		r = config_read_watch(&c, env, e);
	if (r < 0) {
		config_done(&c);
		return r;
	}
	*ret = c;
	return 0;
}

void config_hide_env(char **env)
{
	static const struct str name = { "ATOLL_DATABASE=", 15 };

	for (; env && *env; env++)
		if (str_has_prefix(str_of(*env), name))
			explicit_bzero(*env + name.n, strlen(*env + name.n));
}

int config_read_password(const char *path, char *to, size_t size, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(size);
	int r = file_read(AT_FDCWD, path, &text, e);

	while (text.n && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == '\r'))
		text.n--;
	if (r >= 0 && (text.n == 0 || text.n >= size || !str_is_utf8(buf_str(&text)) ||
			      str_find(buf_str(&text), '\n') >= 0))
		r = err_set(e, -EINVAL, "it must hold one line of 1 to %zu characters", size - 1);
	if (r >= 0)
		(void)snprintf(to, size, "%.*s", STR_ARG(buf_str(&text)));
	if (text.p)
		explicit_bzero(text.p, text.n);
	return r < 0 ? err_wrap(e, r, "--database-password-file %s", path) : 0;
}

void config_done(struct config *config)
{
	config->arena = arena_free(config->arena);
}
