#include "server/hold.h"
#include "server/program.h"

#include <fcntl.h>
#include <sys/wait.h>

static _Noreturn void become_holder(const char *path, const char *data, const char *name, int in_fd,
	int out_fd)
{
	const char *const argv[] = { "atoll-warden", "--data", data, "--hold-volume", name, NULL };

	if (dup2(in_fd, STDIN_FILENO) < 0 || dup2(out_fd, STDOUT_FILENO) < 0)
		_exit(127);
	(void)execv(path, (char *const *)(uintptr_t)argv);
	_exit(127);
}

int hold_volume(const char *data, const char *name, struct holder *ret, struct err *e)
{
	char path[PROGRAM_PATH_SIZE], said[8];
	int in[2], out[2], r;

	*ret = (struct holder){ 0, -EBADF, -EBADF };
	r = program_find_helper("atoll-warden", path, e);
	if (r < 0)
		return r;
	if (pipe2(in, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "make a pipe");
	if (pipe2(out, O_CLOEXEC) < 0) {
		(void)close(in[0]);
		(void)close(in[1]);
		return err_sys(e, -errno, "make a pipe");
	}
	ret->pid = fork();
	if (ret->pid == 0)
		become_holder(path, data, name, in[0], out[1]);
	(void)close(in[0]);
	(void)close(out[1]);
	ret->in_fd = in[1];
	ret->out_fd = out[0];
	if (ret->pid > 0 && read(out[0], said, sizeof said) > 0)
		return 0;
	return err_set(e, -EIO,
		"atoll-warden could not hold the volume %.36s (its own words stand above)", name);
}

static int end(struct holder *holder)
{
	int status = -1;

	close_fdp(&holder->in_fd);
	close_fdp(&holder->out_fd);
	if (holder->pid > 0)
		(void)waitpid(holder->pid, &status, 0);
	return status;
}

/* The next that holds it thaws it first. */
int hold_release(const char *data, struct holder *holder, const char *name, struct err *e)
{
	int status = end(holder);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status)) {
		struct holder next;

		(void)hold_volume(data, name, &next, NULL);
		(void)end(&next);
		return err_set(e, -EIO, "what held the volume %.36s was killed (signal %d)", name,
			WTERMSIG(status));
	}
	return err_set(e, -ETIMEDOUT, "to copy the volume %.36s took too long", name);
}
