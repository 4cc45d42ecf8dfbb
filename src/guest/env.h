/* env - the environment of a command.
 * From low to high: PATH and the user's own, the sandbox's variables, what the system says
 * (E2B_SANDBOX ...), the request's. The last word wins, and every name appears once. */
#pragma once

#include "base/base.h"
#include "guest/settings.h"
#include "guest/users.h"

/* Behind the user's home, ahead of the others. The base template's profile says the same. */
#define ENV_USER_BIN "/.local/bin"
#define ENV_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* NULL-terminated `NAME=value` strings in the arena; -ENOBUFS when it is full. `request` may be
 * NULL. */
int env_build(struct arena *a, const struct settings *s, const struct user *user,
	const struct json_map *request, char ***ret);
/* The value of a variable, or NULL. */
const char *env_get(char *const *env, const char *name);
/* Every variable that a command of anybody gets from the sandbox, for GET /envs. */
void env_write_defaults(struct jsonw *w, const struct settings *s);
