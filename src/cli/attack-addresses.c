/* An address that was another sandbox's. Numbers go round, so on a large network it takes thousands
 * of sandboxes until one comes back: it is tried on a server of our own with a small one. What
 * belonged to the one before, its name, its token, the connections to it, its rules, must not work
 * for or on the one that has the address now. */
#include "cli/attack.h"

#include <poll.h>
#include <sys/socket.h>

enum {
	TRIES = 80, /* the rig's network has fewer addresses */
	LIFE_S = 120,
	OUTPUT_MAX = 1 << 20,
	CLOSE_MS = 15000,
	TABLE_MAX = 16 << 20,
};

#define ROW "addresses.reuse"
static const char title[] = "have what belonged to the sandbox that had the address before";
/* Nobody is there (it is kept for documentation): who may go there hears nothing, who may not is
 * told so. */
#define FAR "198.51.100.7"

struct reuse {
	struct attack *attack;
	struct target old, next;
	char address[64];
	int stream_fd; /* to a process of the old one */
	int made;      /* until the address came back */
};

static void say(struct reuse *u, enum attack_verdict verdict, const char *what)
{
	attack_say(u->attack, ROW, "client", verdict, title, "%s again after %d sandboxes: %s",
		u->address, u->made, what);
}

/* What is as it should be is told once, at the end. */
static void say_unless_refused(struct reuse *u, enum attack_verdict verdict, const char *what)
{
	if (verdict != ATTACK_REFUSED)
		say(u, verdict, what);
}

/* ---- the one before ---- */

/* A command that goes on, over a connection that stays open. */
static int open_stream(struct reuse *u, struct err *e)
{
	static const char json[] = "{\"process\":{\"cmd\":\"/bin/sleep\",\"args\":[\"600\"]},"
				   "\"stdin\":false}";
	CLEANUP(buf_done) struct buf request = BUF_INIT(8192);
	const char size[] = { 0, 0, 0, 0, (char)(sizeof json - 1) };

	(void)buf_printf(&request,
		"POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\n"
		"E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"
		"Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\n"
		"Connection: close\r\n"
		"Content-Length: %zu\r\n\r\n",
		u->old.id, u->old.token, sizeof json - 1 + sizeof size);
	(void)buf_add(&request, size, sizeof size);
	(void)buf_add(&request, json, sizeof json - 1);
	u->stream_fd = attack_dial(u->attack, buf_str(&request), e);
	return MIN(u->stream_fd, 0);
}

/* What a program inside hears from far away within that time: "refused", or nothing. */
static int knock(struct reuse *u, const struct target *target, const char *seconds,
	bool *ret_refused, struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	char shell[] = "/bin/bash", flag[] = "-c";
	char *script = arena_printf(u->attack->cli->arena,
		"timeout %s bash -c 'exec 3<>/dev/tcp/" FAR "/80' 2>&1; true", seconds);
	char *const argv[] = { shell, flag, script, NULL };
	const struct attack_command command = { .target = target, .user = "user", .argv = argv };
	int r = attack_exec(u->attack, &command, &out, e);

	*ret_refused = strstr(buf_str(&out).p, "refused") != NULL;
	return MIN(r, 0);
}

static int start_old(struct reuse *u, struct err *e)
{
	bool refused = false;
	int r = cli_sandbox_make(u->attack->cli, "base", LIFE_S, &u->old, e);

	if (r == 0)
		r = attack_address(u->attack, &u->old, u->address, e);
	if (r == 0 && !u->address[0])
		return err_set(e, -ENODEV, "sandboxes have no address here");
	if (r == 0)
		r = knock(u, &u->old, "0.5", &refused, e);
	if (r == 0 && refused)
		return err_set(e, -EIO, "even the first one is refused at " FAR);
	return r < 0 ? r : open_stream(u, e);
}

/* ---- until the address comes back ---- */

static int find_next(struct reuse *u, struct err *e)
{
	struct attack *a = u->attack;

	for (u->made = 1; u->made <= TRIES && !attack_is_stopped(a); u->made++) {
		char address[64] = "";
		int r = attack_create(a,
			"{\"templateID\":\"base\",\"timeout\":120,"
			"\"network\":{\"denyOut\":[\"0.0.0.0/0\"]}}",
			&u->next, e);

		if (r == 0)
			r = attack_address(a, &u->next, address, e);
		if (r < 0)
			return r;
		if (strcmp(address, u->address) == 0)
			return 0;
		(void)cli_sandbox_remove(a->cli, u->next.id, e);
		u->next = (struct target){ 0 };
	}
	return err_set(e, -EADDRNOTAVAIL, "%s did not come back in %d sandboxes", u->address,
		TRIES);
}

/* ---- what must not work any more ---- */

static void judge_names(struct reuse *u)
{
	static const int gone[] = { 404, 502, 0 }, wrong[] = { 401, 403, 0 };
	const struct attack_request request = { "GET", "/metrics", NULL, STR_NONE };
	struct attack_answer answer = { 0 };
	struct target mixed = u->next;
	struct err e = { 0 };
	int r = attack_fetch(u->attack, &u->old, &request, &answer, &e);

	say_unless_refused(u, attack_judge_status(r, answer.status, gone), "the old name");
	(void)snprintf(mixed.token, sizeof mixed.token, "%s", u->old.token);
	r = attack_fetch(u->attack, &mixed, &request, &answer, &e);
	say_unless_refused(u, attack_judge_status(r, answer.status, wrong),
		"the old token at the new name");
}

/* The old one's stream must have ended when it did. */
static void judge_stream(struct reuse *u)
{
	int64_t until_ms = time_now_ms() + CLOSE_MS;
	struct pollfd p = { .fd = u->stream_fd, .events = POLLIN };
	char bytes[4096];
	bool open_still = true;

	while (open_still && time_now_ms() < until_ms && poll(&p, 1, CLOSE_MS) > 0)
		open_still = recv(u->stream_fd, bytes, sizeof bytes, 0) > 0;
	if (open_still)
		say(u, ATTACK_ESCAPED, "a connection to the old one is still open");
}

static void judge_rules(struct reuse *u)
{
	bool refused = false;
	struct err e = { 0 };
	/* A refusal comes at once, but a busy machine may take its time to start who hears it. */
	int r = knock(u, &u->next, "20", &refused, &e);

	if (r < 0)
		say(u, ATTACK_INCONCLUSIVE, e.msg);
	else
		say(u, refused ? ATTACK_REFUSED : ATTACK_ESCAPED,
			refused ? "name, token, connection and rules of the old one are gone"
				: "the rules are the old one's");
}

/* Who is at that address, as this host believes: only the one that has it now. */
static void judge_neighbours(struct reuse *u)
{
	CLEANUP(buf_done) struct buf table = BUF_INIT(TABLE_MAX), mac = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };
	struct str rest, line;
	int r = attack_shell(u->attack, &u->next, NULL, "cat /sys/class/net/eth0/address", &mac,
		&e);

	if (r != 0 || file_read(AT_FDCWD, "/proc/net/arp", &table, NULL) < 0)
		return; /* gVisor has no such file, and the other signs are enough */
	rest = buf_str(&table);
	while (str_split(&rest, '\n', &line)) {
		struct str own = str_trim(str_make(buf_str(&mac).p, strcspn(mac.p, "\n")));

		if (str_has_prefix(line, str_of(u->address)) && line.p[strlen(u->address)] == ' ' &&
			!memmem(line.p, line.n, own.p, own.n))
			say(u, ATTACK_ESCAPED, "the host believes that somebody else is there");
	}
}

static void reuse_done(struct reuse *u)
{
	struct err e = { 0 };

	if (u->old.id[0])
		(void)cli_sandbox_remove(u->attack->cli, u->old.id, &e);
	if (u->next.id[0])
		(void)cli_sandbox_remove(u->attack->cli, u->next.id, &e);
	close_fdp(&u->stream_fd);
}

static void reuse_here(struct attack *a)
{
	CLEANUP(reuse_done) struct reuse u = { .attack = a, .stream_fd = -EBADF };
	struct err e = { 0 };
	int r = start_old(&u, &e);

	if (r == 0)
		r = cli_sandbox_remove(a->cli, u.old.id, &e);
	if (r == 0)
		r = find_next(&u, &e);
	if (r < 0) {
		say(&u, ATTACK_INCONCLUSIVE, e.msg);
		return;
	}
	judge_names(&u);
	judge_stream(&u);
	judge_neighbours(&u);
	judge_rules(&u);
	u.old.id[0] = '\0'; /* it is gone already */
}

/* ---- on a server of our own ---- */

/* A line of ours: verdict, name, as whom, title, evidence. */
static void take_line(struct attack *a, struct str line)
{
	CLEANUP(buf_done) struct buf turned = BUF_INIT(4096);
	struct str verdict, name, as, words, evidence;
	struct attack_line l;

	if (!str_split(&line, '\t', &verdict) || !str_split(&line, '\t', &name) ||
		!str_is(name, ROW) || !str_split(&line, '\t', &as) ||
		!str_split(&line, '\t', &words) || !str_split(&line, '\t', &evidence))
		return;
	(void)buf_printf(&turned, ROW "\t%.*s\t%s\t%.*s", STR_ARG(verdict), title,
		STR_ARG(evidence));
	if (attack_line_parse(buf_str(&turned), &l) == 0)
		attack_say(a, ROW, "client", l.verdict, title, "%.*s", STR_ARG(l.evidence));
}

static void reuse_elsewhere(struct attack *a)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	/* Addresses are given by the warden, whatever runs the sandbox. */
	const char *const words[] = { "doctor", "--attack", "--own-server", "--only", "addresses",
		"--template-cache", a->templates, NULL };
	size_t before = a->n;
	struct str rest, line;
	int r = attack_run(a, "/proc/self/exe", words, &out);

	rest = buf_str(&out);
	while (str_split(&rest, '\n', &line))
		take_line(a, line);
	if (a->n == before)
		attack_say(a, ROW, "client", ATTACK_INCONCLUSIVE, title,
			"a server of its own with a small network says nothing (%d): %.100s", r,
			buf_str(&out).p);
}

void attack_addresses(struct attack *a)
{
	if (a->rig.is_ours)
		reuse_here(a);
	else if (hostile_is_possible(a))
		reuse_elsewhere(a);
	else
		attack_say(a, ROW, "client", ATTACK_INCONCLUSIVE, title,
			"only root, who knows where the templates are, can start a server with a "
			"small network: --data DIR or --template-cache DIR");
}
