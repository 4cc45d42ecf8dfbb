/* Once a minute, and when the server stops, so many samples of each sandbox are written into one
 * file, for the next server to go on with. Whatever does not look like that file is none: then it
 * begins anew. */
#include "sandbox/samples.h"

#include "base/fd.h"

enum {
	FILE_BYTES = 64 << 20,
	SAVED = 60, /* of each: the newest, and every so many before it */
};

/* A server with another struct has another size, or another number in the name. */
static const struct beginning {
	char name[8];
	uint64_t sample_bytes;
} beginning = { "ATOLSMP", sizeof(struct sandbox_sample) };

struct saved { /* then n samples */
	char id[SANDBOX_ID_SIZE];
	int32_t n;
	int64_t step_us;
};

struct saving {
	struct sandbox_book *book;
	struct buf text;
};

static int write_file(void *arg, struct err *e)
{
	struct saving *s = arg;

	return file_replace(AT_FDCWD, s->book->config.samples_path, buf_str(&s->text), 0600, e);
}

static void file_written(void *arg, int r, const struct err *e)
{
	struct saving *s = arg;

	if (r < 0)
		log_warn("samples.not_kept", "err=%s", log_quote(str_of(e->msg)));
	s->book->samples_saving = false;
	buf_done(&s->text);
	free(s);
}

static void add(struct buf *text, const struct live *live)
{
	const struct samples *s = live->samples;
	int every = (s->n + SAVED - 1) / SAVED, first = (s->n - 1) % every;
	struct saved head = { .n = (s->n - 1 - first) / every + 1, .step_us = s->step_us * every };

	(void)snprintf(head.id, sizeof head.id, "%s", live->view.id);
	(void)buf_add(text, &head, sizeof head);
	for (int i = first; i < s->n; i += every)
		(void)buf_add(text, &s->v[i], sizeof s->v[i]);
}

void samples_save(struct sandbox_book *book)
{
	const struct live *live;
	struct saving *s;
	size_t at = 0;

	if (!book->config.samples_path || book->samples_saving)
		return;
	s = XNEW(struct saving);
	s->book = book;
	s->text = BUF_INIT(FILE_BYTES);
	(void)buf_add(&s->text, &beginning, sizeof beginning);
	while ((live = map_next(&book->by_id, &at)))
		if (live->samples && live->samples->n > 0)
			add(&s->text, live);
	book->samples_saving = true;
	loop_job(book->config.loop, LOOP_ANY, write_file, file_written, s);
}

/* ---- reading ---- */

static bool is_sane(const struct saved *head, struct str rest)
{
	return memchr(head->id, 0, sizeof head->id) && head->n > 0 && head->n <= SAVED &&
	       head->step_us > 0 && rest.n >= (size_t)head->n * sizeof(struct sandbox_sample);
}

static void take(struct live *live, const struct saved *head, const char *from)
{
	struct samples *s = XNEW(struct samples);

	memcpy(s->v, from, (size_t)head->n * sizeof s->v[0]);
	s->n = head->n;
	s->step_us = head->step_us;
	live->samples = s;
}

void samples_load(struct sandbox_book *book)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(FILE_BYTES);
	struct saved head;
	struct str rest;

	if (!book->config.samples_path ||
		file_read(AT_FDCWD, book->config.samples_path, &text, NULL) < 0 ||
		text.n < sizeof beginning || memcmp(text.p, &beginning, sizeof beginning) != 0)
		return;
	rest = str_from(buf_str(&text), sizeof beginning);
	while (rest.n >= sizeof head) {
		struct live *live;

		memcpy(&head, rest.p, sizeof head);
		rest = str_from(rest, sizeof head);
		if (!is_sane(&head, rest))
			return;
		live = map_get(&book->by_id, str_of(head.id));
		if (live && !live->samples)
			take(live, &head, rest.p);
		rest = str_from(rest, (size_t)head.n * sizeof(struct sandbox_sample));
	}
}
