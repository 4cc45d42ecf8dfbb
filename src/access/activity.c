/* How much is told of what is done in a team's sandboxes. */
#include "access/access-internal.h"

struct activity_job {
	struct access_book *book;
	char team_id[ACCESS_ID_SIZE], actor[ACTOR_SIZE];
	enum limit_activity activity;
	done_fn done;
	void *arg;
};

static int write_activity(struct store_tx *tx, void *arg, struct err *e)
{
	const struct activity_job *job = arg;
	const char *name = limit_activity_name(job->activity);
	char data[48];
	struct store_event event = { job->actor, "team.activity", job->team_id, STR_NONE };
	struct store_cause cause = { .team_id = job->team_id };
	int r = store_exec(tx, "UPDATE teams SET activity = $1 WHERE id = $2",
		STORE_PARAMS(name ? P_TEXT(name) : P_NULL, P_TEXT(job->team_id)), e);

	(void)snprintf(data, sizeof data, "{\"activity\":\"%s\"}", name ? name : "usual");
	event.data = str_of(data);
	if (r == 0)
		return err_set(e, -ENOENT, "there is no team '%s'", job->team_id);
	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

static void written(void *arg, int r, const struct err *e)
{
	struct activity_job *job = arg;

	LIST_EACH(&job->book->teams, node)
	{
		struct team *team = container_of(node, struct team, node);

		if (r >= 0 && strcmp(team->view.id, job->team_id) == 0)
			team->view.activity = job->activity;
	}
	job->done(job->arg, MIN(r, 0), e);
	free(job);
}

void access_set_activity(struct access_book *book, const char *team_id,
	enum limit_activity activity, const char *actor, done_fn done, void *arg)
{
	struct activity_job *job = XNEW(struct activity_job);

	job->book = book;
	job->activity = activity;
	job->done = done;
	job->arg = arg;
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", team_id);
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	store_run_for(book->store, team_id, write_activity, written, job);
}

void access_set_server_activity(struct access_book *book, enum limit_activity activity)
{
	book->activity = activity;
}

enum limit_activity access_activity(void *arg, const char *team_id)
{
	const struct access_book *book = arg;
	const struct access_team *team = access_team(book, str_of(team_id));

	if (team && team->activity != LIMIT_ACTIVITY_UNSAID)
		return team->activity;
	return book->activity != LIMIT_ACTIVITY_UNSAID ? book->activity : LIMIT_ACTIVITY_ALL;
}
