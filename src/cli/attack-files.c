/* The file API from outside, with everything that a path can be: the guest does this work as root
 * inside, so what it can be led to is what counts. */
#include "cli/attack.h"
#include "cli/cp.h"

#include <fcntl.h>
#include <sys/stat.h>

enum {
	OUTPUT_MAX = 1 << 20,
	GUEST_FDS = 12,
};

#define BASE_FILE "/usr/lib/os-release" /* of the template, and so of every sandbox */
#define HARD_LINK "/usr/lib/a-hard"     /* on the same file system: /tmp may be another */

/* ---- reading ---- */

/* Its words, where it refuses. */
static const char *said(const struct attack_answer *answer)
{
	return answer->status / 100 == 2 || !answer->body.p ? "" : answer->body.p;
}

enum attack_verdict attack_judge_file(int r, const struct attack_answer *answer)
{
	static const char *const words[] = { "Read-only file system", "Permission denied",
		"Operation not permitted", "No such device or address" };
	static const int no_file[] = { 400, 403, 404, 0 };

	for (size_t i = 0; r >= 0 && answer->status == 500 && i < ARRAY_SIZE(words); i++)
		if (memmem(answer->body.p, answer->body.n, words[i], strlen(words[i])))
			return ATTACK_REFUSED;
	return attack_judge_status(r, answer->status, no_file);
}

static void read_path(struct attack *a, const char *name, const char *title, const char *start)
{
	char *path = arena_printf(a->cli->arena, "%s%s", start, a->secret);
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	int r = attack_file(a, &a->attacker, "GET", path, STR_NONE, &answer, &e);

	if (r < 0)
		attack_say(a, name, "client", ATTACK_INCONCLUSIVE, title, "%s: %s", path, e.msg);
	else if (answer.body.n && memmem(answer.body.p, answer.body.n, a->mark, strlen(a->mark)))
		attack_say(a, name, "client", ATTACK_ESCAPED, title, "%s is the host's file", path);
	else if (answer.status == 200)
		attack_say(a, name, "client", ATTACK_CONTAINED, title,
			"%s is another file than the host's", path);
	else
		attack_say(a, name, "client", attack_judge_file(r, &answer), title,
			"%s: status %d %.120s", path, answer.status, said(&answer));
}

static void read_all(struct attack *a)
{
	static const char *const dots[] = { "", "/..", "/../../../../../..", "/tmp/../../../.." };
	static const char *const magic[] = { "/proc/1/root", "/proc/self/root", "/proc/self/cwd",
		"/proc/1/cwd", "/proc/thread-self/root", "/proc/self/task/1/root",
		"/proc/1/root/proc/1/root", "/dev/fd/0/.." };
	static const char *const links[] = { "/tmp/a-root", "/tmp/a-dots", "/tmp/a-loop/a-root",
		"/tmp/a-cwd" };

	for (size_t i = 0; i < ARRAY_SIZE(dots); i++)
		read_path(a, "files.dots", "read a file of the host by ..", dots[i]);
	for (size_t i = 0; i < ARRAY_SIZE(magic); i++)
		read_path(a, "files.magic-links", "read a file of the host by /proc", magic[i]);
	for (int fd = 0; fd < GUEST_FDS; fd++)
		read_path(a, "files.magic-links", "read a file of the host by /proc",
			arena_printf(a->cli->arena, "/proc/self/fd/%d/../../..", fd));
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		read_path(a, "files.symlinks", "read a file of the host by a symbolic link",
			links[i]);
}

/* The same with the guest's other route that reads files. */
static void compose(struct attack *a)
{
	static const char title[] = "have a file of the host copied by compose";
	struct attack_answer answer = { 0 }, copy = { 0 };
	struct err e = { 0 };
	char *body = arena_printf(a->cli->arena,
		"{\"source_paths\":[\"/proc/1/root%s\"],\"destination\":\"/tmp/a-composed\"}",
		a->secret);
	static const char *const type[] = { "Content-Type: application/json", NULL };
	int r = attack_fetch(a, &a->attacker,
		&(struct attack_request){ "POST", "/files/compose", type, str_of(body) }, &answer,
		&e);

	if (r == 0)
		r = attack_file(a, &a->attacker, "GET", "/tmp/a-composed", STR_NONE, &copy, &e);
	if (r < 0)
		attack_say(a, "files.compose", "client", ATTACK_INCONCLUSIVE, title, "%s", e.msg);
	else if (copy.body.n && memmem(copy.body.p, copy.body.n, a->mark, strlen(a->mark)))
		attack_say(a, "files.compose", "client", ATTACK_ESCAPED, title, "it was copied");
	else
		attack_say(a, "files.compose", "client", attack_judge_file(r, &answer), title,
			"status %d", answer.status);
}

/* ---- writing ---- */

/* What is there already, or what does nothing: an escape must not do harm. */
static void write_switch(struct attack *a, const char *path, const char *harmless)
{
	static const char title[] = "write a switch of the host by the file API";
	struct attack_answer was = { 0 }, answer = { 0 };
	struct err e = { 0 };
	int r = attack_file(a, &a->attacker, "GET", path, STR_NONE, &was, &e);

	if (a->api_port && access(path, F_OK) < 0) {
		attack_say(a, "files.switches", "client", ATTACK_ABSENT, title,
			"the host has no %s", path);
		return;
	}
	if (r == 0 && !harmless && was.status != 200) { /* nothing to write that does no harm */
		attack_say(a, "files.switches", "client", attack_judge_file(r, &was), title,
			"%s: status %d", path, was.status);
		return;
	}
	if (r == 0)
		r = attack_file(a, &a->attacker, "POST", path,
			harmless ? str_of(harmless) : was.body, &answer, &e);
	attack_say(a, "files.switches", "client", attack_judge_file(r, &answer), title,
		"%s: status %d %.100s", path, answer.status, r < 0 ? e.msg : said(&answer));
}

static void write_runtime(struct attack *a, const char *path)
{
	static const char title[] = "write the runtime's program by the file API";
	struct attack_answer before = { 0 }, answer = { 0 }, after = { 0 };
	struct err e = { 0 };
	int r = attack_file(a, &a->attacker, "GET", path, STR_NONE, &before, &e);

	if (r == 0)
		r = attack_file(a, &a->attacker, "POST", path, STR("#!/bin/false\n"), &answer, &e);
	if (r == 0)
		r = attack_file(a, &a->attacker, "GET", path, STR_NONE, &after, &e);
	if (r < 0)
		attack_say(a, "files.runtime", "client", ATTACK_INCONCLUSIVE, title, "%s: %s", path,
			e.msg);
	else if (before.status == after.status && !str_eq(before.body, after.body))
		attack_say(a, "files.runtime", "client", ATTACK_ESCAPED, title, "%s changed", path);
	else
		attack_say(a, "files.runtime", "client", attack_judge_file(r, &answer), title,
			"%s: status %d %.120s", path, answer.status, said(&answer));
}

static bool digest_of(struct attack *a, const struct target *target, char ret[80])
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };
	int r = attack_shell(a, target, "root", "sha256sum <" BASE_FILE, &out, &e);

	(void)snprintf(ret, 80, "%.64s", buf_str(&out).p);
	return r == 0 && strlen(ret) == 64;
}

/* A hard link shares the file, and the file is shared with every other sandbox: a copy must be made
 * before the first byte. */
static void write_hard_link(struct attack *a)
{
	static const char title[] = "change a file of the template by a hard link to it";
	char before[80], after[80], own[80];
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	bool knows = digest_of(a, &a->neighbour, before);
	int r = attack_file(a, &a->attacker, "POST", HARD_LINK, STR("changed\n"), &answer, &e);

	knows = knows && digest_of(a, &a->neighbour, after) && digest_of(a, &a->attacker, own);
	if (!knows || r < 0 || answer.status != 200 || strcmp(own, before) == 0)
		attack_say(a, "files.hard-links", "client", ATTACK_INCONCLUSIVE, title,
			"the file could not be changed even for oneself: status %d %s",
			answer.status, r < 0 ? e.msg : "");
	else
		attack_say(a, "files.hard-links", "client",
			strcmp(before, after) == 0 ? ATTACK_CONTAINED : ATTACK_ESCAPED, title,
			"the own copy is %.12s, the neighbour's %s %.12s", own,
			strcmp(before, after) == 0 ? "is still" : "became", after);
}

/* The same openly, by the API and by a shell of root. */
static void write_layer(struct attack *a)
{
	static const char title[] = "change the template's files for others";
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	char before[80], after[80], own[80];
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	bool knows = digest_of(a, &a->neighbour, before);

	(void)attack_file(a, &a->attacker, "POST", BASE_FILE, STR("changed again\n"), &answer, &e);
	(void)attack_shell(a, &a->attacker, "root",
		"echo changed >>" BASE_FILE "; chmod 600 /etc/debian_version;"
		" truncate -s 0 /etc/services; rm -f /usr/bin/yes; mv /usr/bin/tac /usr/bin/yes",
		&out, &e);
	knows = knows && digest_of(a, &a->neighbour, after) && digest_of(a, &a->attacker, own);
	if (!knows || strcmp(own, before) == 0)
		attack_say(a, "files.layer", "client", ATTACK_INCONCLUSIVE, title,
			"the file could not be changed even for oneself");
	else
		attack_say(a, "files.layer", "client",
			strcmp(before, after) == 0 ? ATTACK_CONTAINED : ATTACK_ESCAPED, title,
			"%s inside is %.12s, the neighbour's %s %.12s", BASE_FILE, own,
			strcmp(before, after) == 0 ? "is still" : "became", after);
}

/* ---- what does not end ---- */

/* Refused at once, or a whole answer; never a guest that hangs or fills up. */
static void touch_strange(struct attack *a, const char *method, const char *path)
{
	static const char title[] = "hang or flood the guest by pipes and devices";
	static const int at_once[] = { 400, 403, 404, 500, 507, 0 }; /* the guest's own words */
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	int64_t began_ms = time_now_ms();
	int r = attack_file(a, &a->attacker, method, path,
		strcmp(method, "POST") == 0 ? STR("x") : STR_NONE, &answer, &e);
	int64_t took_ms = time_now_ms() - began_ms;

	if (!attack_is_alive(a, &a->attacker))
		attack_say(a, "files.strange", "client", ATTACK_ESCAPED, title,
			"%s %s: the guest does not answer any more", method, path);
	else if (r < 0 || took_ms > ATTACK_HANGS_MS)
		attack_say(a, "files.strange", "client", ATTACK_INCONCLUSIVE, title,
			"%s %s: no answer within %d ms", method, path, ATTACK_HANGS_MS);
	else if (answer.status / 100 == 2)
		attack_say(a, "files.strange", "client", ATTACK_CONTAINED, title,
			"%s %s: status %d", method, path, answer.status);
	else
		attack_say(a, "files.strange", "client",
			attack_judge_status(r, answer.status, at_once), title,
			"%s %s: status %d %.120s", method, path, answer.status, said(&answer));
}

void attack_files(struct attack *a)
{
	static const char *const strange[] = { "/tmp/a-fifo", "/dev/zero", "/dev/full",
		"/dev/random", "/dev/tty", "/dev/ptmx", "/tmp/a-socket", "/proc/1/mem",
		"/proc/kmsg", "/tmp/a-cycle" };
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };
	int r = attack_shell(a, &a->attacker, "root",
		"cd /tmp; ln -sfn /proc/1/root a-root; ln -sfn ../../../../../.. a-dots;"
		" ln -sfn . a-loop; ln -sfn /proc/self/cwd a-cwd; ln -sfn a-cycle a-cycle;"
		" mkfifo -m 666 a-fifo; ln -f " BASE_FILE " " HARD_LINK
		" || exit 9; python3 -c \"import socket;"
		"socket.socket(socket.AF_UNIX).bind('a-socket')\"",
		&out, &e);

	if (r != 0)
		attack_say(a, "files.set-up", "client", ATTACK_INCONCLUSIVE, "set traps inside",
			"exit status %d %s", r, e.msg);
	read_all(a);
	compose(a);
	write_switch(a, "/proc/sys/kernel/core_pattern", NULL);
	write_switch(a, "/proc/sysrq-trigger", "h");
	write_switch(a, "/proc/sys/vm/drop_caches", "0");
	write_switch(a, "/proc/sys/kernel/modprobe", NULL);
	write_runtime(a, "/proc/self/exe");
	write_runtime(a, "/proc/1/exe");
	write_hard_link(a);
	write_layer(a);
	for (size_t i = 0; i < ARRAY_SIZE(strange); i++) {
		touch_strange(a, "GET", strange[i]);
		if (strncmp(strange[i], "/dev/", 5) != 0 || strcmp(strange[i], "/dev/full") == 0)
			touch_strange(a, "POST", strange[i]);
	}
}

/* ---- archives that come from a sandbox ---- */

/* Every entry wants out: up, absolute, through a link of its own, onto a file by a hard link, as a
 * device, as a set-user-id program. */
#define ARCHIVE_SCRIPT                                                                         \
	"cat >/tmp/a-tar.py <<'END'\n"                                                         \
	"import sys, tarfile, io\n"                                                            \
	"out = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')\n"                           \
	"def put(name, kind=tarfile.REGTYPE, link='', mode=0o644, data=b''):\n"                \
	"    t = tarfile.TarInfo(name); t.type = kind; t.linkname = link; t.mode = mode\n"     \
	"    t.size = len(data); t.devmajor, t.devminor = 1, 1\n"                              \
	"    out.addfile(t, io.BytesIO(data))\n"                                               \
	"n = sys.argv[1]\n"                                                                    \
	"put('first', data=b'x')\n"                                                            \
	"if n == 'up': put('../escaped', data=b'x')\n"                                         \
	"if n == 'deep': put('a/../../escaped', data=b'x')\n"                                  \
	"if n == 'absolute': put(sys.argv[2] + '/escaped', data=b'x')\n"                       \
	"if n == 'link': put('l', tarfile.SYMTYPE, '..'); put('l/escaped', data=b'x')\n"       \
	"if n == 'far': put('l', tarfile.SYMTYPE, sys.argv[2]); put('l/escaped', data=b'x')\n" \
	"if n == 'over': put('l', tarfile.SYMTYPE, '../escaped'); put('l', data=b'x')\n"       \
	"if n == 'hard': put('h', tarfile.LNKTYPE, sys.argv[2] + '/secret'); put('h', "        \
	"data=b'x')\n"                                                                         \
	"if n == 'hard-up': put('h', tarfile.LNKTYPE, '../secret'); put('h', data=b'x')\n"     \
	"if n == 'device': put('d', tarfile.CHRTYPE)\n"                                        \
	"if n == 'setuid': put('s', mode=0o6755, data=b'x')\n"                                 \
	"if n == 'tower': put('d/' * 4000 + 'x', data=b'x')\n"                                 \
	"if n == 'huge':\n"                                                                    \
	"    t = tarfile.TarInfo('h'); t.size = 1 << 62\n"                                     \
	"    sys.stdout.buffer.write(t.tobuf(tarfile.GNU_FORMAT) + b'x' * 512)\n"              \
	"    sys.exit(0)\n"                                                                    \
	"out.close()\n"                                                                        \
	"END\n"                                                                                \
	"mv /usr/bin/tar /usr/bin/tar.real 2>/dev/null;"                                       \
	" printf '#!/bin/sh\\nexec python3 /tmp/a-tar.py %s %s\\n' >/usr/bin/tar; chmod 755 "  \
	"/usr/bin/tar"

static void judge_archive(struct attack *a, const char *kind, const char *into, int r,
	const struct err *why)
{
	bool is_bomb = strcmp(kind, "tower") == 0 || strcmp(kind, "huge") == 0;
	const char *row = is_bomb ? "bombs.archive" : "archives.traversal";
	const char *title = is_bomb ? "fill the machine that a sandbox is copied to"
				    : "write beside the directory that a sandbox is copied into";
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char path[CONFIG_VALUE + 32];
	struct stat st;

	(void)snprintf(path, sizeof path, "%s/escaped", a->bait);
	if (lstat(path, &st) == 0) {
		attack_say(a, row, "client", ATTACK_ESCAPED, title, "%s: %s", kind, path);
		(void)unlink(path);
		return;
	}
	if (file_read(AT_FDCWD, a->secret, &text, NULL) < 0 || !str_is(buf_str(&text), a->mark)) {
		attack_say(a, row, "client", ATTACK_ESCAPED, title,
			"%s: a file outside was written", kind);
		return;
	}
	(void)snprintf(path, sizeof path, "%s/d", into);
	if (lstat(path, &st) == 0 && S_ISCHR(st.st_mode))
		attack_say(a, row, "client", ATTACK_ESCAPED, title, "%s was made", path);
	(void)snprintf(path, sizeof path, "%s/s", into);
	if (lstat(path, &st) == 0 && st.st_mode & 06000)
		attack_say(a, row, "client", ATTACK_ESCAPED, title, "%s is set-user-id on the host",
			path);
	/* -EPERM is our word for an entry that wants out, -EPROTO for one that makes no sense; and
	 * what a hard link names is looked for in the directory. */
	attack_say(a, row, "client",
		r >= 0                                        ? ATTACK_CONTAINED
		: r == -EPERM || r == -EPROTO || r == -ENOENT ? ATTACK_REFUSED
							      : ATTACK_INCONCLUSIVE,
		title, "%s: %s", kind, r < 0 ? why->msg : "nothing left the directory");
}

void attack_archives(struct attack *a)
{
	static const char *const kinds[] = { "up", "deep", "absolute", "link", "far", "over",
		"hard", "hard-up", "device", "setuid", "tower", "huge" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds) && !attack_is_stopped(a); i++) {
		CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
		cleanup_close int into_fd = -EBADF;
		char into[CONFIG_VALUE];
		struct cp_sum sum = { 0 };
		struct err e = { 0 };
		int r = attack_shell(a, &a->attacker, "root",
			arena_printf(a->cli->arena, ARCHIVE_SCRIPT, kinds[i], a->bait), &out, &e);

		(void)snprintf(into, sizeof into, "%.400s/copy-%s", a->bait, kinds[i]);
		if (r == 0 && mkdir(into, 0755) == 0)
			into_fd = open(into, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (into_fd < 0) {
			attack_say(a, "archives.traversal", "client", ATTACK_INCONCLUSIVE,
				"write beside the directory that a sandbox is copied into",
				"%s: exit status %d %s", kinds[i], r, e.msg);
			continue;
		}
		r = cp_tree_down(a->cli, &a->attacker, "/tmp", into_fd, true, &sum, &e);
		judge_archive(a, kinds[i], into, r, &e);
		(void)dir_remove_tree(AT_FDCWD, into, NULL);
	}
}
