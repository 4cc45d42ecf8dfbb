#include "base/filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "filter.c does not know this architecture"
#endif

enum {
	/* CLONE_NEWTIME is left out: in clone it would be part of the exit signal. */
	NAMESPACE_FLAGS = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
			  CLONE_NEWNET | CLONE_NEWCGROUP,
	TIME_NAMESPACE_FLAG = 0x80,
};

struct assembler {
	struct sock_filter *out;
	size_t n;
};

static void emit(struct assembler *a, struct sock_filter insn)
{
	assert(a->n < FILTER_MAX_INSNS);
	a->out[a->n++] = insn;
}

static void emit_return(struct assembler *a, uint32_t value)
{
	emit(a, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value));
}

static void emit_load(struct assembler *a, size_t offset)
{
	emit(a, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* One result when the argument is one of `values`, else the other. */
static void emit_one_of(struct assembler *a, int argument, const uint32_t *values, size_t n,
	uint32_t then, uint32_t otherwise)
{
	emit_load(a, offsetof(struct seccomp_data, args) + (size_t)argument * sizeof(uint64_t));
	for (size_t i = 0; i < n; i++)
		emit(a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, values[i],
				(uint8_t)(n - i), 0));
	emit_return(a, otherwise);
	emit_return(a, then);
}

/* One result when the first argument has any of the flags, else the other. */
static void emit_flags(struct assembler *a, uint32_t flags, uint32_t then, uint32_t otherwise)
{
	emit_load(a, offsetof(struct seccomp_data, args[0]));
	emit(a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
	emit_return(a, then);
	emit_return(a, otherwise);
}

static void emit_verdict(struct assembler *a, enum filter_verdict verdict)
{
	static const uint32_t families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET };
	static const uint32_t personas[] = { PER_LINUX, PER_LINUX32, ADDR_NO_RANDOMIZE, UNAME26,
		PER_LINUX32 | UNAME26, UINT32_MAX /* asks only */ };
	static const uint32_t typing[] = { TIOCSTI, TIOCLINUX };
	const uint32_t allow = SECCOMP_RET_ALLOW, refuse = SECCOMP_RET_ERRNO | EPERM;

	switch (verdict) {
	case FILTER_ALLOW:
		emit_return(a, allow);
		break;
	case FILTER_REFUSE:
		emit_return(a, refuse);
		break;
	case FILTER_UNKNOWN:
		emit_return(a, SECCOMP_RET_ERRNO | ENOSYS);
		break;
	case FILTER_CLONE:
		emit_flags(a, NAMESPACE_FLAGS, refuse, allow);
		break;
	case FILTER_THREAD:
		emit_flags(a, CLONE_THREAD, allow, refuse);
		break;
	case FILTER_UNSHARE:
		emit_flags(a, NAMESPACE_FLAGS | TIME_NAMESPACE_FLAG, refuse, allow);
		break;
	case FILTER_PERSONALITY:
		emit_one_of(a, 0, personas, ARRAY_SIZE(personas), allow, refuse);
		break;
	case FILTER_SOCKET:
		emit_one_of(a, 0, families, ARRAY_SIZE(families), allow,
			SECCOMP_RET_ERRNO | EAFNOSUPPORT);
		break;
	case FILTER_IOCTL:
		emit_one_of(a, 1, typing, ARRAY_SIZE(typing), refuse, allow);
		break;
	}
}

static void emit_tree(struct assembler *a, const struct filter_start *starts, size_t n)
{
	size_t half = n / 2, jump;

	if (n == 1) {
		emit_verdict(a, starts[0].verdict);
		return;
	}
	jump = a->n;
	emit(a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, starts[half].number, 0, 0));
	emit_tree(a, starts, half);
	assert(a->n - jump - 1 <= UINT8_MAX);
	a->out[jump].jt = (uint8_t)(a->n - jump - 1);
	emit_tree(a, starts + half, n - half);
}

size_t filter_assemble(const struct filter_start *starts, size_t n,
	struct sock_filter out[FILTER_MAX_INSNS])
{
	struct assembler a = { .out = out };

	assert(n > 0 && starts[0].number == 0);
	emit_load(&a, offsetof(struct seccomp_data, arch));
	emit(&a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
	emit_return(&a, SECCOMP_RET_ERRNO | EPERM);
	emit_load(&a, offsetof(struct seccomp_data, nr));
	emit_tree(&a, starts, n);
	return a.n;
}

static void add_start(struct filter_start *starts, size_t *n, uint32_t number,
	enum filter_verdict verdict)
{
	if (*n && starts[*n - 1].verdict == verdict)
		return;
	assert(*n < FILTER_MAX_STARTS);
	starts[(*n)++] = (struct filter_start){ number, verdict };
}

size_t filter_build(const struct filter_rule *rules, size_t n,
	struct sock_filter out[FILTER_MAX_INSNS])
{
	enum filter_verdict verdicts[FILTER_LAST_KNOWN + 1] = { 0 }; /* all allowed */
	struct filter_start starts[FILTER_MAX_STARTS];
	size_t n_starts = 0;

	for (size_t i = 0; i < n; i++) {
		assert(rules[i].number <= FILTER_LAST_KNOWN);
		verdicts[rules[i].number] = rules[i].verdict;
	}
	for (uint32_t i = 0; i <= FILTER_LAST_KNOWN; i++)
		add_start(starts, &n_starts, i, verdicts[i]);
	add_start(starts, &n_starts, FILTER_LAST_KNOWN + 1, FILTER_UNKNOWN);
	return filter_assemble(starts, n_starts, out);
}

int filter_load(struct sock_filter *filter, size_t n, struct err *e)
{
	struct sock_fprog program = { .len = (unsigned short)n, .filter = filter };
	int r = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
		&program);

	if (r > 0) /* a thread of ours that cannot be brought along */
		return err_set(e, -EBUSY, "load the system call filter on thread %d", r);
	return r < 0 ? err_sys(e, -errno, "load the system call filter") : 0;
}
