/* What a team may keep, and its sandboxes may ask for, at most. */
#include "access/access-internal.h"

struct ceilings_job {
	struct access_book *book;
	char team_id[ACCESS_ID_SIZE], actor[ACTOR_SIZE];
	struct limit_ceilings ceilings;
	struct buf json;
	done_fn done;
	void *arg;
};

static int write_ceilings(struct store_tx *tx, void *arg, struct err *e)
{
	const struct ceilings_job *job = arg;
	struct store_event event = { job->actor, "team.limits", job->team_id, buf_str(&job->json) };
	int r = store_exec(tx, "UPDATE teams SET limits = $1 WHERE id = $2",
		STORE_PARAMS(P_STR(buf_str(&job->json)), P_TEXT(job->team_id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "there is no team '%s'", job->team_id);
	return r < 0 ? r
		     : store_add_caused_event(tx, &event,
			       &(struct store_cause){ .team_id = job->team_id }, e);
}

static void written(void *arg, int r, const struct err *e)
{
	struct ceilings_job *job = arg;

	LIST_EACH(&job->book->teams, node)
	{
		struct team *team = container_of(node, struct team, node);

		if (r >= 0 && strcmp(team->view.id, job->team_id) == 0)
			team->view.ceilings = job->ceilings;
	}
	job->done(job->arg, MIN(r, 0), e);
	buf_done(&job->json);
	free(job);
}

void access_set_ceilings(struct access_book *book, struct str team_id,
	const struct limit_ceilings *ceilings, const char *actor, done_fn done, void *arg)
{
	struct ceilings_job *job = XNEW(struct ceilings_job);
	struct jsonw w;

	job->book = book;
	job->ceilings = *ceilings;
	job->done = done;
	job->arg = arg;
	job->json = BUF_INIT(4096);
	(void)snprintf(job->team_id, sizeof job->team_id, "%.*s", STR_ARG(team_id));
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor);
	jsonw_init(&w, &job->json);
	limit_ceilings_write(&w, NULL, ceilings);
	store_run_for(book->store, job->team_id, write_ceilings, written, job);
}

void access_set_server_ceilings(struct access_book *book, const struct limit_ceilings *ceilings)
{
	book->ceilings = *ceilings;
}

void access_ceilings(const struct access_book *book, const char *team_id,
	struct limit_ceilings *ret)
{
	const struct access_team *team = access_team(book, str_of(team_id));

	*ret = team ? team->ceilings : (struct limit_ceilings){ 0 };
	limit_ceilings_add(ret, &book->ceilings);
}
