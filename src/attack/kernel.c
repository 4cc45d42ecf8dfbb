/* System calls that no sandbox needs. Each is made with arguments that do nothing even to root on a
 * bare host; that the kernel looks at them at all is the escape. */
#include "attack/attack.h"

#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define NOWHERE "/nonexistent-atoll-probe"

/* ---- calls whose arguments are plain numbers and strings ---- */

struct call {
	const char *what;
	int64_t number;
	union {
		int64_t number;
		const void *pointer;
	} a[5];
};

static void make_calls(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)scene;
	for (const struct call *c = a->detail; c->what; c++)
		judge_call(f,
			syscall(c->number, c->a[0].number, c->a[1].number, c->a[2].number,
				c->a[3].number, c->a[4].number, 0),
			c->what);
}

#define N(value)                  \
	{                         \
		.number = (value) \
	}
#define P(value)                   \
	{                          \
		.pointer = (value) \
	}

static const struct call modules[] = {
	{ "init_module", SYS_init_module, { N(0), N(0), P("") } },
	{ "finit_module", SYS_finit_module, { N(-1), P(""), N(0) } },
	{ "delete_module", SYS_delete_module, { P("atoll_no_such_module"), N(O_NONBLOCK) } },
	{ 0 },
};
static const struct call kexec[] = {
	{ "kexec_load", SYS_kexec_load, { N(0), N(0), N(0), N(0xffff) } },
	{ "kexec_file_load", SYS_kexec_file_load, { N(-1), N(-1), N(0), P(""), N(0xffff) } },
	{ "reboot", SYS_reboot, { N(0), N(0), N(0) } }, /* without its magic it never does */
	{ 0 },
};
static const struct call mounting[] = {
	{ "mount", SYS_mount, { P("none"), P(NOWHERE), P("tmpfs"), N(0), N(0) } },
	{ "umount2", SYS_umount2, { P(NOWHERE), N(0) } },
	{ "pivot_root", SYS_pivot_root, { P(NOWHERE), P(NOWHERE) } },
	{ "fsopen", SYS_fsopen, { P("tmpfs"), N(1) } },
	{ "fspick", SYS_fspick, { N(AT_FDCWD), P(NOWHERE), N(0) } },
	{ "fsmount", SYS_fsmount, { N(-1), N(0), N(0) } },
	{ "fsconfig", SYS_fsconfig, { N(-1), N(6), N(0), N(0), N(0) } },
	{ "open_tree", SYS_open_tree, { N(AT_FDCWD), P("/"), N(OPEN_TREE_CLONE) } },
	{ "move_mount", SYS_move_mount, { N(-1), P(""), N(-1), P(""), N(4) } },
	{ "mount_setattr", SYS_mount_setattr, { N(-1), P(""), N(0x1000), N(0), N(0) } },
	{ 0 },
};
static const struct call clocks[] = {
	{ "clock_settime", SYS_clock_settime, { N(CLOCK_REALTIME), N(0) } },
	{ "settimeofday", SYS_settimeofday, { N(8), N(8) } },
	{ "clock_adjtime", SYS_clock_adjtime, { N(CLOCK_REALTIME), N(8) } },
	{ 0 },
};
static const struct call administration[] = {
	{ "swapon", SYS_swapon, { P(NOWHERE), N(0) } },
	{ "swapoff", SYS_swapoff, { P(NOWHERE) } },
	{ "acct", SYS_acct, { P(NOWHERE) } },
	{ "quotactl", SYS_quotactl, { N(INT64_C(0x80000700)), P(NOWHERE), N(0), N(8) } },
	{ "syslog", SYS_syslog, { N(10), N(0), N(0) } },
	{ "fanotify_init", SYS_fanotify_init, { N(0), N(0) } },
	{ "move_pages", SYS_move_pages, { N(1), N(0), N(0), N(0), N(0) } },
	{ "migrate_pages", SYS_migrate_pages, { N(1), N(0), N(0), N(0) } },
#ifdef SYS_iopl
	{ "iopl", SYS_iopl, { N(3) } },
	{ "ioperm", SYS_ioperm, { N(0x80), N(1), N(1) } },
#endif
	{ 0 },
};
static const struct call personas[] = {
	{ "personality READ_IMPLIES_EXEC", SYS_personality, { N(READ_IMPLIES_EXEC) } },
	{ "personality MMAP_PAGE_ZERO", SYS_personality, { N(MMAP_PAGE_ZERO) } },
	{ 0 },
};

/* ---- calls that want a struct ---- */

static void load_bpf(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	union bpf_attr map = { .map_type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = 4,
		.max_entries = 1 };
	union bpf_attr info = { .start_id = 0 };

	(void)a;
	(void)scene;
	judge_call(f, syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map), "bpf map");
	judge_call(f, syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &info, sizeof info), "bpf list");
}

static void open_perf(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
		.size = sizeof attr,
		.config = PERF_COUNT_SW_DUMMY,
		.disabled = 1 };

	(void)a;
	(void)scene;
	judge_call(f, syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "perf_event_open");
	attr.exclude_kernel = 1;
	judge_call(f, syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "perf_event_open (user)");
}

static void set_up_ring(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct io_uring_params params = { 0 };

	(void)a;
	(void)scene;
	judge_call(f, syscall(SYS_io_uring_setup, 4, &params), "io_uring_setup");
	judge_call(f, syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0), "io_uring_enter");
	judge_call(f, syscall(SYS_io_uring_register, -1, 0, NULL, 0), "io_uring_register");
}

static void fault_handler(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	enum {
		USER_MODE_ONLY = 1
	};

	(void)a;
	(void)scene;
	judge_call(f, syscall(SYS_userfaultfd, O_CLOEXEC), "userfaultfd");
	judge_call(f, syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY), "userfaultfd (user)");
}

static void use_keyrings(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	judge_call(f, syscall(SYS_add_key, "user", "atoll", "x", 1, KEY_SPEC_PROCESS_KEYRING),
		"add_key");
	judge_call(f, syscall(SYS_request_key, "user", "atoll-none", NULL, 0), "request_key");
	judge_call(f, syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0),
		"keyctl session");
	judge_call(f, syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0),
		"keyctl user");
}

/* A handle names an inode of the whole file system, whatever part of it is mounted. */
static void open_by_handle(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = { .handle.handle_bytes = MAX_HANDLE_SZ };
	int mount_id = 0, dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)a;
	(void)scene;
	/* Even without a handle of our own: inode 2 is the root of every ext file system. */
	if (name_to_handle_at(AT_FDCWD, "/", &u.handle, &mount_id, 0) < 0) {
		const uint32_t root_of_ext4[2] = { 2, 0 };

		u.handle.handle_bytes = sizeof root_of_ext4;
		u.handle.handle_type = 1;
		memcpy(u.handle.f_handle, root_of_ext4, sizeof root_of_ext4);
	}
	judge_call(f, open_by_handle_at(dir, &u.handle, O_RDONLY), "open_by_handle_at");
	(void)close(dir);
}

/* ---- sockets ---- */

static void open_families(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const struct {
		const char *name;
		int family, type;
	} families[] = { { "AF_VSOCK", AF_VSOCK, SOCK_STREAM }, { "AF_KEY", AF_KEY, SOCK_RAW },
		{ "AF_TIPC", AF_TIPC, SOCK_STREAM }, { "AF_RDS", AF_RDS, SOCK_SEQPACKET },
		{ "AF_CAN", AF_CAN, SOCK_RAW }, { "AF_BLUETOOTH", AF_BLUETOOTH, SOCK_RAW },
		{ "AF_XDP", AF_XDP, SOCK_RAW }, { "AF_NFC", AF_NFC, SOCK_SEQPACKET },
		{ "AF_SMC", AF_SMC, SOCK_STREAM }, { "AF_QIPCRTR", AF_QIPCRTR, SOCK_DGRAM },
		{ "AF_PPPOX", AF_PPPOX, SOCK_DGRAM }, { "AF_LLC", AF_LLC, SOCK_DGRAM },
		{ "AF_X25", AF_X25, SOCK_SEQPACKET }, { "AF_APPLETALK", AF_APPLETALK, SOCK_DGRAM },
		{ "AF_IPX", AF_IPX, SOCK_DGRAM }, { "AF_KCM", AF_KCM, SOCK_DGRAM },
		{ "AF_MCTP", 45, SOCK_DGRAM } };

	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		int pair[2];

		judge_call(f, socket(families[i].family, families[i].type, 0), families[i].name);
		judge_call(f, socketpair(families[i].family, families[i].type, 0, pair),
			families[i].name);
	}
}

/* What the filter says of every family but a few. A kernel that has none says the same. */
static const int by_families[] = { EAFNOSUPPORT, 0 };

static const struct attempt attempts[] = {
	{ "modules", "load or remove kernel modules", make_calls, by_filter, NULL, modules },
	{ "kexec", "start another kernel, or restart", make_calls, by_filter, NULL, kexec },
	{ "bpf", "load BPF programs", load_bpf, by_filter, NULL, NULL },
	{ "perf", "open performance events", open_perf, by_filter, NULL, NULL },
	{ "io-uring", "use io_uring", set_up_ring, by_filter, NULL, NULL },
	{ "userfaultfd", "handle page faults (userfaultfd)", fault_handler, by_filter, NULL, NULL },
	{ "keyctl", "use the kernel's keyrings", use_keyrings, by_filter, NULL, NULL },
	{ "open-by-handle", "open files of the host by handle", open_by_handle, by_filter, NULL,
		NULL },
	{ "mount", "mount, by the old calls and the new", make_calls, by_filter, NULL, mounting,
		true },
	{ "clock", "set the clock", make_calls, by_filter, NULL, clocks },
	{ "administration", "swap, accounting, quotas, log, ports, fanotify", make_calls, by_filter,
		NULL, administration },
	{ "personality", "weaken the address space by personality", make_calls, by_filter, NULL,
		personas },
	{ "families", "open sockets of rare address families", open_families, by_families, NULL,
		NULL },
};
FAMILY(kernel, attempts);
