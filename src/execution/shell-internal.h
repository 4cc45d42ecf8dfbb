/* What the files that look at commands share.
 *
 * The question is which programs bash would run, and the answer must never leave one out. So only
 * what is understood completely is let through: everything else is refused with its name. */
#pragma once

#include "execution/execution-internal.h"

enum {
	SHELL_MAX_BYTES = 64 << 10,
	SHELL_MAX_DEPTH = 16,
	SHELL_MAX_WORDS = 4096, /* of one command */
};

struct word {
	struct str text; /* what it is after quotes were removed, if it is literal */
	bool is_literal; /* no expansion changes it: no $, no *, no ~, no {a,b} */
	bool is_quoted;  /* a part of it: then it is no reserved word */
	size_t plain_n;  /* so much of the text stood there as it is, before any quote or $ */
	bool splits;     /* an expansion that may make many words of it, or none */
};

struct words {
	struct word *v;
	size_t n, cap;
};

struct shell {
	struct str in;
	size_t at;
	int depth;
	struct arena *arena;
	struct str here[8]; /* delimiters of here-documents that begin at the next newline */
	bool here_tabs[8], here_quoted[8];
	size_t n_here;
	bool awaits_here; /* the text around this one has such delimiters */
	shell_program_fn fn;
	void *arg;
	struct err *e;
};

int shell_refuse(const struct shell *sh, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static inline int shell_peek(const struct shell *sh, size_t ahead)
{
	return sh->at + ahead < sh->in.n ? (unsigned char)sh->in.p[sh->at + ahead] : -1;
}

/* A line that goes on there. bash joins the two before it looks at what characters mean together:
 * behind a $, a ( or a < that is not followed here. */
static inline bool shell_goes_on(const struct shell *sh, size_t ahead)
{
	return shell_peek(sh, ahead) == '\\' && shell_peek(sh, ahead + 1) == '\n';
}
/* For a text within this one: a substitution, a subshell. -EPERM: it is nested too deeply. */
int shell_enter(const struct shell *sh, struct shell *ret);

/* words.c: one word from here on; it ends before the next blank or operator. */
int word_read(struct shell *sh, struct word *ret);
/* shell.c: commands up to `close` (-1: the end of the text). */
int commands_read(struct shell *sh, int close);
/* wrappers.c: a whole simple command. */
int command_judge(struct shell *sh, const struct word *v, size_t n);
/* The same for a program, whatever bash has built in under its name. */
int program_judge(struct shell *sh, const struct word *v, size_t n);
/* A variable that decides which program a name means, or what runs beside it. */
bool is_guarded_name(struct str name);
