/* A page of secrets: one row more than asked for tells whether others follow. */
#include "secret/secret-internal.h"

struct page {
	char team_id[UUID_SIZE], after[SECRET_NAME_SIZE];
	size_t limit, n;
	struct secret *v;
	char **metadata;
	secret_page_fn fn;
	void *arg;
};

static int read_row(void *arg, const struct store_row *row, struct err *e)
{
	struct page *page = arg;
	struct secret *s = &page->v[page->n];

	(void)e;
	store_copy_text(row, 0, s->id, sizeof s->id);
	store_copy_text(row, 1, s->name, sizeof s->name);
	s->version = store_int(row, 2);
	page->metadata[page->n] = store_dup_text(row, 3);
	s->metadata = str_of(page->metadata[page->n]);
	s->created_us = store_int(row, 4);
	s->updated_us = store_int(row, 5);
	page->n++;
	return 0;
}

static int read_page(struct store_tx *tx, void *arg, struct err *e)
{
	struct page *page = arg;

	return store_query(tx,
		"SELECT id, name, version, metadata, created_us, updated_us FROM secrets "
		"WHERE team_id = $1 AND name > $2 ORDER BY name LIMIT $3",
		STORE_PARAMS(P_TEXT(page->team_id), P_TEXT(page->after),
			P_INT((int64_t)page->limit + 1)),
		read_row, page, e);
}

static void page_done(void *arg, int r, const struct err *e)
{
	struct page *page = arg;

	page->fn(page->arg, MIN(r, 0), page->v, MIN(page->n, page->limit), page->n > page->limit,
		e);
	for (size_t i = 0; i < page->n; i++)
		free(page->metadata[i]);
	free(page->metadata);
	free(page->v);
	free(page);
}

void secret_list(struct secret_book *book, const char *team_id, struct str after, size_t limit,
	secret_page_fn fn, void *arg)
{
	struct page *page = XNEW(struct page);

	(void)snprintf(page->team_id, sizeof page->team_id, "%s", team_id);
	(void)snprintf(page->after, sizeof page->after, "%.*s", STR_ARG(after));
	page->limit = limit;
	page->v = XNEW_N(struct secret, limit + 1);
	page->metadata = XNEW_N(char *, limit + 1);
	page->fn = fn;
	page->arg = arg;
	store_read(book->store, read_page, page_done, page);
}
