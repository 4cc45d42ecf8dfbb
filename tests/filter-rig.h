/* A system call under a filter, on a real process. A child makes it, since there is no way back. */
#pragma once

#include "base/filter.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* What a call under the filter fails with; 0: it got through to the kernel and worked; negative:
 * the signal that it died by. */
static inline int errno_under(struct sock_filter *filter, size_t n, int64_t number, int64_t a,
	int64_t b)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		/* A test may run as anybody, so this one process gives up its privileges instead.
		 */
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_load(filter, n, NULL) < 0)
			_exit(255);
		_exit(syscall(number, a, b, 0, 0, 0, 0) < 0 ? errno : 0);
	}
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What the filter answers to a call, without making it: for answers that a caller cannot tell.
 * Knows the instructions that filters are made of. */
static inline uint32_t filter_answer(const struct sock_filter *filter, size_t n,
	const struct seccomp_data *call)
{
	uint32_t a = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sock_filter *op = &filter[i];

		switch (op->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)call + op->k, sizeof a);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= op->k;
			break;
		case BPF_JMP | BPF_JA:
			i += op->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			i += a == op->k ? op->jt : op->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			i += a >= op->k ? op->jt : op->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			i += a & op->k ? op->jt : op->jf;
			break;
		case BPF_RET | BPF_K:
			return op->k;
		default:
			return UINT32_MAX;
		}
	}
	return UINT32_MAX;
}
