/* What a team may have at once, all its sandboxes together. */
#include "access/access-internal.h"

struct quota_job {
	struct access_book *book;
	char team_id[ACCESS_ID_SIZE], actor[ACTOR_SIZE];
	struct limit_quota quota;
	struct buf json;
	done_fn done;
	void *arg;
};

static int write_quota(struct store_tx *tx, void *arg, struct err *e)
{
	const struct quota_job *job = arg;
	struct store_event event = { job->actor, "team.quota", job->team_id, buf_str(&job->json) };
	struct store_cause cause = { .team_id = job->team_id };
	int r = store_exec(tx, "UPDATE teams SET quota = $1 WHERE id = $2",
		STORE_PARAMS(P_STR(buf_str(&job->json)), P_TEXT(job->team_id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "there is no team '%s'", job->team_id);
	return r < 0 ? r : store_add_caused_event(tx, &event, &cause, e);
}

static void written(void *arg, int r, const struct err *e)
{
	struct quota_job *job = arg;

	LIST_EACH(&job->book->teams, node)
	{
		struct team *team = container_of(node, struct team, node);

		if (r >= 0 && strcmp(team->view.id, job->team_id) == 0)
			team->view.quota = job->quota;
	}
	job->done(job->arg, MIN(r, 0), e);
	buf_done(&job->json);
	free(job);
}

void access_set_quota(struct access_book *book, const char *team_id,
	const struct limit_quota *quota, const char *actor, done_fn done, void *arg)
{
	struct quota_job *job = XNEW(struct quota_job);
	struct jsonw w;

	job->book = book;
	job->quota = *quota;
	job->done = done;
	job->arg = arg;
	job->json = BUF_INIT(4096);
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", team_id);
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	jsonw_init(&w, &job->json);
	limit_quota_write(&w, NULL, quota);
	store_run_for(book->store, team_id, write_quota, written, job);
}

void access_set_server_quota(struct access_book *book, const struct limit_quota *quota)
{
	book->quota = *quota;
}

void access_quota(void *arg, const char *team_id, struct limit_quota *ret)
{
	const struct access_book *book = arg;
	const struct access_team *team = access_team(book, str_of(team_id));

	*ret = book->quota;
	for (size_t i = 0; team && i < LIMIT_QUOTAS; i++)
		if (team->quota.v[i])
			ret->v[i] = team->quota.v[i];
}
