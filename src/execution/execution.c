/* The book, and asking for a command: the request is checked and its secrets are opened; then its
 * row is written while the guest starts it. */
#include "execution/execution-internal.h"

#include <ctype.h>

/* Under rules: what root alone can write comes first. */
#define RULED_PATH "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"

struct execution_book *execution_book_new(const struct execution_config *config)
{
	struct execution_book *book = XNEW(struct execution_book);

	book->config = *config;
	hmac_sha256(config->seed, STR("executions"), book->key);
	explicit_bzero(book->config.seed, sizeof book->config.seed);
	list_init(&book->starting);
	list_init(&book->followers);
	list_init(&book->runs);
	list_init(&book->cancels);
	return book;
}

struct execution_book *execution_book_free(struct execution_book *book)
{
	struct command *c;
	size_t at;

	if (!book)
		return NULL;
	runs_done(book);
	cancels_done(book);
	followers_done(book);
	LIST_EACH(&book->starting, node)
	command_unref(container_of(node, struct command, node));
	for (at = 0; (c = map_next(&book->commands, &at)); at = 0) {
		(void)map_remove(&book->commands, str_of(c->key));
		command_unref(c);
	}
	map_done(&book->commands);
	command_rules_done(book);
	kept_done(book);
	line_talks_done(book);
	loop_timer_cancel(&book->sweep);
	close_fdp(&book->config.artifacts_fd);
	explicit_bzero(book->key, sizeof book->key);
	free(book);
	return NULL;
}

void execution_hang_up(struct execution_book *book)
{
	struct command *c;
	size_t at = 0;

	book->is_stopping = true;
	loop_timer_cancel(&book->sweep);
	runs_hang_up(book);
	followers_hang_up(book);
	while ((c = map_next(&book->commands, &at)))
		command_hang_up(c);
	LIST_EACH(&book->starting, node)
	command_hang_up(container_of(node, struct command, node));
}

size_t execution_count(const struct execution_book *book)
{
	return book->commands.n;
}

bool execution_is_busy(void *arg, const char *sandbox_id)
{
	const struct execution_book *book = arg;
	const struct command *c;
	size_t at = 0;

	while ((c = map_next(&book->commands, &at)))
		if (strcmp(c->view.sandbox_id, sandbox_id) == 0)
			return true;
	return false;
}

/* ---- the request ---- */

static bool is_name(struct str s)
{
	if (s.n == 0 || s.n > 128 || isdigit((unsigned char)s.p[0]))
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (!isalnum((unsigned char)s.p[i]) && s.p[i] != '_')
			return false;
	return true;
}

static bool is_user(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!isalnum((unsigned char)s.p[i]) && !strchr("._-", s.p[i]))
			return false;
	return s.n < EXECUTION_NAME_SIZE;
}

static bool map_has(const struct json_map *map, struct str key)
{
	for (size_t i = 0; i < map->n; i++)
		if (str_eq(map->v[i].key, key))
			return true;
	return false;
}

static int check_environment(const struct execution_spec *spec, struct err *e)
{
	for (size_t i = 0; i < spec->envs.n; i++) {
		struct str key = spec->envs.v[i].key;

		if (key.n == 0 || memchr(key.p, '=', key.n))
			return err_set(e, -EINVAL, "envs: '%.*s' is no name of a variable",
				STR_ARG(key));
	}
	if (spec->secrets.n > EXECUTION_MAX_SECRETS)
		return err_set(e, -EINVAL, "secrets: more than %d", EXECUTION_MAX_SECRETS);
	for (size_t i = 0; i < spec->secrets.n; i++) {
		struct str key = spec->secrets.v[i].key;

		if (!is_name(key))
			return err_set(e, -EINVAL, "secrets: '%.*s' is no name of a variable",
				STR_ARG(key));
		if (map_has(&spec->envs, key))
			return err_set(e, -EINVAL, "'%.*s' is in both envs and secrets",
				STR_ARG(key));
	}
	return 0;
}

static int check(const struct execution_spec *spec, struct err *e)
{
	if ((spec->shell.n > 0) == (spec->argv.n > 0))
		return err_set(e, -EINVAL, "give either shell, a line, or argv, a list of words");
	if (spec->argv.n > 0 && spec->argv.v[0].n == 0)
		return err_set(e, -EINVAL, "argv: the program's name is empty");
	if (spec->timeout_ms < 0 || spec->timeout_ms > EXECUTION_MAX_TIMEOUT_MS)
		return err_set(e, -EINVAL, "timeout_ms must be from 1 to %d",
			EXECUTION_MAX_TIMEOUT_MS);
	if (spec->keep_bytes < 0 || spec->keep_bytes > EXECUTION_MAX_KEEP_BYTES)
		return err_set(e, -EINVAL, "max_output_bytes must be from 1 to %d",
			EXECUTION_MAX_KEEP_BYTES);
	if (!is_user(spec->user))
		return err_set(e, -EINVAL, "user: letters, digits, '.', '_' and '-' only");
	if (spec->input.n > EXECUTION_MAX_INPUT_BYTES)
		return err_set(e, -E2BIG, "stdin: more than %d bytes", EXECUTION_MAX_INPUT_BYTES);
	return check_environment(spec, e);
}

static int check_count(const struct execution_book *book, const char *team_id,
	const char *sandbox_id, struct err *e)
{
	const struct command *c;
	size_t at = 0;
	int n = 0;

	while ((c = map_next(&book->commands, &at)))
		n += strcmp(c->view.sandbox_id, sandbox_id) == 0;
	LIST_EACH(&book->starting, node)
	n += strcmp(container_of(node, struct command, node)->view.sandbox_id, sandbox_id) == 0;
	return n < EXECUTION_MAX_AT_ONCE
		       ? kept_check(book, team_id, e)
		       : err_set(e, -EDQUOT,
				 "%d commands run in this sandbox, as many as may: wait until one "
				 "has ended, or cancel one",
				 n);
}

/* ---- asking ---- */

struct asking { /* a request on its way to being a command */
	struct command *command;
	struct arena *arena;
	struct execution_spec spec; /* what is still needed of it, in the arena */
	struct json_map values;     /* name -> value, of the secrets */
	size_t at;
	bool is_ruled; /* its programs were checked */
	struct loop_task task;
	struct err e;
};

static struct str dup_str(struct arena *arena, struct str s)
{
	char *copy = s.p ? arena_dup(arena, s) : NULL;

	return copy ? str_make(copy, s.n) : STR_NONE;
}

static int dup_map(struct arena *arena, const struct json_map *from, struct json_map *to)
{
	to->n = from->n;
	to->is_set = from->is_set;
	to->v = from->n ? arena_alloc(arena, from->n * sizeof *to->v) : NULL;
	for (size_t i = 0; i < from->n && to->v; i++) {
		to->v[i].key = dup_str(arena, from->v[i].key);
		to->v[i].value = dup_str(arena, from->v[i].value);
		if (!to->v[i].key.p || !to->v[i].value.p)
			return -ENOBUFS;
	}
	return from->n && !to->v ? -ENOBUFS : 0;
}

static int dup_strs(struct arena *arena, const struct json_strs *from, struct json_strs *to)
{
	to->n = from->n;
	to->v = from->n ? arena_alloc(arena, from->n * sizeof *to->v) : NULL;
	for (size_t i = 0; i < from->n && to->v; i++) {
		to->v[i] = dup_str(arena, from->v[i]);
		if (!to->v[i].p)
			return -ENOBUFS;
	}
	return from->n && !to->v ? -ENOBUFS : 0;
}

static int keep_spec(struct asking *a, const struct execution_spec *spec, struct err *e)
{
	struct execution_spec *to = &a->spec;

	to->shell = dup_str(a->arena, spec->shell);
	to->cwd = dup_str(a->arena, spec->cwd);
	to->input = dup_str(a->arena, spec->input);
	to->traceparent = dup_str(a->arena, spec->traceparent);
	to->tracestate = dup_str(a->arena, spec->tracestate);
	to->baggage = dup_str(a->arena, spec->baggage);
	if (dup_map(a->arena, &spec->envs, &to->envs) < 0 ||
		dup_map(a->arena, &spec->secrets, &to->secrets) < 0 ||
		dup_strs(a->arena, &spec->argv, &to->argv) < 0 || (spec->shell.n && !to->shell.p) ||
		(spec->input.p && !to->input.p))
		return err_set(e, -E2BIG, "the command is too large");
	a->values.v = arena_alloc(a->arena,
		(spec->secrets.n + EXECUTION_MAX_SECRETS) * sizeof *a->values.v);
	return a->values.v ? 0 : err_set(e, -E2BIG, "the command is too large");
}

static void asking_free(struct asking *a)
{
	for (size_t i = 0; i < a->values.n; i++) {
		char *value = (char *)(uintptr_t)a->values.v[i].value.p; /* our own copy */

		explicit_bzero(value, a->values.v[i].value.n);
		free(value);
	}
	a->arena = arena_free(a->arena);
	flight_end(a->command->book);
	command_unref(a->command);
	free(a);
}

/* Whose doing it is, for what calls others in turn: by the names that OpenTelemetry looks for. What
 * the caller sets itself stays, and a state goes only with the parent that it is of. */
static void write_context(struct jsonw *w, const struct execution_spec *spec)
{
	const struct json_pair all[] = { { STR("TRACEPARENT"), spec->traceparent },
		{ STR("TRACESTATE"), spec->tracestate }, { STR("BAGGAGE"), spec->baggage } };
	bool is_other = map_has(&spec->envs, all[0].key) || map_has(&spec->secrets, all[0].key);

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i].value.n && !(is_other && i < 2) && !map_has(&spec->envs, all[i].key) &&
			!map_has(&spec->secrets, all[i].key))
			jsonw_pair(w, all[i].key, all[i].value);
}

/* What the guest is told. */
static void write_message(struct asking *a)
{
	const struct execution_spec *spec = &a->spec;
	struct command *c = a->command;
	struct jsonw w;

	jsonw_init(&w, &c->message);
	jsonw_object(&w, NULL);
	jsonw_object(&w, "process");
	jsonw_str(&w, "cmd", spec->shell.n ? STR("/bin/bash") : spec->argv.v[0]);
	jsonw_array(&w, "args");
	if (spec->shell.n) {
		/* Under rules nothing that an earlier command may have written is read first. */
		jsonw_strz(&w, NULL, a->is_ruled ? "--noprofile" : "-l");
		if (a->is_ruled)
			jsonw_strz(&w, NULL, "--norc");
		jsonw_strz(&w, NULL, "-c");
		jsonw_str(&w, NULL, spec->shell);
	}
	for (size_t i = 1; i < spec->argv.n; i++)
		jsonw_str(&w, NULL, spec->argv.v[i]);
	jsonw_end_array(&w);
	jsonw_object(&w, "envs");
	/* Nor is a listed name looked for first where the sandbox's user may put programs. */
	if (a->is_ruled)
		jsonw_strz(&w, "PATH", RULED_PATH);
	for (size_t i = 0; i < spec->envs.n; i++)
		jsonw_pair(&w, spec->envs.v[i].key, spec->envs.v[i].value);
	for (size_t i = 0; i < spec->secrets.n; i++)
		jsonw_pair(&w, spec->secrets.v[i].key, a->values.v[i].value);
	write_context(&w, spec);
	jsonw_end_object(&w);
	if (spec->cwd.n)
		jsonw_str(&w, "cwd", spec->cwd);
	jsonw_end_object(&w);
	jsonw_strz(&w, "tag", c->tag);
	jsonw_bool(&w, "stdin", spec->input.p != NULL);
	if (spec->input.p)
		jsonw_base64(&w, "input", spec->input);
	jsonw_bool(&w, "hold", true);
	jsonw_int(&w, "timeoutMs", (c->view.deadline_us - c->view.started_us) / 1000);
	jsonw_end_object(&w);
}

/* Each by itself: a value may look like what stands between two of them. */
static int write_masked(struct jsonw *w, const char *key, struct mask_needles *needles,
	struct str text)
{
	CLEANUP(buf_done) struct buf masked = BUF_INIT(COMMAND_MAX_BYTES);
	int r = mask_text(needles, text, &masked);

	jsonw_str(w, key, r < 0 ? STR("") : buf_str(&masked));
	return r;
}

/* What the row says of it: names of secrets, and no value. */
static int write_command(struct asking *a, struct err *e)
{
	const struct execution_spec *spec = &a->spec;
	struct command *c = a->command;
	struct jsonw w;
	int r = 0;

	jsonw_init(&w, &c->text);
	jsonw_object(&w, NULL);
	if (spec->shell.n)
		r = write_masked(&w, "shell", c->needles, spec->shell);
	if (spec->argv.n) {
		jsonw_array(&w, "argv");
		for (size_t i = 0; r == 0 && i < spec->argv.n; i++)
			r = write_masked(&w, NULL, c->needles, spec->argv.v[i]);
		jsonw_end_array(&w);
	}
	if (spec->envs.n) {
		jsonw_array(&w, "envs");
		for (size_t i = 0; r == 0 && i < spec->envs.n; i++)
			r = write_masked(&w, NULL, c->needles, spec->envs.v[i].key);
		jsonw_end_array(&w);
	}
	if (spec->secrets.n)
		jsonw_map(&w, "secrets", &spec->secrets);
	jsonw_end_object(&w);
	if (r < 0 || c->text.failed)
		return err_set(e, -E2BIG, "the command is larger than %d KiB",
			COMMAND_MAX_BYTES >> 10);
	if (spec->cwd.n)
		(void)mask_text(c->needles, spec->cwd, &c->cwd);
	c->view.command = buf_str(&c->text);
	c->view.cwd = buf_str(&c->cwd);
	return 0;
}

static int seal_secrets(struct asking *a)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT((size_t)8 << 20);
	struct jsonw w;
	int r;

	if (a->values.n == 0)
		return 0;
	jsonw_init(&w, &json);
	jsonw_object(&w, NULL);
	for (size_t i = 0; i < a->values.n; i++) {
		/* One secret may be there twice, an older value in the sandbox's own. */
		char *key = arena_printf(a->arena, "%zu %.*s", i, STR_ARG(a->values.v[i].key));

		jsonw_pair(&w, str_of(key ? key : ""), a->values.v[i].value);
	}
	jsonw_end_object(&w);
	r = json.failed ? -ENOBUFS
			: seal_text(a->command->book->key, buf_str(&json), &a->command->secrets);
	explicit_bzero(json.p, json.cap);
	return r;
}

static void asking_fail(void *arg)
{
	struct asking *a = arg;

	command_fail_start(a->command, &a->e);
	asking_free(a);
}

/* From here on the command is on its own. */
static void inserted(void *arg, int r, const struct err *e)
{
	command_recorded(arg, r, e);
	command_unref(arg);
}

static void keep_value(struct asking *a, struct str name, struct str value)
{
	char *copy = xcalloc(1, value.n + 1);

	memcpy(copy, value.p, value.n);
	a->values.v[a->values.n++] = (struct json_pair){ name, { copy, value.n } };
}

struct own_in {
	struct json_map secrets;
};
static const struct json_field own_fields[] = {
	JSON_FIELD(struct own_in, secrets, "secrets", JSON_MAP, .max = EXECUTION_MAX_SECRETS),
};
static const struct json_shape own_shape = JSON_SHAPE(struct own_in, own_fields);

/* Those that the whole sandbox was given are in its environment already: they are only masked. */
static void add_own_secrets(struct asking *a, const struct sandbox *sb)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT(256 << 10);
	struct own_in in;

	if (!sb->options.secrets.n)
		return;
	(void)buf_printf(&json, "{\"secrets\":%.*s}", STR_ARG(sb->options.secrets));
	if (json_decode(a->arena, buf_str(&json), &own_shape, &in, NULL) < 0)
		return;
	for (size_t i = 0; i < in.secrets.n; i++) {
		struct str value = sandbox_env(a->command->book->config.sandboxes, sb->id,
			in.secrets.v[i].key);

		if (value.n >= MASK_MIN_BYTES)
			keep_value(a, in.secrets.v[i].value, value);
	}
}

/* What looks for secrets takes up to a hundred times their size, for as long as a command runs. */
static int check_masks(const struct command *c, struct err *e)
{
	const struct execution_book *book = c->book;
	const struct command *other;
	size_t at = 0, bytes = 0;

	while ((other = map_next(&book->commands, &at)))
		bytes += command_mask_bytes(other, c->team_id);
	LIST_EACH(&book->starting, node)
	bytes += command_mask_bytes(container_of(node, struct command, node), c->team_id);
	return bytes <= MASKS_MAX_BYTES
		       ? 0
		       : err_set(e, -EDQUOT,
				 "the commands of the team have secrets too large to look for");
}

static int prepare(struct asking *a, struct err *e)
{
	int r = command_needles(a->command, &a->values, e);

	if (r >= 0)
		r = check_masks(a->command, e);
	if (r >= 0)
		r = write_command(a, e);
	if (r < 0)
		return r;
	write_message(a);
	if (a->command->message.failed || seal_secrets(a) < 0)
		return err_set(e, -E2BIG, "the command is too large");
	return 0;
}

static void launch(struct asking *a)
{
	struct command *c = a->command;
	const struct sandbox *sb =
		sandbox_find(c->book->config.sandboxes, NULL, str_of(c->view.sandbox_id));

	c->view.started_us = time_wall_us();
	c->view.deadline_us = c->view.started_us + a->spec.timeout_ms * 1000;
	if (!sb)
		(void)err_set(&a->e, -ENOENT, "the sandbox has ended or was paused");
	else
		add_own_secrets(a, sb);
	if (sb)
		(void)prepare(a, &a->e);
	if (a->e.code < 0) {
		asking_fail(a);
		return;
	}
	command_row_insert(c, inserted, command_ref(c));
	line_start(c);
	asking_free(a);
}

static void next_secret(struct asking *a);

static void secret_opened(void *arg, int r, struct str value, const struct err *e)
{
	struct asking *a = arg;
	struct str name = a->spec.secrets.v[a->at].value;

	if (r < 0) {
		(void)err_set(&a->e, r == -ENOENT ? -EINVAL : r, "secret '%.*s': %s", STR_ARG(name),
			r == -ENOENT ? "there is none of this name" : e->msg);
	} else if (!str_is_utf8(value)) {
		(void)err_set(&a->e, -EINVAL,
			"secret '%.*s' is not text, so it cannot be a variable", STR_ARG(name));
	} else {
		keep_value(a, name, value);
		a->at++;
	}
	if (a->e.code < 0)
		asking_fail(a);
	else
		next_secret(a);
}

static void next_secret(struct asking *a)
{
	if (a->at < a->spec.secrets.n)
		secret_open(a->command->book->config.secrets, a->command->team_id,
			a->spec.secrets.v[a->at].value, secret_opened, a);
	else
		launch(a);
}

static void begin(void *arg)
{
	next_secret(arg);
}

static void describe(struct command *c, const struct execution_spec *spec, const struct sandbox *sb)
{
	struct execution *v = &c->view;

	(void)snprintf(v->sandbox_id, sizeof v->sandbox_id, "%s", sb->id);
	(void)snprintf(c->team_id, sizeof c->team_id, "%s", sb->team_id);
	(void)snprintf(c->owner_agent, sizeof c->owner_agent, "%s", sb->agent_id);
	(void)snprintf(v->agent_id, sizeof v->agent_id, "%s",
		spec->agent_id && spec->agent_id[0] ? spec->agent_id : sb->agent_id);
	(void)snprintf(v->task_id, sizeof v->task_id, "%s",
		spec->task_id && spec->task_id[0] ? spec->task_id : sb->task_id);
	(void)snprintf(v->actor, sizeof v->actor, "%s", spec->actor);
	(void)snprintf(v->user, sizeof v->user, "%.*s", STR_ARG(spec->user));
	if (spec->traceparent.n < sizeof v->traceparent)
		(void)snprintf(v->traceparent, sizeof v->traceparent, "%.*s",
			STR_ARG(spec->traceparent));
	if (spec->keep_bytes > 0)
		c->keep_bytes = spec->keep_bytes;
	memcpy(c->tag, "exec-", 5);
	random_id(c->tag + 5, 20);
}

static int admit(struct execution_book *book, const struct execution_spec *spec,
	const struct sandbox **ret, bool *ret_ruled, struct err *e)
{
	const struct sandbox *sb =
		sandbox_find_any(book->config.sandboxes, spec->who, spec->sandbox_id);
	int r;

	if (!sb)
		return err_set(e, -ENOENT, "there is no sandbox '%.*s'", STR_ARG(spec->sandbox_id));
	if (sb->state != SANDBOX_RUNNING)
		return err_set(e, -EBUSY, "sandbox %s is paused: resume it first", sb->id);
	r = check(spec, e);
	if (r >= 0)
		r = command_rules_check(book, sb, spec, e);
	*ret_ruled = r > 0;
	if (r >= 0)
		r = check_count(book, sb->team_id, sb->id, e);
	*ret = sb;
	return r;
}

void execution_start(struct execution_book *book, const struct execution_spec *spec,
	execution_fn fn, void *arg)
{
	struct asking *a = XNEW(struct asking);
	const struct sandbox *sb = NULL;

	a->arena = arena_new((size_t)32 << 20);
	a->spec.timeout_ms = spec->timeout_ms ? spec->timeout_ms : EXECUTION_TIMEOUT_MS;
	(void)admit(book, spec, &sb, &a->is_ruled, &a->e);
	if (a->e.code == 0)
		(void)keep_spec(a, spec, &a->e);
	a->command = command_ref(command_new(book));
	flight_begin(book);
	a->command->started = fn;
	a->command->started_arg = arg;
	if (a->e.code == 0)
		describe(a->command, spec, sb);
	/* Asked for on a later turn, as every answer comes. */
	loop_defer(book->config.loop, &a->task, a->e.code < 0 ? asking_fail : begin, a);
}
