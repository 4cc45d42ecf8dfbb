/* Tags. The table is small and asked on every create, so the book holds all of it. */
#include "template/template-internal.h"

#include <ctype.h>

bool template_tag_ok(struct str tag)
{
	if (tag.n == 0 || tag.n >= TAG_SIZE || str_is_uuid(tag))
		return false;
	for (size_t i = 0; i < tag.n; i++)
		if (!islower((unsigned char)tag.p[i]) && !isdigit((unsigned char)tag.p[i]) &&
			!memchr("._-", tag.p[i], 3))
			return false;
	return true;
}

static struct tag *find(const struct template_book *book, const char *template_id, struct str name)
{
	for (struct list *node = book->tags.next; node != &book->tags; node = node->next) {
		struct tag *tag = container_of(node, struct tag, node);

		if (str_is(name, tag->name) && strcmp(tag->template_id, template_id) == 0)
			return tag;
	}
	return NULL;
}

bool tag_is_known(const struct template_book *book, const char *template_id, struct str name)
{
	return str_is(name, "default") || find(book, template_id, name);
}

static void add(struct template_book *book, const char *template_id, struct str name,
	int64_t created_us)
{
	struct tag *tag = XNEW(struct tag);

	(void)snprintf(tag->template_id, sizeof tag->template_id, "%s", template_id);
	(void)snprintf(tag->name, sizeof tag->name, "%.*s", STR_ARG(name));
	tag->created_us = created_us;
	list_append(&book->tags, &tag->node);
}

void tags_free(struct template_book *book)
{
	LIST_EACH(&book->tags, node)
	free(container_of(node, struct tag, node));
	list_init(&book->tags);
}

void template_each_tag(struct template_book *book, const struct template *t,
	void (*fn)(void *arg, const char *tag, int64_t created_us), void *arg)
{
	fn(arg, "default", t->made_us);
	LIST_EACH(&book->tags, node)
	{
		struct tag *tag = container_of(node, struct tag, node);

		if (strcmp(tag->template_id, t->id) == 0)
			fn(arg, tag->name, tag->created_us);
	}
}

/* ---- the table ---- */

static int load_row(void *arg, const struct store_row *row, struct err *e)
{
	char id[TEMPLATE_ID_SIZE];

	(void)e;
	store_copy_text(row, 0, id, sizeof id);
	add(arg, id, store_text(row, 1), store_int(row, 2));
	return 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
	return store_query(tx,
		"SELECT template_id, tag, created_us FROM template_tags ORDER BY created_us, tag",
		NULL, 0, load_row, arg, e);
}

int template_load_tags(struct template_book *book, struct store *store, struct err *e)
{
	int r;

	tags_free(book);
	book->store = store;
	r = store_run_now(store, load, book, e);
	return r < 0 ? err_wrap(e, r, "load template tags") : 0;
}

struct tag_job {
	struct template_book *book;
	char template_id[TEMPLATE_ID_SIZE], actor[ACTOR_SIZE], team_id[UUID_SIZE];
	int64_t now_us;
	char (*names)[TAG_SIZE];
	size_t n;
	done_fn done;
	void *arg;
};

static struct tag_job *job_new(struct template_book *book, const char *template_id,
	const struct str *tags, size_t n, const struct template_actor *actor)
{
	struct tag_job *job = XNEW(struct tag_job);

	job->book = book;
	(void)snprintf(job->template_id, sizeof job->template_id, "%s", template_id);
	(void)snprintf(job->actor, sizeof job->actor, "%s", actor->id);
	(void)snprintf(job->team_id, sizeof job->team_id, "%s", actor->team_id);
	job->now_us = time_wall_us();
	job->names = xcalloc(n + 1, TAG_SIZE);
	job->n = n;
	for (size_t i = 0; i < n; i++)
		(void)snprintf(job->names[i], TAG_SIZE, "%.*s", STR_ARG(tags[i]));
	return job;
}

static void job_end(struct tag_job *job, int r, const struct err *e)
{
	job->done(job->arg, MIN(r, 0), e);
	free(job->names);
	free(job);
}

static int count_row(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int check_count(struct store_tx *tx, const char *template_id, struct err *e)
{
	int64_t n = 0;
	int r = store_query(tx, "SELECT COUNT(*) FROM template_tags WHERE template_id = $1",
		STORE_PARAMS(P_TEXT(template_id)), count_row, &n, e);

	if (r >= 0 && n > MAX_TAGS)
		r = err_set(e, -EDQUOT, "a template has at most %d tags: remove some first",
			MAX_TAGS);
	return r;
}

static int tell(struct store_tx *tx, const struct tag_job *job, const char *kind, struct err *e)
{
	struct store_event event = { .actor = job->actor,
		.kind = kind,
		.subject = job->template_id };

	return store_add_caused_event(tx, &event, &(struct store_cause){ .team_id = job->team_id },
		e);
}

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
	const struct tag_job *job = arg;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < job->n; i++)
		if (strcmp(job->names[i], "default") != 0)
			r = store_exec(tx,
				"INSERT INTO template_tags (template_id, tag, created_us) VALUES "
				"($1, $2, $3) ON CONFLICT (template_id, tag) DO NOTHING",
				STORE_PARAMS(P_TEXT(job->template_id), P_TEXT(job->names[i]),
					P_INT(job->now_us)),
				e);
	if (r >= 0)
		r = check_count(tx, job->template_id, e);
	return r < 0 ? r : tell(tx, job, "template.tagged", e);
}

static void inserted(void *arg, int r, const struct err *e)
{
	struct tag_job *job = arg;

	for (size_t i = 0; r >= 0 && i < job->n; i++)
		if (!tag_is_known(job->book, job->template_id, str_of(job->names[i])))
			add(job->book, job->template_id, str_of(job->names[i]), job->now_us);
	job_end(job, r, e);
}

void template_add_tags(struct template_book *book, const char *template_id, const struct str *tags,
	size_t n, const struct template_actor *actor, done_fn done, void *arg)
{
	struct tag_job *job = job_new(book, template_id, tags, n, actor);

	job->done = done;
	job->arg = arg;
	store_run_for(book->store, job->team_id, insert, inserted, job);
}

static int delete_rows(struct store_tx *tx, void *arg, struct err *e)
{
	const struct tag_job *job = arg;

	for (size_t i = 0; i < job->n; i++) {
		int r = store_exec(tx,
			"DELETE FROM template_tags WHERE template_id = $1 AND tag = $2",
			STORE_PARAMS(P_TEXT(job->template_id), P_TEXT(job->names[i])), e);

		if (r == 0)
			return err_set(e, -ENOENT, "tag '%s' does not exist for this template",
				job->names[i]);
		if (r < 0)
			return r;
	}
	return tell(tx, job, "template.untagged", e);
}

static void deleted(void *arg, int r, const struct err *e)
{
	struct tag_job *job = arg;

	for (size_t i = 0; r >= 0 && i < job->n; i++) {
		struct tag *tag = find(job->book, job->template_id, str_of(job->names[i]));

		if (!tag)
			continue;
		list_remove(&tag->node);
		free(tag);
	}
	job_end(job, r, e);
}

void template_remove_tags(struct template_book *book, const char *template_id,
	const struct str *tags, size_t n, const struct template_actor *actor, done_fn done,
	void *arg)
{
	struct tag_job *job = job_new(book, template_id, tags, n, actor);

	job->done = done;
	job->arg = arg;
	store_run_for(book->store, job->team_id, delete_rows, deleted, job);
}
