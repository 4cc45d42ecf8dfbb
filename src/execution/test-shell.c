#include "execution/execution-internal.h"

#include "test.h"

static int add_program(void *arg, struct str program, struct err *e)
{
	struct buf *out = arg;

	(void)e;
	(void)buf_printf(out, "%s%.*s", out->n ? " " : "", STR_ARG(program));
	return 0;
}

/* What a line would run. */
static const struct {
	const char *line, *programs;
} understood[] = {
	{ "git status", "git" },
	{ "git status; ls -l | grep x && make || echo no", "git ls grep make" },
	{ "g'i't \"st\"atus", "git" },
	{ "\\git", "git" },
	{ "A=b C='d e' git push", "git" },
	{ ">out 2>&1 git log </dev/null", "git" },
	{ "(cd /tmp && ls) & wait", "ls" },
	{ "{ ls; git; }", "ls git" },
	{ "if git diff; then make; elif true; then ls; else rm x; fi", "git make ls rm" },
	{ "while ls; do sleep 1; done", "ls sleep" },
	{ "for f in *.c $(find . -name x); do cc \"$f\"; done", "find cc" },
	{ "echo $(date) \"$(hostname -f)\" ${HOME:-$(pwd)}", "date hostname" },
	{ "! grep -q x y", "grep" },
	{ "cat <<'EOF' | wc\n$(not run)\nEOF\nls", "cat wc ls" },
	{ "cat <<EOF\nplain\nEOF\nls", "cat ls" },
	{ "cat <<<\"$x\"", "cat" },
	{ "ls # rm -rf /", "ls" },
	{ "ls \\\n -l", "ls" },
	{ "ls\ngit", "ls git" },
	{ "echo 'a; rm b'", "" },
	{ "echo \"a `#`\" ", "refused" },
	{ "[ -f x ] && [ \"$a\" = b ] && test ! -d \"$c\"", "" },
	{ "set -euo pipefail; export A=\"$b\"; unset C; printf '%s\\n' \"$x\"", "" },
	{ "env -i A=b nice -n 5 git x", "env nice git" },
	{ "timeout -k 5 10 git x", "timeout git" },
	{ "nohup setsid git &", "nohup setsid git" },
	{ "sudo -n -u root git", "sudo git" },
	{ "bash -c 'ls; git'", "bash ls git" },
	{ "sh -c \"sh -c 'ls'\"", "sh sh ls" },
	{ "sh script.sh", "sh" },
	{ "find . -name '*.c' -exec grep -l x {} \\; -exec wc {} +", "find grep wc" },
	{ "ls | xargs -0 -n 1 grep x", "ls xargs grep" },
	{ "time -p ls", "time ls" },
	{ "command ls; exec git", "ls git" },
	{ "/usr/bin/git x; ./run", "/usr/bin/git ./run" },
	{ "echo $((1 + 2))", "" },
	{ "a+=b ls", "ls" },
	{ "\"A=b\" ls", "A=b" },
	{ "[ ~ = \"$x\" ] && [ \"$*\" ] && [ \"$x\" = [ ]", "" },
	{ "echo $((2 * (3 + 4) % 5)) \"$(((1)))\"", "" },
	{ "cat <<'E' | (wc; ls)\n$(not run)\nE\ngit", "cat wc ls git" },
	{ "cat <<'E' $(date)\nx\nE\ngit", "date cat git" },
	{ "echo ${a:-${b:-${c}}} \"${@}\" {a,b} *", "" },
	{ "git commit -m \"a\\\nb\" \\\n --all", "git" },
	{ "find . -exec grep {} \\;", "find grep" },
	{ "ls >&2 2>&1- <&- &> \"$x\" &>> y >| z", "ls" },
	{ "", "" },
	{ "   \n\n ; ", "" },
};

/* What was found, or "refused". */
static void look(const char *line, struct buf *got)
{
	if (shell_programs(str_of(line), add_program, got, NULL) < 0) {
		buf_clear(got);
		(void)buf_adds(got, "refused");
	}
}

TEST(finds_every_program_of_a_line)
{
	for (size_t i = 0; i < ARRAY_SIZE(understood); i++) {
		CLEANUP(buf_done) struct buf got = BUF_INIT(4096);

		look(understood[i].line, &got);
		if (!str_is(buf_str(&got), understood[i].programs))
			TEST_FAIL("%s: got '%s'", understood[i].line, got.p ? got.p : "");
	}
}

/* Ways around a list that allows ls, echo and a few wrappers. */
static const char *const evasions[] = {
	"rm x",
	"ls; rm x",
	"ls | rm",
	"ls && rm",
	"ls\nrm",
	"ls & rm",
	"(rm)",
	"{ rm; }",
	"echo $(rm)",
	"echo \"$(rm)\"",
	"echo `rm`",
	"echo \"`rm`\"",
	"echo ${x:-$(rm)}",
	"echo \"${x:-$(rm)}\"",
	"echo ${x:-`rm`}",
	"x=$(rm) ls",
	"x=`rm`",
	"ls > $(rm)",
	"ls <<< $(rm)",
	"cat <(rm)",
	"ls <(rm)",
	"ls > >(rm)",
	"echo ${x:-<(rm)}",
	"ls <<EOF\n$(rm)\nEOF",
	"ls <<EOF\n`rm`\nEOF",
	"r''m x",
	"r\\m",
	"\"rm\"",
	"$'rm'",
	"$'\\x72\\x6d'",
	"$\"rm\"",
	"$x",
	"${x}",
	"x=rm; $x",
	"x=rm; ${x} y",
	"$(echo rm)",
	"l$x",
	"/bin/r*",
	"/bin/r?",
	"/bin/[r]m",
	"{rm,x}",
	"~/rm",
	"eval rm",
	"eval 'r''m'",
	". ./x",
	"source x",
	"alias ls=rm; ls",
	"ls() { rm; }; ls",
	"function ls { rm; }",
	"trap rm EXIT",
	"exec rm",
	"command rm",
	"builtin eval rm",
	"command eval rm",
	"env rm",
	"env A=b rm",
	"env PATH=/tmp ls",
	"env -S 'rm x'",
	"nice rm",
	"nohup rm",
	"timeout 5 rm",
	"time rm",
	"\\time rm",
	"xargs rm",
	"echo rm | xargs -I{} {} x",
	"xargs env",
	"xargs sh -c ls",
	"find . -exec rm {} ;",
	"find . -exec rm {} \\;",
	"find . $x",
	"find . -exec {} \\;",
	"sh -c rm",
	"sh -c 'ls; rm'",
	"sh -c \"$x\"",
	"sh -ec rm",
	"sh -c ls -c rm | rm",
	"bash -lc rm",
	"bash -c 'bash -c rm'",
	"env sh -c rm",
	"sudo rm",
	"sudo -s",
	"su -c rm",
	"busybox rm",
	"PATH=/tmp ls",
	"export PATH=/tmp; ls",
	"read PATH; ls",
	"for PATH in /tmp; do ls; done",
	"printf -v PATH /tmp; ls",
	"printf \"$x\" PATH /tmp",
	"LD_PRELOAD=/tmp/x.so ls",
	"BASH_ENV=/tmp/x bash -c ls",
	"IFS=x ls",
	"unset PATH",
	"hash -p /bin/rm ls; ls",
	"enable -f x y",
	"declare -x PATH=/tmp",
	"echo $((a[$(rm)]))",
	"echo $((x))",
	"echo $[x]",
	"((x))",
	"let x",
	"[[ x -eq 'a[$(rm)]' ]]",
	"[ -v 'a[$(rm)]' ]",
	"[ $x $y ]",
	"[ \"$x\" \"$y\" ]",
	"test \"$x\" y",
	"unset 'a[$(rm)]'",
	"export 'a[$(rm)]=b'",
	"a[$(rm)]=b",
	"a=(b $(rm))",
	"echo ${a[$(rm)]}",
	"echo ${x@P}",
	"echo ${x:$(rm)}",
	"echo ${x:=$(rm)}",
	"echo ${!x}",
	"case x in x) rm;; esac",
	"select x in y; do rm; done",
	"coproc rm",
	"if rm; then ls; fi",
	"while rm; do ls; done",
	"until rm; do ls; done",
	"for x in $(rm); do ls; done",
	"for x in y; do rm; done",
	"if ls; then rm; fi",
	"if ls; then ls; else rm; fi",
	"! rm",
	">x rm",
	"2>x rm",
	"A=b rm",
	"A=b >x rm",
	"ls 2>&1 | rm",
	"ls |& rm",
	"ls &> x; rm",
	"ls &>> x; rm",
	"{fd}>x ls",
	"ls fi rm; if ls; then ls; fi rm",
	"shopt -s expand_aliases",
	"set -- rm; \"$@\"",
	"wait -p PATH",
	"mapfile -C rm -c 1 x",
	"complete -C rm x; compgen -C rm",
	"bind -x rm",
	"fc -s",
	"\"A=b\" rm",
	"A\\=b rm",
	"A$x=b ls",
	"ls \\",
	"ls 'x",
	"ls \"x",
	"ls $(rm",
	"ls )",
	"ls ${x",
	"ls\trm;rm",
	"/bin/sh -c rm",
	"/usr/bin/env rm",
	"./ls",
	"/tmp/ls",
	"../bin/ls",
	/* bash makes many words of one before [ sees them. */
	"[ {-v,'a[$(rm)]'} ]",
	"[ * ]",
	"[ ! -[v] ]",
	"[ \"$@\" ]",
	"[ \"${@}\" ]",
	"[ \"${x:-$@}\" ]",
	"\"export\" A=$x; ls",
	"command export A=$x; ls",
	"\\export A=$x; ls",
	/* Variables whose values are calculated. */
	"RANDOM='a[$(rm)]'",
	"SRANDOM='a[$(rm)]' ls",
	"OPTIND='a[$(rm)]'",
	"HISTCMD='a[$(rm)]'",
	"for SECONDS in 'a[$(rm)]'; do ls; done",
	"export RANDOM='a[$(rm)]'",
	/* A line that goes on between two characters that mean something together. */
	"echo \"$\\\n(rm)\"",
	"x='$(rm)'; echo $\\\n{x@P}",
	"ls='a[$(rm)]'; echo $(\\\n( ls ))",
	"ls='a[$(rm)]'; (\\\n( ls ))",
	"cat <<\\\n-'E'\nE\nrm\n-E",
	"cat <\\\n(rm)",
	"ls >\\\n>(rm)",
	/* The text of a here-document begins at the first newline, wherever it is. */
	"cat <<'ls' | (cat\nls\n)\nrm\nls",
	"cat <<'ls' $(cat\nls\n)\nrm\nls",
	"cat <<'ls' | (cat; (cat\nls\n))\nrm\nls",
	/* No arithmetic, but a command of figures. */
	"echo $(( 1/2 ) )",
	"echo $((1/2) )",
	"echo \"$((1)/(2) )\"",
	/* Expanded twice. */
	"ls >&'$(rm)'",
	"x='$(rm)'; ls >& $x",
	"ls 2>&1'$(rm)'",
	"ls <&$x",
	/* bash's own time is followed by what bash has built in. */
	"time printf -v 'a[$(rm)]' x",
	"time jobs -x rm",
	"jobs -x rm",
	"cd x; > PATH; find PATH -exec env {}=/tmp ls \\;",
	"find . -exec env A{} ls \\;",
	"find . -exec timeout 5 sh -c 'ls {}' \\;",
	"xargs /bin/bash",
	"bash +x -c rm",
	"LOCPATH=/tmp ls",
	"env GCONV_PATH=/tmp ls",
};

static int allow_few(void *arg, struct str program, struct err *e)
{
	static const char *const allowed[] = { "ls", "env", "nice", "nohup", "timeout", "time",
		"xargs", "find", "sh", "bash", "sudo", "cat", "/bin/bash", "printf", "jobs", "[",
		"export", NULL };

	(void)arg;
	for (size_t i = 0; allowed[i]; i++)
		if (str_is(program, allowed[i]))
			return 0;
	return err_set(e, -EPERM, "not allowed: %.*s", STR_ARG(program));
}

TEST(no_evasion_passes)
{
	int failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(evasions); i++) {
		struct err e = { 0 };

		if (shell_programs(str_of(evasions[i]), allow_few, NULL, &e) != -EPERM) {
			printf("# passes: %s\n", evasions[i]);
			failed++;
		} else if (!e.msg[0]) {
			printf("# no reason: %s\n", evasions[i]);
			failed++;
		}
	}
	ASSERT_EQ(failed, 0);
}

TEST(looks_through_argv_as_well)
{
	static const struct {
		struct str argv[5];
		size_t n;
		int want;
	} cases[] = {
		{ { STR("ls"), STR("$(rm)") }, 2, 0 },
		{ { STR("rm") }, 1, -EPERM },
		{ { STR("env"), STR("rm") }, 2, -EPERM },
		{ { STR("env"), STR("ls") }, 2, 0 },
		{ { STR("sh"), STR("-c"), STR("ls") }, 3, 0 },
		{ { STR("sh"), STR("-c"), STR("ls; rm") }, 3, -EPERM },
		{ { STR("nohup"), STR("nice"), STR("bash"), STR("-c"), STR("rm") }, 5, -EPERM },
		{ { STR("eval") }, 1, -EPERM },
		{ { STR("") }, 1, -EPERM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = { 0 };

		ASSERT_EQ(argv_programs(cases[i].argv, cases[i].n, allow_few, NULL, &e),
			cases[i].want);
	}
}

TEST(depth_and_length_are_limited)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(1 << 20);
	struct err e = { 0 };

	for (int i = 0; i < 1000; i++)
		(void)buf_adds(&line, "$(");
	ASSERT_EQ(shell_programs(buf_str(&line), allow_few, NULL, &e), -EPERM);
	buf_clear(&line);
	for (int i = 0; i < 1000; i++)
		(void)buf_adds(&line, "env ");
	ASSERT_EQ(shell_programs(buf_str(&line), allow_few, NULL, &e), -EPERM);
	buf_clear(&line);
	while (line.n < 60 << 10)
		(void)buf_adds(&line, "${a-");
	ASSERT_EQ(shell_programs(buf_str(&line), allow_few, NULL, &e), -EPERM);
	buf_clear(&line);
	while (line.n <= 64 << 10)
		(void)buf_adds(&line, "ls;");
	ASSERT_EQ(shell_programs(buf_str(&line), allow_few, NULL, &e), -EPERM);
}
