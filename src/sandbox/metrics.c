/* Samples of every running sandbox, asked of its guest each few seconds and kept in memory. When a
 * sandbox's ring is full every second sample goes and the step doubles: a day costs what an hour
 * does. */
#include "base/fault.h"
#include "http/http.h"
#include "sandbox/activity.h"
#include "sandbox/samples.h"
#include "sandbox/visits.h"

enum {
	STEP_MS = 5000,
	TICKS = 20, /* in one step: each asks a part of all, so that they do not answer at once */
	PARTS = 10, /* of a tick, where a part of all would be many */
	MANY = 160,
	MAX_ASKING = 256,
	SAVE_STEPS = 12, /* a minute */
	ANSWER_BYTES = 4096,
	ANSWER_PERCENT = 80, /* of a step: so long may an answer take */
};

static int64_t step_ms(void)
{
	int64_t ms = fault_value(FAULT_CARE_MS);

	return ms > 0 ? ms : STEP_MS;
}

struct question {
	struct list node; /* in book->asked */
	struct sandbox_book *book;
	char id[SANDBOX_ID_SIZE];
	struct http_call *call; /* NULL: the guest is being dialled */
};

static void question_end(struct question *q)
{
	list_remove(&q->node);
	q->book->asking--;
	free(q);
}

void samples_free(struct live *live)
{
	free(live->samples);
	live->samples = NULL;
}

static void add_sample(struct samples *s, const struct sandbox_sample *sample)
{
	if (s->n == SAMPLES_KEPT) {
		for (int i = 0; i < SAMPLES_KEPT / 2; i++)
			s->v[i] = s->v[2 * i + 1];
		s->n = SAMPLES_KEPT / 2;
		s->step_us *= 2;
	}
	s->v[s->n++] = *sample;
}

struct crossed_in {
	struct json_int disk, inodes, shm, files;
};
static const struct json_field crossed_fields[] = {
	JSON_FIELD(struct crossed_in, disk, "disk", JSON_INT),
	JSON_FIELD(struct crossed_in, inodes, "inodes", JSON_INT),
	JSON_FIELD(struct crossed_in, shm, "shm", JSON_INT),
	JSON_FIELD(struct crossed_in, files, "files", JSON_INT),
};
static const struct json_shape crossed_shape =
	JSON_SHAPE(struct crossed_in, crossed_fields, .ignore_unknown = true);

struct metrics_in {
	struct str cpu;
	struct json_int mem_total, mem_used, mem_cache, disk_used, disk_total;
	struct json_int inodes_used, inodes_total, shm_used, shm_total, processes, refused, kills;
	struct json_int cpu_periods, cpu_held;
	struct json_int disk_failed, activity;
	struct crossed_in crossed;
};
static const struct json_field metrics_fields[] = {
	JSON_FIELD(struct metrics_in, disk_failed, "disk_failed", JSON_INT),
	JSON_FIELD(struct metrics_in, activity, "activity", JSON_INT),
	JSON_FIELD(struct metrics_in, cpu, "cpu_used_pct", JSON_RAW),
	JSON_FIELD(struct metrics_in, mem_total, "mem_total", JSON_INT),
	JSON_FIELD(struct metrics_in, mem_used, "mem_used", JSON_INT),
	JSON_FIELD(struct metrics_in, mem_cache, "mem_cache", JSON_INT),
	JSON_FIELD(struct metrics_in, disk_used, "disk_used", JSON_INT),
	JSON_FIELD(struct metrics_in, disk_total, "disk_total", JSON_INT),
	JSON_FIELD(struct metrics_in, inodes_used, "inodes_used", JSON_INT),
	JSON_FIELD(struct metrics_in, inodes_total, "inodes_total", JSON_INT),
	JSON_FIELD(struct metrics_in, shm_used, "shm_used", JSON_INT),
	JSON_FIELD(struct metrics_in, shm_total, "shm_total", JSON_INT),
	JSON_FIELD(struct metrics_in, processes, "processes", JSON_INT),
	JSON_FIELD(struct metrics_in, refused, "processes_refused", JSON_INT),
	JSON_FIELD(struct metrics_in, kills, "oom_kills", JSON_INT),
	JSON_FIELD(struct metrics_in, cpu_periods, "cpu_periods", JSON_INT),
	JSON_FIELD(struct metrics_in, cpu_held, "cpu_throttled", JSON_INT),
	JSON_FIELD(struct metrics_in, crossed, "crossed", JSON_OBJECT, .shape = &crossed_shape),
};
static const struct json_shape metrics_shape =
	JSON_SHAPE(struct metrics_in, metrics_fields, .ignore_unknown = true);

/* A guest may say any number; the kernel's own are added to it. */
static int64_t times_of(struct json_int said)
{
	return MIN(MAX(said.value, 0), INT64_MAX / 2);
}

static double percent_of(struct str said)
{
	double percent = said.n ? strtod(said.p, NULL) : 0;

	return percent >= 0 && percent <= 100000 ? percent : 0;
}

static void hear(struct live *live, const struct metrics_in *in)
{
	struct guest_word word = { .kills = times_of(in->kills),
		.refused = times_of(in->refused),
		.disk = times_of(in->crossed.disk),
		.inodes = times_of(in->crossed.inodes),
		.shm = times_of(in->crossed.shm),
		.files = times_of(in->crossed.files),
		.cpu_periods = MAX(in->cpu_periods.value, 0),
		.cpu_held = MAX(in->cpu_held.value, 0),
		.cpu_pct = percent_of(in->cpu) };

	crossings_hear(live, &word);
	activity_hint(live, in->activity.value);
	/* What it writes from now on is lost, and what it reads may be. */
	if (in->disk_failed.value)
		live_end(live, SANDBOX_END_INFRASTRUCTURE, "system",
			"its disk has failed: the host's disk was full or broken, and writes were "
			"lost",
			NULL, NULL);
}

/* Anything that a guest says is a sign of life. */
static void note_health(struct live *live, int r, int status, const struct err *e)
{
	struct err deaf = { -ETIMEDOUT, "a test does not hear it" };

	if (fault_value(FAULT_GUEST_DEAF))
		health_note(live, VITAL_SILENT, &deaf);
	else if (r >= 0 && status > 0)
		health_note(live, VITAL_HEARD, NULL);
	else if (r == -EMFILE || r == -ENFILE)
		return; /* it was not asked: the want is ours */
	else if (r == -ECONNREFUSED || r == -ENOENT)
		health_note(live, VITAL_REFUSED, e);
	else
		health_note(live, VITAL_SILENT, e);
}

/* What a guest says is the sandbox's word: kept within its own limits, used for nothing but
 * display. */
static void take_answer(struct live *live, struct str body)
{
	struct arena *arena = arena_new((size_t)ANSWER_BYTES * 8);
	struct metrics_in in;

	if (json_decode(arena, body, &metrics_shape, &in, NULL) == 0) {
		struct sandbox_sample sample = { .at_us = time_wall_us(),
			.cpu_pct = percent_of(in.cpu),
			.mem_used = MAX(in.mem_used.value, 0),
			.mem_total = live->view.limits.v[LIMIT_MEMORY] << 20,
			.mem_cache = MAX(in.mem_cache.value, 0),
			.disk_used = MAX(in.disk_used.value, 0),
			.disk_total = MAX(in.disk_total.value, 0),
			.inodes_used = MAX(in.inodes_used.value, 0),
			.inodes_total = MAX(in.inodes_total.value, 0),
			.shm_used = MAX(in.shm_used.value, 0),
			.shm_total = MAX(in.shm_total.value, 0),
			.processes = MAX(in.processes.value, 0),
			.processes_refused = MAX(in.refused.value, 0),
			.oom_kills = MAX(in.kills.value, 0),
			.connections = live->connections };

		hear(live, &in);
		sample.cpu_held_pct = live->cpu_pressure;
		if (live->samples->is_due)
			add_sample(live->samples, &sample);
	}
	(void)arena_free(arena);
}

static void answered(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct question *q = arg;
	struct live *live = live_find(q->book, NULL, str_of(q->id));

	if (live && live->samples) {
		live->samples->is_asking = false;
		note_health(live, r, status, e);
		if (r >= 0 && status == 200)
			take_answer(live, body);
	}
	question_end(q);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct question *q = arg;
	struct http_request request = { .method = "GET",
		.target = "/metrics",
		.host = "localhost",
		.max_bytes = ANSWER_BYTES,
		.timeout_ms = step_ms() * ANSWER_PERCENT / 100 };
	char token[SANDBOX_TOKEN_SIZE], headers[128];

	if (q->book->is_stopping) {
		if (fd >= 0)
			(void)close(fd);
		question_end(q);
		return;
	}
	if (fd < 0) {
		answered(q, fd, 0, STR_NONE, e);
		return;
	}
	sandbox_token(q->book, q->id, token);
	(void)snprintf(headers, sizeof headers, "X-Access-Token: %s\r\n", token);
	request.headers = headers;
	q->call = http_request(q->book->config.loop, fd, &request, answered, q);
}

static void ask(struct live *live)
{
	struct question *q;

	if (!live->samples) {
		live->samples = XNEW(struct samples);
		live->samples->step_us = (int64_t)STEP_MS * 1000;
	}
	if (live->samples->is_asking || live->book->asking >= MAX_ASKING)
		return;
	live->samples->is_asking = true;
	live->book->asking++;
	/* Asked each time, for what it has to say of its limits; kept at every step. */
	live->samples->is_due = time_now_us() - live->samples->last_us >=
				live->samples->step_us - (int64_t)STEP_MS * 500;
	if (live->samples->is_due)
		live->samples->last_us = time_now_us();
	q = XNEW(struct question);
	q->book = live->book;
	list_append(&live->book->asked, &q->node);
	memcpy(q->id, live->view.id, sizeof q->id);
	runtime_dial(live->runtime, live->view.id, RUNTIME_GUEST_PORT, dialled, q);
}

/* Who asks may be gone before the engine, which then answers all the same. */
struct host_question {
	struct sandbox_book *book;
};

static void host_told(void *arg, int r, const struct runtime_host *host, const struct err *e)
{
	struct host_question *q = arg;

	(void)e;
	if (q->book) {
		q->book->host_question = NULL;
		if (r >= 0)
			q->book->host = *host;
	}
	free(q);
}

/* The first engine is the one whose sandboxes share this machine. */
static void ask_host(struct sandbox_book *book)
{
	if (book->host_question || book->is_stopping || book->config.runtimes.n == 0)
		return;
	book->host_question = XNEW(struct host_question);
	book->host_question->book = book;
	runtime_host(book->config.runtimes.v[0], host_told, book->host_question);
}

const struct runtime_host *sandbox_host(const struct sandbox_book *book)
{
	return &book->host;
}

static void next_tick(struct sandbox_book *book)
{
	int parts = book->by_id.n > MANY ? PARTS : 1;

	book->sampler_ms = loop_now_ms(book->config.loop) + step_ms() / TICKS / parts;
	loop_timer_set(&book->sampler, book->sampler_ms);
}

/* Those whose turn it is: of one part of a tick, or of all that are left of it. */
static void ask_some(struct sandbox_book *book, unsigned first, unsigned last)
{
	struct live *live;
	size_t at = 0;

	while ((live = map_next(&book->by_id, &at))) {
		unsigned turn = live->phase % (TICKS * PARTS);

		if (live->view.state == SANDBOX_RUNNING && turn >= first && turn <= last) {
			ask(live);
			crossings_step(live);
			visits_step(live);
		}
	}
}

static void on_tick(void *arg)
{
	struct sandbox_book *book = arg;
	unsigned part = book->sampler_part, tick = book->sampler_tick % TICKS;
	unsigned last = book->by_id.n > MANY ? part : PARTS - 1;

	health_tick(book, book->sampler_ms);
	ask_some(book, tick * PARTS + part, tick * PARTS + last);
	book->sampler_part = (last + 1) % PARTS;
	if (book->sampler_part) {
		next_tick(book);
		return;
	}
	book->sampler_tick++;
	(void)book_wall_us(book);
	ask_host(book);
	if (tick == 0)
		runs_step(book);
	if (tick == 0 && book->sampler_tick % (TICKS * SAVE_STEPS) == 1)
		samples_save(book);
	if (tick == TICKS / 2)
		sweep_step(book);
	history_step(book);
	next_tick(book);
}

void metrics_stop(struct sandbox_book *book)
{
	loop_timer_cancel(&book->sampler);
	if (!book->is_stopping)
		samples_save(book);
	book->is_stopping = true;
	activity_stop(book);
	visits_stop(book);
	if (book->host_question)
		book->host_question->book = NULL;
	book->host_question = NULL;
	LIST_EACH(&book->asked, node)
	{
		struct question *q = container_of(node, struct question, node);

		if (!q->call)
			continue; /* it ends when it was dialled, in a moment */
		http_request_cancel(q->call);
		question_end(q);
	}
}

void metrics_start(struct sandbox_book *book)
{
	samples_load(book);
	loop_timer_init(&book->sampler, book->config.loop, on_tick, book);
	next_tick(book);
}

void sandbox_each_sample(const struct sandbox_book *book, const struct sandbox_owner *who,
	struct str id, void (*fn)(void *arg, const struct sandbox_sample *sample), void *arg)
{
	const struct live *live = live_find(book, who, id);

	for (int i = 0; live && live->samples && i < live->samples->n; i++)
		fn(arg, &live->samples->v[i]);
}

bool sandbox_last_sample(const struct sandbox_book *book, const char *id,
	struct sandbox_sample *ret)
{
	const struct live *live = map_get(&book->by_id, str_of(id));

	if (!live || !live->samples || live->samples->n == 0)
		return false;
	*ret = live->samples->v[live->samples->n - 1];
	return true;
}
