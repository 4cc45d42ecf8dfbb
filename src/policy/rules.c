/* Header rules: what is added to requests to a host over TLS, and the secrets named in it. */
#include "policy/policy-internal.h"

enum {
	HOST_MAX_CHARS = 128,
	HEADER_NAME_MAX = 64,
	HEADER_VALUE_MAX = 2048,
	SECRET_NAME_MAX = 128,
	SECRETS_MAX = 32, /* named by the headers of one host, each time counted */
};

struct transform_in {
	struct json_map headers;
};
static const struct json_field transform_fields[] = {
	JSON_FIELD(struct transform_in, headers, "headers", JSON_MAP, .flags = JSON_LAX,
		.max = POLICY_MAX_HEADERS),
};
static const struct json_shape transform_shape = JSON_SHAPE(struct transform_in, transform_fields);

struct rule_in {
	struct transform_in transform;
};
static const struct json_field rule_fields[] = {
	JSON_FIELD(struct rule_in, transform, "transform", JSON_OBJECT, .flags = JSON_LAX,
		.shape = &transform_shape),
};
static const struct json_shape rule_shape = JSON_SHAPE(struct rule_in, rule_fields);

/* ---- secrets in a value ---- */

static const struct str secret_mark = { "${e2b.secrets.", 14 };
static const struct str identity_mark = { "${e2b.identity.tokens.", 22 };

static const char *find(struct str in, struct str what)
{
	return in.n ? memmem(in.p, in.n, what.p, what.n) : NULL;
}

static bool is_secret_name(struct str name)
{
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '_' || c == '-'))
			return false;
	}
	return name.n > 0 && name.n <= SECRET_NAME_MAX;
}

bool policy_next_secret(struct str *rest, struct str *ret_text, struct str *ret_name)
{
	const char *at = find(*rest, secret_mark);
	struct str name;

	*ret_name = STR_NONE;
	if (rest->n == 0)
		return false;
	if (!at) {
		*ret_text = *rest;
		*rest = str_from(*rest, rest->n);
		return true;
	}
	*ret_text = str_make(rest->p, (size_t)(at - rest->p));
	*rest = str_from(*rest, ret_text->n + secret_mark.n);
	(void)str_split(rest, '}', &name);
	*ret_name = name;
	return true;
}

/* 0: fine, and *ret_secrets counts on. */
static int check_marks(struct str value, size_t *ret_secrets, struct err *e)
{
	struct str rest = value;
	const char *at;

	if (find(value, identity_mark))
		return err_set(e, -EINVAL,
			"network.rules: identity tokens are not offered by this server");
	while ((at = find(rest, secret_mark))) {
		struct str name;
		ptrdiff_t end;

		rest = str_from(rest, (size_t)(at - rest.p) + secret_mark.n);
		end = str_find(rest, '}');
		name = str_make(rest.p, (size_t)MAX(end, 0));
		if (end < 0 || !is_secret_name(name))
			return err_set(e, -EINVAL,
				"network.rules: a header holds a malformed ${e2b.secrets.NAME}");
		rest = str_from(rest, (size_t)end + 1);
		(*ret_secrets)++;
	}
	return 0;
}

/* ---- headers ---- */

static bool is_token(struct str name)
{
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    (c && strchr("!#$%&'*+-.^_`|~", c))))
			return false;
	}
	return name.n > 0;
}

/* They say how a message is framed and whom it is for: changing them would change both. */
static bool is_of_connection(struct str name)
{
	static const char *const names[] = { "Host", "Connection", "Content-Length",
		"Transfer-Encoding", "TE", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection",
		"Expect" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq_nocase(name, str_of(names[i])))
			return true;
	return false;
}

static bool is_value(struct str value)
{
	for (size_t i = 0; i < value.n; i++) {
		unsigned char c = (unsigned char)value.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

static int check_header(const struct json_pair *header, struct str host, size_t *secrets,
	struct err *e)
{
	if (!is_token(header->key) || header->key.n > HEADER_NAME_MAX)
		return err_set(e, -EINVAL,
			"network.rules: a header name for %.*s must be of 1 to %d token characters",
			STR_ARG(host), HEADER_NAME_MAX);
	if (is_of_connection(header->key))
		return err_set(e, -EINVAL, "network.rules: header %.*s cannot be set",
			STR_ARG(header->key));
	if (!is_value(header->value) || header->value.n > HEADER_VALUE_MAX)
		return err_set(e, -EINVAL,
			"network.rules: the value of header %.*s must be printable and at most %d "
			"bytes",
			STR_ARG(header->key), HEADER_VALUE_MAX);
	return check_marks(header->value, secrets, e);
}

static bool is_known(const struct policy_rule *rule, struct str name)
{
	for (size_t i = 0; i < rule->n_headers; i++)
		if (str_eq_nocase(rule->headers[i].name, name))
			return true;
	return false;
}

static int add_headers(struct arena *arena, const struct json_map *headers,
	struct policy_rule *rule, struct err *e)
{
	size_t secrets = 0;

	rule->headers = arena_alloc(arena, (headers->n + 1) * sizeof *rule->headers);
	if (!rule->headers)
		return err_set(e, -ENOBUFS, "network.rules: too large");
	for (size_t i = 0; i < headers->n; i++) {
		const struct json_pair *header = &headers->v[i];
		int r = check_header(header, rule->host, &secrets, e);

		if (r < 0)
			return r;
		if (is_known(rule, header->key))
			return err_set(e, -EINVAL, "network.rules: header %.*s is given twice",
				STR_ARG(header->key));
		rule->headers[rule->n_headers++] =
			(struct policy_header){ header->key, str_trim(header->value) };
	}
	if (secrets > SECRETS_MAX)
		return err_set(e, -EINVAL, "network.rules: %.*s names more than %d secrets",
			STR_ARG(rule->host), SECRETS_MAX);
	return 0;
}

/* ---- hosts ---- */

static int check_host(const struct policy *policy, struct str host, struct err *e)
{
	struct str bare = str_has_prefix(host, STR("*.")) ? str_from(host, 2) : host;

	if (!name_is_valid(bare) || host.n > HOST_MAX_CHARS)
		return err_set(e, -EINVAL,
			"network.rules: '%.*s' is not a domain name of at most %d characters",
			(int)MIN(host.n, 64), host.p ? host.p : "", HOST_MAX_CHARS);
	for (size_t i = 0; i < policy->n_rules; i++)
		if (str_eq(policy->rules[i].host, host))
			return err_set(e, -EINVAL, "network.rules: %.*s is given twice",
				STR_ARG(host));
	return 0;
}

static int decode_rule(struct arena *arena, struct str host, struct str text, struct rule_in *ret,
	struct err *e)
{
	struct json_list list = { 0 };
	int r = json_decode_list(arena, text, &rule_shape, &list, e);

	if (r < 0)
		return err_wrap(e, r, "network.rules.%.*s", (int)MIN(host.n, 64), host.p);
	if (list.n > 1)
		return err_set(e, -EINVAL, "network.rules: %.*s can have at most one rule",
			(int)MIN(host.n, 64), host.p);
	*ret = list.n ? *(const struct rule_in *)list.v : (struct rule_in){ 0 };
	return 0;
}

static int add_host(struct arena *arena, const struct json_pair *given, struct policy *policy,
	struct err *e)
{
	struct policy_rule rule = { .host = name_normal(arena, given->key) };
	struct rule_in in = { 0 };
	int r = rule.host.p ? check_host(policy, rule.host, e)
			    : err_set(e, -ENOBUFS, "network.rules: too large");

	if (r >= 0)
		r = decode_rule(arena, given->key, given->value, &in, e);
	if (r >= 0)
		r = add_headers(arena, &in.transform.headers, &rule, e);
	if (r >= 0 && rule.n_headers > 0) /* one that changes nothing is no rule */
		policy->rules[policy->n_rules++] = rule;
	return r;
}

int rules_parse(struct arena *arena, const struct json_map *hosts, struct policy *policy,
	struct err *e)
{
	int r = 0;

	if (hosts->n > POLICY_MAX_RULES)
		return err_set(e, -EINVAL, "network.rules: at most %d domain names are possible",
			POLICY_MAX_RULES);
	policy->rules = arena_alloc(arena, (hosts->n + 1) * sizeof *policy->rules);
	if (!policy->rules)
		return err_set(e, -ENOBUFS, "network.rules: too large");
	for (size_t i = 0; r >= 0 && i < hosts->n; i++)
		r = add_host(arena, &hosts->v[i], policy, e);
	return r;
}

/* ---- what is asked of new ones alone ---- */

/* A secret's mark misspelt would leave as it is, instead of the secret. */
static bool has_unknown_mark(struct str value)
{
	static const struct str any = { "${e2b.", 6 };

	for (size_t i = 0; i + any.n <= value.n; i++)
		if (str_eq_nocase(str_make(value.p + i, any.n), any) &&
			!str_has_prefix(str_from(value, i), secret_mark))
			return true;
	return false;
}

int rules_check_new(const struct policy *policy, struct err *e)
{
	for (size_t i = 0; i < policy->n_rules; i++)
		for (size_t n = 0; n < policy->rules[i].n_headers; n++)
			if (has_unknown_mark(policy->rules[i].headers[n].value))
				return err_set(e, -EINVAL,
					"network.rules: a header holds a '${e2b.' that is not "
					"${e2b.secrets.NAME}");
	return 0;
}
