#include "attack/attack.h"

#include <sys/stat.h>
#include <sys/wait.h>

const int by_filter[] = { EPERM, 0 };
const int by_rights[] = { EPERM, EACCES, 0 };
const int by_rights_or_read_only[] = { EPERM, EACCES, EROFS, 0 };

__attribute__((format(printf, 3, 0))) static void settle(struct finding *f, enum verdict verdict,
	const char *fmt, va_list ap)
{
	f->tries++;
	if (verdict <= f->verdict) /* the first of its kind is kept */
		return;
	f->verdict = verdict;
	(void)vsnprintf(f->evidence, sizeof f->evidence, fmt, ap);
}

#define DEFINE_VERDICT(name, verdict)                      \
	void name(struct finding *f, const char *fmt, ...) \
	{                                                  \
		va_list ap;                                \
                                                           \
		va_start(ap, fmt);                         \
		settle(f, verdict, fmt, ap);               \
		va_end(ap);                                \
	}
DEFINE_VERDICT(absent, ABSENT)
DEFINE_VERDICT(refused, REFUSED)
DEFINE_VERDICT(contained, CONTAINED)
DEFINE_VERDICT(inconclusive, INCONCLUSIVE)
DEFINE_VERDICT(escaped, ESCAPED)

bool is_own_kernel(const struct finding *f)
{
	return f->scene && f->scene->own_kernel;
}

bool is_inner(const struct scene *scene)
{
	enum {
		NOBODY = 65534
	};
	struct stat st;

	return scene->nested && stat("/dev/null", &st) == 0 && st.st_uid == NOBODY;
}

void given_by_kernel(struct finding *f, const char *fmt, ...)
{
	char what[EVIDENCE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	if (f->is_allowed)
		contained(f, "%.180s (nested: on what is its own)", what);
	else if (is_own_kernel(f))
		contained(f, "%.180s (of a kernel of its own)", what);
	else
		escaped(f, "%s", what);
}

/* A kernel of its own refuses in its own words. */
static bool is_right(const struct finding *f, int error)
{
	if (is_own_kernel(f) && (error == EPERM || error == EACCES || error == EROFS))
		return true;
	for (const int *right = f->right; right && *right; right++)
		if (*right == error)
			return true;
	return false;
}

/* What a kernel says of something that it was built without. */
static bool is_absence(int error)
{
	return error == ENOSYS || error == EAFNOSUPPORT || error == EPROTONOSUPPORT ||
	       error == ESOCKTNOSUPPORT;
}

void refused_with(struct finding *f, int error, const char *fmt, ...)
{
	char what[EVIDENCE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	if (is_right(f, error))
		refused(f, "%.160s: %s", what, strerrordesc_np(error));
	else if (is_own_kernel(f) && (is_absence(error) || error == EOPNOTSUPP || error == ENOTTY))
		absent(f, "%.160s: this kernel has none", what);
	else
		inconclusive(f, "%.160s: %s, which is no refusal", what, strerrordesc_np(error));
}

void judge_call(struct finding *f, int64_t result, const char *what)
{
	int error = errno;

	if (result >= 0)
		given_by_kernel(f, "%s worked", what);
	else if (is_right(f, error) || error == EPERM || error == EACCES || error == EROFS)
		refused_with(f, error, "%s", what);
	else if (is_absence(error))
		absent(f, "%s: this kernel has none", what);
	else
		given_by_kernel(f, "%s: the kernel looked into it (%s)", what,
			strerrordesc_np(error));
}

static bool is_listed(const char *list, const char *path)
{
	struct str rest = str_of(list), one;

	while (str_split(&rest, ':', &one))
		if (str_is(one, path))
			return true;
	return false;
}

static void judge_missing(struct finding *f, const char *path)
{
	const char *lacks = f->scene ? f->scene->lacks : NULL;

	if (!lacks)
		inconclusive(f, "%s is not there, and whether the host has it is not known", path);
	else if (is_listed(lacks, path))
		absent(f, "the host has no %s", path);
	else
		refused(f, "%s of the host is not there", path);
}

void judge_path_error(struct finding *f, int error, const char *path)
{
	if (error == ENOENT || error == ENOTDIR)
		judge_missing(f, path);
	else
		refused_with(f, error, "%s", path);
}

void judge_open(struct finding *f, const char *path, int flags)
{
	int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0) {
		judge_path_error(f, errno, path);
		return;
	}
	if (f->scene && f->scene->nested && strcmp(path, "/dev/fuse") == 0)
		contained(f, "%s can be opened: file systems of its own programs", path);
	else
		given_by_kernel(f, "%s can be opened%s", path,
			(flags & O_ACCMODE) == O_RDONLY ? "" : " for writing");
	(void)close(fd);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

bool next_word(struct str *rest, struct str *ret)
{
	size_t n = 0;

	while (rest->n && is_blank(rest->p[0]))
		*rest = str_from(*rest, 1);
	while (n < rest->n && !is_blank(rest->p[n]))
		n++;
	*ret = str_make(rest->p, n);
	*rest = str_from(*rest, n);
	return n > 0;
}

int in_child(int (*work)(void *arg), void *arg)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(work(arg) & 0xff);
	if (pid < 0)
		return NO_CHILD;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void mark_name(const struct scene *scene, const char *who, char name[64])
{
	(void)snprintf(name, 64, "atoll-%s-%s", who, scene->mark);
}
