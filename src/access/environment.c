/* What all sandboxes of a team have in their environment: where its proxy is, its mirrors. */
#include "access/access-internal.h"

enum {
	MAX_BYTES = 64 << 10,
	ARENA_BYTES = 256 << 10,
};

struct row_in {
	struct json_map env;
};
static const struct json_field row_fields[] = {
	JSON_FIELD(struct row_in, env, "env", JSON_MAP, .max = ACCESS_MAX_ENV),
};
static const struct json_shape row_shape = JSON_SHAPE(struct row_in, row_fields);

void team_read_env(struct team *team, struct str json)
{
	struct arena *arena = json.n ? arena_new(ARENA_BYTES) : NULL;
	struct row_in in = { 0 };
	struct err e = { 0 };

	if (json.n && json_decode(arena, json, &row_shape, &in, &e) < 0)
		log_error("team.environment", "team_id=%s err=%s", team->view.id,
			log_quote(str_of(e.msg)));
	(void)arena_free(team->env_arena);
	team->env_arena = arena;
	team->env = in.env;
}

struct env_job {
	struct access_book *book;
	char team_id[ACCESS_ID_SIZE], actor[ACTOR_SIZE];
	struct buf json, names; /* the row, and what the event says: no values */
	struct err e;
	done_fn done;
	void *arg;
};

static void end(struct env_job *job, int r, const struct err *e)
{
	job->done(job->arg, r, e);
	if (job->json.p)
		explicit_bzero(job->json.p, job->json.n);
	buf_done(&job->json);
	buf_done(&job->names);
	free(job);
}

static int write_env(struct store_tx *tx, void *arg, struct err *e)
{
	const struct env_job *job = arg;
	struct store_event event = { job->actor, "team.environment", job->team_id,
		buf_str(&job->names) };
	struct store_cause cause = { .team_id = job->team_id };
	int r;

	if (job->e.code < 0) {
		*e = job->e;
		return job->e.code;
	}
	r = store_exec(tx, "UPDATE teams SET environment = $1 WHERE id = $2",
		STORE_PARAMS(P_STR(buf_str(&job->json)), P_TEXT(job->team_id)), e);
	if (r == 0)
		return err_set(e, -ENOENT, "there is no team '%s'", job->team_id);
	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

static void written(void *arg, int r, const struct err *e)
{
	struct env_job *job = arg;

	LIST_EACH(&job->book->teams, node)
	{
		struct team *team = container_of(node, struct team, node);

		if (r >= 0 && strcmp(team->view.id, job->team_id) == 0)
			team_read_env(team, buf_str(&job->json));
	}
	end(job, MIN(r, 0), e);
}

static void check(struct env_job *job, const struct json_map *env)
{
	for (size_t i = 0; i < env->n && job->e.code == 0; i++)
		if (!str_is_variable(env->v[i].key))
			(void)err_set(&job->e, -EINVAL,
				"variables: '%.*s' is no name of a variable: use letters, digits "
				"and _",
				(int)MIN(env->v[i].key.n, (size_t)40), env->v[i].key.p);
	if (job->e.code == 0 && (env->n > ACCESS_MAX_ENV || job->json.failed))
		(void)err_set(&job->e, -E2BIG, "variables: at most %d, of %d bytes together",
			ACCESS_MAX_ENV, MAX_BYTES);
}

void access_set_env(struct access_book *book, const char *team_id, const struct json_map *env,
	const char *actor, done_fn done, void *arg)
{
	struct env_job *job = XNEW(struct env_job);
	struct jsonw w;

	job->book = book;
	job->done = done;
	job->arg = arg;
	job->json = BUF_INIT(MAX_BYTES);
	job->names = BUF_INIT(MAX_BYTES);
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", team_id);
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	jsonw_init(&w, &job->json);
	jsonw_object(&w, NULL);
	jsonw_map(&w, "env", env);
	jsonw_end_object(&w);
	jsonw_init(&w, &job->names);
	jsonw_object(&w, NULL);
	jsonw_array(&w, "names");
	for (size_t i = 0; i < env->n && i < ACCESS_MAX_ENV; i++)
		jsonw_str(&w, NULL, env->v[i].key);
	jsonw_end_array(&w);
	jsonw_end_object(&w);
	check(job, env);
	store_run_for(book->store, job->team_id, write_env, written, job);
}

void access_env(void *arg, const char *team_id, struct json_map *ret)
{
	struct access_book *book = arg;

	*ret = (struct json_map){ 0 };
	LIST_EACH(&book->teams, node)
	{
		const struct team *team = container_of(node, struct team, node);

		if (strcmp(team->view.id, team_id) == 0)
			*ret = team->env;
	}
}
