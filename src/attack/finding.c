#include "attack/attack.h"

#include <sys/wait.h>

__attribute__((format(printf, 3, 0))) static void settle(struct finding *f, enum verdict verdict,
	const char *fmt, va_list ap)
{
	f->tries++;
	if (verdict <= f->verdict) /* the first of its kind is kept */
		return;
	f->verdict = verdict;
	(void)vsnprintf(f->evidence, sizeof f->evidence, fmt, ap);
}

void refused(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	settle(f, REFUSED, fmt, ap);
	va_end(ap);
}

void contained(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	settle(f, CONTAINED, fmt, ap);
	va_end(ap);
}

void escaped(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	settle(f, ESCAPED, fmt, ap);
	va_end(ap);
}

void given_by_kernel(struct finding *f, const char *fmt, ...)
{
	char what[EVIDENCE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	if (f->own_kernel)
		contained(f, "%.180s (of a kernel of its own)", what);
	else
		escaped(f, "%s", what);
}

void refused_with(struct finding *f, int error, const char *fmt, ...)
{
	char what[EVIDENCE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	refused(f, "%.160s: %s", what, strerrordesc_np(error));
}

static bool is_refusal(int error)
{
	return error == EPERM || error == EACCES || error == ENOSYS || error == EAFNOSUPPORT ||
	       error == EROFS || error == EPROTONOSUPPORT || error == ESOCKTNOSUPPORT;
}

void judge_call(struct finding *f, int64_t result, const char *what)
{
	int error = errno;

	if (result >= 0)
		given_by_kernel(f, "%s worked", what);
	else if (is_refusal(error))
		refused_with(f, error, "%s", what);
	else
		given_by_kernel(f, "%s: the kernel looked into it (%s)", what,
			strerrordesc_np(error));
}

void judge_open(struct finding *f, const char *path, int flags)
{
	int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0) {
		refused_with(f, errno, "%s", path);
		return;
	}
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
		return -EAGAIN;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void mark_name(const struct scene *scene, const char *who, char name[64])
{
	(void)snprintf(name, 64, "atoll-%s-%s", who, scene->mark);
}
