/* path - which file a client means.
 * The rules are E2B's: empty is the working directory (or home), `~` is the user's home, absolute
 * paths are used as they are, relative ones start at home. */
#pragma once

#include "base/base.h"
#include "guest/users.h"

#include <limits.h>

/* -EINVAL with what is wrong; -ENAMETOOLONG. `workdir` may be NULL. */
int path_resolve(const struct user *user, const char *workdir, struct str path, char out[PATH_MAX],
	struct err *e);
/* Lexically: no empty, `.` or `..` components, no trailing slash. The path must be absolute. */
void path_clean(char *path);
/* The cleaned directory that holds `path`. */
void path_parent(const char *path, char out[PATH_MAX]);
/* The last component, without trailing slashes; "/" for the root. Borrows from path. */
struct str path_base(const char *path);
/* Makes what is missing of an absolute directory path, 0755, owned by uid and gid. */
int path_make_dirs(const char *path, uid_t uid, gid_t gid, struct err *e);
