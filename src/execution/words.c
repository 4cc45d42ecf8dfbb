/* Words of bash: quotes, and the expansions whose meaning does not depend on what variables hold.
 */
#include "execution/shell-internal.h"

#include <ctype.h>

static bool ends_word(int c)
{
	return c < 0 || strchr(" \t\n;&|<>()", c);
}

struct made {
	struct shell *sh;
	struct buf text;
	struct word word;
};

/* ---- $ ---- */

static bool is_name_start(int c)
{
	return c == '_' || (c >= 0 && isalpha(c));
}

static bool is_name_char(int c)
{
	return c == '_' || (c >= 0 && isalnum(c));
}

/* $(( )) of numbers alone: a variable in it is evaluated as an expression again, commands and all.
 */
static int read_arithmetic(struct shell *sh)
{
	int open = 0;

	for (sh->at += 3;; sh->at++) { /* $(( */
		int c = shell_peek(sh, 0);

		if (c < 0 || !(isdigit(c) || strchr(" +-*/%()", c)))
			return shell_refuse(sh,
				"arithmetic of anything but numbers can run commands");
		if (c == ')' && open == 0)
			break;
		open += c == '(' ? 1 : c == ')' ? -1 : 0;
	}
	/* Where the two do not stand together bash takes all of it for a command. */
	if (shell_peek(sh, 1) != ')')
		return shell_refuse(sh, "this form of $((...)) is not understood");
	sh->at += 2;
	return 0;
}

static int read_substitution(struct shell *sh)
{
	struct shell inner = { 0 };
	int r;

	if (shell_peek(sh, 2) == '(')
		return read_arithmetic(sh);
	if (shell_goes_on(sh, 2))
		return shell_refuse(sh, "a line that goes on behind '$(' is not understood");
	r = shell_enter(sh, &inner);
	if (r < 0)
		return r;
	inner.at += 2;
	r = commands_read(&inner, ')');
	sh->at = inner.at;
	return r;
}

static int read_quoted(struct made *m, bool within_braces);

/* The word behind ${name:- in the same rules as outside. */
static int read_default(struct made *m)
{
	struct shell *sh = m->sh;
	int r = 0;

	if (++sh->depth > SHELL_MAX_DEPTH)
		return shell_refuse(sh, "it is nested too deeply");
	while (r == 0 && shell_peek(sh, 0) != '}') {
		int c = shell_peek(sh, 0);

		if (c < 0)
			return shell_refuse(sh, "a ${ is not closed");
		if (strchr("'`\\\"", c))
			return shell_refuse(sh, "quotes within ${...} are not understood");
		if (strchr("<>()", c))
			return shell_refuse(sh, "process substitution is not understood");
		r = c == '$' ? read_quoted(m, true) : 0;
		if (c != '$')
			sh->at++;
	}
	sh->at++;
	sh->depth--;
	return r;
}

/* ${name}, ${#name}, ${name:-word} and its like; nothing that calculates, assigns or transforms. */
static int read_braces(struct made *m)
{
	struct shell *sh = m->sh;
	int c;

	sh->at += 2; /* ${ */
	if (shell_peek(sh, 0) == '#' && is_name_start(shell_peek(sh, 1)))
		sh->at++;
	c = shell_peek(sh, 0);
	if (!is_name_char(c) && !(c > 0 && strchr("@*#?$!-", c)))
		return shell_refuse(sh, "this form of ${...} is not understood");
	m->word.splits |= c == '@';
	if (is_name_char(c))
		while (is_name_char(shell_peek(sh, 0)))
			sh->at++;
	else
		sh->at++;
	c = shell_peek(sh, 0);
	if (c == '}') {
		sh->at++;
		return 0;
	}
	if (c == ':')
		c = shell_peek(sh, 1);
	if (c < 0 || !strchr("-+?", c))
		return shell_refuse(sh, "this form of ${...} is not understood");
	sh->at += shell_peek(sh, 0) == ':' ? 2 : 1;
	return read_default(m);
}

/* At a $ that begins something. */
static int read_dollar(struct made *m)
{
	struct shell *sh = m->sh;
	int c = shell_peek(sh, 1);

	m->word.is_literal = false;
	m->word.splits |= c == '@'; /* within quotes, too */
	if (shell_goes_on(sh, 1))
		return shell_refuse(sh, "a line that goes on behind '$' is not understood");
	if (c == '(')
		return read_substitution(sh);
	if (c == '{')
		return read_braces(m);
	if (c == '[')
		return shell_refuse(sh, "$[...] can run commands");
	if (is_name_start(c)) {
		for (sh->at++; is_name_char(shell_peek(sh, 0));)
			sh->at++;
		return 0;
	}
	if (c > 0 && (isdigit(c) || strchr("@*#?$!-", c))) {
		sh->at += 2;
		return 0;
	}
	sh->at++; /* a $ of its own */
	m->word.is_literal = true;
	return buf_addc(&m->text, '$');
}

static int read_quoted(struct made *m, bool within_braces)
{
	bool was_literal = m->word.is_literal;
	int r = read_dollar(m);

	if (within_braces)
		m->word.is_literal = false;
	else
		m->word.is_literal &= was_literal;
	return r;
}

/* ---- quotes ---- */

static int read_single(struct made *m)
{
	struct shell *sh = m->sh;

	m->word.is_quoted = true;
	for (sh->at++; shell_peek(sh, 0) != '\''; sh->at++) {
		if (shell_peek(sh, 0) < 0)
			return shell_refuse(sh, "a ' is not closed");
		(void)buf_addc(&m->text, (char)shell_peek(sh, 0));
	}
	sh->at++;
	return 0;
}

/* $'...': escapes can spell anything, so it is not literal. */
static int read_ansi(struct made *m)
{
	struct shell *sh = m->sh;

	m->word.is_quoted = true;
	m->word.is_literal = false;
	for (sh->at += 2; shell_peek(sh, 0) != '\''; sh->at++) {
		if (shell_peek(sh, 0) == '\\')
			sh->at++;
		if (shell_peek(sh, 0) < 0)
			return shell_refuse(sh, "a $' is not closed");
	}
	sh->at++;
	return 0;
}

static int read_double(struct made *m)
{
	struct shell *sh = m->sh;
	int r = 0;

	m->word.is_quoted = true;
	sh->at++;
	while (r == 0 && shell_peek(sh, 0) != '"') {
		int c = shell_peek(sh, 0);

		if (c < 0)
			return shell_refuse(sh, "a \" is not closed");
		if (c == '`')
			return shell_refuse(sh, "backquotes are not understood: use $(...)");
		if (c == '$') {
			r = read_quoted(m, false);
			continue;
		}
		if (c == '\\' && shell_peek(sh, 1) >= 0 && strchr("$`\"\\\n", shell_peek(sh, 1))) {
			sh->at++;
			c = shell_peek(sh, 0) == '\n' ? -1 : shell_peek(sh, 0);
		}
		if (c >= 0)
			(void)buf_addc(&m->text, (char)c);
		sh->at++;
	}
	sh->at++;
	return r;
}

static int read_backslash(struct made *m)
{
	struct shell *sh = m->sh;
	int c = shell_peek(sh, 1);

	if (c < 0)
		return shell_refuse(sh, "it ends with a backslash");
	sh->at += 2;
	if (c == '\n')
		return 0; /* a line that goes on */
	m->word.is_quoted = true;
	return buf_addc(&m->text, (char)c);
}

/* ---- the whole ---- */

static int read_part(struct made *m)
{
	struct shell *sh = m->sh;
	int c = shell_peek(sh, 0);

	if (strchr("'\"\\`$", c) && m->word.plain_n == SIZE_MAX)
		m->word.plain_n = m->text.n;
	switch (c) {
	case '\'':
		return read_single(m);
	case '"':
		return read_double(m);
	case '\\':
		return read_backslash(m);
	case '`':
		return shell_refuse(sh, "backquotes are not understood: use $(...)");
	case '$':
		if (shell_peek(sh, 1) == '\'')
			return read_ansi(m);
		if (shell_peek(sh, 1) == '"') {
			sh->at++;
			return read_double(m);
		}
		m->word.splits = true;
		return read_quoted(m, false);
	case '*':
	case '?':
	case '[':
	case '~':
	case '{':
		/* May become something else. A lone [ or { is what it is; see below. */
		m->word.is_literal = false;
		m->word.splits |= c != '~';
		break;
	}
	sh->at++;
	return buf_addc(&m->text, (char)c);
}

int word_read(struct shell *sh, struct word *ret)
{
	struct made m = { .sh = sh, .text = BUF_INIT(SHELL_MAX_BYTES) };
	char *copy;
	int r = 0;

	m.word.is_literal = true;
	m.word.plain_n = SIZE_MAX;
	while (r == 0 && !ends_word(shell_peek(sh, 0)))
		r = read_part(&m);
	if (r == 0 && m.word.plain_n == SIZE_MAX &&
		(str_is(buf_str(&m.text), "[") || str_is(buf_str(&m.text), "{") ||
			str_is(buf_str(&m.text), "[[") || str_is(buf_str(&m.text), "{}"))) {
		m.word.is_literal = true;
		m.word.splits = false;
	}
	copy = arena_dup(sh->arena, buf_str(&m.text));
	m.word.text = str_make(copy, m.text.n);
	m.word.plain_n = MIN(m.word.plain_n, m.text.n);
	*ret = m.word;
	if (r == 0 && (!copy || m.text.failed))
		r = shell_refuse(sh, "it is too long");
	buf_done(&m.text);
	return r;
}
