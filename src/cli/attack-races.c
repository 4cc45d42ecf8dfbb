/* Races for where a volume is mounted. A process in one sandbox exchanges a directory and a
 * symbolic link as fast as it can: on a volume that it shares with sandboxes that are made
 * meanwhile and have another volume mounted below that directory, and on its own disk while it is
 * paused and started again. The mount must land in the directory or be refused; and both must have
 * been seen, else there was no race. */
#include "cli/attack.h"

#include <sys/stat.h>

enum {
	OUTPUT_MAX = 1 << 20,
	LIFE_S = 120,
	ROUNDS = 12,     /* for each link */
	SLOW_ROUNDS = 3, /* where a sandbox takes its time to start */
	PAUSES_MIN = 8,
	PAUSES_MAX = 24, /* until both were seen */
	SLOW_PAUSES = 3,
	SWAPS_MIN = 1000,
	SWAPS_MIN_OWN = 64, /* most of them are lost with what is not started again */
};

#define RACE_DIR "/data/race" /* on the shared volume; `target` and `link` are in it */
#define HERE "here"           /* a file of the inner volume: where it is, the volume is */

struct race {
	struct attack *attack;
	const char *row, *title;
	struct attack_volume outer, inner;
	int mounted, refused;
	int64_t swaps, swaps_min;
	char where[HOSTILE_PATH]; /* the link leads there, as seen inside */
};

/* ---- looking where it landed ---- */

static void say(struct race *race, enum attack_verdict verdict, const char *what)
{
	attack_say(race->attack, race->row, "root", verdict, race->title,
		"%d mounted, %d refused, in %" PRId64 " exchanges: %s", race->mounted,
		race->refused, race->swaps, what);
}

static bool is_file(struct attack *a, const struct target *target, const char *path)
{
	struct attack_answer answer = { 0 };
	struct err e = { 0 };

	return attack_file(a, target, "GET", path, STR_NONE, &answer, &e) == 0 &&
	       answer.status == 200;
}

/* The kernel's own word: every mount of the inner volume lies below `top`. */
static bool is_below(struct str table, const char *volume_id, const char *top)
{
	struct str line, field = STR_NONE;

	while (str_split(&table, '\n', &line)) {
		struct str rest = line;

		if (!memmem(line.p, line.n, volume_id, strlen(volume_id)))
			continue;
		for (int i = 0; i < 5; i++)
			(void)str_split(&rest, ' ', &field);
		if (!str_has_prefix(field, str_of(top)))
			return false;
	}
	return true;
}

/* Nothing where the link leads, nothing on the host. */
static void judge_landing(struct race *race, const struct target *target, const char *top)
{
	struct attack *a = race->attack;
	struct attack_answer table = { 0 };
	struct err e = { 0 };
	char path[HOSTILE_PATH + 32];
	struct stat st;

	(void)snprintf(path, sizeof path, "%s/deep/" HERE, race->where);
	if (is_file(a, target, path))
		say(race, ATTACK_ESCAPED, "the link was followed inside");
	(void)snprintf(path, sizeof path, "%s/deep", a->bait);
	if (lstat(path, &st) == 0)
		say(race, ATTACK_ESCAPED, "the link was followed on the host");
	if (attack_file(a, target, "GET", "/proc/self/mountinfo", STR_NONE, &table, &e) < 0 ||
		table.status != 200)
		say(race, ATTACK_INCONCLUSIVE, "the sandbox's mounts cannot be read");
	else if (!is_below(table.body, race->inner.id, top))
		say(race, ATTACK_ESCAPED, "the volume is mounted elsewhere");
}

static void judge_race(struct race *race)
{
	const char *runtime = args_value(&race->attack->cli->args, "runtime");
	/* gVisor exchanges so slowly that there is hardly a race to be had. */
	bool slow_kernel = runtime && strcmp(runtime, "gvisor") == 0;
	enum attack_verdict none = slow_kernel ? ATTACK_ABSENT : ATTACK_INCONCLUSIVE;

	if (race->swaps < race->swaps_min)
		say(race, none, "too few for a race");
	else if (race->mounted == 0 || race->refused == 0)
		say(race, none, "only one side was seen, so there was no race");
	else
		say(race, ATTACK_CONTAINED, "never anywhere but in the directory");
}

/* ---- the one who swaps ---- */

static int start_swapping(struct race *race, const struct target *racer, const char *dir,
	const char *link_target, struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	int r = attack_shell(race->attack, racer, "root",
		arena_printf(race->attack->cli->arena,
			"mkdir -p %s && /tmp/atoll-probe --swap %s --link %s", dir, dir,
			link_target),
		&out, e);

	return r > 0 ? err_set(e, -EIO, "nothing can be exchanged in %s", dir) : r;
}

/* How often it did, and that it stops: the next one needs the directory as it was. */
static void stop_swapping(struct race *race, const struct target *racer, const char *dir)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };
	int64_t swaps = 0;

	(void)attack_shell(race->attack, racer, "root",
		arena_printf(race->attack->cli->arena,
			"pkill -x atoll-probe; for i in $(seq 1000); do "
			"pgrep -x atoll-probe >/dev/null || break; sleep 0.02; done; "
			"cat %s/swaps",
			dir),
		&out, &e);
	if (str_to_int(str_trim(str_make(buf_str(&out).p, strcspn(buf_str(&out).p, "\n"))), 0,
		    INT64_MAX, &swaps) == 0)
		race->swaps += swaps;
}

/* ---- sandboxes that are made meanwhile ---- */

static void create_one(struct race *race)
{
	struct attack *a = race->attack;
	struct target made = { 0 };
	struct err e = { 0 };
	int r = attack_create(a,
		arena_printf(a->cli->arena,
			"{\"templateID\":\"base\",\"timeout\":%d,\"volumeMounts\":["
			"{\"name\":\"%s\",\"path\":\"/data\"},"
			"{\"name\":\"%s\",\"path\":\"" RACE_DIR "/target/deep\"}]}",
			LIFE_S, race->outer.name, race->inner.name),
		&made, &e);

	if (r == 0) {
		race->mounted++;
		judge_landing(race, &made, "/data/");
	} else if (attack_judge_code(r) == ATTACK_REFUSED) {
		race->refused++;
	} else {
		say(race, ATTACK_INCONCLUSIVE, e.msg);
	}
	if (made.id[0])
		(void)cli_sandbox_remove(a->cli, made.id, &e);
}

static void race_creations(struct race *race, const struct target *racer)
{
	const struct {
		const char *link, *where;
	} links[] = { { race->attack->bait, race->attack->bait }, { "/etc", "/etc" },
		{ "../../usr", "/usr" }, { "/proc/self/root/var", "/var" } };
	const char *runtime = args_value(&race->attack->cli->args, "runtime");
	int rounds = runtime && strcmp(runtime, "local") != 0 ? SLOW_ROUNDS : ROUNDS;

	for (size_t i = 0; i < ARRAY_SIZE(links) && !attack_is_stopped(race->attack); i++) {
		struct err e = { 0 };
		int r = start_swapping(race, racer, RACE_DIR, links[i].link, &e);

		(void)snprintf(race->where, sizeof race->where, "%s", links[i].where);
		if (r < 0)
			say(race, ATTACK_INCONCLUSIVE, e.msg);
		for (int n = 0; r == 0 && n < rounds; n++)
			create_one(race);
		stop_swapping(race, racer, RACE_DIR);
	}
	judge_race(race);
}

/* The racer has both volumes, and leaves in the inner one what it can be known by. */
static int start_racer(struct race *race, struct target *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct attack *a = race->attack;
	int r = attack_volume_make(a, "outer", &race->outer, e);

	if (r == 0)
		r = attack_volume_make(a, "inner", &race->inner, e);
	if (r == 0)
		r = attack_create_local(a,
			arena_printf(a->cli->arena,
				"{\"templateID\":\"base\",\"timeout\":%d,\"volumeMounts\":["
				"{\"name\":\"%s\",\"path\":\"/data\"},"
				"{\"name\":\"%s\",\"path\":\"/inner\"}]}",
				8 * LIFE_S, race->outer.name, race->inner.name),
			ret, e);
	if (r == 0)
		r = attack_inside_prepare(a, ret, e);
	if (r == 0)
		r = attack_shell(a, ret, "root", "echo x >/inner/" HERE, &out, e);
	return r > 0 ? err_set(e, -EIO, "the inner volume cannot be written") : r;
}

/* ---- a sandbox that is started again ---- */

static int start_sleeper(struct race *race, struct target *ret, struct err *e)
{
	struct attack *a = race->attack;
	int r = attack_create(a,
		arena_printf(a->cli->arena,
			"{\"templateID\":\"base\",\"timeout\":%d,\"volumeMounts\":["
			"{\"name\":\"%s\",\"path\":\"/race/target/deep\"}]}",
			LIFE_S, race->inner.name),
		ret, e);

	return r < 0 ? r : attack_inside_prepare(a, ret, e);
}

/* One pause and one start while it is swapped. false: the sandbox is of no more use. */
static bool resume_one(struct race *race, struct target *sleeper)
{
	struct attack *a = race->attack;
	struct api_request pause = { .method = "POST", .body = STR("{\"memory\":false}") };
	struct api_reply reply;
	struct err e = { 0 };
	int r = start_swapping(race, sleeper, "/race", a->bait, &e);

	pause.path = arena_printf(a->cli->arena, "/sandboxes/%s/pause", sleeper->id);
	if (r == 0)
		r = cli_api_call(a->cli, &pause, &reply, &e);
	if (r < 0) {
		say(race, ATTACK_INCONCLUSIVE, e.msg);
		return false;
	}
	r = cli_sandbox_wake(a->cli, sleeper->id, &(struct cli_wake){ .timeout_s = 120 }, sleeper,
		&e);
	if (r == 0) {
		race->mounted++;
		stop_swapping(race, sleeper, "/race");
		judge_landing(race, sleeper, "/race/");
		return true;
	}
	if (attack_judge_code(r) == ATTACK_REFUSED)
		race->refused++;
	else
		say(race, ATTACK_INCONCLUSIVE, e.msg);
	return false;
}

static bool is_enough(const struct race *race, int pauses)
{
	const char *runtime = args_value(&race->attack->cli->args, "runtime");

	/* A kernel that exchanges nothing has no race to lose. */
	if (runtime && strcmp(runtime, "gvisor") == 0 && pauses >= SLOW_PAUSES && race->swaps == 0)
		return true;
	return pauses >= PAUSES_MAX || (pauses >= PAUSES_MIN && race->mounted && race->refused);
}

static void race_resumptions(struct race *race)
{
	struct attack *a = race->attack;
	struct target sleeper = { 0 };
	struct err e = { 0 };

	(void)snprintf(race->where, sizeof race->where, "%s", a->bait);
	for (int i = 0; !is_enough(race, i) && !attack_is_stopped(a); i++) {
		if (!sleeper.id[0] && start_sleeper(race, &sleeper, &e) < 0) {
			say(race, ATTACK_INCONCLUSIVE, e.msg);
			break;
		}
		if (resume_one(race, &sleeper))
			continue;
		(void)cli_sandbox_remove(a->cli, sleeper.id, &e);
		sleeper = (struct target){ 0 };
	}
	if (sleeper.id[0])
		(void)cli_sandbox_remove(a->cli, sleeper.id, &e);
	judge_race(race);
}

void attack_races(struct attack *a)
{
	struct race made = { .attack = a,
		.row = "volumes.race-created",
		.title = "race for where a volume is mounted in a new sandbox",
		.swaps_min = SWAPS_MIN };
	struct race resumed = { .attack = a,
		.row = "volumes.race-resumed",
		.title = "race for where a volume is mounted in one that starts again",
		.swaps_min = SWAPS_MIN_OWN };
	struct target racer = { 0 };
	struct err e = { 0 };

	if (start_racer(&made, &racer, &e) < 0) {
		say(&made, ATTACK_INCONCLUSIVE, e.msg);
	} else {
		race_creations(&made, &racer);
		resumed.inner = made.inner;
		race_resumptions(&resumed);
	}
	if (racer.id[0])
		(void)cli_sandbox_remove(a->cli, racer.id, &e);
	attack_volume_remove(a, &made.inner);
	attack_volume_remove(a, &made.outer);
}
