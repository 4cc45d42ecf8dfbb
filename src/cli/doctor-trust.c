/* What a company's network asks of this machine: whether sandboxes trust whom it trusts, and
 * whether programs here find a sandbox's port by its name. */
#include "cli/doctor.h"

#include <dirent.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define HOST_DIR "/usr/local/share/ca-certificates"

enum {
	FILE_MAX_BYTES = 1 << 20,
	MAX_DEPTH = 4,
	LOOK_UP_SECONDS = 5,
};

/* Two files with the same certificate may have other line lengths. */
static void squeeze(struct buf *text)
{
	size_t n = 0;

	for (size_t i = 0; i < text->n; i++)
		if (!strchr(" \t\r\n", text->p[i]) || !text->p[i])
			text->p[n++] = text->p[i];
	text->n = n;
}

/* Whether every certificate in `text` is also in `known`; both squeezed. */
static bool has_all(struct str known, struct str text)
{
	static const struct str begin = STR("-----BEGINCERTIFICATE-----");
	static const struct str end = STR("-----ENDCERTIFICATE-----");
	const char *from, *to;

	while (text.n && (from = memmem(text.p, text.n, begin.p, begin.n))) {
		text = str_from(text, (size_t)(from - text.p));
		to = memmem(text.p, text.n, end.p, end.n);
		if (!to)
			return true;
		if (!known.n || !memmem(known.p, known.n, from, (size_t)(to - from)))
			return false;
		text = str_from(text, (size_t)(to - text.p));
	}
	return true;
}

struct search {
	struct str known;
	int n; /* that sandboxes do not trust */
	char first[DOCTOR_TEXT / 2];
};

static void look_at(struct search *s, int dir_fd, const char *where, const char *name)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(FILE_MAX_BYTES);
	size_t n = strlen(name);

	if (n < 4 || strcmp(name + n - 4, ".crt") != 0 || file_read(dir_fd, name, &text, NULL) < 0)
		return;
	squeeze(&text);
	if (!has_all(s->known, buf_str(&text)) && s->n++ == 0)
		(void)snprintf(s->first, sizeof s->first, "%s/%s", where, name);
}

static void look_in(struct search *s, int take_fd, const char *where, int depth)
{
	DIR *dir = fdopendir(take_fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[256];
		int fd;

		if (entry->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", where,
						       entry->d_name) >= (int)sizeof path)
			continue;
		fd = depth < MAX_DEPTH
			     ? openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			     : -1;
		if (fd >= 0)
			look_in(s, fd, path, depth + 1);
		else
			look_at(s, dirfd(dir), where, entry->d_name);
	}
	if (dir)
		(void)closedir(dir);
	else
		(void)close(take_fd);
}

/* What the server on the data directory gives its sandboxes stands in there. */
void doctor_check_trust(struct doctor *d)
{
	const char *data = doctor_data(d);
	CLEANUP(buf_done) struct buf known = BUF_INIT(FILE_MAX_BYTES);
	struct search s = { 0 };
	char path[CONFIG_VALUE + 32], fix[DOCTOR_TEXT];
	int fd = open(HOST_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)snprintf(path, sizeof path, "%s/" DOCTOR_AUTHORITIES, data);
	if (file_read(AT_FDCWD, path, &known, NULL) >= 0)
		squeeze(&known);
	s.known = buf_str(&known);
	if (fd >= 0)
		look_in(&s, fd, HOST_DIR, 0);
	(void)snprintf(fix, sizeof fix, "atoll serve --sandbox-ca %s", s.first);
	if (s.n > 0)
		doctor_add(d, "authorities", CHECK_WARN, fix,
			"this machine trusts what %s has%s, and sandboxes do not", s.first,
			s.n > 1 ? " and others" : "");
	else
		doctor_add(d, "authorities", CHECK_OK, "",
			"sandboxes trust the authorities that were added to this machine");
}

/* What the host's configuration makes it load, and how long that asks whom, is not ours: so it is
 * done in a process that is given up after a while. */
static _Noreturn void look_up(void)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;

	(void)alarm(LOOK_UP_SECONDS);
	_exit(getaddrinfo("8000-atoll.localhost", "80", &hints, &list) == 0 ? 0 : 1);
}

/* As a program here would: by the resolver that all of them use. */
void doctor_check_names(struct doctor *d)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		look_up();
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	doctor_add(d, "names", status == 0 ? CHECK_OK : CHECK_WARN,
		"apt-get install libnss-myhostname, or serve with --domain",
		status == 0 ? "programs find names below localhost"
			    : "programs do not find names below localhost");
}
