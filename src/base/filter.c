#include "base/filter.h"

#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/if_packet.h>
#include <linux/in6.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
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

/* ---- calls whose arguments matter ---- */

enum {
	CONDITION_MAX_VALUES = 8,
	MATCH_MAX = 3,
	SOCKET_TYPE_BITS = 0xf, /* the others are SOCK_CLOEXEC and SOCK_NONBLOCK */
	ADD_TCP_KEY = 38,       /* TCP_AO_ADD_KEY, newer than some headers */
	/* The first two of each family's options: tables and counters. */
	IPTABLES_SET = 64,
	ARPTABLES_SET = 96,
	EBTABLES_SET = 128,
};

/* FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE, which no header has for programs. */
#define RESERVE_SPACE 0x40305828U
#define RESERVE_SPACE_64 0x4030582aU
#define ZERO_SPACE 0x40305839U

/* Of one argument's low 32 bits, as the kernel takes them. With values: they, or the bits of them
 * that `mask` names if it names any, are one of these. Without: any bit of the mask is set. */
struct condition {
	uint8_t argument, n;
	uint32_t mask;
	uint32_t values[CONDITION_MAX_VALUES];
};
/* When all conditions hold, this is the result. The first match of a list counts. */
struct match {
	uint32_t result;
	struct condition when[MATCH_MAX]; /* the last ones may be empty */
};
struct cases {
	const struct match *v;
	size_t n;
	uint32_t otherwise;
};

#define VALUES(...)                                                \
	sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t), 0, \
	{                                                          \
		__VA_ARGS__                                        \
	}
#define IS(argument, ...)                      \
	{                                      \
		argument, VALUES(__VA_ARGS__), \
	}
#define TYPE_IS(type)                             \
	{                                         \
		1, 1, SOCKET_TYPE_BITS, { type }, \
	}
#define HAS(argument, bits)               \
	{                                 \
		argument, 0, bits, { 0 }, \
	}
#define ALLOW SECCOMP_RET_ALLOW
#define ASK SECCOMP_RET_USER_NOTIF
#define FAIL(error) (SECCOMP_RET_ERRNO | (error))

static const struct match for_clone[] = { { FAIL(EPERM), { HAS(0, NAMESPACE_FLAGS) } } };
static const struct match for_thread[] = { { ALLOW, { HAS(0, CLONE_THREAD) } } };
static const struct match for_unshare[] = { { FAIL(EPERM),
	{ HAS(0, NAMESPACE_FLAGS | TIME_NAMESPACE_FLAG) } } };
static const struct match for_personality[] = { { ALLOW,
	{ IS(0, PER_LINUX, PER_LINUX32, ADDR_NO_RANDOMIZE, UNAME26, PER_LINUX32 | UNAME26,
		UINT32_MAX /* asks only */) } } };
static const struct match for_socket[] = { { ALLOW,
	{ IS(0, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET) } } };
static const struct match for_ioctl[] = { { FAIL(EPERM), { IS(1, TIOCSTI, TIOCLINUX) } } };

/* What waits in a socket of Unix or TCP is charged to the sandbox. What waits in the others is not,
 * or not in all states, so somebody has to count them. Netlink: interfaces and routes, sockets
 * (ss), devices (udev); in the others any program can be made to hold messages of any other, or
 * there is nothing for a sandbox. */
static const struct match for_own_socket[] = {
	{ ALLOW, { IS(0, AF_UNIX) } },
	{ ALLOW, { IS(0, AF_INET, AF_INET6), TYPE_IS(SOCK_STREAM), IS(2, 0, IPPROTO_TCP) } },
	{ ASK, { IS(0, AF_INET, AF_INET6), TYPE_IS(SOCK_DGRAM),
		       IS(2, 0, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6) } },
	{ ASK, { IS(0, AF_INET, AF_INET6), TYPE_IS(SOCK_RAW) } },
	{ ASK, { IS(0, AF_NETLINK),
		       IS(2, NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_KOBJECT_UEVENT) } },
	{ ASK, { IS(0, AF_PACKET) } },
	{ FAIL(EPROTONOSUPPORT), { IS(0, AF_INET, AF_INET6, AF_NETLINK) } },
};
static const struct match for_pair[] = { { ALLOW, { IS(0, AF_UNIX) } } };

/* A receive buffer stays as it is: programs expect no more, since every host has some ceiling. For
 * filters of sockets all sandboxes share one budget. Charged to nobody are rings, the lists of
 * addresses that a packet socket or an IPv6 socket listens to, keys of TCP, and whatever waits in a
 * socket's queue of errors: copies of what was sent, with their times, and answers of routers. The
 * last is what resolvers and ping ask for, so a number of sockets may have it. */
static const struct match for_socket_option[] = {
	{ FAIL(0), { IS(1, SOL_SOCKET), IS(2, SO_RCVBUF) } },
	{ FAIL(ENOPROTOOPT),
		{ IS(1, SOL_SOCKET), IS(2, SO_ATTACH_FILTER, SO_ATTACH_BPF,
					     SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF,
					     SO_TIMESTAMPING_OLD, SO_TIMESTAMPING_NEW) } },
	{ FAIL(ENOPROTOOPT),
		{ IS(1, IPPROTO_TCP), IS(2, TCP_MD5SIG, TCP_MD5SIG_EXT, ADD_TCP_KEY) } },
	{ ASK, { IS(1, IPPROTO_IP), IS(2, IP_RECVERR) } },
	{ ASK, { IS(1, IPPROTO_IPV6), IS(2, IPV6_RECVERR) } },
	{ ALLOW, { IS(1, SOL_PACKET), IS(2, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING) } },
	{ FAIL(ENOPROTOOPT), { IS(1, SOL_PACKET) } },
	{ FAIL(ENOPROTOOPT), { IS(1, IPPROTO_IPV6),
				     IS(2, IPV6_2292PKTOPTIONS, IPV6_JOIN_GROUP, IPV6_JOIN_ANYCAST,
					     IPV6_FLOWLABEL_MGR, MCAST_JOIN_GROUP,
					     MCAST_JOIN_SOURCE_GROUP, MCAST_MSFILTER) } },
};
/* Who has made a network rules it. Buffers of any size are charged to nobody; tables of packet
 * filters in the old form are the part of the kernel with the worst record of all. */
static const struct match for_nested_option[] = {
	{ FAIL(EPERM), { IS(1, SOL_SOCKET), IS(2, SO_RCVBUFFORCE, SO_SNDBUFFORCE) } },
	{ FAIL(ENOPROTOOPT),
		{ IS(1, IPPROTO_IP), IS(2, IPTABLES_SET, IPTABLES_SET + 1, ARPTABLES_SET,
					     ARPTABLES_SET + 1, EBTABLES_SET, EBTABLES_SET + 1) } },
	{ FAIL(ENOPROTOOPT), { IS(1, IPPROTO_IPV6), IS(2, IPTABLES_SET, IPTABLES_SET + 1) } },
};
static const struct match for_nested_mount[] = {
	{ ALLOW, { HAS(3, MS_BIND | MS_REMOUNT | MS_MOVE | MS_SHARED | MS_PRIVATE | MS_SLAVE |
				  MS_UNBINDABLE) } },
	{ ALLOW, { IS(5, FILTER_OWN_MOUNT) } },
};
static const struct match for_file[] = { { FAIL(EINVAL), { IS(1, F_OFD_SETLK, F_OFD_SETLKW) } } };
static const struct match for_prctl[] = {
	{ ASK, { IS(0, PR_SET_SECCOMP) } },
	{ FAIL(EINVAL), { IS(0, PR_SCHED_CORE) } },
};
static const struct match for_own_filter[] = { { ASK, { IS(0, SECCOMP_SET_MODE_FILTER) } } };
static const struct match for_map[] = { { FAIL(ENOMEM), { HAS(3, MAP_HUGETLB) } } };
static const struct match for_memory_file[] = { { FAIL(EINVAL), { HAS(1, MFD_HUGETLB) } } };
/* To give room back is always allowed. */
static const struct match for_place[] = { { ALLOW,
	{ HAS(1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE) } } };
/* The same by other names, and how much a file takes at its next write (XFS). */
static const struct match for_place_ioctl[] = { { FAIL(EOPNOTSUPP),
	{ IS(1, RESERVE_SPACE, RESERVE_SPACE_64, ZERO_SPACE, FS_IOC_FSSETXATTR) } } };
static const struct match for_segment[] = { { FAIL(EPERM), { HAS(2, SHM_HUGETLB) } } };

#define CASES(list, otherwise)                     \
	{                                          \
		list, ARRAY_SIZE(list), otherwise, \
	}
static const struct cases all_cases[] = {
	[FILTER_ALLOW] = { NULL, 0, ALLOW },
	[FILTER_REFUSE] = { NULL, 0, FAIL(EPERM) },
	[FILTER_UNKNOWN] = { NULL, 0, FAIL(ENOSYS) },
	[FILTER_CLONE] = CASES(for_clone, ALLOW),
	[FILTER_THREAD] = CASES(for_thread, FAIL(EPERM)),
	[FILTER_UNSHARE] = CASES(for_unshare, ALLOW),
	[FILTER_PERSONALITY] = CASES(for_personality, FAIL(EPERM)),
	[FILTER_SOCKET] = CASES(for_socket, FAIL(EAFNOSUPPORT)),
	[FILTER_IOCTL] = CASES(for_ioctl, ALLOW),
	[FILTER_NOTHING] = { NULL, 0, FAIL(0) },
	[FILTER_OWN_SOCKET] = CASES(for_own_socket, FAIL(EAFNOSUPPORT)),
	[FILTER_PAIR] = CASES(for_pair, FAIL(EAFNOSUPPORT)),
	[FILTER_SOCKET_OPTION] = CASES(for_socket_option, ALLOW),
	[FILTER_FILE] = CASES(for_file, ALLOW),
	[FILTER_PRCTL] = CASES(for_prctl, ALLOW),
	[FILTER_OWN_FILTER] = CASES(for_own_filter, ALLOW),
	[FILTER_MAP] = CASES(for_map, ALLOW),
	[FILTER_MEMORY_FILE] = CASES(for_memory_file, ALLOW),
	[FILTER_SEGMENT] = CASES(for_segment, ALLOW),
	[FILTER_PLACE] = CASES(for_place, FAIL(EOPNOTSUPP)),
	[FILTER_PLACE_IOCTL] = CASES(for_place_ioctl, ALLOW),
	[FILTER_NESTED_OPTION] = CASES(for_nested_option, ALLOW),
	[FILTER_NESTED_MOUNT] = CASES(for_nested_mount, ASK),
};

/* Falls through when the condition holds. The target of its last jump is set by the caller. */
static void emit_condition(struct assembler *a, const struct condition *c)
{
	emit_load(a, offsetof(struct seccomp_data, args) + c->argument * sizeof(uint64_t));
	if (c->n == 0) {
		emit(a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, c->mask, 0, 0));
		return;
	}
	if (c->mask)
		emit(a, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, c->mask));
	for (uint8_t i = 0; i < c->n; i++)
		emit(a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c->values[i],
				(uint8_t)(c->n - 1 - i), 0));
}

static void emit_match(struct assembler *a, const struct match *m)
{
	size_t failing[MATCH_MAX], n = 0;

	for (size_t i = 0; i < MATCH_MAX && (m->when[i].n || m->when[i].mask); i++) {
		emit_condition(a, &m->when[i]);
		failing[n++] =
			a->n - 1; /* the last comparison of a condition is the one that fails */
	}
	emit_return(a, m->result);
	for (size_t i = 0; i < n; i++)
		a->out[failing[i]].jf = (uint8_t)(a->n - failing[i] - 1);
}

static void emit_verdict(struct assembler *a, enum filter_verdict verdict)
{
	const struct cases *c = &all_cases[verdict];

	for (size_t i = 0; i < c->n; i++)
		emit_match(a, &c->v[i]);
	if (verdict == FILTER_NESTED_OPTION)
		emit_verdict(a, FILTER_SOCKET_OPTION);
	else
		emit_return(a, c->otherwise);
}

/* A conditional jump reaches 255 instructions, another one reaches all. */
static void set_jump(struct assembler *a, size_t jump)
{
	size_t far = a->n - jump - 1;

	if (far <= UINT8_MAX) {
		a->out[jump].jt = (uint8_t)far;
		return;
	}
	emit(a, (struct sock_filter){ 0 });
	memmove(&a->out[jump + 2], &a->out[jump + 1], far * sizeof a->out[0]);
	a->out[jump].jf = 1;
	a->out[jump + 1] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)far);
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
	set_jump(a, jump);
	emit_tree(a, starts + half, n - half);
}

size_t filter_assemble(const struct filter_start *starts, size_t n,
	struct sock_filter out[FILTER_MAX_INSNS])
{
	struct assembler a = { .out = out };

	assert(n > 0 && starts[0].number == 0);
	emit_load(&a, offsetof(struct seccomp_data, arch));
	emit(&a, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
	/* A signal, not an error: a 32-bit program makes nothing of an error in its first call but
	 * a segmentation fault. And not SECCOMP_RET_KILL_PROCESS, of which the host's log tells. */
	emit_return(&a, SECCOMP_RET_TRAP);
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

int filter_load_asking(struct sock_filter *filter, size_t n, int *ret_fd, struct err *e)
{
	struct sock_fprog program = { .len = (unsigned short)n, .filter = filter };
	/* Not SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: a process that waits so cannot be frozen, and
	 * with it the sandbox could not be paused. A signal makes the kernel start the call anew.
	 */
	int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);

	if (fd < 0)
		return err_sys(e, -errno, "load the system call filter");
	*ret_fd = fd;
	return 0;
}
