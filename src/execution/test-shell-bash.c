/* The judge of lines against bash itself: lines are put together by chance, and of those that pass,
 * bash is asked whether it runs what is not on the list. ATOLL_TEST_SEED chooses others. */
#include "execution/execution-internal.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test.h"

enum {
	LINES = 6000,
	MAX_TOKENS = 9,
	PATIENCE_S = 20,
};

/* `rm` is what no line may run. In bin it only leaves a mark; ls and cat in evil do the same. */
static const char *const tokens[] = { "ls", "cat", "rm", "rm x", "ls x", "$(rm)", "$(ls)", "\"",
	"\"", "'", "'", "\\\n", "\\\n", "\\", "$", "$", "(", ")", "(", ")", "{", "}", "[", "]", ";",
	"&", "|", "\n", "\n", " ", " ", " ", "\t", "<", "<<", "<<-", "<<<", ">", ">&2", ">&", "<&",
	"&>", "|&", "&&", "||", "#", "$((", "))", "1/2", "+", "1", "${x", "${x:-", "}", "@P}", "@",
	"$@", "\"$@\"", "$*", "${@}", "x=", "ls=", "x", "'a[$(rm)]'", "a[$(rm)]", "'$(rm)'", "$x",
	"\"$x\"", "$ls", "RANDOM=", "SECONDS=", "OPTIND=", "A=$X", "A=\"$X\"", "$X", "$Y",
	"\"export\" ", "export ", "command ", "builtin ", "exec ", "time ", "[ ", " ]", "-v ",
	"test ", "printf ", "-v", "env ", "{}", "{a,b}", "{-v,", "*", "?", "~", "E", "\nE\n", "'E'",
	"\"E\"", "\nls\n", "'ls'", "if ", "then ", "fi", "else ", "while ", "do ", "done",
	"for x in ", "for ", "in ", "! ", "set ", "-x", "unset ", "case ", "esac", "function ",
	"() ", "eval ", "trap ", "let ", "((", "[[", "]]", "`", "$'", "\\x72", "=",
	"+=", "A=", "PATH=", "wait ", "echo ", "echo ", "true", ">(", "<(" };

static const char *const frames[] = { "ls='a[$(rm)]'; x='$(rm)'; %", "x='a[$(rm)]'; %", "%",
	"echo \"%\"", "cat <<'ls' %\nls\nrm\nls", "( % )", "$(%)", "echo ${x:-%}",
	"if ls; then %; fi", "[ % ]", "cat <<E\n%\nE\nls", "%; ls", "%\nrm\nE\n" };

struct place {
	char dir[32], work[48], bin[48], mark[48], environment[3][96];
};

static int script(const char *dir, const char *name, const char *mark)
{
	char path[80], text[128];
	cleanup_close int fd = -EBADF;
	int n = snprintf(text, sizeof text, "#!/bin/sh\n%s%s\n", mark ? ": > " : "",
		mark ? mark : "");

	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	return fd < 0 ? -errno : fd_write_all(fd, text, (size_t)n);
}

static int place_make(struct place *p)
{
	char evil[64];

	memcpy(p->dir, "/tmp/atoll-test-XXXXXX", 23);
	if (!mkdtemp(p->dir))
		return -errno;
	(void)snprintf(p->work, sizeof p->work, "%s/work", p->dir);
	(void)snprintf(p->bin, sizeof p->bin, "%s/bin", p->dir);
	(void)snprintf(p->mark, sizeof p->mark, "%s/mark", p->dir);
	(void)snprintf(evil, sizeof evil, "%s/evil", p->dir);
	(void)snprintf(p->environment[0], sizeof p->environment[0], "PATH=%s", p->bin);
	(void)snprintf(p->environment[1], sizeof p->environment[1], "HOME=%s", p->work);
	(void)snprintf(p->environment[2], sizeof p->environment[2], "X=b PATH=%s", evil);
	if (mkdir(p->work, 0755) < 0 || mkdir(p->bin, 0755) < 0 || mkdir(evil, 0755) < 0)
		return -errno;
	return script(p->bin, "rm", p->mark) < 0 || script(evil, "ls", p->mark) < 0 ||
			       script(evil, "cat", p->mark) < 0 || script(p->bin, "ls", NULL) < 0 ||
			       script(p->bin, "cat", NULL) < 0
		       ? -EIO
		       : 0;
}

static void place_done(struct place *p)
{
	if (p->dir[0])
		(void)dir_remove_tree(AT_FDCWD, p->dir, NULL);
}

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void put_together(uint64_t *state, struct buf *line)
{
	const char *frame = frames[next(state) % ARRAY_SIZE(frames)];
	size_t n = next(state) % MAX_TOKENS + 1;

	buf_clear(line);
	for (; *frame; frame++)
		if (*frame != '%')
			(void)buf_addc(line, *frame);
		else
			for (size_t i = 0; i < n; i++)
				(void)buf_adds(line, tokens[next(state) % ARRAY_SIZE(tokens)]);
}

static int allow_few(void *arg, struct str program, struct err *e)
{
	static const char *const allowed[] = { "ls", "cat", "env", "time", "printf", "[", "test" };

	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		if (str_is(program, allowed[i]))
			return 0;
	return err_set(e, -EPERM, "not allowed");
}

static void be_bash(const struct place *p, char *line)
{
	char *argv[] = { (char[]){ "bash" }, (char[]){ "--noprofile" }, (char[]){ "--norc" },
		(char[]){ "-c" }, line, NULL };
	char *env[] = { (char *)(uintptr_t)p->environment[0], (char *)(uintptr_t)p->environment[1],
		(char *)(uintptr_t)p->environment[2], (char[]){ "Y=$(rm)" }, NULL };
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null, fd);
	(void)alarm(PATIENCE_S);
	if (chdir(p->work) == 0)
		(void)execve("/bin/bash", argv, env);
	_exit(127);
}

/* True: it did what it may not. */
static bool runs_more(const struct place *p, char *line)
{
	pid_t pid = fork();

	if (pid == 0)
		be_bash(p, line);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	return unlink(p->mark) == 0;
}

TEST(bash_runs_nothing_that_was_not_seen)
{
	CLEANUP(place_done) struct place p = { 0 };
	CLEANUP(buf_done) struct buf line = BUF_INIT(4096);
	const char *seed = getenv("ATOLL_TEST_SEED");
	int64_t number = 1;
	uint64_t state;
	int n_passed = 0;

	if (access("/bin/bash", X_OK) < 0)
		TEST_SKIP("there is no bash");
	(void)str_to_int(str_of(seed ? seed : "2"), 1, INT32_MAX, &number);
	state = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15);
	ASSERT_EQ(place_make(&p), 0);
	ASSERT(runs_more(&p,
		(char[]){ "PATH=${X#b PATH=}; ls" })); /* the place is as it should be */
	ASSERT(runs_more(&p, (char[]){ "ls; rm" }));
	for (int i = 0; i < LINES; i++) {
		struct err e;

		put_together(&state, &line);
		if (shell_programs(buf_str(&line), allow_few, NULL, &e) < 0)
			continue;
		n_passed++;
		if (runs_more(&p, line.p))
			TEST_FAIL("it runs more than was seen:\n%s", line.p);
	}
	ASSERT(n_passed > LINES / 20);
}
