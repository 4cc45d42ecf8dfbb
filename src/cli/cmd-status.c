/* status - which server it is, how it is, and what it runs. */
#include "cli/cli-internal.h"

struct breaker_in {
	struct str breaker, message;
	struct json_int retry_s;
};

/* Those that a server may have; more than these are not asked for. */
struct breakers_in {
	struct breaker_in local, gvisor, runc, crun;
};
static const struct {
	const char *name;
	size_t at;
} runtimes[] = {
	{ "local", offsetof(struct breakers_in, local) },
	{ "gvisor", offsetof(struct breakers_in, gvisor) },
	{ "runc", offsetof(struct breakers_in, runc) },
	{ "crun", offsetof(struct breakers_in, crun) },
};

struct part_in {
	struct str state, message;
};

struct status {
	const char *health;     /* "ok" or "draining" */
	char version[OUT_CELL]; /* "": the server does not say */
	size_t running, paused;
	struct part_in disk;         /* empty where the server does not say, as the next */
	struct str warden;           /* as it is */
	struct breakers_in breakers; /* each is empty where the server does not say */
};

static const struct breaker_in *breaker_of(const struct status *s, size_t i)
{
	return (const struct breaker_in *)(const void *)((const char *)&s->breakers +
							 runtimes[i].at);
}

/* A server that takes no new sandboxes still answers: it is described, not reported as a failure.
 */
static int ask_health(struct cli *cli, struct status *s, struct err *e)
{
	struct api_request request = { .method = "GET", .path = "/health" };
	struct api_reply reply;
	int r = cli_api_call(cli, &request, &reply, e);

	s->health = r == -EAGAIN ? "draining" : "ok";
	return r == -EAGAIN ? 0 : r;
}

/* Of the document that describes the API; other servers of this protocol have none. */
static void ask_version(struct cli *cli, struct status *s)
{
	struct info {
		struct str version;
	};
	struct document {
		struct info info;
	} document;
	static const struct json_field info_fields[] = {
		JSON_FIELD(struct info, version, "version", JSON_STR, .flags = JSON_LAX),
	};
	static const struct json_shape info_shape =
		JSON_SHAPE(struct info, info_fields, .ignore_unknown = true);
	static const struct json_field document_fields[] = {
		JSON_FIELD(struct document, info, "info", JSON_OBJECT, .shape = &info_shape),
	};
	static const struct json_shape document_shape =
		JSON_SHAPE(struct document, document_fields, .ignore_unknown = true);
	struct api_request request = { .method = "GET", .path = "/openapi.json" };
	struct api_reply reply;
	struct err ignored;

	if (cli_api_call(cli, &request, &reply, &ignored) == 0 &&
		json_decode(cli->arena, reply.body, &document_shape, &document, NULL) == 0 &&
		document.info.version.n)
		out_text(document.info.version, s->version);
}

/* Other servers of this protocol have none. */
static void ask_breakers(struct cli *cli, struct status *s)
{
	struct ready {
		struct part_in disk;
		struct str warden;
		struct breakers_in runtimes;
	} ready;
	static const struct json_field part_fields[] = {
		JSON_FIELD(struct part_in, state, "state", JSON_STR, .flags = JSON_LAX),
		JSON_FIELD(struct part_in, message, "message", JSON_STR, .flags = JSON_LAX),
	};
	static const struct json_shape part_shape =
		JSON_SHAPE(struct part_in, part_fields, .ignore_unknown = true);
	static const struct json_field breaker_fields[] = {
		JSON_FIELD(struct breaker_in, breaker, "breaker", JSON_STR, .flags = JSON_LAX),
		JSON_FIELD(struct breaker_in, message, "message", JSON_STR, .flags = JSON_LAX),
		JSON_FIELD(struct breaker_in, retry_s, "retry_after_s", JSON_INT),
	};
	static const struct json_shape breaker_shape =
		JSON_SHAPE(struct breaker_in, breaker_fields, .ignore_unknown = true);
	static const struct json_field runtime_fields[] = {
		JSON_FIELD(struct breakers_in, local, "local", JSON_OBJECT,
			.shape = &breaker_shape),
		JSON_FIELD(struct breakers_in, gvisor, "gvisor", JSON_OBJECT,
			.shape = &breaker_shape),
		JSON_FIELD(struct breakers_in, runc, "runc", JSON_OBJECT, .shape = &breaker_shape),
		JSON_FIELD(struct breakers_in, crun, "crun", JSON_OBJECT, .shape = &breaker_shape),
	};
	static const struct json_shape runtime_shape =
		JSON_SHAPE(struct breakers_in, runtime_fields, .ignore_unknown = true);
	static const struct json_field ready_fields[] = {
		JSON_FIELD(struct ready, disk, "disk", JSON_OBJECT, .shape = &part_shape),
		JSON_FIELD(struct ready, warden, "warden", JSON_RAW),
		JSON_FIELD(struct ready, runtimes, "runtimes", JSON_OBJECT,
			.shape = &runtime_shape),
	};
	static const struct json_shape ready_shape =
		JSON_SHAPE(struct ready, ready_fields, .ignore_unknown = true);
	struct api_request request = { .method = "GET", .path = "/api/v1/ready" };
	struct api_reply reply;
	struct err ignored;

	if (cli_api_call(cli, &request, &reply, &ignored) == 0 &&
		json_decode(cli->arena, reply.body, &ready_shape, &ready, NULL) == 0) {
		s->disk = ready.disk;
		s->warden = ready.warden;
		s->breakers = ready.runtimes;
	}
}

static int count_sandboxes(struct cli *cli, struct status *s, struct err *e)
{
	cleanup_free struct sandbox_info *all = NULL;
	size_t n = 0;
	int r = cli_sandbox_list(cli, &all, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		s->running += str_is(all[i].state, "running");
		s->paused += str_is(all[i].state, "paused");
	}
	return r;
}

static void status_json(struct cli *cli, const struct status *s)
{
	struct jsonw *w = &cli->out.json_writer;

	jsonw_object(w, NULL);
	jsonw_strz(w, "url", cli->config.api_url);
	jsonw_strz(w, "urlFrom", cli->config.api_url_source);
	jsonw_strz(w, "keyFrom", cli->config.api_key_source);
	jsonw_strz(w, "health", s->health);
	jsonw_strz(w, "version", s->version[0] ? s->version : NULL);
	jsonw_strz(w, "clientVersion", ATOLL_VERSION);
	jsonw_object(w, "sandboxes");
	jsonw_int(w, "running", (int64_t)s->running);
	jsonw_int(w, "paused", (int64_t)s->paused);
	jsonw_end_object(w);
	if (s->disk.state.n)
		jsonw_str(w, "disk", s->disk.state);
	if (s->warden.n)
		jsonw_raw(w, "warden", s->warden);
	jsonw_object(w, "breakers");
	for (size_t i = 0; i < ARRAY_SIZE(runtimes); i++)
		if (breaker_of(s, i)->breaker.n)
			jsonw_str(w, runtimes[i].name, breaker_of(s, i)->breaker);
	jsonw_end_object(w);
	jsonw_end_object(w);
	(void)buf_addc(&cli->out.text, '\n');
}

/* Only those that do not work are worth a line. */
static void breaker_lines(struct cli *cli, const struct status *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(runtimes); i++) {
		const struct breaker_in *b = breaker_of(s, i);
		char state[OUT_CELL], message[OUT_CELL], line[3 * OUT_CELL];

		if (!b->breaker.n || str_is(b->breaker, "closed"))
			continue;
		out_text(b->breaker, state);
		out_text(b->message, message);
		(void)snprintf(line, sizeof line, "%s %s, tried again in %" PRId64 " s: %s",
			runtimes[i].name, state, b->retry_s.value, message);
		out_pair(&cli->out, "breaker", line);
	}
}

static void status_lines(struct cli *cli, const struct status *s)
{
	char number[24], disk[OUT_CELL];

	out_pair(&cli->out, "url", cli->config.api_url);
	out_pair(&cli->out, "from", cli->config.api_url_source);
	out_pair(&cli->out, "health", s->health);
	out_pair(&cli->out, "version", s->version[0] ? s->version : "-");
	(void)snprintf(number, sizeof number, "%zu", s->running);
	out_pair(&cli->out, "running", number);
	(void)snprintf(number, sizeof number, "%zu", s->paused);
	out_pair(&cli->out, "paused", number);
	if (str_is(s->disk.state, "short")) {
		out_text(s->disk.message, disk);
		out_pair(&cli->out, "disk", disk);
	}
	breaker_lines(cli, s);
}

int cmd_status(struct cli *cli)
{
	struct status s = { 0 };
	int r = ask_health(cli, &s, &cli->e);

	if (r == 0)
		r = count_sandboxes(cli, &s, &cli->e);
	if (r < 0)
		return r;
	ask_version(cli, &s);
	ask_breakers(cli, &s);
	if (cli->out.json)
		status_json(cli, &s);
	else if (cli->out.quiet)
		out_line(&cli->out, "%s", s.health);
	else
		status_lines(cli, &s);
	return EXIT_OK;
}
