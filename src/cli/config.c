#include "cli/config.h"

enum {
	ENV_FILE_MAX = 64 << 10,
};

static const char default_url[] = "http://127.0.0.1:3000";
static const char default_data[] = "atoll-data";

/* One shell word without expansions: bare, 'literal' or "quoted". */
static int unquote(struct str s, char *ret, size_t size)
{
	char quote = s.n >= 2 && (s.p[0] == '\'' || s.p[0] == '"') ? s.p[0] : '\0';

	if (quote) {
		if (s.p[s.n - 1] != quote)
			return -EINVAL;
		s = str_make(s.p + 1, s.n - 2);
	}
	if (s.n >= size)
		return -EINVAL;
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || s.p[i] == quote ||
			(quote != '\'' && strchr("$`\\", s.p[i])) ||
			(!quote && strchr(" \t'\"#;&|<>()", s.p[i])))
			return -EINVAL;
	if (s.n)
		memcpy(ret, s.p, s.n);
	ret[s.n] = '\0';
	return 0;
}

int cli_config_assignment(struct str text, const char *key, char *ret, size_t size)
{
	struct str line, name;
	int r = -ENOENT;

	while (str_split(&text, '\n', &line)) {
		line = str_trim(line);
		if (str_has_prefix(line, STR("export ")))
			line = str_trim(str_from(line, 7));
		if (str_find(line, '=') < 0 || !str_split(&line, '=', &name) || !str_is(name, key))
			continue;
		r = unquote(line, ret, size);
		if (r < 0)
			return r;
	}
	return r;
}

static int copy(char *to, const char *from, const char *what, struct err *e)
{
	if (strlen(from) >= CONFIG_VALUE)
		return err_set(e, -EINVAL, "%s is longer than %d characters", what,
			CONFIG_VALUE - 1);
	(void)snprintf(to, CONFIG_VALUE, "%s", from);
	return 0;
}

static int take(struct str text, const char *key, const char *path, char *to, struct err *e)
{
	int r = cli_config_assignment(text, key, to, CONFIG_VALUE);

	if (r == -ENOENT)
		to[0] = '\0';
	return r < 0 && r != -ENOENT ? err_set(e, r, "%s: %s is not a plain assignment", path, key)
				     : 0;
}

/* Fills the three values of a data directory. -ENOENT: it has no env file. */
static int read_file(const char *data, struct config *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(ENV_FILE_MAX);
	char path[CONFIG_VALUE + 8];
	int r;

	(void)snprintf(path, sizeof path, "%s/env", data);
	r = file_read(AT_FDCWD, path, &text, e);
	if (r < 0)
		return r;
	r = take(buf_str(&text), "E2B_API_URL", path, ret->api_url, e);
	if (r == 0)
		r = take(buf_str(&text), "E2B_SANDBOX_URL", path, ret->sandbox_url, e);
	if (r == 0)
		r = take(buf_str(&text), "E2B_API_KEY", path, ret->api_key, e);
	return r < 0 ? r : copy(ret->data, data, "--data", e);
}

static int override(char *to, const char *value, const char *name, const char **source,
	struct err *e)
{
	if (!value || !*value)
		return 0;
	if (source)
		*source = name;
	return copy(to, value, name, e);
}

static int from_environment(const struct config_input *in, struct config *c, struct err *e)
{
	int r = override(c->api_url, in->env_api_url, "E2B_API_URL", &c->api_url_source, e);

	if (r == 0)
		r = override(c->sandbox_url, in->env_sandbox_url, "E2B_SANDBOX_URL",
			&c->sandbox_url_source, e);
	if (r == 0)
		r = override(c->api_key, in->env_api_key, "E2B_API_KEY", &c->api_key_source, e);
	return r;
}

static int from_data(const char *data, bool is_named, struct config *c, struct err *e)
{
	struct err why = { 0 };
	int r;

	if (strlen(data) >= CONFIG_VALUE)
		return err_set(e, -EINVAL, "--data: the path is too long");
	r = read_file(data, c, &why);
	if (r == 0) {
		c->api_url_source = c->api_key_source = "the env file";
		c->sandbox_url_source = c->sandbox_url[0] ? "the env file" : NULL;
		return 0;
	}
	*c = (struct config){ 0 };
	/* A file that is not ours to read, in a place nobody named, is as good as absent. */
	return is_named ? err_set(e, r, "%s", why.msg) : 0;
}

static bool is_set(const char *value)
{
	return value && *value;
}

static int from_first_source(const struct config_input *in, struct config *c, struct err *e)
{
	int r;

	if (!in->flag_data && (is_set(in->env_api_url) || is_set(in->env_api_key)))
		return from_environment(in, c, e);
	if (in->flag_data)
		r = from_data(in->flag_data, true, c, e);
	else if (is_set(in->env_data))
		r = from_data(in->env_data, true, c, e);
	else
		r = from_data(default_data, false, c, e);
	c->data_source = in->flag_data          ? "--data"
			 : is_set(in->env_data) ? "ATOLL_DATA"
						: "the default";
	return r;
}

/* What is named for us must be there. SSL_CERT_FILE may be stale and meant for others: it counts
 * when it can be read, as it does for the libraries that it was made for. */
static int find_ca_file(const struct config_input *in, struct config *c, struct err *e)
{
	const char *source = in->flag_ca_file ? "--ca-file" : "ATOLL_CA_FILE";
	const char *path = in->flag_ca_file ? in->flag_ca_file : in->env_ca_file;

	if (!is_set(path)) {
		path = in->env_ssl_cert_file;
		c->ca_file_source = "SSL_CERT_FILE";
		return is_set(path) && access(path, R_OK) == 0
			       ? copy(c->ca_file, path, "SSL_CERT_FILE", e)
			       : 0;
	}
	if (access(path, R_OK) < 0)
		return err_set(e, -EINVAL, "%s: %s: %s", source, path, strerrordesc_np(errno));
	c->ca_file_source = source;
	return copy(c->ca_file, path, source, e);
}

static void trim_slashes(char *url)
{
	size_t n = strlen(url);

	while (n > 0 && url[n - 1] == '/')
		url[--n] = '\0';
}

int cli_config_load(const struct config_input *in, struct config *ret, struct err *e)
{
	struct config c = { 0 };
	int r = from_first_source(in, &c, e);

	if (r == 0 && in->flag_api_url) {
		c.sandbox_url[0] = '\0';
		c.sandbox_url_source = NULL;
		r = override(c.api_url, in->flag_api_url, "--api-url", &c.api_url_source, e);
	}
	if (r == 0)
		r = find_ca_file(in, &c, e);
	if (r < 0)
		return r;
	if (!c.api_url[0]) {
		(void)snprintf(c.api_url, sizeof c.api_url, "%s", default_url);
		c.api_url_source = "the default";
	}
	trim_slashes(c.api_url);
	trim_slashes(c.sandbox_url);
	if (!c.sandbox_url[0]) {
		memcpy(c.sandbox_url, c.api_url, sizeof c.sandbox_url);
		c.sandbox_url_source = "as api_url";
	}
	*ret = c;
	return 0;
}
