/* Measures one thing about a running server and prints each sample in microseconds, one a line:
 * the interpreter that draws the table must not be in what it measures. */
#include "wire.h"

#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

struct target {
	const char *host, *key, *id, *token;
	int port;
};

static void print_sample(int64_t began_us)
{
	printf("%" PRId64 "\n", time_now_us() - began_us);
}

static void sleep_ms(int64_t ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	(void)nanosleep(&t, NULL);
}

static int expect(const struct wire_answer *a, int status, struct err *e)
{
	if (a->status == status)
		return 0;
	return err_set(e, -EPROTO, "expected %d, got %d: %.150s", status, a->status, a->body);
}

/* --- create: request sent to 201 received; the removal is not timed --- */

static int create_one(struct wire *w, const struct target *t, char *id, size_t id_size,
	struct err *e)
{
	static const char body[] = "{\"templateID\":\"base\",\"timeout\":300}";
	struct wire_answer a;
	char text[512], *at;
	int r;

	(void)snprintf(text, sizeof text,
		"POST /v2/sandboxes HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\n"
		"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		t->host, t->key, sizeof body - 1, body);
	r = wire_send(w, str_of(text), e);
	if (r >= 0)
		r = wire_receive(w, &a, e);
	if (r >= 0)
		r = expect(&a, 201, e);
	if (r < 0)
		return r;
	at = strstr(a.body, "\"sandboxID\":\"");
	if (!at)
		return err_set(e, -EPROTO, "no sandboxID in: %.150s", a.body);
	at += strlen("\"sandboxID\":\"");
	(void)snprintf(id, id_size, "%.*s", (int)strcspn(at, "\""), at);
	return 0;
}

static int remove_one(struct wire *w, const struct target *t, const char *id, struct err *e)
{
	struct wire_answer a;
	char text[512];
	int r;

	(void)snprintf(text, sizeof text,
		"DELETE /sandboxes/%s HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\n\r\n", id, t->host,
		t->key);
	r = wire_send(w, str_of(text), e);
	if (r >= 0)
		r = wire_receive(w, &a, e);
	return r < 0 ? r : expect(&a, 204, e);
}

static int create_many(const struct target *t, int64_t count, int64_t idle_ms, struct err *e)
{
	static struct wire w;
	char id[64];
	int r = wire_dial(&w, t->host, t->port, e);

	for (int64_t i = 0; r >= 0 && i < count; i++) {
		int64_t began_us = time_now_us();

		r = create_one(&w, t, id, sizeof id, e);
		if (r < 0)
			break;
		print_sample(began_us);
		r = remove_one(&w, t, id, e);
		sleep_ms(idle_ms);
	}
	wire_done(&w);
	return r;
}

/* The other end is closed by each that is ready: until then nobody removes anything, since removals
 * are not what is measured. */
static void wait_for_all(const int all_ready[2])
{
	char none;

	(void)close(all_ready[1]);
	(void)!read(all_ready[0], &none, 1);
}

/* Each of `width` processes makes one, all let go at the same moment; `count` such rounds. */
static int create_together(const struct target *t, int64_t count, int64_t width, int64_t idle_ms,
	struct err *e)
{
	for (int64_t round = 0; round < count; round++) {
		int64_t start_us;
		int failed = 0, status, all_ready[2];

		(void)fflush(stdout);
		if (pipe(all_ready) < 0)
			return err_sys(e, -errno, "pipe");
		sleep_ms(idle_ms);
		start_us = time_now_us() + 50000;
		for (int64_t i = 0; i < width; i++) {
			static struct wire w;
			char id[64];
			int r;

			if (fork() != 0)
				continue;
			r = wire_dial(&w, t->host, t->port, e);
			sleep_ms((start_us - time_now_us()) / 1000);
			if (r >= 0)
				r = create_one(&w, t, id, sizeof id, e);
			if (r >= 0)
				print_sample(start_us);
			wait_for_all(all_ready);
			if (r >= 0)
				r = remove_one(&w, t, id, e);
			if (r < 0)
				(void)fprintf(stderr, "bench-client: %s\n", e->msg);
			exit(r < 0);
		}
		(void)close(all_ready[0]);
		(void)close(all_ready[1]);
		while (wait(&status) > 0)
			failed += status != 0;
		if (failed)
			return err_set(e, -EIO, "%d of %d failed", failed, (int)width);
	}
	return 0;
}

/* --- churn: `width` processes, each creates and removes until the time is up. A line for each
 * sandbox: how long until it was ready, and how long until it was gone. --- */

static int churn(const struct target *t, int64_t until_us, struct err *e)
{
	static struct wire w;
	char id[64];
	int r = wire_dial(&w, t->host, t->port, e);

	while (r >= 0 && time_now_us() < until_us) {
		int64_t began_us = time_now_us(), ready_us;

		r = create_one(&w, t, id, sizeof id, e);
		ready_us = time_now_us();
		if (r >= 0)
			r = remove_one(&w, t, id, e);
		if (r >= 0)
			printf("%" PRId64 " %" PRId64 "\n", ready_us - began_us,
				time_now_us() - ready_us);
	}
	wire_done(&w);
	return r;
}

static int churn_together(const struct target *t, int64_t width, int64_t ms, struct err *e)
{
	int64_t until_us = time_now_us() + ms * 1000;
	int failed = 0, status;

	for (int64_t i = 0; i < width; i++) {
		int r;

		if (fork() != 0)
			continue;
		r = churn(t, until_us, e);
		if (r < 0)
			(void)fprintf(stderr, "bench-client: %s\n", e->msg);
		exit(r < 0);
	}
	while (wait(&status) > 0)
		failed += status != 0;
	return failed ? err_set(e, -EIO, "%d of %d failed", failed, (int)width) : 0;
}

/* --- exec: one command, from request sent to the end of its stream --- */

static int exec_many(const struct target *t, int64_t count, struct err *e)
{
	static const char start[] =
		"{\"process\":{\"cmd\":\"/bin/true\",\"args\":[]},\"stdin\":false}";
	static struct wire w;
	struct wire_answer a;
	char text[1024];
	int n, r = wire_dial(&w, t->host, t->port, e);

	n = snprintf(text, sizeof text,
		"POST /process.Process/Start HTTP/1.1\r\nHost: %s\r\nE2b-Sandbox-Id: %s\r\n"
		"E2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"
		"Content-Type: application/connect+json\r\nContent-Length: %zu\r\n\r\n",
		t->host, t->id, t->token, sizeof start - 1 + 5);
	/* One Connect envelope: no flags, a 32-bit length, the message. */
	memcpy(text + n, (char[]){ 0, 0, 0, 0, (char)(sizeof start - 1) }, 5);
	memcpy(text + n + 5, start, sizeof start - 1);
	for (int64_t i = 0; r >= 0 && i < count; i++) {
		int64_t began_us = time_now_us();

		r = wire_send(&w, str_make(text, (size_t)n + 5 + sizeof start - 1), e);
		if (r >= 0)
			r = wire_receive(&w, &a, e);
		if (r >= 0)
			r = expect(&a, 200, e);
		if (r < 0)
			break;
		print_sample(began_us);
	}
	wire_done(&w);
	return r;
}

/* --- files: the same code against a sandbox and against the plain peer --- */

static int transfer(const struct target *t, const char *method, int64_t bytes, struct err *e)
{
	static struct wire w;
	struct wire_answer a = { 0 };
	char text[1024];
	bool up = strcmp(method, "POST") == 0;
	int64_t began_us;
	int r = wire_dial(&w, t->host, t->port, e);

	(void)snprintf(text, sizeof text,
		"%s /files?path=/home/user/bench HTTP/1.1\r\nHost: %s\r\nE2b-Sandbox-Id: %s\r\n"
		"E2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"
		"Content-Type: application/octet-stream\r\nContent-Length: %" PRId64 "\r\n\r\n",
		method, t->host, t->id, t->token, up ? bytes : 0);
	began_us = time_now_us();
	if (r >= 0)
		r = wire_send(&w, str_of(text), e);
	if (r >= 0 && up)
		r = wire_send_bytes(&w, bytes, e);
	if (r >= 0)
		r = wire_receive(&w, &a, e);
	if (r >= 0)
		r = expect(&a, 200, e);
	if (r >= 0 && !up && a.body_bytes != bytes)
		r = err_set(e, -EIO, "%" PRId64 " bytes came instead of %" PRId64, a.body_bytes,
			bytes);
	if (r >= 0)
		print_sample(began_us);
	wire_done(&w);
	return r;
}

/* --- a peer: any command, from spawn to reaped --- */

static int spawn_many(int64_t count, char **command, struct err *e)
{
	for (int64_t i = 0; i < count; i++) {
		int64_t began_us = time_now_us();
		int status, r;
		pid_t pid;

		r = posix_spawnp(&pid, command[0], NULL, NULL, command, environ);
		if (r != 0)
			return err_sys(e, -r, "run %s", command[0]);
		if (waitpid(pid, &status, 0) < 0)
			return err_sys(e, -errno, "wait for %s", command[0]);
		if (status != 0)
			return err_set(e, -EIO, "%s failed", command[0]);
		print_sample(began_us);
	}
	return 0;
}

/* --- call: a request timed, and another, untimed, that undoes it (path "-": none) --- */

static int call_once(struct wire *w, const struct target *t, const char *path, const char *body,
	struct err *e)
{
	struct wire_answer a;
	char text[1024];
	int r;

	(void)snprintf(text, sizeof text,
		"POST %s HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\n"
		"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		path, t->host, t->key, strlen(body), body);
	r = wire_send(w, str_of(text), e);
	if (r >= 0)
		r = wire_receive(w, &a, e);
	if (r >= 0 && a.status >= 300)
		r = err_set(e, -EPROTO, "%s: %d %.150s", path, a.status, a.body);
	return r;
}

static int call_many(const struct target *t, int64_t count, char **words, struct err *e)
{
	static struct wire w;
	int r = wire_dial(&w, t->host, t->port, e);

	for (int64_t i = 0; r >= 0 && i < count; i++) {
		int64_t began_us = time_now_us();

		r = call_once(&w, t, words[0], words[1], e);
		if (r >= 0)
			print_sample(began_us);
		if (r >= 0 && strcmp(words[2], "-") != 0)
			r = call_once(&w, t, words[2], words[3], e);
		sleep_ms(20);
	}
	wire_done(&w);
	return r;
}

/* --- repeat: the same request, one after the other without a pause --- */

static int repeat_many(const struct target *t, int64_t count, char **words, struct err *e)
{
	static struct wire w;
	int r = wire_dial(&w, t->host, t->port, e);

	for (int64_t i = 0; r >= 0 && i < count; i++) {
		int64_t began_us = time_now_us();

		r = call_once(&w, t, words[0], words[1], e);
		if (r >= 0)
			print_sample(began_us);
	}
	wire_done(&w);
	return r;
}

/* --- the command line --- */

static int64_t number(const char *text)
{
	int64_t value;

	return str_to_int(str_of(text), 0, INT64_MAX, &value) < 0 ? 0 : value;
}

static int mode_create(struct target *t, char **words, struct err *e)
{
	return create_many(t, number(words[0]), number(words[1]), e);
}

static int mode_together(struct target *t, char **words, struct err *e)
{
	return create_together(t, number(words[0]), number(words[1]), number(words[2]), e);
}

static int mode_churn(struct target *t, char **words, struct err *e)
{
	return churn_together(t, number(words[0]), number(words[1]), e);
}

static int mode_exec(struct target *t, char **words, struct err *e)
{
	t->id = words[0];
	t->token = words[1];
	return exec_many(t, number(words[2]), e);
}

static int mode_put(struct target *t, char **words, struct err *e)
{
	t->id = words[0];
	t->token = words[1];
	return transfer(t, "POST", number(words[2]), e);
}

static int mode_get(struct target *t, char **words, struct err *e)
{
	t->id = words[0];
	t->token = words[1];
	return transfer(t, "GET", number(words[2]), e);
}

static int mode_call(struct target *t, char **words, struct err *e)
{
	return call_many(t, number(words[0]), words + 1, e);
}

static int mode_repeat(struct target *t, char **words, struct err *e)
{
	return repeat_many(t, number(words[0]), words + 1, e);
}

static const struct {
	const char *name, *usage;
	int words; /* behind the port */
	int (*run)(struct target *t, char **words, struct err *e);
} modes[] = {
	{ "create", "PORT COUNT IDLE-MS", 2, mode_create },
	{ "together", "PORT ROUNDS WIDTH IDLE-MS", 3, mode_together },
	{ "churn", "PORT WIDTH MS", 2, mode_churn },
	{ "exec", "PORT ID TOKEN COUNT", 3, mode_exec },
	{ "put", "PORT ID TOKEN BYTES", 3, mode_put },
	{ "get", "PORT ID TOKEN BYTES", 3, mode_get },
	{ "repeat", "PORT COUNT PATH BODY", 3, mode_repeat },
	{ "call", "PORT COUNT PATH BODY UNDO-PATH UNDO-BODY", 5, mode_call },
};

static int usage(struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		(void)fprintf(stderr, "usage: bench-client %s %s\n", modes[i].name, modes[i].usage);
	return err_set(e, -EINVAL, "or: bench-client spawn COUNT COMMAND...");
}

static int run(int argc, char **argv, struct err *e)
{
	struct target t = { .host = "127.0.0.1", .key = getenv("E2B_API_KEY") };

	if (argc > 3 && strcmp(argv[1], "spawn") == 0)
		return spawn_many(number(argv[2]), argv + 3, e);
	for (size_t i = 0; argc > 2 && i < ARRAY_SIZE(modes); i++) {
		if (strcmp(argv[1], modes[i].name) != 0 || argc != 3 + modes[i].words)
			continue;
		t.port = (int)number(argv[2]);
		t.key = t.key ? t.key : "";
		return modes[i].run(&t, argv + 3, e);
	}
	return usage(e);
}

int main(int argc, char **argv)
{
	struct err e = { 0 };

	if (run(argc, argv, &e) >= 0)
		return 0;
	(void)fprintf(stderr, "bench-client: %s\n", e.msg);
	return 1;
}
