/* How much of the egress one sandbox may have at once, and all sandboxes of one team together. */
#include "egress/egress-internal.h"

/* What a sandbox may have at once while the others are not busy, and when they are. */
static const struct {
	size_t most, least;
} shares[N_SHARES] = {
	[SHARE_LOOKUPS] = { 64, 8 },
	[SHARE_NAME_STREAMS] = { 16, 2 },
	[SHARE_FLOWS] = { 512, 32 },
};

enum {
	TEAM_PART = 3, /* times what it leaves free */
};

/* A team's is what ten of its sandboxes have: a question costs us some tens of microseconds, a
 * hello some hundreds, and all teams have one processor between them. */
static const struct {
	int64_t per_second, burst;
} rates[N_RATES_OF][N_RATES] = {
	[RATES_OF_ONE] = { [RATE_QUESTIONS] = { 200, 400 }, [RATE_HELLOS] = { 50, 200 } },
	[RATES_OF_TEAM] = { [RATE_QUESTIONS] = { 2000, 4000 }, [RATE_HELLOS] = { 500, 2000 } },
};

/* ---- teams ---- */

struct team *team_join(struct egress *egress, const char *id)
{
	struct team *team = map_get(&egress->teams, str_of(id));

	if (!team) {
		team = XNEW(struct team);
		team->egress = egress;
		(void)snprintf(team->id, sizeof team->id, "%s", id);
		rates_fill(egress, RATES_OF_TEAM, team->buckets);
		(void)map_put(&egress->teams, str_of(team->id), team);
	}
	team->n_tenants++;
	return team;
}

void team_leave(struct team *team)
{
	if (--team->n_tenants > 0)
		return;
	(void)map_remove(&team->egress->teams, str_of(team->id));
	free(team);
}

/* ---- shares ---- */

/* Who is alone may use much; once half of everything is in use, each gets little, so that many must
 * work together before a newcomer finds nothing. */
static bool has_room(const struct tenant *t, enum share share, size_t used, size_t max)
{
	return t->in_use[share] < (used < max / 2 ? shares[share].most : shares[share].least);
}

/* And should they be of one team, however many: a team may have so many times what is free. Alone
 * that is three quarters of everything; what others take makes it less, and as nobody can take the
 * last, there is something left for the team that comes next. */
static bool team_has_room(const struct team *team, enum share share, size_t used, size_t max)
{
	return team->in_use[share] < TEAM_PART * (max - used);
}

bool tenant_take(struct tenant *t, enum share share, size_t used, size_t max)
{
	if (used >= max || !has_room(t, share, used, max) ||
		!team_has_room(t->team, share, used, max))
		return false;
	t->in_use[share]++;
	t->team->in_use[share]++;
	return true;
}

void tenant_give_back(struct tenant *t, enum share share)
{
	assert(t->in_use[share] > 0 && t->team->in_use[share] > 0);
	t->in_use[share]--;
	t->team->in_use[share]--;
}

/* ---- rates ---- */

void rates_fill(const struct egress *egress, enum rates_of whose, struct bucket buckets[N_RATES])
{
	for (size_t i = 0; i < N_RATES; i++)
		buckets[i] =
			(struct bucket){ rates[whose][i].burst * 1000, loop_now_ms(egress->loop) };
}

static bool has_token(struct bucket *b, enum rates_of whose, enum rate rate, int64_t now_ms)
{
	int64_t full = rates[whose][rate].burst * 1000;
	int64_t more = (now_ms - b->refilled_ms) * rates[whose][rate].per_second;

	b->tokens = MIN(b->tokens + more, full);
	b->refilled_ms = now_ms;
	return b->tokens >= 1000;
}

bool tenant_may(struct tenant *t, enum rate rate)
{
	int64_t now_ms = loop_now_ms(t->egress->loop);
	struct bucket *own = &t->buckets[rate], *teams = &t->team->buckets[rate];

	if (!has_token(own, RATES_OF_ONE, rate, now_ms) ||
		!has_token(teams, RATES_OF_TEAM, rate, now_ms))
		return false;
	own->tokens -= 1000;
	teams->tokens -= 1000;
	return true;
}
