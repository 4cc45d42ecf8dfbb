/* The request's options as one JSON column, and the environment, which may hold secrets, sealed. */
#include "sandbox/sandbox-internal.h"

static const char *const timeout_names[] = {
	[SANDBOX_TIMEOUT_KILL] = "kill",
	[SANDBOX_TIMEOUT_PAUSE] = "pause",
	[SANDBOX_TIMEOUT_TO_DISK] = "disk",
};

struct mount_in {
	struct str id, name, path;
};
static const struct json_field mount_fields[] = {
	JSON_FIELD(struct mount_in, id, "id", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct mount_in, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct mount_in, path, "path", JSON_STR, .flags = JSON_REQUIRED),
};
static const struct json_shape mount_shape = JSON_SHAPE(struct mount_in, mount_fields);

struct options_in {
	struct str on_timeout, network, mask_host, https_ports, limits, secrets, request;
	struct json_bool auto_resume, is_private, internet, nested;
	struct json_int idle_timeout, max_age;
	struct json_list mounts;
};
static const struct json_field options_fields[] = {
	JSON_FIELD(struct options_in, on_timeout, "onTimeout", JSON_STR),
	JSON_FIELD(struct options_in, auto_resume, "autoResume", JSON_BOOL),
	JSON_FIELD(struct options_in, is_private, "private", JSON_BOOL),
	JSON_FIELD(struct options_in, internet, "internet", JSON_BOOL),
	JSON_FIELD(struct options_in, nested, "nested", JSON_BOOL),
	JSON_FIELD(struct options_in, network, "network", JSON_RAW),
	JSON_FIELD(struct options_in, mask_host, "maskHost", JSON_STR),
	JSON_FIELD(struct options_in, https_ports, "httpsPorts", JSON_RAW),
	JSON_FIELD(struct options_in, limits, "limits", JSON_RAW),
	JSON_FIELD(struct options_in, secrets, "secrets", JSON_RAW),
	JSON_FIELD(struct options_in, request, "request", JSON_STR),
	JSON_FIELD(struct options_in, idle_timeout, "idleTimeout", JSON_INT),
	JSON_FIELD(struct options_in, max_age, "maxAge", JSON_INT),
	JSON_FIELD(struct options_in, mounts, "mounts", JSON_OBJECTS, .shape = &mount_shape,
		.max = SANDBOX_MAX_MOUNTS),
};
static const struct json_shape options_shape =
	JSON_SHAPE(struct options_in, options_fields, .ignore_unknown = true);

static void write_mounts(struct jsonw *w, const struct sandbox_options *options)
{
	jsonw_array(w, "mounts");
	for (size_t i = 0; i < options->n_mounts; i++) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "id", options->mounts[i].volume_id);
		jsonw_strz(w, "name", options->mounts[i].name);
		jsonw_strz(w, "path", options->mounts[i].path);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
}

void options_write(const struct sandbox *sb, struct buf *out)
{
	const struct sandbox_options *options = &sb->options;
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "onTimeout", timeout_names[options->on_timeout]);
	jsonw_bool(&w, "autoResume", options->auto_resume);
	jsonw_bool(&w, "private", options->is_private);
	if (options->internet.is_set)
		jsonw_bool(&w, "internet", options->internet.value);
	if (options->nested.value)
		jsonw_bool(&w, "nested", true);
	if (options->network.n)
		jsonw_raw(&w, "network", options->network);
	if (options->mask_host.n)
		jsonw_str(&w, "maskHost", options->mask_host);
	if (options->https_ports.n)
		jsonw_raw(&w, "httpsPorts", options->https_ports);
	if (options->secrets.n)
		jsonw_raw(&w, "secrets", options->secrets);
	if (options->idle_timeout_s)
		jsonw_int(&w, "idleTimeout", options->idle_timeout_s);
	if (options->max_age_s)
		jsonw_int(&w, "maxAge", options->max_age_s);
	if (options->request.n)
		jsonw_str(&w, "request", options->request);
	if (options->n_mounts)
		write_mounts(&w, options);
	limit_set_write(&w, "limits", &sb->limits);
	jsonw_end_object(&w);
}

static int read_mounts(struct live *live, const struct json_list *list)
{
	const struct mount_in *in = list->v;
	struct sandbox_mount *mounts = arena_alloc(live->arena, list->n * sizeof *mounts);

	if (list->n && !mounts)
		return -ENOBUFS;
	for (size_t i = 0; i < list->n; i++) {
		struct sandbox_mount *m = &mounts[i];

		(void)snprintf(m->volume_id, sizeof m->volume_id, "%.*s", STR_ARG(in[i].id));
		(void)snprintf(m->name, sizeof m->name, "%.*s", STR_ARG(in[i].name));
		(void)snprintf(m->path, sizeof m->path, "%.*s", STR_ARG(in[i].path));
	}
	live->view.options.mounts = mounts;
	live->view.options.n_mounts = list->n;
	return 0;
}

/* Three of them have columns, which are read already; rows of earlier versions have only those. */
static void read_limits(struct limit_set *limits, struct str json)
{
	struct limit_set kept;

	limit_set_parse(json, &kept);
	for (size_t i = 0; i < LIMIT_KINDS; i++)
		if (!limits->v[i])
			limits->v[i] = kept.v[i];
	limit_set_default(limits);
}

int options_read(struct live *live, struct str json)
{
	struct options_in in;
	int r = json_decode(live->arena, json, &options_shape, &in, NULL);

	if (r < 0)
		return r;
	live->view.options = (struct sandbox_options){ .auto_resume = in.auto_resume.value,
		.is_private = in.is_private.value,
		.internet = in.internet,
		.nested = { .is_set = true, .value = in.nested.value },
		.network = in.network,
		.mask_host = in.mask_host,
		.https_ports = in.https_ports,
		.secrets = in.secrets,
		.request = in.request,
		.idle_timeout_s = MAX(in.idle_timeout.value, 0),
		.max_age_s = MAX(in.max_age.value, 0) };
	for (size_t i = 0; i < ARRAY_SIZE(timeout_names); i++)
		if (str_is(in.on_timeout, timeout_names[i]))
			live->view.options.on_timeout = (enum sandbox_timeout)i;
	read_limits(&live->view.limits, in.limits);
	return read_mounts(live, &in.mounts);
}

const struct sandbox_mount *mounts_keep(struct arena *arena, const struct sandbox_options *options)
{
	size_t size = options->n_mounts * sizeof *options->mounts;
	struct sandbox_mount *kept = arena_alloc(arena, size);

	if (kept && size)
		memcpy(kept, options->mounts, size);
	return kept;
}

static void env_key(const struct sandbox_book *book, uint8_t key[SHA256_SIZE])
{
	hmac_sha256(book->config.seed, STR("sandbox-environment"), key);
}

void env_seal(const struct live *live, struct buf *out)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(8 << 20);
	uint8_t key[SHA256_SIZE];
	struct jsonw w;

	jsonw_init(&w, &text);
	jsonw_object(&w, NULL);
	jsonw_map(&w, "env", &live->env);
	jsonw_end_object(&w);
	env_key(live->book, key);
	if (text.failed || seal_text(key, buf_str(&text), out) < 0)
		out->failed = true;
	if (text.p)
		explicit_bzero(text.p, text.n);
}

struct env_in {
	struct json_map env;
};

int env_unseal(struct live *live, struct str sealed)
{
	static const struct json_field fields[] = { JSON_FIELD(struct env_in, env, "env",
		JSON_MAP) };
	static const struct json_shape shape = JSON_SHAPE(struct env_in, fields);
	CLEANUP(buf_done) struct buf text = BUF_INIT(8 << 20);
	struct env_in in = { 0 };
	uint8_t key[SHA256_SIZE];
	int r;

	if (!sealed.n)
		return 0;
	env_key(live->book, key);
	r = unseal_text(key, sealed, &text);
	if (r >= 0)
		r = json_decode(live->arena, buf_str(&text), &shape, &in, NULL);
	if (text.p)
		explicit_bzero(text.p, text.n);
	live->env = in.env;
	return r;
}
