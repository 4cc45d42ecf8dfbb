/* Commands of bash, as far as it can be said for certain what they run. Reserved words are taken
 * loosely: a text that bash would refuse may pass, but no word that bash runs as a program is taken
 * for anything else. */
#include "execution/shell-internal.h"

#include <ctype.h>

int shell_refuse(const struct shell *sh, const char *fmt, ...)
{
	char text[160];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	return err_set(sh->e, -EPERM, "the rules of commands cannot be checked: %s", text);
}

int shell_enter(const struct shell *sh, struct shell *ret)
{
	if (sh->depth + 1 > SHELL_MAX_DEPTH)
		return shell_refuse(sh, "it is nested too deeply");
	*ret = *sh;
	ret->depth++;
	ret->awaits_here = sh->awaits_here || sh->n_here;
	ret->n_here = 0;
	return 0;
}

/* ---- one simple command in the making ---- */

struct simple {
	struct words words;
	bool has_prefix; /* an assignment or a redirection stood before its first word */
	bool is_closed;  /* behind fi, done, } or ): no word may follow */
};

static int push(struct shell *sh, struct words *words, const struct word *word)
{
	if (words->n == SHELL_MAX_WORDS)
		return shell_refuse(sh, "a command of more than %d words", SHELL_MAX_WORDS);
	if (words->n == words->cap) {
		size_t cap = words->cap ? 2 * words->cap : 16;
		struct word *grown = arena_alloc(sh->arena, cap * sizeof *grown);

		if (!grown)
			return shell_refuse(sh, "it is too long");
		if (words->n)
			memcpy(grown, words->v, words->n * sizeof *grown);
		words->v = grown;
		words->cap = cap;
	}
	words->v[words->n++] = *word;
	return 0;
}

static int end_simple(struct shell *sh, struct simple *s)
{
	int r = s->words.n ? command_judge(sh, s->words.v, s->words.n) : 0;

	*s = (struct simple){ 0 };
	return r;
}

/* ---- here-documents ---- */

static int read_here_body(struct shell *sh, size_t i)
{
	for (;;) {
		struct str rest = str_from(sh->in, sh->at), line;
		ptrdiff_t end = str_find(rest, '\n');

		if (rest.n == 0)
			return 0; /* bash takes the end of the text for its end */
		line = str_make(rest.p, end < 0 ? rest.n : (size_t)end);
		sh->at += line.n + (end < 0 ? 0 : 1);
		while (sh->here_tabs[i] && line.n && line.p[0] == '\t')
			line = str_from(line, 1);
		if (str_eq(line, sh->here[i]))
			return 0;
		if (!sh->here_quoted[i] &&
			(memchr(line.p, '$', line.n) || memchr(line.p, '`', line.n) ||
				memchr(line.p, '\\', line.n)))
			return shell_refuse(sh,
				"a here-document with expansions: quote its delimiter");
	}
}

static int read_here_bodies(struct shell *sh)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < sh->n_here; i++)
		r = read_here_body(sh, i);
	sh->n_here = 0;
	return r;
}

static void skip_blanks(struct shell *sh)
{
	for (;;) {
		int c = shell_peek(sh, 0);

		if (c == ' ' || c == '\t')
			sh->at++;
		else if (c == '\\' && shell_peek(sh, 1) == '\n')
			sh->at += 2;
		else
			return;
	}
}

static int read_target(struct shell *sh, struct word *ret)
{
	int r;

	if (shell_goes_on(sh, 0))
		return shell_refuse(sh, "a line that goes on behind a '<' or '>'");
	skip_blanks(sh);
	if ((shell_peek(sh, 0) == '<' || shell_peek(sh, 0) == '>') && shell_peek(sh, 1) == '(')
		return shell_refuse(sh, "process substitution is not understood");
	r = word_read(sh, ret);
	if (r == 0 && ret->text.n == 0 && ret->is_literal && !ret->is_quoted)
		return shell_refuse(sh, "a redirection to nothing");
	return r;
}

static int read_here(struct shell *sh)
{
	struct word word;
	bool tabs = shell_peek(sh, 0) == '-';
	int r;

	if (tabs)
		sh->at++;
	r = read_target(sh, &word);
	if (r < 0)
		return r;
	if (!word.is_literal || sh->n_here == ARRAY_SIZE(sh->here))
		return shell_refuse(sh, "this here-document is not understood");
	sh->here[sh->n_here] = word.text;
	sh->here_tabs[sh->n_here] = tabs;
	sh->here_quoted[sh->n_here++] = word.is_quoted;
	return 0;
}

/* Behind >& and <&. What is no number bash takes for a file, and expands once more. */
static int read_descriptor(struct shell *sh)
{
	struct word target;
	int r = read_target(sh, &target);
	size_t n = 0;

	if (r < 0)
		return r;
	while (n < target.text.n && isdigit((unsigned char)target.text.p[n]))
		n++;
	if (target.is_literal && n < target.text.n && target.text.p[n] == '-')
		n++;
	return target.is_literal && n == target.text.n
		       ? 0
		       : shell_refuse(sh, "a '>&' of anything but a number: write '&>'");
}

/* At < or >. */
static int read_redirection(struct shell *sh)
{
	struct word target;
	int c = shell_peek(sh, 0), next = shell_peek(sh, 1);

	if (next == '(')
		return shell_refuse(sh, "process substitution is not understood");
	if (c == '<' && next == '<' && shell_peek(sh, 2) == '<') {
		sh->at += 3;
		return read_target(sh, &target);
	}
	if (c == '<' && next == '<') {
		sh->at += 2;
		return read_here(sh);
	}
	sh->at += next == '>' || next == '&' || next == '|' ? 2 : 1;
	return next == '&' ? read_descriptor(sh) : read_target(sh, &target);
}

/* ---- words in their place ---- */

static bool is_assignment(const struct word *word, struct str *ret_name)
{
	size_t n = 0;

	while (n < word->plain_n &&
		(isalnum((unsigned char)word->text.p[n]) || word->text.p[n] == '_'))
		n++;
	*ret_name = str_make(word->text.p, n);
	if (n == 0 || n == word->plain_n || isdigit((unsigned char)word->text.p[0]))
		return false;
	return word->text.p[n] == '=' || word->text.p[n] == '[' ||
	       (word->text.p[n] == '+' && n + 1 < word->plain_n && word->text.p[n + 1] == '=');
}

static int take_assignment(struct shell *sh, const struct word *word, struct str name)
{
	if (word->text.p[name.n] == '[' || shell_peek(sh, 0) == '(')
		return shell_refuse(sh, "arrays are not understood");
	if (is_guarded_name(name))
		return shell_refuse(sh, "%.*s decides what is run: it may not be set",
			STR_ARG(name));
	return 0;
}

/* for NAME in words: what follows is a place for commands. */
static int read_for(struct shell *sh)
{
	struct word word;
	int r;

	skip_blanks(sh);
	r = word_read(sh, &word);
	if (r < 0)
		return r;
	if (!word.is_literal || word.is_quoted || word.text.n == 0)
		return shell_refuse(sh, "this form of 'for' is not understood");
	if (is_guarded_name(word.text))
		return shell_refuse(sh, "%.*s decides what is run: it may not be set",
			STR_ARG(word.text));
	for (size_t i = 0; i < word.text.n; i++)
		if (!isalnum((unsigned char)word.text.p[i]) && word.text.p[i] != '_')
			return shell_refuse(sh, "this form of 'for' is not understood");
	skip_blanks(sh);
	r = word_read(sh, &word);
	if (r == 0 && (word.is_quoted || !str_is(word.text, "in")))
		r = shell_refuse(sh, "'for' without 'in' is not understood");
	while (r == 0) {
		int c;

		skip_blanks(sh);
		c = shell_peek(sh, 0);
		if (c < 0 || c == ';' || c == '\n')
			return 0;
		if (c == '#')
			return shell_refuse(sh, "a comment in this place is not understood");
		if (strchr("&|<>()", c))
			return shell_refuse(sh, "this form of 'for' is not understood");
		r = word_read(sh, &word);
	}
	return r;
}

static bool is_one_of(struct str s, const char *const *words)
{
	for (; *words; words++)
		if (str_is(s, *words))
			return true;
	return false;
}

/* 1: it was one, and dealt with. */
static int take_reserved(struct shell *sh, struct simple *s, const struct word *word)
{
	static const char *const openers[] = { "if", "then", "elif", "else", "while", "until", "do",
		"{", "!", NULL };
	static const char *const closers[] = { "fi", "done", "}", NULL };
	static const char *const refused[] = { "case", "esac", "select", "function", "coproc", "[[",
		"in", NULL };

	if (word->is_quoted || !word->is_literal || s->words.n || s->has_prefix)
		return 0;
	if (is_one_of(word->text, refused))
		return shell_refuse(sh, "'%.*s' is not understood", STR_ARG(word->text));
	if (is_one_of(word->text, openers))
		return 1;
	if (is_one_of(word->text, closers)) {
		s->is_closed = true;
		return 1;
	}
	if (str_is(word->text, "for")) {
		int r = read_for(sh);

		return r < 0 ? r : 1;
	}
	return 0;
}

/* A number, or {name}, right before a redirection belongs to it. */
static int take_descriptor(struct shell *sh, const struct word *word)
{
	int c = shell_peek(sh, 0);

	if (c != '<' && c != '>')
		return 0;
	if (word->text.n && word->text.p[0] == '{')
		return shell_refuse(sh, "a descriptor in a variable is not understood");
	for (size_t i = 0; i < word->text.n; i++)
		if (!isdigit((unsigned char)word->text.p[i]))
			return 0;
	return word->is_literal && !word->is_quoted && word->text.n > 0;
}

static int take_word(struct shell *sh, struct simple *s)
{
	struct word word;
	struct str name;
	int r = word_read(sh, &word);

	if (r < 0)
		return r;
	r = take_descriptor(sh, &word);
	if (r != 0)
		return MIN(r, 0);
	if (s->is_closed)
		return shell_refuse(sh, "'%.*s' in this place is not understood",
			STR_ARG(word.text));
	r = take_reserved(sh, s, &word);
	if (r != 0)
		return MIN(r, 0);
	if (s->words.n == 0 && is_assignment(&word, &name)) {
		s->has_prefix = true;
		return take_assignment(sh, &word, name);
	}
	return push(sh, &s->words, &word);
}

/* ---- operators ---- */

static int open_subshell(struct shell *sh, struct simple *s)
{
	struct shell inner = { 0 };
	int r;

	if (s->words.n || s->has_prefix || s->is_closed)
		return shell_refuse(sh, "'(' in this place is not understood");
	if (shell_peek(sh, 1) == '(' || shell_goes_on(sh, 1))
		return shell_refuse(sh, "'((' can run commands");
	r = shell_enter(sh, &inner);
	if (r < 0)
		return r;
	inner.at++;
	r = commands_read(&inner, ')');
	sh->at = inner.at;
	s->is_closed = true;
	return r;
}

static int take_operator(struct shell *sh, struct simple *s, int c)
{
	int next = shell_peek(sh, 1), r;

	if (c == '<' || c == '>') {
		s->has_prefix |= s->words.n == 0;
		return read_redirection(sh);
	}
	if (c == '&' && next == '>') {
		sh->at++;
		if (shell_peek(sh, 1) == '>')
			sh->at++;
		return read_redirection(sh);
	}
	if (c == '(')
		return open_subshell(sh, s);
	if (c == ')')
		return shell_refuse(sh, "a ')' without its '('");
	if (c == ';' && (next == ';' || next == '&'))
		return shell_refuse(sh, "';;' is not understood");
	/* The text of one that was announced outside begins at the first newline, wherever it is.
	 */
	if (c == '\n' && sh->awaits_here)
		return shell_refuse(sh, "a newline in (...) behind a '<<' is not understood");
	r = end_simple(sh, s);
	sh->at += (c == '&' && next == '&') || (c == '|' && (next == '|' || next == '&')) ? 2 : 1;
	if (r == 0 && c == '\n')
		r = read_here_bodies(sh);
	return r;
}

static void skip_comment(struct shell *sh)
{
	while (shell_peek(sh, 0) >= 0 && shell_peek(sh, 0) != '\n')
		sh->at++;
}

int commands_read(struct shell *sh, int close)
{
	struct simple s = { 0 };
	int r = 0;

	while (r == 0) {
		int c;

		skip_blanks(sh);
		c = shell_peek(sh, 0);
		if (c == close) {
			if (sh->n_here)
				return shell_refuse(sh, "a here-document without its text");
			sh->at += c >= 0;
			return end_simple(sh, &s);
		}
		if (c < 0)
			return shell_refuse(sh, "a '(' is not closed");
		if (c == '#')
			skip_comment(sh);
		else if (strchr(";&|<>()\n", c))
			r = take_operator(sh, &s, c);
		else
			r = take_word(sh, &s);
	}
	return r;
}

int shell_programs(struct str line, shell_program_fn fn, void *arg, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new((size_t)64 * SHELL_MAX_BYTES);
	struct shell sh = { .in = line, .arena = arena, .fn = fn, .arg = arg, .e = e };

	if (line.n > SHELL_MAX_BYTES)
		return shell_refuse(&sh, "a line of more than %d KiB", SHELL_MAX_BYTES >> 10);
	if (memchr(line.p, '\0', line.n))
		return shell_refuse(&sh, "a NUL in it");
	return commands_read(&sh, -1);
}

int argv_programs(const struct str *argv, size_t n, shell_program_fn fn, void *arg, struct err *e)
{
	CLEANUP(arena_freep) struct arena *arena = arena_new((size_t)64 * SHELL_MAX_BYTES);
	struct shell sh = { .arena = arena, .fn = fn, .arg = arg, .e = e };
	struct words words = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = push(&sh, &words,
			&(struct word){ .text = argv[i], .is_literal = true, .is_quoted = true });
	/* A program by that name, not what bash makes of it. */
	return r < 0 ? r : program_judge(&sh, words.v, words.n);
}
