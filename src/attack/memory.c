/* Memory and numbers that a kernel holds for a program and charges to nobody, or that all of a host
 * share: each is asked for in small pieces, or so often that a bound must show. What is had is
 * given back at once, since the attempt ends with its process. */
#include "attack/attack.h"

#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/in6.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
	ENOUGH_QUEUES = 2000,  /* of sockets that could hold a receive buffer each */
	ENOUGH_SOCKETS = 5000, /* that hold back a datagram each */
	ENOUGH_FILTERS = 1500,
	QUEUES_BYTES = 256 << 20, /* in all: what one sandbox may make of it */
	WANTED_BUFFER = 64 << 20,
	RING_BYTES = 4096,
	DATAGRAM_BYTES = 64 << 10,
	HUGE_PAGE = 2 << 20,
	L2TP = 115,
};

static void open_many_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

/* ---- sockets whose queues are charged to nobody ---- */

struct kind {
	const char *name;
	int family, type, protocol;
};
static const struct kind queues[] = {
	{ "netlink", AF_NETLINK, SOCK_RAW, NETLINK_ROUTE },
	{ "socket statistics", AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG },
	{ "ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP },
	{ "ping (IPv6)", AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6 },
	{ "raw", AF_INET, SOCK_RAW, IPPROTO_ICMP },
	{ "packet", AF_PACKET, SOCK_DGRAM, 0 },
};

/* How many there are to be had, all at a time, and the largest receive buffer among them. */
static int hoard(const struct kind *k, int most, int64_t *ret_buffer)
{
	static int fds[ENOUGH_SOCKETS];
	const int wanted = WANTED_BUFFER;
	int n = 0, error = 0;

	for (; n < most; n++) {
		int got = 0;
		socklen_t size = sizeof got;

		fds[n] = socket(k->family, k->type | SOCK_CLOEXEC, k->protocol);
		error = errno;
		if (fds[n] < 0)
			break;
		(void)setsockopt(fds[n], SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
		if (getsockopt(fds[n], SOL_SOCKET, SO_RCVBUF, &got, &size) == 0)
			*ret_buffer = MAX(*ret_buffer, (int64_t)got);
	}
	for (int i = 0; i < n; i++)
		(void)close(fds[i]);
	errno = error;
	return n;
}

static void judge_hoard(struct finding *f, const char *name, int n, int64_t each_bytes)
{
	int error = errno;
	int64_t bytes = n * each_bytes;

	if (n == 0)
		refused_with(f, error, "%s socket", name);
	else if (bytes > QUEUES_BYTES)
		given_by_kernel(f, "%d %s sockets can hold %" PRId64 " MiB, and more are to be had",
			n, name, bytes >> 20);
	else
		contained(f, "%d %s sockets hold %" PRId64 " MiB at most, then: %s", n, name,
			bytes >> 20, strerrordesc_np(error));
}

static void hoard_queues(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	open_many_files();
	for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
		int64_t buffer = 0;
		int n = hoard(&queues[i], ENOUGH_QUEUES, &buffer);

		judge_hoard(f, queues[i].name, n, buffer);
	}
}

/* A datagram that is not finished (MSG_MORE) is charged to nobody either, in a socket of any size
 * of buffer. */
static void hoard_datagrams(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const struct kind udp = { "UDP", AF_INET, SOCK_DGRAM, 0 };
	int64_t buffer = 0;
	int n;

	(void)a;
	(void)scene;
	open_many_files();
	n = hoard(&udp, ENOUGH_SOCKETS, &buffer);
	judge_hoard(f, udp.name, n, DATAGRAM_BYTES);
}

/* ---- protocols and options that have no place in a sandbox ---- */

static bool is_common(int protocol)
{
	return protocol == NETLINK_ROUTE || protocol == NETLINK_SOCK_DIAG ||
	       protocol == NETLINK_KOBJECT_UEVENT;
}

static void open_protocols(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const struct kind rare[] = { { "SCTP", AF_INET, SOCK_STREAM, IPPROTO_SCTP },
		{ "SCTP (messages)", AF_INET6, SOCK_SEQPACKET, IPPROTO_SCTP },
		{ "DCCP", AF_INET, SOCK_DCCP, IPPROTO_DCCP },
		{ "UDP-Lite", AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE },
		{ "MPTCP", AF_INET, SOCK_STREAM, IPPROTO_MPTCP },
		{ "L2TP", AF_INET, SOCK_DGRAM, L2TP },
		{ "SOCK_PACKET", AF_INET, SOCK_PACKET, ETH_P_ALL } };
	char name[32];

	(void)a;
	(void)scene;
	for (int i = 0; i < MAX_LINKS; i++) {
		(void)snprintf(name, sizeof name, "netlink protocol %d", i);
		if (!is_common(i))
			judge_call(f, socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, i), name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(rare); i++)
		judge_call(f, socket(rare[i].family, rare[i].type, rare[i].protocol), rare[i].name);
}

static void make_rings(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct tpacket_req ring = { .tp_block_size = RING_BYTES,
		.tp_block_nr = 1,
		.tp_frame_size = RING_BYTES,
		.tp_frame_nr = 1 };
	cleanup_close int fd = -EBADF;

	(void)a;
	(void)scene;
	/* Those of an attempt before may not be counted out yet. */
	for (int i = 0; i < 100 && fd < 0 && (i == 0 || errno == ENOBUFS); i++) {
		if (i > 0)
			(void)usleep(20000);
		fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	}
	if (fd < 0) {
		refused_with(f, errno, "packet socket");
		return;
	}
	judge_call(f, setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring),
		"PACKET_RX_RING");
	judge_call(f, setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &ring, sizeof ring),
		"PACKET_TX_RING");
}

/* Addresses that a socket listens to, each an entry that nobody is charged for. */
static void make_lists(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct packet_mreq link = { .mr_ifindex = 1, .mr_type = PACKET_MR_MULTICAST, .mr_alen = 6 };
	struct ipv6_mreq group = { { { { 0xff, 0x12, 0, 7 } } }, 1 };
	struct in6_flowlabel_req label = { .flr_action = IPV6_FL_A_GET,
		.flr_flags = IPV6_FL_F_CREATE,
		.flr_share = IPV6_FL_S_ANY,
		.flr_dst = IN6ADDR_LOOPBACK_INIT };
	cleanup_close int packet = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	cleanup_close int ip = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)a;
	(void)scene;
	if (packet >= 0)
		judge_call(f,
			setsockopt(packet, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &link, sizeof link),
			"PACKET_ADD_MEMBERSHIP");
	judge_call(f, setsockopt(ip, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group, sizeof group),
		"IPV6_JOIN_GROUP");
	judge_call(f, setsockopt(ip, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &label, sizeof label),
		"IPV6_FLOWLABEL_MGR");
}

static void filter_sockets(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct sock_filter accept_all[] = { BPF_STMT(BPF_RET | BPF_K, UINT32_MAX) };
	struct sock_fprog program = { .len = 1, .filter = accept_all };
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	(void)a;
	(void)scene;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
	judge_call(f, setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program),
		"SO_ATTACH_FILTER");
	judge_call(f,
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program),
		"SO_ATTACH_REUSEPORT_CBPF");
}

/* All of a host share one budget for the machine code of filters, and a sandbox needs one. */
static void filter_calls(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct sock_filter allow_all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { .len = 1, .filter = allow_all };
	int n = 0;

	(void)a;
	(void)scene;
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	while (n < ENOUGH_FILTERS &&
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
		n++;
	if (n == ENOUGH_FILTERS)
		given_by_kernel(f, "%d filters, and more are to be had", n);
	else if (n > 0)
		contained(f, "%d filters, then: %s", n, strerrordesc_np(errno));
	else
		refused_with(f, errno, "a filter of its own");
}

/* ---- pages and processors ---- */

static void take_huge_pages(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	void *p = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	(void)a;
	(void)scene;
	judge_call(f, p == MAP_FAILED ? -1 : 0, "mmap MAP_HUGETLB");
	judge_call(f, memfd_create("huge", MFD_HUGETLB | MFD_CLOEXEC), "memfd_create MFD_HUGETLB");
	judge_call(f, shmget(IPC_PRIVATE, HUGE_PAGE, IPC_CREAT | SHM_HUGETLB | 0600),
		"shmget SHM_HUGETLB");
}

static void schedule_cores(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	judge_call(f, prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, 0, 0), "PR_SCHED_CORE");
}

static const int by_number[] = { EPERM, EACCES, ENOBUFS, EPROTONOSUPPORT, EAFNOSUPPORT, 0 };
static const int by_protocol[] = { EPROTONOSUPPORT, ESOCKTNOSUPPORT, EAFNOSUPPORT, 0 };
static const int by_option[] = { EPERM, ENOPROTOOPT, 0 };
static const int by_budget[] = { ENOMEM, EPERM, 0 };
static const int by_absence[] = { ENOMEM, EINVAL, EPERM, 0 };

static const struct attempt attempts[] = {
	{ "queues", "open sockets without number whose queues nobody is charged for", hoard_queues,
		by_number, NULL, NULL },
	{ "datagrams", "the same, for datagrams that are held back", hoard_datagrams, by_number,
		NULL, NULL },
	{ "protocols", "open sockets of rare protocols", open_protocols, by_protocol, NULL, NULL },
	{ "rings", "have the kernel make rings for packets", make_rings, by_option, NULL, NULL },
	{ "lists", "have it keep lists of addresses and labels", make_lists, by_option, NULL,
		NULL },
	{ "socket-filters", "fill the budget for filters by sockets", filter_sockets, by_option,
		NULL, NULL },
	{ "call-filters", "fill the budget for filters by system call filters", filter_calls,
		by_budget, NULL, NULL },
	{ "huge-pages", "take pages that no limit counts", take_huge_pages, by_absence, NULL,
		NULL },
	{ "cores", "have processor cores to itself", schedule_cores, by_absence, NULL, NULL },
};
HOARDING_FAMILY(memory, attempts);
