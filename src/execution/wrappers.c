/* Whole commands: what bash has built in, and programs whose arguments name another one to run.
 * Those are looked through: both must be allowed, the wrapper and what it wraps. */
#include "execution/shell-internal.h"

#include <ctype.h>

static bool is_one_of(struct str s, const char *const *words)
{
	for (; *words; words++)
		if (str_is(s, *words))
			return true;
	return false;
}

bool is_guarded_name(struct str name)
{
	static const char *const names[] = { "PATH", "ENV", "IFS", "PS4", "SHELLOPTS",
		"PROMPT_COMMAND", "CDPATH", "EXECIGNORE", "POSIXLY_CORRECT",
		/* What the C library loads or obeys. */
		"GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH",
		/* bash calculates what these are set to, and a subscript in it runs commands. */
		"RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD", "OPTIND", "EPOCHSECONDS",
		"EPOCHREALTIME", NULL };

	return is_one_of(name, names) || str_has_prefix(name, STR("LD_")) ||
	       str_has_prefix(name, STR("BASH"));
}

static struct str base_name(struct str path)
{
	for (size_t i = path.n; i > 0; i--)
		if (path.p[i - 1] == '/')
			return str_from(path, i);
	return path;
}

static int need_literal(struct shell *sh, const struct word *v, size_t n, const char *whose)
{
	for (size_t i = 0; i < n; i++)
		if (!v[i].is_literal)
			return shell_refuse(sh, "an argument of %s is not written out", whose);
	return 0;
}

/* ---- what bash has built in ---- */

static bool is_single(const struct word *word)
{
	return word->is_literal || !word->splits;
}

/* -v and its like look into array subscripts, which can run commands: so the operator must stand
 * there as it is, and no argument may become two. */
static int judge_test(struct shell *sh, const struct word *v, size_t n)
{
	static const char *const unary[] = { "-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k",
		"-L", "-n", "-N", "-O", "-p", "-r", "-s", "-S", "-t", "-u", "-w", "-x", "-z",
		NULL };
	static const char *const binary[] = { "=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le",
		"-gt", "-ge", "-nt", "-ot", "-ef", NULL };

	if (n > 0 && str_is(v[0].text, "[")) {
		if (!v[n - 1].is_literal || !str_is(v[n - 1].text, "]"))
			return shell_refuse(sh, "a '[' without its ']'");
		n--;
	}
	v++;
	n--;
	for (size_t i = 0; i < n; i++)
		if (!is_single(&v[i]))
			return shell_refuse(sh, "an argument of [ may become many: quote it");
	if (n > 0 && v[0].is_literal && str_is(v[0].text, "!")) {
		v++;
		n--;
	}
	if (n <= 1 || (n == 2 && v[0].is_literal && is_one_of(v[0].text, unary)) ||
		(n == 3 && v[1].is_literal && is_one_of(v[1].text, binary)))
		return 0;
	return shell_refuse(sh, "this form of [ is not understood");
}

static int judge_printf(struct shell *sh, const struct word *v, size_t n)
{
	if (n > 1 && (!v[1].is_literal || (v[1].text.n && v[1].text.p[0] == '-')))
		return shell_refuse(sh, "the format of printf is not written out");
	return 0;
}

static int judge_set(struct shell *sh, const struct word *v, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		bool is_option = v[i].is_literal && v[i].text.n > 1 &&
				 (v[i].text.p[0] == '-' || v[i].text.p[0] == '+');

		for (size_t k = 1; is_option && k < v[i].text.n; k++)
			is_option = strchr("euxvfo", v[i].text.p[k]) != NULL;
		if (!is_option && !(v[i].is_literal && i > 1 && str_is(v[i].text, "pipefail")))
			return shell_refuse(sh, "this form of 'set' is not understood");
	}
	return 0;
}

/* export NAME, NAME=value; unset NAME. Where bash does not see that it is export (it is quoted, or
 * behind command), it makes words of what is not quoted: NAMES of their own. */
static int judge_names(struct shell *sh, const struct word *v, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct str name = { v[i].text.p, 0 };

		while (name.n < v[i].plain_n &&
			(isalnum((unsigned char)name.p[name.n]) || name.p[name.n] == '_'))
			name.n++;
		if (name.n == 0 || (name.n < v[i].plain_n && name.p[name.n] != '=') ||
			!is_single(&v[i]) || (name.n == v[i].plain_n && !v[i].is_literal) ||
			(name.n == v[i].plain_n && name.n != v[i].text.n))
			return shell_refuse(sh, "an argument of '%.*s' is not understood",
				STR_ARG(v[0].text));
		if (is_guarded_name(name))
			return shell_refuse(sh, "%.*s decides what is run: it may not be set",
				STR_ARG(name));
	}
	return 0;
}

static int judge_wait(struct shell *sh, const struct word *v, size_t n)
{
	return n == 1 || (v[1].is_literal && v[1].text.n && v[1].text.p[0] != '-')
		       ? 0
		       : shell_refuse(sh, "this form of 'wait' is not understood");
}

static int judge_nothing(struct shell *sh, const struct word *v, size_t n)
{
	(void)sh;
	(void)v;
	(void)n;
	return 0;
}

static int judge_refused(struct shell *sh, const struct word *v, size_t n)
{
	(void)n;
	return shell_refuse(sh, "what '%.*s' does cannot be said", STR_ARG(v[0].text));
}

/* command and builtin: what follows is judged as it would be alone. */
static int judge_rest(struct shell *sh, const struct word *v, size_t n)
{
	if (n > 1 && v[1].text.n && v[1].text.p[0] == '-')
		return shell_refuse(sh, "options of '%.*s' are not understood", STR_ARG(v[0].text));
	return n > 1 ? command_judge(sh, v + 1, n - 1) : 0;
}

static int judge_exec(struct shell *sh, const struct word *v, size_t n)
{
	if (n > 1 && v[1].text.n && v[1].text.p[0] == '-')
		return shell_refuse(sh, "options of 'exec' are not understood");
	return n > 1 ? program_judge(sh, v + 1, n - 1) : 0;
}

static const struct builtin {
	const char *name;
	int (*judge)(struct shell *sh, const struct word *v, size_t n);
} builtins[] = {
	{ ":", judge_nothing },
	{ "true", judge_nothing },
	{ "false", judge_nothing },
	{ "echo", judge_nothing },
	{ "pwd", judge_nothing },
	{ "cd", judge_nothing },
	{ "exit", judge_nothing },
	{ "return", judge_nothing },
	{ "break", judge_nothing },
	{ "continue", judge_nothing },
	{ "shift", judge_nothing },
	{ "wait", judge_wait },
	{ "test", judge_test },
	{ "[", judge_test },
	{ "printf", judge_printf },
	{ "set", judge_set },
	{ "export", judge_names },
	{ "unset", judge_names },
	{ "command", judge_rest },
	{ "builtin", judge_rest },
	{ "exec", judge_exec },
	{ ".", judge_refused },
	{ "source", judge_refused },
	{ "eval", judge_refused },
	{ "alias", judge_refused },
	{ "unalias", judge_refused },
	{ "enable", judge_refused },
	{ "trap", judge_refused },
	{ "hash", judge_refused },
	{ "bind", judge_refused },
	{ "caller", judge_refused },
	{ "compgen", judge_refused },
	{ "complete", judge_refused },
	{ "compopt", judge_refused },
	{ "declare", judge_refused },
	{ "typeset", judge_refused },
	{ "local", judge_refused },
	{ "readonly", judge_refused },
	{ "mapfile", judge_refused },
	{ "readarray", judge_refused },
	{ "read", judge_refused },
	{ "getopts", judge_refused },
	{ "let", judge_refused },
	{ "shopt", judge_refused },
	{ "fc", judge_refused },
	{ "history", judge_refused },
	{ "jobs", judge_refused }, /* -x runs one */
	{ "logout", judge_refused },
	{ "suspend", judge_refused },
	{ "disown", judge_refused },
	{ "dirs", judge_refused },
	{ "pushd", judge_refused },
	{ "popd", judge_refused },
};

static const struct builtin *find_builtin(struct str name)
{
	for (size_t i = 0; i < ARRAY_SIZE(builtins); i++)
		if (str_is(name, builtins[i].name))
			return &builtins[i];
	return NULL;
}

/* ---- programs that run others ---- */

struct wrapper {
	const char *name;
	/* Letters of options without a value, and of those with one; NULL: judge reads them. */
	const char *flags, *valued;
	size_t operands; /* of its own, ahead of the program */
	/* From word `at` on; NULL: a program begins there. */
	int (*judge)(struct shell *sh, const struct word *v, size_t n, size_t at);
};
static const struct wrapper *find_wrapper(struct str program);

/* Passes over options, as separate words or together. Anything else is refused. */
static int skip_options(struct shell *sh, const struct word *v, size_t n, const struct wrapper *w,
	size_t *at)
{
	while (*at < n && v[*at].text.n > 1 && v[*at].text.p[0] == '-') {
		struct str option = str_from(v[(*at)++].text, 1);
		bool is_valued = strchr(w->valued, option.p[0]) != NULL;

		if (option.n == 1 && option.p[0] == '-')
			return 0; /* -- */
		for (size_t i = 0; !is_valued && i < option.n; i++)
			if (!strchr(w->flags, option.p[i]))
				return shell_refuse(sh, "option -%.*s of '%s' is not understood",
					STR_ARG(option), w->name);
		if (is_valued && option.n == 1)
			(*at)++;
	}
	return *at <= n ? 0 : shell_refuse(sh, "an option of '%s' lacks its value", w->name);
}

static int judge_at(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	return at < n ? program_judge(sh, v + at, n - at) : 0;
}

static int judge_env(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	for (; at < n && memchr(v[at].text.p, '=', v[at].text.n); at++) {
		struct str name = { v[at].text.p, (size_t)str_find(v[at].text, '=') };

		if (is_guarded_name(name))
			return shell_refuse(sh, "%.*s decides what is run: it may not be set",
				STR_ARG(name));
	}
	return judge_at(sh, v, n, at);
}

/* bash's own `time` is followed by whatever it has built in, the program by a program: so it must
 * be fine as both. */
static int judge_time(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	int r = judge_at(sh, v, n, at);

	return r == 0 && at < n && find_builtin(v[at].text)
		       ? find_builtin(v[at].text)->judge(sh, v + at, n - at)
		       : r;
}

static int judge_sudo(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	if (at < n && memchr(v[at].text.p, '=', v[at].text.n))
		return shell_refuse(sh, "variables for sudo are not understood");
	return judge_at(sh, v, n, at);
}

/* What it reads becomes arguments of what it runs. */
static int judge_xargs(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	if (at < n && find_wrapper(v[at].text))
		return shell_refuse(sh, "xargs would give '%.*s' what to run", STR_ARG(v[at].text));
	return judge_at(sh, v, n, at);
}

/* The words behind -exec. What it finds takes the place of {}, and may be called anything. */
static int judge_found(struct shell *sh, const struct word *v, size_t n)
{
	bool is_wrapper = n > 0 && find_wrapper(v[0].text);

	for (size_t i = 0; i < n && (i == 0 || is_wrapper); i++)
		if (memmem(v[i].text.p, v[i].text.n, "{}", 2))
			return shell_refuse(sh, "find would run what it finds");
	return judge_at(sh, v, n, 0);
}

static int judge_find(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	static const char *const runs[] = { "-exec", "-execdir", "-ok", "-okdir", NULL };
	int r = 0;

	for (size_t i = at; r == 0 && i < n; i++) {
		size_t end = i + 1;

		if (!is_one_of(v[i].text, runs))
			continue;
		while (end < n && !str_is(v[end].text, ";") && !str_is(v[end].text, "+"))
			end++;
		r = judge_found(sh, v + i + 1, end - i - 1);
		i = end;
	}
	return r;
}

/* sh -c TEXT is looked into. A script is the shell's own affair: who lists the shell allows it. */
static int judge_shell(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	struct shell inner = { 0 };
	int r;

	if (n <= at || v[at].text.n == 0 || !strchr("-+", v[at].text.p[0]))
		return 0;
	if (!str_is(v[at].text, "-c") || n <= at + 1)
		return shell_refuse(sh, "options of '%.*s' other than -c are not understood",
			STR_ARG(v[0].text));
	r = shell_enter(sh, &inner);
	if (r < 0)
		return r;
	inner.in = v[at + 1].text;
	inner.at = 0;
	inner.awaits_here = false;
	return commands_read(&inner, -1);
}

static int judge_unknowable(struct shell *sh, const struct word *v, size_t n, size_t at)
{
	(void)n;
	(void)at;
	return shell_refuse(sh, "what '%.*s' would run cannot be said", STR_ARG(v[0].text));
}

static const struct wrapper wrappers[] = {
	{ "env", "i0v", "uC", 0, judge_env },
	{ "nice", "0123456789", "n", 0, NULL },
	{ "nohup", "", "", 0, NULL },
	{ "setsid", "cfw", "", 0, NULL },
	{ "timeout", "v", "sk", 1, NULL },
	{ "time", "pvaq", "fo", 0, judge_time },
	{ "stdbuf", "", "ioe", 0, NULL },
	{ "ionice", "t", "cn", 0, NULL },
	{ "sudo", "nHE", "ug", 0, judge_sudo },
	{ "xargs", "0rtx", "nPdLsEa", 0, judge_xargs }, /* -I would fill in the program's name */
	{ "find", .judge = judge_find },
	{ "sh", .judge = judge_shell },
	{ "bash", .judge = judge_shell },
	{ "dash", .judge = judge_shell },
	{ "rbash", .judge = judge_shell },
	{ "doas", .judge = judge_unknowable },
	{ "su", .judge = judge_unknowable },
	{ "runuser", .judge = judge_unknowable },
	{ "busybox", .judge = judge_unknowable },
	{ "chroot", .judge = judge_unknowable },
	{ "unshare", .judge = judge_unknowable },
	{ "nsenter", .judge = judge_unknowable },
	{ "setpriv", .judge = judge_unknowable },
	{ "script", .judge = judge_unknowable },
	{ "watch", .judge = judge_unknowable },
	{ "parallel", .judge = judge_unknowable },
	{ "strace", .judge = judge_unknowable },
	{ "chrt", .judge = judge_unknowable },
	{ "taskset", .judge = judge_unknowable },
	{ "flock", .judge = judge_unknowable },
	{ "start-stop-daemon", .judge = judge_unknowable },
};

/* By its name, wherever it lies. */
static const struct wrapper *find_wrapper(struct str program)
{
	struct str name = base_name(program);

	for (size_t i = 0; i < ARRAY_SIZE(wrappers); i++)
		if (str_is(name, wrappers[i].name))
			return &wrappers[i];
	return NULL;
}

/* ---- judging ---- */

static int need_name(struct shell *sh, const struct word *word)
{
	if (!word->is_literal)
		return shell_refuse(sh, "the program's name is not written out");
	if (word->text.n == 0)
		return shell_refuse(sh, "the program's name is empty");
	return 0;
}

static int judge_wrapper(struct shell *sh, const struct wrapper *w, const struct word *v, size_t n)
{
	size_t at = 1;
	int r = need_literal(sh, v + 1, n - 1, w->name);

	if (r == 0 && w->flags)
		r = skip_options(sh, v, n, w, &at);
	if (r < 0)
		return r;
	at += w->operands;
	return w->judge ? w->judge(sh, v, n, at) : judge_at(sh, v, n, at);
}

int program_judge(struct shell *sh, const struct word *v, size_t n)
{
	const struct wrapper *wrapper = find_wrapper(v[0].text);
	int r = need_name(sh, &v[0]);

	if (r < 0)
		return r;
	if (++sh->depth > SHELL_MAX_DEPTH)
		return shell_refuse(sh, "it is nested too deeply");
	r = sh->fn(sh->arg, v[0].text, sh->e);
	if (r >= 0 && wrapper)
		r = judge_wrapper(sh, wrapper, v, n);
	sh->depth--;
	return MIN(r, 0);
}

int command_judge(struct shell *sh, const struct word *v, size_t n)
{
	const struct builtin *own = find_builtin(v[0].text);
	int r = need_name(sh, &v[0]);

	if (r < 0)
		return r;
	return own ? own->judge(sh, v, n) : program_judge(sh, v, n);
}
