#include "attack/attack.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

enum {
	DEPTH_MAX = 64,
};

struct walking {
	const struct walk *w;
	void *arg;
	char path[PATH_MAX];
	int seen;
	bool goes_on;
};

static bool is_kept_out(const struct walking *s)
{
	for (const char *const *skip = s->w->skip; skip && *skip; skip++)
		if (strcmp(s->path, *skip) == 0)
			return true;
	return false;
}

/* What its directory says of it is enough to pass over plain files: asking each takes far longer.
 */
static bool is_passed_over(const struct walking *s, unsigned char type)
{
	return type == DT_LNK || (s->w->only_special && type == DT_REG);
}

static void enter(struct walking *s, int parent_fd, const char *name, int depth);

static void meet(struct walking *s, int dir_fd, const struct dirent *entry, int depth)
{
	unsigned char type = entry->d_type;
	struct stat st;

	if (type == DT_DIR) {
		enter(s, dir_fd, entry->d_name, depth);
		return;
	}
	s->seen++;
	if (is_passed_over(s, type) ||
		fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
		return;
	if (S_ISDIR(st.st_mode))
		enter(s, dir_fd, entry->d_name, depth);
	else
		s->goes_on = s->w->look(s->path, &st, s->arg);
}

static void enter(struct walking *s, int parent_fd, const char *name, int depth)
{
	int fd = is_kept_out(s) || depth == DEPTH_MAX
			 ? -EBADF
			 : openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	size_t n = strcmp(s->path, "/") == 0 ? 0 : strlen(s->path);
	struct dirent *entry;

	while (dir && s->goes_on && s->seen < WALK_MAX && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			n + 1 + strlen(entry->d_name) >= sizeof s->path)
			continue;
		(void)snprintf(s->path + n, sizeof s->path - n, "/%s", entry->d_name);
		meet(s, fd, entry, depth + 1);
		s->path[n] = '\0';
	}
	if (n == 0)
		(void)snprintf(s->path, sizeof s->path, "/");
	if (dir)
		(void)closedir(dir);
	else if (fd >= 0)
		(void)close(fd);
}

int walk(const struct walk *w, void *arg)
{
	struct walking s = { .w = w, .arg = arg, .goes_on = true };

	(void)snprintf(s.path, sizeof s.path, "%s", w->root);
	if (access(w->root, F_OK) < 0)
		return -errno;
	enter(&s, AT_FDCWD, w->root, 0);
	return s.seen;
}
