/* Which programs may be run, by team and by agent. Kept in memory, written to the store first. A
 * rule is a name, for what is found along PATH, or a path, for exactly that. The check is at this
 * door: a program that is allowed may start others by itself. */
#include "execution/execution-internal.h"

#include "execution/shell-internal.h"

enum {
	RULES_BYTES = 256 << 10,
	RULE_MAX_BYTES = 4096,
};

static struct str rules_key(char *out, size_t size, const char *team_id, const char *agent_id)
{
	(void)snprintf(out, size, "%s %s", team_id, or_empty(agent_id));
	return str_of(out);
}

static void rules_free(struct rules *rules)
{
	if (!rules)
		return;
	rules->arena = arena_free(rules->arena);
	free(rules->key);
	free(rules);
}

void command_rules_done(struct execution_book *book)
{
	struct rules *rules;
	size_t at = 0;

	while ((rules = map_next(&book->rules, &at)))
		rules_free(rules);
	map_done(&book->rules);
}

static struct rules *rules_new(const char *key, const struct json_strs *programs)
{
	struct rules *rules = XNEW(struct rules);

	rules->arena = arena_new((size_t)4 * RULES_BYTES);
	rules->key = xstrdup(key);
	rules->programs.n = programs->n;
	rules->programs.is_set = true;
	rules->programs.v = arena_alloc(rules->arena, (programs->n + 1) * sizeof(struct str));
	for (size_t i = 0; i < programs->n; i++)
		rules->programs.v[i] =
			str_make(arena_dup(rules->arena, programs->v[i]), programs->v[i].n);
	return rules;
}

static void rules_put(struct execution_book *book, struct rules *rules)
{
	rules_free(map_put(&book->rules, str_of(rules->key), rules));
}

/* ---- checking ---- */

struct judging {
	const struct json_strs *programs;
	const char *whose;
};

static int allow(void *arg, struct str program, struct err *e)
{
	const struct judging *j = arg;

	for (size_t i = 0; i < j->programs->n; i++)
		if (str_eq(j->programs->v[i], program))
			return 0;
	return err_set(e, -EPERM, "the rules of %s do not allow to run '%.*s'", j->whose,
		STR_ARG(program));
}

static int check_by(const struct json_strs *programs, const char *whose,
	const struct execution_spec *spec, struct err *e)
{
	struct judging j = { programs, whose };

	for (size_t i = 0; i < spec->envs.n; i++)
		if (is_guarded_name(spec->envs.v[i].key))
			return err_set(e, -EPERM,
				"the rules of commands do not allow to set %.*s: it decides what "
				"is run",
				STR_ARG(spec->envs.v[i].key));
	for (size_t i = 0; i < spec->secrets.n; i++)
		if (is_guarded_name(spec->secrets.v[i].key))
			return err_set(e, -EPERM, "the rules of commands do not allow to set %.*s",
				STR_ARG(spec->secrets.v[i].key));
	return spec->shell.n ? shell_programs(spec->shell, allow, &j, e)
			     : argv_programs(spec->argv.v, spec->argv.n, allow, &j, e);
}

/* Whoever made the sandbox chose its variables: maybe the one who is bound by the rules. */
static int check_own(const struct execution_book *book, const struct sandbox *sb, struct err *e)
{
	struct str name = sandbox_env_name(book->config.sandboxes, sb->id, is_guarded_name);

	return name.p ? err_set(e, -EPERM,
				"the rules of commands cannot be checked: the sandbox was made "
				"with %.*s, which decides what is run",
				STR_ARG(name))
		      : 0;
}

int command_rules_check(const struct execution_book *book, const struct sandbox *sb,
	const struct execution_spec *spec, struct err *e)
{
	char key[SANDBOX_TEAM_SIZE + EXECUTION_NAME_SIZE + 1];
	const struct rules *of_team =
		map_get(&book->rules, rules_key(key, sizeof key, sb->team_id, ""));
	const struct rules *of_agent = NULL;
	int r;

	if (sb->agent_id[0])
		of_agent = map_get(&book->rules,
			rules_key(key, sizeof key, sb->team_id, sb->agent_id));
	r = of_team || of_agent ? check_own(book, sb, e) : 0;
	if (r >= 0 && of_team)
		r = check_by(&of_team->programs, "the team", spec, e);
	if (r >= 0 && of_agent)
		r = check_by(&of_agent->programs, "the agent", spec, e);
	return r < 0 ? r : of_team || of_agent;
}

/* ---- the table ---- */

struct programs_in {
	struct json_strs programs;
};
static const struct json_field programs_fields[] = {
	JSON_FIELD(struct programs_in, programs, "programs", JSON_STRS, .flags = JSON_REQUIRED,
		.max = EXECUTION_MAX_RULES),
};
static const struct json_shape programs_shape = JSON_SHAPE(struct programs_in, programs_fields);

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new((size_t)4 * RULES_BYTES);
	CLEANUP(buf_done) struct buf text = BUF_INIT((size_t)2 * RULES_BYTES);
	struct execution_book *book = arg;
	char team_id[SANDBOX_TEAM_SIZE], agent_id[EXECUTION_NAME_SIZE];
	char key[SANDBOX_TEAM_SIZE + EXECUTION_NAME_SIZE + 1];
	struct programs_in in;
	int r;

	store_copy_text(row, 0, team_id, sizeof team_id);
	store_copy_text(row, 1, agent_id, sizeof agent_id);
	(void)buf_printf(&text, "{\"programs\":%.*s}", STR_ARG(store_text(row, 2)));
	r = json_decode(arena, buf_str(&text), &programs_shape, &in, e);
	if (r < 0) /* nobody may do more because a row is damaged */
		return err_wrap(e, r, "rules of commands of team %s", team_id);
	(void)rules_key(key, sizeof key, team_id, agent_id);
	rules_put(book, rules_new(key, &in.programs));
	return 0;
}

/* At start, before anything else is asked of the book. */
int command_rules_load(struct store_tx *tx, void *book, struct err *e)
{
	return store_query(tx, "SELECT team_id, agent_id, programs FROM command_rules", NULL, 0,
		load_row, book, e);
}

struct rules_job {
	struct execution_book *book;
	char team_id[SANDBOX_TEAM_SIZE], agent_id[EXECUTION_NAME_SIZE], actor[ACTOR_SIZE];
	struct rules *rules; /* NULL: none from now on */
	struct buf json;
	struct loop_task task;
	struct err e;
	done_fn done;
	execution_rules_fn fn;
	void *arg;
};

static int write_rules(struct store_tx *tx, void *arg, struct err *e)
{
	struct rules_job *job = arg;
	CLEANUP(buf_done) struct buf data = BUF_INIT((size_t)2 * RULES_BYTES);
	struct store_event event = { job->actor, "rules.commands", job->team_id, STR_NONE };
	struct store_cause cause = { .team_id = job->team_id, .agent_id = job->agent_id };
	int r = store_exec(tx, "DELETE FROM command_rules WHERE team_id = $1 AND agent_id = $2",
		STORE_PARAMS(P_TEXT(job->team_id), P_TEXT(job->agent_id)), e);

	if (r >= 0 && job->json.n)
		r = store_exec(tx,
			"INSERT INTO command_rules (team_id, agent_id, programs, updated_us) "
			"VALUES ($1, $2, $3, $4)",
			STORE_PARAMS(P_TEXT(job->team_id), P_TEXT(job->agent_id),
				P_STR(buf_str(&job->json)), P_INT(time_wall_us())),
			e);
	(void)buf_printf(&data, "{\"programs\":%s}", job->json.n ? job->json.p : "null");
	event.data = buf_str(&data);
	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

static void rules_written(void *arg, int r, const struct err *e)
{
	struct rules_job *job = arg;
	char key[SANDBOX_TEAM_SIZE + EXECUTION_NAME_SIZE + 1];

	if (r >= 0 && job->rules)
		rules_put(job->book, TAKE(job->rules));
	else if (r >= 0)
		rules_free(map_remove(&job->book->rules,
			rules_key(key, sizeof key, job->team_id, job->agent_id)));
	job->done(job->arg, MIN(r, 0), e);
	rules_free(job->rules);
	buf_done(&job->json);
	free(job);
}

static void rules_refused(void *arg)
{
	struct rules_job *job = arg;

	job->done(job->arg, job->e.code, &job->e);
	rules_free(job->rules);
	buf_done(&job->json);
	free(job);
}

static int check_programs(const struct json_strs *programs, struct err *e)
{
	if (programs->n > EXECUTION_MAX_RULES)
		return err_set(e, -EINVAL, "programs: more than %d", EXECUTION_MAX_RULES);
	for (size_t i = 0; i < programs->n; i++) {
		struct str p = programs->v[i];

		if (p.n == 0 || p.n > RULE_MAX_BYTES / 8 || memchr(p.p, '\n', p.n))
			return err_set(e, -EINVAL, "programs: '%.*s' is no program's name or path",
				STR_ARG(p));
		if (memchr(p.p, '/', p.n) && p.p[0] != '/')
			return err_set(e, -EINVAL,
				"programs: '%.*s': a path begins at the root; a name has no '/'",
				STR_ARG(p));
	}
	return 0;
}

/* A list that is there may be replaced. */
static int check_lists(const struct execution_book *book, const char *team_id, const char *agent_id,
	struct err *e)
{
	char key[SANDBOX_TEAM_SIZE + EXECUTION_NAME_SIZE + 1];
	int64_t most = limit_team_ceiling(&book->config.teams, team_id, LIMIT_RULES), n = 0;
	const struct rules *rules;
	size_t at = 0;

	if (map_get(&book->rules, rules_key(key, sizeof key, team_id, or_empty(agent_id))))
		return 0;
	(void)snprintf(key, sizeof key, "%s ", team_id);
	while ((rules = map_next(&book->rules, &at)))
		n += str_has_prefix(str_of(rules->key), str_of(key));
	return n < most ? 0
			: err_set(e, -EDQUOT,
				  "the limit of your team, %" PRId64
				  " lists of programs, is reached: remove some first",
				  most);
}

static struct rules_job *rules_job_new(struct execution_book *book, const char *team_id,
	const char *agent_id, void *arg)
{
	struct rules_job *job = XNEW(struct rules_job);

	job->book = book;
	job->arg = arg;
	job->json = BUF_INIT(RULES_BYTES);
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", team_id);
	(void)snprintf(job->agent_id, sizeof job->agent_id, "%s", or_empty(agent_id));
	return job;
}

void execution_set_rules(struct execution_book *book, const char *team_id, const char *agent_id,
	const struct json_strs *programs, const char *actor, done_fn done, void *arg)
{
	struct rules_job *job = rules_job_new(book, team_id, agent_id, arg);
	char key[SANDBOX_TEAM_SIZE + EXECUTION_NAME_SIZE + 1];
	struct jsonw w;

	job->done = done;
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	if (programs && check_programs(programs, &job->e) == 0 &&
		check_lists(book, team_id, agent_id, &job->e) == 0) {
		(void)rules_key(key, sizeof key, team_id, agent_id);
		job->rules = rules_new(key, programs);
		jsonw_init(&w, &job->json);
		jsonw_array(&w, NULL);
		for (size_t i = 0; i < programs->n; i++)
			jsonw_str(&w, NULL, programs->v[i]);
		jsonw_end_array(&w);
		if (job->json.failed)
			(void)err_set(&job->e, -EINVAL, "programs: more than %d KiB all together",
				RULES_BYTES >> 10);
	}
	if (job->e.code < 0)
		loop_defer(book->config.loop, &job->task, rules_refused, job);
	else
		flight_run(book, job->team_id, write_rules, rules_written, job);
}

static void tell_rules(void *arg)
{
	struct rules_job *job = arg;
	char key[SANDBOX_TEAM_SIZE + EXECUTION_NAME_SIZE + 1];
	const struct rules *rules =
		map_get(&job->book->rules, rules_key(key, sizeof key, job->team_id, job->agent_id));

	job->fn(job->arg, 0, rules != NULL, rules ? &rules->programs : &(struct json_strs){ 0 },
		NULL);
	free(job);
}

void execution_get_rules(struct execution_book *book, const char *team_id, const char *agent_id,
	execution_rules_fn fn, void *arg)
{
	struct rules_job *job = rules_job_new(book, team_id, agent_id, arg);

	job->fn = fn;
	loop_defer(book->config.loop, &job->task, tell_rules, job);
}
