/* New namespaces, and what could be had in a nested user namespace: the parts of the kernel that
 * were written for root and are full of its trust. */
#include "attack/attack.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
	NESTED = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET,
	NEST_TRIES = 100,
	NEST_PAUSE_US = 100 * 1000,
};

static const struct {
	const char *name;
	int flag;
} kinds[] = { { "user", CLONE_NEWUSER }, { "mnt", CLONE_NEWNS }, { "pid", CLONE_NEWPID },
	{ "net", CLONE_NEWNET }, { "ipc", CLONE_NEWIPC }, { "uts", CLONE_NEWUTS },
	{ "cgroup", CLONE_NEWCGROUP }, { "time", 0x80 } };

static int unshare_work(void *arg)
{
	return unshare(*(int *)arg) < 0 ? errno : 0;
}

static void judge_status(struct finding *f, int status, const char *what)
{
	if (status < 0) {
		inconclusive(f, "%s: ended by signal %d", what, -status);
		return;
	}
	errno = status;
	judge_call(f, status == 0 ? 0 : -1, what);
}

static void by_unshare(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		int flag = kinds[i].flag;
		char what[32];

		(void)snprintf(what, sizeof what, "unshare %s", kinds[i].name);
		judge_status(f, in_child(unshare_work, &flag), what);
	}
}

static void by_clone(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	for (size_t i = 0; i + 1 < ARRAY_SIZE(kinds); i++) { /* clone has no room for time */
		char what[32];
		int64_t pid = syscall(SYS_clone, kinds[i].flag | SIGCHLD, 0, 0, 0, 0);

		if (pid == 0)
			_exit(0);
		(void)snprintf(what, sizeof what, "clone into a new %s namespace", kinds[i].name);
		judge_call(f, pid, what);
		if (pid > 0)
			(void)waitpid((pid_t)pid, NULL, 0);
	}
}

/* Its flags lie in memory, where a filter cannot look. */
static void by_clone3(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	int64_t pid = syscall(SYS_clone3, &args, sizeof args);

	(void)a;
	(void)scene;
	if (pid == 0)
		_exit(0);
	judge_call(f, pid, "clone3 into a new user namespace");
	if (pid > 0)
		(void)waitpid((pid_t)pid, NULL, 0);
}

static void by_setns(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)scene;
	for (const char *const *path = a->paths; *path; path++) {
		cleanup_close int fd = open(*path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			judge_path_error(f, errno, *path);
		else
			judge_call(f, syscall(SYS_setns, fd, 0), "setns");
	}
	judge_call(f, syscall(SYS_setns, (int)syscall(SYS_pidfd_open, getppid(), 0), CLONE_NEWUTS),
		"setns of a process");
}

/* ---- inside a nested user namespace ---- */

int nest(int more_flags)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r, tries = 0;

	/* Networks that were others' are removed a moment later. */
	while ((r = unshare(NESTED | more_flags)) < 0 && errno == ENOSPC && tries++ < NEST_TRIES)
		(void)usleep(NEST_PAUSE_US);
	if (r < 0)
		return errno == EPERM ? NOT_NESTED : NEST_FAILED;
	(void)file_write(AT_FDCWD, "/proc/self/setgroups", STR("deny"), NULL);
	(void)snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
	(void)file_write(AT_FDCWD, "/proc/self/uid_map", str_of(map), NULL);
	(void)snprintf(map, sizeof map, "0 %u 1", (unsigned)gid);
	(void)file_write(AT_FDCWD, "/proc/self/gid_map", str_of(map), NULL);
	return 0;
}

static int mount_overlay(void *arg)
{
	char dir[] = "/tmp/atoll-probe-XXXXXX", options[256];
	int r = nest(0);

	(void)arg;
	if (r != 0)
		return r;
	if (mount("none", "/tmp", "tmpfs", 0, NULL) < 0 || !mkdtemp(dir) || chdir(dir) < 0)
		return errno;
	(void)mkdir("l", 0755);
	(void)mkdir("u", 0755);
	(void)mkdir("w", 0755);
	(void)mkdir("m", 0755);
	(void)snprintf(options, sizeof options, "lowerdir=l,upperdir=u,workdir=w,userxattr");
	return mount("none", "m", "overlay", 0, options) < 0 ? errno : 0;
}

static int mount_fuse(void *arg)
{
	char options[96];
	int fd, r = nest(0);

	(void)arg;
	if (r != 0)
		return r;
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	(void)snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	return mount("none", "/tmp", "fuse", 0, options) < 0 ? errno : 0;
}

/* A whole transaction that removes a table that does not exist: nothing happens, but only who rules
 * the firewall of the namespace is told so. */
struct batch {
	struct {
		struct nlmsghdr head;
		struct nfgenmsg family;
	} begin;
	struct {
		struct nlmsghdr head;
		struct nfgenmsg family;
		struct nlattr attribute;
		char name[12];
	} remove;
	struct {
		struct nlmsghdr head;
		struct nfgenmsg family;
	} end;
};

static void fill_batch(struct batch *b)
{
	const struct nfgenmsg tables = { 0, NFNETLINK_V0, htobe16(NFNL_SUBSYS_NFTABLES) };

	*b = (struct batch){
		.begin = { { sizeof b->begin, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, 0 }, tables },
		.remove = { { sizeof b->remove, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_DELTABLE,
				    NLM_F_REQUEST | NLM_F_ACK, 0, 0 },
			{ NFPROTO_IPV4, NFNETLINK_V0, 0 },
			{ NLA_HDRLEN + sizeof b->remove.name, NFTA_TABLE_NAME }, "atoll-probe" },
		.end = { { sizeof b->end, NFNL_MSG_BATCH_END, NLM_F_REQUEST, 0, 0 }, tables },
	};
}

/* 0: it is ours to rule. Else what the kernel said. */
static int ask_nftables(void)
{
	cleanup_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	struct timeval second = { .tv_sec = 1 };
	struct batch batch;
	struct {
		struct nlmsghdr head;
		struct nlmsgerr result;
		char more[4096];
	} answer;
	ssize_t n;

	if (fd < 0)
		return errno;
	fill_batch(&batch);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
	if (send(fd, &batch, sizeof batch, 0) < 0)
		return errno;
	n = recv(fd, &answer, sizeof answer, 0);
	if (n < (ssize_t)offsetof(__typeof__(answer), more) ||
		answer.head.nlmsg_type != NLMSG_ERROR)
		return n < 0 ? errno : EPROTO;
	return answer.result.error == -ENOENT ? 0 : -answer.result.error;
}

static int nested_table(void *arg)
{
	int r = nest(0);

	(void)arg;
	return r != 0 ? r : ask_nftables();
}

static int own_table(void *arg)
{
	(void)arg;
	return ask_nftables();
}

struct inner {
	const char *what;
	int (*work)(void *arg);
	bool is_allowed; /* in nested sandboxes */
};

static void try_nested(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	const struct inner *inner = a->detail;
	int status = in_child(inner->work, NULL);

	if (status == NOT_NESTED)
		refused(f, "no nested user namespace, so no %s", inner->what);
	else if (status == 0 && scene->nested && inner->is_allowed)
		contained(f, "%s works, on what is the sandbox's own", inner->what);
	else if (status == 0)
		escaped(f, "%s works in a nested user namespace", inner->what);
	else if (status < 0 || status == NEST_FAILED)
		inconclusive(f, "no nested user namespace, for another reason than rights");
	else
		contained(f, "a nested user namespace, but no %s: %s", inner->what,
			strerrordesc_np(status));
}

static void own_rules(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	(void)a;
	(void)scene;
	judge_status(f, in_child(own_table, NULL), "nftables in the sandbox's own network");
}

static const struct inner overlay = { "overlay mount", mount_overlay, true },
			  nftables = { "nftables", nested_table, false },
			  fuse = { "fuse mount", mount_fuse, true };

/* Its flags lie in memory: a filter can only say that there is no such call. */
static const int as_unknown[] = { ENOSYS, 0 };
static const int by_protocol[] = { EPERM, EPROTONOSUPPORT, 0 }; /* of netlink, it is not there */
static const char *const of_others[] = { "/proc/self/ns/uts", "/proc/self/ns/mnt", "/proc/1/ns/net",
	"/proc/1/ns/mnt", "/proc/1/ns/user", NULL };

static const struct attempt attempts[] = {
	{ "unshare", "make namespaces by unshare", by_unshare, by_filter, NULL, NULL, true },
	{ "clone", "make namespaces by clone", by_clone, by_filter, NULL, NULL, true },
	{ "clone3", "make namespaces by clone3", by_clone3, as_unknown, NULL, NULL, true },
	{ "setns", "enter namespaces of others", by_setns, by_rights, of_others, NULL, true },
	{ "overlay", "mount overlayfs in a nested user namespace", try_nested, NULL, NULL,
		&overlay },
	{ "nftables", "use nftables in a nested user namespace", try_nested, NULL, NULL,
		&nftables },
	{ "fuse", "mount fuse in a nested user namespace", try_nested, NULL, NULL, &fuse },
	{ "own-nftables", "change the firewall of the own network", own_rules, by_protocol, NULL,
		NULL },
};
FAMILY(namespaces, attempts);
