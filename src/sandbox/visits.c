/* Who comes to which port. The first visit is told within seconds, further ones of the same address
 * to the same port together, every few minutes, with how many they were. Counting is all that is
 * done on the way of a request. Of more at a time than can be told apart the rest is one number. */
#include "sandbox/visits.h"

#include "observe/observe.h"

enum {
	APART = 32,
	QUIET_MS = 5 * 60 * 1000,
};

struct visit {
	int port; /* 0: of several */
	char source[ACTIVITY_SOURCE_SIZE];
	int64_t n, quiet_until_ms; /* not told yet; until then nothing is told of it */
};

struct visits {
	struct visit v[APART];
	size_t n;
	struct visit others;
};

void visits_free(struct live *live)
{
	free(live->visits);
	live->visits = NULL;
}

static void tell(struct live *live, struct visit *visit)
{
	const struct sandbox *sb = &live->view;
	CLEANUP(buf_done) struct buf data = BUF_INIT(256);
	char actor[ACTOR_SIZE];
	struct jsonw w;

	(void)snprintf(actor, sizeof actor, "client%s%s", visit->port ? " " : "", visit->source);
	jsonw_init(&w, &data);
	jsonw_object(&w, NULL);
	if (visit->port)
		jsonw_int(&w, "port", visit->port);
	else
		jsonw_bool(&w, "others", true);
	jsonw_int(&w, "requests", visit->n);
	jsonw_end_object(&w);
	visit->n = 0;
	visit->quiet_until_ms = loop_now_ms(live->book->config.loop) + QUIET_MS;
	if (sandbox_activity(live->book, sb->team_id) == LIMIT_ACTIVITY_ALL)
		observe_event(live->book->config.events, &(struct observe_event){ .actor = actor,
								 .kind = "port.visited",
								 .subject = sb->id,
								 .team_id = sb->team_id,
								 .agent_id = sb->agent_id,
								 .task_id = sb->task_id,
								 .data = buf_str(&data) });
}

/* `is_last`: whatever there is. Who was not here for long is forgotten. */
static void look(struct live *live, bool is_last)
{
	int64_t now_ms = loop_now_ms(live->book->config.loop);
	struct visits *visits = live->visits;
	size_t left = 0;

	if (!visits)
		return;
	for (size_t i = 0; i < visits->n; i++) {
		struct visit *visit = &visits->v[i];

		if (visit->n && (is_last || now_ms >= visit->quiet_until_ms))
			tell(live, visit);
		if (now_ms < visit->quiet_until_ms)
			visits->v[left++] = *visit;
	}
	visits->n = left;
	if (visits->others.n && (is_last || now_ms >= visits->others.quiet_until_ms))
		tell(live, &visits->others);
}

void visits_step(struct live *live)
{
	look(live, false);
}

void visits_last(struct live *live)
{
	look(live, true);
}

void visits_stop(struct sandbox_book *book)
{
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at)))
		visits_last(live);
}

static struct visit *find(struct visits *visits, int port, struct str source)
{
	struct visit *visit;

	for (size_t i = 0; i < visits->n; i++)
		if (visits->v[i].port == port && str_is(source, visits->v[i].source))
			return &visits->v[i];
	if (visits->n == APART)
		return &visits->others;
	visit = &visits->v[visits->n++];
	*visit = (struct visit){ .port = port };
	(void)snprintf(visit->source, sizeof visit->source, "%.*s", STR_ARG(source));
	return visit;
}

void sandbox_visited(struct sandbox_book *book, const char *id, int port, struct str source)
{
	struct live *live = map_get(&book->by_id, str_of(id));

	if (!live)
		return;
	if (!live->visits)
		live->visits = XNEW(struct visits);
	find(live->visits, port, source)->n++;
}
