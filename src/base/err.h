/* Errors as plain values: nothing is allocated on the failure path, and a child process can write
 * one down a pipe as it is. Programs decide on `code` (-errno), people read `msg`. */
#pragma once

#include <stdarg.h>

struct err {
	int code;
	char msg[252];
};

/* All three return `code`, so that a failing function ends in one line. `e` may be NULL. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As err_set, with ": " and what the errno means behind it. */
int err_sys(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts context in front of what is already there. */
int err_wrap(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
