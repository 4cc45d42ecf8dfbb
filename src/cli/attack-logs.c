/* Control characters on their way into what people read: the command line's own output, and the
 * server's log where it is ours. */
#include "cli/attack.h"

enum {
	OUTPUT_MAX = 4 << 20,
	LOG_MAX = 64 << 20,
	WORDS_MAX = 8,
};

#define ESCAPE "\033]0;owned\007\033[31mred\033[0m"
static const char title[] = "bring terminal escapes into logs and listings";

static bool has_escapes(struct str text)
{
	for (size_t i = 0; i < text.n; i++)
		if ((unsigned char)text.p[i] < ' ' && !memchr("\n\t\r", text.p[i], 3))
			return true;
	return false;
}

static void judge(struct attack *a, const char *where, int r, const struct buf *text)
{
	attack_say(a, "logs.escapes", "client",
		r < 0                        ? ATTACK_INCONCLUSIVE
		: has_escapes(buf_str(text)) ? ATTACK_ESCAPED
					     : ATTACK_REFUSED,
		title, "%s: %zu bytes, %s", where, text->n,
		has_escapes(buf_str(text)) ? "with control characters" : "clean");
}

/* With the URL and the key of this run, which may be a server of our own. */
static void judge_command(struct attack *a, const char *where, const char *const *words)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	const char *all[WORDS_MAX + 1] = { NULL };
	size_t n = 0;

	for (; words[n] && n < WORDS_MAX - 2; n++)
		all[n] = words[n];
	if (a->cli->config.data[0]) { /* else the environment says which server it is */
		all[n++] = "--data";
		all[n++] = a->cli->config.data;
	}
	judge(a, where, attack_run(a, "/proc/self/exe", all, &out), &out);
}

/* Wherever a text of ours may be repeated: names, targets, headers, metadata. */
static void speak(struct attack *a)
{
	static const char *const heads[] = {
		"GET /" ESCAPE " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"GET /%1b%5b31m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " ESCAPE "\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: " ESCAPE "\r\n"
		"E2b-Sandbox-Port: 1\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " ESCAPE
		"\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: 80-x\033[31m.localhost\r\nConnection: close\r\n\r\n",
	};
	struct api_request request = { .method = "POST",
		.path = "/v2/sandboxes",
		.body = STR("{\"templateID\":\"\\u001b[31mred\\u0007\"}") };
	struct api_reply reply;
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		CLEANUP(buf_done) struct buf answer = BUF_INIT(OUTPUT_MAX);

		(void)attack_raw(a, str_of(heads[i]), ATTACK_WAIT_MS, &answer, &e);
	}
	(void)cli_api_call(a->cli, &request, &reply, &e);
}

void attack_logs(struct attack *a)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX), log = BUF_INIT(LOG_MAX);
	struct target loud = { 0 };
	struct err e = { 0 };
	int r;

	speak(a);
	/* A sandbox whose metadata is called so. */
	r = attack_create(a,
		"{\"templateID\":\"base\",\"timeout\":120,"
		"\"metadata\":{\"a\\u001b[31mb\":\"\\u001b]0;owned\\u0007\"}}",
		&loud, &e);
	if (r == -EBADMSG || r == -EINVAL) /* such metadata is not taken: nothing to show */
		(void)snprintf(loud.id, sizeof loud.id, "%s", a->attacker.id);
	(void)attack_shell(a, &a->attacker, "root", "printf '\\033[31m' | tee /dev/stderr", &out,
		&e);
	judge_command(a, "sandbox ls", (const char *const[]){ "sandbox", "ls", NULL });
	judge_command(a, "sandbox info", (const char *const[]){ "sandbox", "info", loud.id, NULL });
	judge_command(a, "sandbox logs", (const char *const[]){ "sandbox", "logs", loud.id, NULL });
	judge_command(a, "an error that repeats a name",
		(const char *const[]){ "sandbox", "create", ESCAPE, NULL });
	if (a->rig.is_ours) {
		r = file_read(AT_FDCWD, a->rig.log, &log, &e);
		judge(a, "the server's log", r, &log);
	}
	if (loud.id[0] && strcmp(loud.id, a->attacker.id) != 0)
		(void)cli_sandbox_remove(a->cli, loud.id, &e);
}
