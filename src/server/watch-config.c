#include "server/config.h"

static const char *env_value(char **env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=' && (*env)[n + 1])
			return *env + n + 1;
	return NULL;
}

/* ---- headers ---- */

static bool is_name(struct str name)
{
	for (size_t i = 0; i < name.n; i++)
		if (name.p[i] <= ' ' || name.p[i] >= 0x7f ||
			strchr("()<>@,;:\\\"/[]?={}", name.p[i]))
			return false;
	return name.n > 0;
}

static bool is_value(struct str value)
{
	for (size_t i = 0; i < value.n; i++)
		if ((unsigned char)value.p[i] < ' ' || value.p[i] == 0x7f)
			return false;
	return value.n > 0;
}

/* The value may be a secret: no message has it. */
static int add_header(struct config *c, struct str name, struct str value, struct err *e)
{
	size_t n = 0;

	while (c->trace_headers[n])
		n++;
	if (n == CONFIG_MAX_HEADERS)
		return err_set(e, -EINVAL, "more than %d headers", CONFIG_MAX_HEADERS);
	if (!is_name(name) || !is_value(value))
		return err_set(e, -EINVAL, "a header must look like 'Name: value'");
	c->trace_headers[n] = arena_printf(c->arena, "%.*s: %.*s", STR_ARG(name), STR_ARG(value));
	return c->trace_headers[n] ? 0 : err_set(e, -EINVAL, "the headers are too long");
}

static int add_line(struct config *c, struct str line, struct err *e)
{
	struct str name;

	if (!str_split(&line, ':', &name))
		name = STR_NONE;
	return add_header(c, str_trim(name), str_trim(line), e);
}

static int read_header_file(struct config *c, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	int r = file_read(AT_FDCWD, c->trace_header_file, &text, e);
	struct str rest = buf_str(&text), line;

	while (r >= 0 && str_split(&rest, '\n', &line)) {
		line = str_trim(line);
		if (line.n && line.p[line.n - 1] == '\r')
			line.n--;
		if (line.n && line.p[0] != '#')
			r = add_line(c, line, e);
	}
	if (text.p)
		explicit_bzero(text.p, text.n);
	return r < 0 ? err_wrap(e, r, "--trace-header-file %s", c->trace_header_file) : 0;
}

/* OTEL_EXPORTER_OTLP_HEADERS: name=value,..., percent-encoded. */
static int add_otel_headers(struct config *c, struct str list, struct err *e)
{
	struct str pair, name;
	int r = 0;

	while (r >= 0 && str_split(&list, ',', &pair)) {
		CLEANUP(buf_done) struct buf value = BUF_INIT(8192);

		if (!str_split(&pair, '=', &name) ||
			percent_decode(str_trim(pair), false, &value) < 0)
			r = err_set(e, -EINVAL, "it must look like 'name=value,name=value'");
		else
			r = add_header(c, str_trim(name), buf_str(&value), e);
	}
	return r < 0 ? err_wrap(e, r, "OTEL_EXPORTER_OTLP_HEADERS") : 0;
}

static int add_langfuse(struct config *c, const char *public_key, const char *secret_key,
	struct err *e)
{
	CLEANUP(buf_done) struct buf pair = BUF_INIT(4096), value = BUF_INIT(8192);
	int r;

	(void)buf_printf(&pair, "%s:%s", public_key, secret_key);
	(void)buf_adds(&value, "Basic ");
	if (pair.failed || !buf_reserve(&value, base64_size(pair.n)))
		return err_set(e, -EINVAL, "LANGFUSE_SECRET_KEY is too long");
	base64_encode(pair.p, pair.n, value.p + value.n);
	value.n += base64_size(pair.n);
	r = add_header(c, STR("Authorization"), buf_str(&value), e);
	explicit_bzero(pair.p, pair.n);
	explicit_bzero(value.p, value.n);
	/* Without it what is sent may only be seen after minutes. */
	return r < 0 ? r : add_header(c, STR("x-langfuse-ingestion-version"), STR("4"), e);
}

/* ---- where to ---- */

static int set_url(struct config *c, const char *base, const char *path, struct err *e)
{
	struct str url = str_of(base), end = str_of("/v1/traces");

	if (!str_has_prefix(url, STR("http://")) && !str_has_prefix(url, STR("https://")))
		return err_set(e, -EINVAL,
			"the trace endpoint must begin with http:// or https://");
	while (url.n && url.p[url.n - 1] == '/')
		url.n--;
	if (url.n >= end.n && str_eq(str_from(url, url.n - end.n), end))
		path = "";
	c->trace_url = arena_printf(c->arena, "%.*s%s", STR_ARG(url), path);
	return c->trace_url ? 0 : err_set(e, -EINVAL, "the trace endpoint is too long");
}

/* What was told to us wins over what was told to all programs, and that over Langfuse's own. */
static int choose_endpoint(struct config *c, char **env, struct err *e)
{
	const char *traces = env_value(env, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
	const char *otel = env_value(env, "OTEL_EXPORTER_OTLP_ENDPOINT");
	const char *headers = env_value(env, "OTEL_EXPORTER_OTLP_HEADERS");
	const char *langfuse = env_value(env, "LANGFUSE_BASE_URL");
	const char *public_key = env_value(env, "LANGFUSE_PUBLIC_KEY"),
		   *secret_key = env_value(env, "LANGFUSE_SECRET_KEY");
	int r = 0;

	if (!c->trace_endpoint && !traces && !otel) {
		if (!langfuse || !public_key || !secret_key)
			return 0;
		r = add_langfuse(c, public_key, secret_key, e);
		return r < 0 ? r : set_url(c, langfuse, "/api/public/otel/v1/traces", e);
	}
	if (!c->trace_endpoint && headers)
		r = add_otel_headers(c, str_of(headers), e);
	if (r < 0)
		return r;
	if (!c->trace_endpoint && traces)
		return set_url(c, traces, "", e);
	return set_url(c, c->trace_endpoint ? c->trace_endpoint : otel, "/v1/traces", e);
}

/* ---- what things cost ---- */

static int read_price(const char *flag, const char *text, int64_t *ret, bool *is_set, struct err *e)
{
	if (!text)
		return 0;
	*is_set = true;
	if (observe_parse_price(str_of(text), ret) == 0)
		return 0;
	return err_set(e, -EINVAL, "%s must be an amount such as 0.05, with at most nine decimals",
		flag);
}

static int read_prices(struct config *c, struct err *e)
{
	struct observe_prices *p = &c->prices;
	int r = read_price("--price-vcpu-hour", c->price_vcpu_hour, &p->vcpu_hour, &p->is_set, e);

	if (r >= 0)
		r = read_price("--price-memory-gib-hour", c->price_memory_gib_hour,
			&p->memory_gib_hour, &p->is_set, e);
	if (r >= 0)
		r = read_price("--price-disk-gib-hour", c->price_disk_gib_hour, &p->disk_gib_hour,
			&p->is_set, e);
	if (r >= 0)
		r = read_price("--price-egress-gib", c->price_egress_gib, &p->egress_gib,
			&p->is_set, e);
	(void)snprintf(p->currency, sizeof p->currency, "%s", c->price_currency);
	return r;
}

int config_read_watch(struct config *c, char **env, struct err *e)
{
	int r = read_prices(c, e);

	if (r >= 0)
		r = choose_endpoint(c, env, e);
	if (r >= 0 && c->trace_header && add_line(c, str_of(c->trace_header), e) < 0)
		r = err_wrap(e, -EINVAL, "--trace-header");
	if (r >= 0 && c->trace_header_file)
		r = read_header_file(c, e);
	return r;
}
