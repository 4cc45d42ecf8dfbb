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

/* Each of `width` processes makes one, all let go at the same moment; `count` such rounds. */
static int create_together(const struct target *t, int64_t count, int64_t width, struct err *e)
{
	for (int64_t round = 0; round < count; round++) {
		int64_t start_us = time_now_us() + 50000;
		int failed = 0, status;

		(void)fflush(stdout);
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
			if (r >= 0)
				r = remove_one(&w, t, id, e);
			if (r < 0)
				(void)fprintf(stderr, "bench-client: %s\n", e->msg);
			exit(r < 0);
		}
		while (wait(&status) > 0)
			failed += status != 0;
		if (failed)
			return err_set(e, -EIO, "%d of %d failed", failed, (int)width);
	}
	return 0;
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

static int run(int argc, char **argv, struct err *e)
{
	struct target t = { .host = "127.0.0.1", .key = getenv("E2B_API_KEY") };
	int64_t port, a = 0, b = 0;
	int r;

	if (argc > 3 && strcmp(argv[1], "spawn") == 0 &&
		str_to_int(str_of(argv[2]), 1, INT64_MAX, &a) == 0)
		return spawn_many(a, argv + 3, e);
	if (argc < 3 || str_to_int(str_of(argv[2]), 1, 65535, &port) < 0)
		return err_set(e, -EINVAL,
			"usage: bench-client create PORT COUNT IDLE-MS | together PORT ROUNDS "
			"WIDTH | exec PORT ID TOKEN COUNT | put|get PORT ID TOKEN BYTES | "
			"spawn COUNT COMMAND...");
	t.port = (int)port;
	t.key = t.key ? t.key : "";
	if (argc == 5 && str_to_int(str_of(argv[3]), 1, INT64_MAX, &a) == 0 &&
		str_to_int(str_of(argv[4]), 0, INT64_MAX, &b) == 0) {
		if (strcmp(argv[1], "create") == 0)
			return create_many(&t, a, b, e);
		if (strcmp(argv[1], "together") == 0)
			return create_together(&t, a, b, e);
	}
	r = argc == 6 ? str_to_int(str_of(argv[5]), 1, INT64_MAX, &a) : -EINVAL;
	if (r < 0)
		return err_set(e, r, "bad arguments for %s", argv[1]);
	t.id = argv[3];
	t.token = argv[4];
	if (strcmp(argv[1], "exec") == 0)
		return exec_many(&t, a, e);
	return transfer(&t, strcmp(argv[1], "put") == 0 ? "POST" : "GET", a, e);
}

int main(int argc, char **argv)
{
	struct err e = { 0 };

	if (run(argc, argv, &e) >= 0)
		return 0;
	(void)fprintf(stderr, "bench-client: %s\n", e.msg);
	return 1;
}
