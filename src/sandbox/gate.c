#include "sandbox/gate.h"

struct gate_team {
	struct list node; /* in gate->turns */
	char name[GATE_TEAM_SIZE];
	struct list waiting;
	int inside;
};

void gate_init(struct gate *gate, struct loop *loop, int most, int most_team, int64_t place_ms)
{
	*gate = (struct gate){ .loop = loop,
		.most = most,
		.most_team = most_team,
		.place_ms = place_ms };
	list_init(&gate->turns);
}

void gate_done(struct gate *gate)
{
	loop_task_cancel(&gate->task);
	LIST_EACH(&gate->turns, node)
	free(container_of(node, struct gate_team, node));
	map_done(&gate->teams);
}

static struct gate_team *team_of(struct gate *gate, const char *name)
{
	struct gate_team *team = map_get(&gate->teams, str_of(name));

	if (team)
		return team;
	team = XNEW(struct gate_team);
	(void)snprintf(team->name, sizeof team->name, "%s", name);
	list_init(&team->waiting);
	list_append(&gate->turns, &team->node);
	(void)map_put(&gate->teams, str_of(team->name), team);
	return team;
}

/* It has left its team, which is forgotten with its last. */
static void leave_team(struct gate *gate, struct gate_pass *pass)
{
	struct gate_team *team = TAKE(pass->team);

	if (team->inside || !list_empty(&team->waiting))
		return;
	(void)map_remove(&gate->teams, str_of(team->name));
	list_remove(&team->node);
	free(team);
}

static void let_some_in(void *arg);

static void give_up_place(struct gate_pass *pass)
{
	struct gate *gate = pass->gate;

	loop_timer_cancel(&pass->timer);
	pass->is_inside = false;
	gate->inside--;
	pass->team->inside--;
	leave_team(gate, pass);
	loop_defer(gate->loop, &gate->task, let_some_in, gate);
}

static void on_long(void *arg)
{
	give_up_place(arg);
}

static bool has_place(const struct gate *gate, const struct gate_team *team)
{
	return gate->inside < gate->most && team->inside < gate->most_team;
}

static void let_in(struct gate *gate, struct gate_pass *pass)
{
	gate->inside++;
	pass->team->inside++;
	pass->is_inside = true;
	loop_timer_set(&pass->timer, loop_now_ms(gate->loop) + gate->place_ms);
	pass->go(pass->arg);
}

static struct gate_team *next_team(const struct gate *gate)
{
	LIST_EACH(&gate->turns, node)
	{
		struct gate_team *team = container_of(node, struct gate_team, node);

		if (!list_empty(&team->waiting) && has_place(gate, team))
			return team;
	}
	return NULL;
}

/* The team goes to the end, so that each of the others has its turn before its next. */
static void let_some_in(void *arg)
{
	struct gate *gate = arg;
	struct gate_team *team;

	while ((team = next_team(gate))) {
		struct gate_pass *pass = container_of(team->waiting.next, struct gate_pass, node);

		list_remove(&team->node);
		list_append(&gate->turns, &team->node);
		list_remove(&pass->node);
		let_in(gate, pass);
	}
}

void gate_enter(struct gate *gate, struct gate_pass *pass, const char *team, loop_fn go, void *arg)
{
	*pass = (struct gate_pass){ .gate = gate, .go = go, .arg = arg };
	list_init(&pass->node);
	loop_timer_init(&pass->timer, gate->loop, on_long, pass);
	pass->team = team_of(gate, team);
	/* Whoever waits does so since there is no place, for all or for its team. */
	if (has_place(gate, pass->team) && list_empty(&pass->team->waiting))
		let_in(gate, pass);
	else
		list_append(&pass->team->waiting, &pass->node);
}

void gate_leave(struct gate_pass *pass)
{
	struct gate *gate = pass->gate;

	if (!gate)
		return;
	if (pass->is_inside) {
		give_up_place(pass);
	} else if (pass->team) {
		list_remove(&pass->node);
		leave_team(gate, pass);
	}
	pass->gate = NULL;
}
