/* The same calls by other doors: AF_ALG by its 64-bit call, by the table for 32-bit programs, by
 * that table's socketcall, and by the x32 numbers. A filter that looks at one table only is passed
 * by the next. */
#include "attack/attack.h"

#include <linux/if_alg.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static void alg_by_name(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int pair[2];

	(void)a;
	(void)scene;
	judge_call(f, socket(AF_ALG, SOCK_SEQPACKET, 0), "socket(AF_ALG)");
	judge_call(f, socketpair(AF_ALG, SOCK_SEQPACKET, 0, pair), "socketpair(AF_ALG)");
}

#if defined(__x86_64__)
enum {
	I386_SOCKET = 359,
	I386_SOCKETCALL = 102,
	I386_MOUNT = 21,
	I386_UNSHARE = 310,
	I386_BPF = 357,
	I386_KEYCTL = 288,
	I386_GETPID = 20,
	X32_BIT = 0x40000000,
	CALL_SOCKET = 1,
};

struct call32 {
	int number;
	uint32_t a, b, c;
};

static int call_32(int number, uint32_t a, uint32_t b, uint32_t c)
{
	int result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11", "cc");
	return result;
}

/* The exit status tells: 0 worked, else the errno. A kernel without that table kills. */
static int call_32_work(void *arg)
{
	const struct call32 *c = arg;
	int r = call_32(c->number, c->a, c->b, c->c);

	return r >= 0 ? 0 : -r;
}

static void judge_32(struct finding *f, const struct call32 *c, const char *what)
{
	union {
		const struct call32 *in;
		void *out;
	} arg = { .in = c };
	int r = in_child(call_32_work, arg.out);

	if (r == -SIGSEGV) { /* what a kernel without that table does */
		absent(f, "%s: this kernel has no 32-bit calls", what);
		return;
	}
	if (r == -SIGSYS) {
		refused(f, "%s: the filter ends who makes it", what);
		return;
	}
	if (r < 0) {
		inconclusive(f, "%s: ended by signal %d", what, -r);
		return;
	}
	errno = r;
	judge_call(f, r == 0 ? 0 : -1, what);
}

static void alg_by_int80(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const struct call32 socket_call = { I386_SOCKET, AF_ALG, SOCK_SEQPACKET, 0 };

	(void)a;
	(void)scene;
	judge_32(f, &socket_call, "int 0x80 socket(AF_ALG)");
}

static void alg_by_socketcall(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	/* Its arguments lie in memory that a 32-bit pointer must reach. */
	uint32_t *args = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	struct call32 c = { I386_SOCKETCALL, CALL_SOCKET, 0, 0 };

	(void)a;
	(void)scene;
	if (args == MAP_FAILED)
		return;
	args[0] = AF_ALG;
	args[1] = SOCK_SEQPACKET;
	args[2] = 0;
	c.b = (uint32_t)(uintptr_t)args;
	judge_32(f, &c, "int 0x80 socketcall(AF_ALG)");
	(void)munmap(args, 4096);
}

static void others_by_int80(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const struct {
		const char *what;
		struct call32 call;
	} calls[] = {
		{ "int 0x80 getpid", { I386_GETPID, 0, 0, 0 } },
		{ "int 0x80 mount", { I386_MOUNT, 0, 0, 0 } },
		{ "int 0x80 unshare", { I386_UNSHARE, 0x10000000, 0, 0 } },
		{ "int 0x80 bpf", { I386_BPF, 0, 0, 0 } },
		{ "int 0x80 keyctl", { I386_KEYCTL, 0, (uint32_t)-3, 0 } },
	};

	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		judge_32(f, &calls[i].call, calls[i].what);
}

static void by_x32(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	judge_call(f, syscall(X32_BIT | SYS_getpid), "x32 getpid");
	judge_call(f, syscall(X32_BIT | SYS_socket, AF_ALG, SOCK_SEQPACKET, 0),
		"x32 socket(AF_ALG)");
	judge_call(f, syscall(X32_BIT | SYS_mount, 0, 0, 0, 0, 0), "x32 mount");
	judge_call(f, syscall(X32_BIT | SYS_bpf, 0, 0, 0), "x32 bpf");
}
#else
static void alg_by_int80(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	absent(f, "this processor has no such calls");
}
#define alg_by_socketcall alg_by_int80
#define others_by_int80 alg_by_int80
#define by_x32 alg_by_int80
#endif

/* What the filter says of families, and of numbers that it does not know. */
static const int by_families[] = { EAFNOSUPPORT, 0 }, as_unknown[] = { ENOSYS, 0 };

static const struct attempt attempts[] = {
	{ "af-alg", "open AF_ALG by its own call", alg_by_name, by_families, NULL, NULL },
	{ "af-alg-int80", "open AF_ALG by int 0x80", alg_by_int80, by_filter, NULL, NULL },
	{ "af-alg-socketcall", "open AF_ALG by int 0x80 and socketcall", alg_by_socketcall,
		by_filter, NULL, NULL },
	{ "int80", "make any call by int 0x80", others_by_int80, by_filter, NULL, NULL },
	{ "x32", "make any call by the x32 numbers", by_x32, as_unknown, NULL, NULL },
};
FAMILY(foreign, attempts);
