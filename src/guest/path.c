#include "guest/path.h"

#include <sys/stat.h>

void path_clean(char *path)
{
	size_t to = 0, from = 0;

	assert(path[0] == '/');
	while (path[from]) {
		size_t n;

		while (path[from] == '/')
			from++;
		n = strcspn(path + from, "/");
		if (n == 2 && path[from] == '.' && path[from + 1] == '.') {
			while (to > 0 && path[--to] != '/')
				;
		} else if (n > 0 && !(n == 1 && path[from] == '.')) {
			path[to++] = '/';
			memmove(path + to, path + from, n);
			to += n;
		}
		from += n;
	}
	if (to == 0)
		path[to++] = '/';
	path[to] = '\0';
}

static int join(const char *dir, struct str rest, char out[PATH_MAX], struct err *e)
{
	int n = snprintf(out, PATH_MAX, "%s/%.*s", dir, STR_ARG(rest));

	if (n < 0 || n >= PATH_MAX)
		return err_set(e, -ENAMETOOLONG, "path is too long");
	path_clean(out);
	return 0;
}

int path_resolve(const struct user *user, const char *workdir, struct str path, char out[PATH_MAX],
	struct err *e)
{
	if (!path.n && workdir)
		path = str_of(workdir);
	if (path.n && memchr(path.p, '\0', path.n))
		return err_set(e, -EINVAL, "path contains a NUL byte");
	if (path.n && path.p[0] == '~') {
		if (path.n > 1 && path.p[1] != '/')
			return err_set(e, -EINVAL,
				"failed to expand path '%.*s' for user '%s': cannot expand "
				"user-specific home dir",
				STR_ARG(path), user->name);
		return join(user->home, str_from(path, 1), out, e);
	}
	if (!path.n || path.p[0] != '/')
		return join(user->home, path, out, e);
	if (path.n >= PATH_MAX)
		return err_set(e, -ENAMETOOLONG, "path is too long");
	memcpy(out, path.p, path.n);
	out[path.n] = '\0';
	return 0;
}

void path_parent(const char *path, char out[PATH_MAX])
{
	char *slash;

	(void)snprintf(out, PATH_MAX, "%s", path);
	slash = strrchr(out, '/');
	assert(slash);
	slash[1] = '\0';
	path_clean(out);
}

struct str path_base(const char *path)
{
	size_t end = strlen(path), at;

	while (end > 1 && path[end - 1] == '/')
		end--;
	at = end;
	while (at > 0 && path[at - 1] != '/')
		at--;
	if (at == end && end > 0)
		at = end - 1; /* the root itself */
	return str_make(path + at, end - at);
}

static int make_dir(const char *path, uid_t uid, gid_t gid, struct err *e)
{
	struct stat st;

	if (stat(path, &st) == 0)
		return S_ISDIR(st.st_mode) ? 0 : err_set(e, -ENOTDIR, "path is a file: %s", path);
	if (errno != ENOENT)
		return err_sys(e, -errno, "failed to stat directory: stat %s", path);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_sys(e, -errno, "failed to create directory: mkdir %s", path);
	/* Also when somebody else was faster: its owner is whom we were asked for. */
	if (chown(path, uid, gid) < 0)
		return err_sys(e, -errno, "failed to chown directory: chown %s", path);
	return 0;
}

int path_make_dirs(const char *path, uid_t uid, gid_t gid, struct err *e)
{
	char all[PATH_MAX];
	struct stat st;

	/* Nearly always everything is there. */
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	(void)snprintf(all, sizeof all, "%s", path);
	path_clean(all);
	for (char *at = all + 1;; at++) {
		char saved = *at;
		int r;

		if (saved != '/' && saved != '\0')
			continue;
		*at = '\0';
		r = make_dir(all, uid, gid, e);
		*at = saved;
		if (r < 0 || saved == '\0')
			return r;
	}
}
