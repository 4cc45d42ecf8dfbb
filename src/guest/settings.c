#include "guest/settings.h"

enum {
	SETTINGS_MAX_BYTES = 8 << 20,
	SETTINGS_MAX_ENV = 4096,
	SETTINGS_MAX_AUTHORITY = 512 << 10,
};

struct document {
	struct json_map env;
	struct str token, default_user, workdir, start_cmd, sandbox_id, template_id, timestamp;
	struct str authority;
	struct json_int cpu_count, memory_mb, disk_mb, max_inodes, max_processes, max_files;
};

/* E2B's orchestrator sends more (volumes ...): unknown keys are somebody else's. */
static const struct json_field document_fields[] = {
	JSON_FIELD(struct document, env, "envVars", JSON_MAP, .flags = JSON_LAX,
		.max = SETTINGS_MAX_ENV),
	JSON_FIELD(struct document, token, "accessToken", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, default_user, "defaultUser", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, workdir, "defaultWorkdir", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, start_cmd, "startCmd", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, sandbox_id, "sandboxId", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, template_id, "templateId", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, timestamp, "timestamp", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct document, authority, "caBundle", JSON_STR, .flags = JSON_LAX,
		.max = SETTINGS_MAX_AUTHORITY),
	JSON_FIELD(struct document, cpu_count, "cpuCount", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = 4096),
	JSON_FIELD(struct document, memory_mb, "memoryMB", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = 1 << 30),
	JSON_FIELD(struct document, disk_mb, "diskSizeMB", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = 1 << 30),
	JSON_FIELD(struct document, max_inodes, "inodes", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = 1 << 30),
	JSON_FIELD(struct document, max_processes, "processes", JSON_INT, .flags = JSON_LAX,
		.min = 0, .max = 1 << 30),
	JSON_FIELD(struct document, max_files, "openFiles", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = 1 << 30),
};
static const struct json_shape document_shape =
	JSON_SHAPE(struct document, document_fields, .ignore_unknown = true);

void settings_init(struct settings *s)
{
	*s = (struct settings){ .default_user = xstrdup("root") };
}

void settings_done(struct settings *s)
{
	s->env_arena = arena_free(s->env_arena);
	free(s->token);
	free(s->default_user);
	free(s->workdir);
	free(s->start_cmd);
	free(s->sandbox_id);
	free(s->template_id);
	free(s->authority);
	*s = (struct settings){ 0 };
}

static void replace(char **field, struct str value)
{
	if (!value.n)
		return;
	free(*field);
	*field = xstrdup(value.p); /* decoded strings are terminated */
}

static int token_check(const struct settings *s, struct str token, struct err *e)
{
	if (!s->token)
		return 0;
	if (!token.n)
		return err_set(e, -EACCES, "access token reset not authorized");
	if (strlen(s->token) != token.n || !mem_equal_ct(s->token, token.p, token.n))
		return err_set(e, -EACCES, "access token validation failed");
	return 0;
}

static bool is_stale(struct settings *s, struct str timestamp)
{
	int64_t at_us;

	if (!timestamp.n || time_parse_rfc3339(timestamp, &at_us) < 0)
		return false;
	if (at_us <= s->stamp_us)
		return true;
	s->stamp_us = at_us;
	return false;
}

static void set_int(int64_t *to, struct json_int from)
{
	if (from.is_set)
		*to = from.value;
}

static void apply_limits(struct settings *s, const struct document *doc)
{
	set_int(&s->cpu_count, doc->cpu_count);
	set_int(&s->memory_mb, doc->memory_mb);
	set_int(&s->disk_mb, doc->disk_mb);
	set_int(&s->max_inodes, doc->max_inodes);
	set_int(&s->max_processes, doc->max_processes);
	set_int(&s->max_files, doc->max_files);
}

int settings_apply(struct settings *s, struct str json, enum settings_trust trust, struct err *e)
{
	struct arena *arena = arena_new(SETTINGS_MAX_BYTES);
	struct document doc;
	int r;

	r = json_decode(arena, json, &document_shape, &doc, e);
	if (r == 0 && trust == SETTINGS_INIT)
		r = token_check(s, doc.token, e);
	if (r < 0 || is_stale(s, doc.timestamp)) {
		(void)arena_free(arena);
		return r;
	}
	replace(&s->token, doc.token);
	replace(&s->default_user, doc.default_user);
	replace(&s->workdir, doc.workdir);
	replace(&s->start_cmd, doc.start_cmd);
	replace(&s->sandbox_id, doc.sandbox_id);
	replace(&s->template_id, doc.template_id);
	if (doc.authority.n && (!s->authority || !str_is(doc.authority, s->authority))) {
		replace(&s->authority, doc.authority);
		s->is_trusted = false;
	}
	apply_limits(s, &doc);
	if (doc.env.is_set) { /* the map lives in this arena, so the arena stays */
		(void)arena_free(s->env_arena);
		s->env_arena = TAKE(arena);
		s->env = doc.env;
	}
	(void)arena_free(arena);
	return 0;
}
