#include "server/template-make.h"

#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

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

int template_make_base(const char *templates_dir, struct err *e)
{
	char script[4096], dest[4096 + 8];
	char *const argv[] = { script, dest, NULL };
	struct stat st;
	int status, r;
	pid_t pid;

	(void)snprintf(dest, sizeof dest, "%s/base/rootfs", templates_dir);
	if (stat(dest, &st) == 0)
		return 0;
	dest[strlen(dest) - strlen("/rootfs")] = '\0';
	r = find_script(script, sizeof script, e);
	if (r < 0)
		return r;
	log_info("template.making", "template=base dir=%s", log_quote(str_of(dest)));
	r = posix_spawn(&pid, script, NULL, NULL, argv, environ);
	if (r != 0)
		return err_sys(e, -r, "run %s", script);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, -errno, "wait for %s", script);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, -EIO,
			"the base template could not be made (its script's own words stand above): "
			"see atoll doctor");
	return 0;
}
