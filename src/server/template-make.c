#include "server/template-make.h"
#include "json/json.h"
#include "server/server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
	TIDY_MS = 20000, /* that the script has to remove what it began, once it was told to end */
	CANNOT_RUN = 127,
};

static const int ending_signals[] = { SIGTERM, SIGINT, SIGHUP };

/* Beside the build directory in a checkout, in ../share when installed. */
static int find_script(char *path, size_t size, struct err *e)
{
	static const char *const places[] = { "../templates", "../share/atoll/templates" };
	char self[3072];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (n < 0)
		return err_sys(e, -errno, "find this executable");
	self[n] = '\0';
	slash = strrchr(self, '/');
	*(slash ? slash : self) = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		(void)snprintf(path, size, "%s/%s/base/build", self, places[i]);
		if (access(path, X_OK) == 0)
			return 0;
	}
	return err_set(e, -ENOENT,
		"there is no base template, and its build script is not beside this program: "
		"expected %s",
		path);
}

/* It ends with us, however we end: SIGTERM has it remove what it has begun. */
static _Noreturn void become_script(pid_t parent, const sigset_t *mask, char *const argv[])
{
	if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 || getppid() != parent)
		_exit(CANNOT_RUN);
	(void)sigprocmask(SIG_SETMASK, mask, NULL);
	(void)execv(argv[0], argv);
	_exit(CANNOT_RUN);
}

/* Its wait status, and the signal that told us to end meanwhile (0: none), which it was told too.
 */
static int wait_for_script(pid_t pid, const sigset_t *awaited, int *ret_status, int *ret_signo)
{
	int64_t until_ms = INT64_MAX;

	for (;;) {
		struct timespec second = { .tv_sec = 1 };
		pid_t ended = waitpid(pid, ret_status, WNOHANG);
		int signo;

		if (ended == pid)
			return 0;
		if (ended < 0 && errno != EINTR)
			return -errno;
		signo = sigtimedwait(awaited, NULL, &second);
		if (signo > 0 && signo != SIGCHLD && *ret_signo == 0) {
			*ret_signo = signo;
			until_ms = time_now_ms() + TIDY_MS;
			(void)kill(pid, SIGTERM);
		}
		if (time_now_ms() > until_ms)
			(void)kill(pid, SIGKILL);
	}
}

/* We are not serving yet: a signal ends this process, but only once the script has tidied up. */
static int run_script(char *const argv[], int *ret_status, struct err *e)
{
	pid_t parent = getpid(), pid;
	sigset_t awaited, before;
	int signo = 0, r;

	(void)sigemptyset(&awaited);
	(void)sigaddset(&awaited, SIGCHLD);
	for (size_t i = 0; i < ARRAY_SIZE(ending_signals); i++)
		(void)sigaddset(&awaited, ending_signals[i]);
	(void)sigprocmask(SIG_BLOCK, &awaited, &before);
	pid = fork();
	if (pid == 0)
		become_script(parent, &before, argv);
	r = pid < 0 ? -errno : wait_for_script(pid, &awaited, ret_status, &signo);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (signo) {
		log_info("template.stopped", "signal=%d", signo);
		(void)raise(signo);
		return err_set(e, -EINTR, "a signal ended the making of the base template");
	}
	return r < 0 ? err_sys(e, r, "run %s", argv[0]) : 0;
}

struct made_toml {
	struct json_int version;
	struct str node, lacks;
};
static const struct json_field made_fields[] = {
	JSON_FIELD(struct made_toml, version, "version", JSON_INT, .min = 1, .max = 1 << 20),
	JSON_FIELD(struct made_toml, node, "node", JSON_STR,
		.max = sizeof((struct server_base *)0)->node - 1),
	JSON_FIELD(struct made_toml, lacks, "lacks", JSON_STR,
		.max = sizeof((struct server_base *)0)->lacks - 1),
};
static const struct json_shape made_shape = JSON_SHAPE(struct made_toml, made_fields);

static int read_made(const char *path, struct server_base *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	struct made_toml made = { 0 };
	struct arena *arena;
	int r = file_read(AT_FDCWD, path, &text, e);

	if (r == -ENOENT) {
		*ret = (struct server_base){ .version = 1 };
		return 0;
	}
	if (r < 0)
		return r;
	arena = arena_new(16 << 10);
	r = toml_decode(arena, buf_str(&text), &made_shape, &made, e);
	if (r >= 0) {
		*ret = (struct server_base){ .version = made.version.value };
		(void)snprintf(ret->node, sizeof ret->node, "%.*s", STR_ARG(made.node));
		(void)snprintf(ret->lacks, sizeof ret->lacks, "%.*s", STR_ARG(made.lacks));
	}
	(void)arena_free(arena);
	return r < 0 ? err_wrap(e, r, "%s", path) : 0;
}

int server_base_look(const char *templates_dir, struct server_base *ret, struct err *e)
{
	char path[4096 + 32];
	struct stat st;

	(void)snprintf(path, sizeof path, "%s/base/rootfs", templates_dir);
	if (stat(path, &st) < 0)
		return err_sys(e, -errno, "look at %s", path);
	(void)snprintf(path, sizeof path, "%s/base/made.toml", templates_dir);
	return read_made(path, ret, e);
}

/* It is not made anew by itself: sandboxes and snapshots stand on it. */
static void tell_age(const char *templates_dir)
{
	struct server_base base;

	if (server_base_look(templates_dir, &base, NULL) == 0 && base.version < SERVER_BASE_VERSION)
		log_info("template.older", "template=base version=%" PRId64 " current=%d more=%s",
			base.version, SERVER_BASE_VERSION, "docs/templates.md");
}

int template_make_base(const char *templates_dir, struct err *e)
{
	char script[4096], dest[4096 + 8];
	char *const argv[] = { script, dest, NULL };
	struct stat st;
	int status = 0, r;

	(void)snprintf(dest, sizeof dest, "%s/base/rootfs", templates_dir);
	if (stat(dest, &st) == 0) {
		tell_age(templates_dir);
		return 0;
	}
	dest[strlen(dest) - strlen("/rootfs")] = '\0';
	r = find_script(script, sizeof script, e);
	if (r < 0)
		return r;
	log_info("template.making", "template=base dir=%s", log_quote(str_of(dest)));
	r = run_script(argv, &status, e);
	if (r < 0)
		return r;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, -EIO,
			"the base template could not be made (its script's own words stand above): "
			"see atoll doctor");
	return 0;
}
