/* Ways to speak to a sandbox: well behaved over the client, and byte by byte over a socket. */
#include "cli/attack.h"
#include "cli/exec.h"

#include <netdb.h>
#include <poll.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
	ANSWER_MAX = 16 << 20,
	OUTPUT_MAX = 4 << 20,
	EXEC_MS = 180 * 1000,
	FETCH_MS = 30 * 1000,
	WORDS_MAX = 16,
};

/* ---- over the client ---- */

struct fetching {
	struct attack *attack;
	struct attack_answer *ret;
	struct err *e;
	int r;
};

static void on_answer(void *arg, int r, const struct client_call *call, struct str body,
	const struct err *e)
{
	struct fetching *f = arg;
	char *copy = r < 0 ? NULL : arena_dup(f->attack->cli->arena, body);

	f->r = r;
	if (r < 0 && f->e)
		*f->e = *e;
	else if (r >= 0)
		*f->ret = (struct attack_answer){ client_status(call),
			str_make(copy, copy ? body.n : 0) };
	loop_stop(f->attack->cli->loop);
}

int attack_fetch(struct attack *a, const struct target *target,
	const struct attack_request *request, struct attack_answer *ret, struct err *e)
{
	struct fetching f = { .attack = a, .ret = ret, .e = e };
	struct client_request http = { .method = request->method,
		.body = request->body,
		.timeout_ms = FETCH_MS };
	int r = cli_api_open(a->cli, e);

	if (r < 0)
		return r;
	http.url = arena_printf(a->cli->arena, "%s%s",
		target ? a->cli->config.sandbox_url : a->cli->config.api_url, request->path);
	http.headers = target ? cli_sandbox_headers(a->cli, target, NULL, request->headers)
			      : request->headers;
	(void)client_fetch(a->cli->client, &http, ANSWER_MAX, on_answer, &f);
	r = loop_run(a->cli->loop, e);
	return r < 0 ? r : f.r;
}

int attack_file(struct attack *a, const struct target *target, const char *method, const char *path,
	struct str body, struct attack_answer *ret, struct err *e)
{
	static const char *const type[] = { "Content-Type: application/octet-stream", NULL };
	CLEANUP(buf_done) struct buf query = BUF_INIT(16 << 10);
	struct attack_request request = { .method = method, .headers = type, .body = body };
	char *copy;

	(void)buf_adds(&query, "/files?username=root&path=");
	(void)percent_encode(str_of(path), &query);
	copy = arena_dup(a->cli->arena, buf_str(&query));
	request.path = copy ? copy : "";
	return attack_fetch(a, target, &request, ret, e);
}

bool attack_is_alive(struct attack *a, const struct target *target)
{
	static const struct attack_request request = { .method = "GET", .path = "/health" };
	struct attack_answer answer = { 0 };
	struct err e = { 0 };

	return attack_fetch(a, target, &request, &answer, &e) == 0 && answer.status / 100 == 2;
}

/* The request with what the whole run is about: a runtime, nested sandboxes. */
static const char *with_runtime(struct attack *a, const char *json)
{
	const char *runtime = args_value(&a->cli->args, "runtime");

	if (args_has(&a->cli->args, "nested"))
		json = arena_printf(a->cli->arena, "{\"nested\":true,%s", json + 1);
	return runtime ? arena_printf(a->cli->arena, "{\"runtime\":\"%s\",%s", runtime, json + 1)
		       : json;
}

int attack_create(struct attack *a, const char *json, struct target *ret, struct err *e)
{
	return attack_create_local(a, with_runtime(a, json), ret, e);
}

int attack_create_local(struct attack *a, const char *json, struct target *ret, struct err *e)
{
	struct made {
		struct str id;
	} made = { 0 };
	static const struct json_field fields[] = {
		JSON_FIELD(struct made, id, "sandboxID", JSON_STR, .flags = JSON_REQUIRED),
	};
	static const struct json_shape shape =
		JSON_SHAPE(struct made, fields, .ignore_unknown = true);
	const struct api_request request = { .method = "POST",
		.path = "/v2/sandboxes",
		.body = str_of(json) };
	struct api_reply reply;
	char id[CLI_ID];
	int r = cli_api_call(a->cli, &request, &reply, e);

	if (r == 0)
		r = json_decode(a->cli->arena, reply.body, &shape, &made, e);
	if (r < 0)
		return r;
	(void)snprintf(id, sizeof id, "%.*s", STR_ARG(made.id));
	return cli_sandbox_open(a->cli, id, ret, e);
}

/* ---- byte by byte ---- */

static bool split_url(const char *url, char host[128], char port[8])
{
	struct str rest = str_of(url), authority;
	ptrdiff_t colon;

	if (str_has_prefix(rest, STR("http://")))
		rest = str_from(rest, 7);
	else if (str_has_prefix(rest, STR("https://")))
		rest = str_from(rest, 8); /* on this machine plain bytes are taken there as well */
	else
		return false;
	if (!str_split(&rest, '/', &authority))
		return false;
	colon = str_find(authority, ':');
	(void)snprintf(host, 128, "%.*s", (int)(colon < 0 ? (ptrdiff_t)authority.n : colon),
		authority.p);
	if (colon < 0)
		(void)snprintf(port, 8, "80");
	else
		(void)snprintf(port, 8, "%.*s", STR_ARG(str_from(authority, (size_t)colon + 1)));
	return true;
}

int attack_dial(struct attack *a, struct str bytes, struct err *e)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	const struct timeval wait = { .tv_sec = ATTACK_WAIT_MS / 1000 };
	cleanup_close int fd = -EBADF;
	char host[128], port[8];
	int r;

	if (!split_url(a->cli->config.sandbox_url, host, port) ||
		getaddrinfo(host, port, &hints, &found) != 0)
		return err_set(e, -EINVAL, "no address in %s", a->cli->config.sandbox_url);
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	r = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 ? -errno : 0;
	freeaddrinfo(found);
	if (r == 0 && send(fd, bytes.p, bytes.n, MSG_NOSIGNAL) != (ssize_t)bytes.n)
		r = -errno;
	return r < 0 ? err_sys(e, r, "send to %s", host) : TAKE_FD(fd);
}

int attack_raw(struct attack *a, struct str bytes, int64_t wait_ms, struct buf *answer,
	struct err *e)
{
	int64_t until_ms = time_now_ms() + wait_ms, left_ms;
	cleanup_close int fd = attack_dial(a, bytes, e);

	if (fd < 0)
		return fd;
	while ((left_ms = until_ms - time_now_ms()) > 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char *at = buf_reserve(answer, 4096);
		ssize_t n;

		if (!at || poll(&p, 1, (int)left_ms) <= 0)
			break;
		n = recv(fd, at, 4096, 0);
		if (n <= 0)
			break;
		answer->n += (size_t)n;
		at[n] = '\0';
	}
	return 0;
}

/* ---- programs of this machine ---- */

static int spawn(const char *program, char *const *argv, int out_fd, pid_t *ret)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r;

	(void)sigemptyset(&none);
	(void)posix_spawn_file_actions_init(&files);
	(void)posix_spawn_file_actions_adddup2(&files, out_fd, STDOUT_FILENO);
	(void)posix_spawn_file_actions_adddup2(&files, out_fd, STDERR_FILENO);
	(void)posix_spawnattr_init(&attributes);
	(void)posix_spawnattr_setsigmask(&attributes, &none);
	(void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn(ret, program, &files, &attributes, argv, environ);
	(void)posix_spawnattr_destroy(&attributes);
	(void)posix_spawn_file_actions_destroy(&files);
	return -r;
}

int attack_run(struct attack *a, const char *program, const char *const *words, struct buf *out)
{
	char *argv[WORDS_MAX + 2] = { arena_dup(a->cli->arena, str_of(program)) };
	int pipe_fds[2], r;
	pid_t pid = 0;

	for (size_t n = 0; words[n] && n < WORDS_MAX; n++)
		argv[n + 1] = arena_dup(a->cli->arena, str_of(words[n]));
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	r = spawn(program, argv, pipe_fds[1], &pid);
	(void)close(pipe_fds[1]);
	if (r == 0) {
		r = fd_read_all(pipe_fds[0], out);
		(void)waitpid(pid, NULL, 0);
	}
	(void)close(pipe_fds[0]);
	return r;
}

/* ---- commands ---- */

static int take_output(void *arg, bool is_stderr, struct str bytes, struct err *e)
{
	struct buf *out = arg;

	(void)e;
	if (!is_stderr && out->n + bytes.n < OUTPUT_MAX) /* what is more is of no interest */
		(void)buf_add_str(out, bytes);
	return 0;
}

int attack_exec(struct attack *a, const struct attack_command *command, struct buf *out,
	struct err *e)
{
	struct exec_request q = { .target = command->target,
		.argv = command->argv,
		.user = command->user,
		.cwd = command->cwd,
		.tty = command->tty,
		.timeout_ms = EXEC_MS,
		.stdin_fd = -EBADF,
		.output = take_output,
		.output_arg = out };
	struct exec_result result;
	int r;

	while (command->argv[q.argc])
		q.argc++;
	r = cli_exec_run(a->cli, &q, &result, e);
	if (r < 0)
		return r;
	/* Meant for us, though the command got it: nothing of ours ends by itself that way. */
	if (result.signo == SIGINT || result.signo == SIGTERM || result.signo == SIGHUP)
		a->cli->signal_seen = result.signo;
	return result.exit_code;
}

int attack_shell(struct attack *a, const struct target *target, const char *user,
	const char *script, struct buf *out, struct err *e)
{
	char shell[] = "/bin/sh", flag[] = "-c";
	char *copy = arena_dup(a->cli->arena, str_of(script));
	char *const argv[] = { shell, flag, copy, NULL };
	struct attack_command command = { .target = target, .user = user, .argv = argv };

	return copy ? attack_exec(a, &command, out, e) : -ENOMEM;
}

int attack_address(struct attack *a, const struct target *target, char ret[64], struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct str rest, word;
	int r = attack_shell(a, target, NULL, "hostname -I", &out, e);

	ret[0] = '\0';
	rest = str_trim(buf_str(&out));
	if (r == 0 && str_split(&rest, ' ', &word) && word.n < 64 && word.n > 6)
		(void)snprintf(ret, 64, "%.*s", STR_ARG(str_trim(word)));
	return r < 0 ? r : 0;
}
