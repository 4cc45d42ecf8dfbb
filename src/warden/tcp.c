#include "warden/tcp.h"
#include "warden/netlink.h"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

enum {
	PATH_SIZE = 400,
	NUMBER_SIZE = 32,
	USUAL_CLOSED = 65536, /* where only the host's first network shows it: of some 8 GB */
	STATES = 1 << TCP_ESTABLISHED | 1 << TCP_CLOSE_WAIT | 1 << TCP_FIN_WAIT1 |
		 1 << TCP_LAST_ACK | 1 << TCP_CLOSING,
};

/* ---- the host ---- */

/* "TCP: inuse 5 orphan 0 tw 0 alloc 46 mem 12", the last in pages. */
void tcp_read_host(struct str sockstat, struct tcp_host *ret)
{
	int64_t n_sockets = 0, n_pages = 0, *value = NULL;
	struct str line, word;

	*ret = (struct tcp_host){ 0 };
	while (str_split(&sockstat, '\n', &line)) {
		if (!str_split(&line, ' ', &word) || !str_is(word, "TCP:"))
			continue;
		while (str_split(&line, ' ', &word)) {
			if (value)
				(void)str_to_int(word, 0, INT32_MAX, value);
			value = str_is(word, "orphan")  ? &ret->n_closed
				: str_is(word, "alloc") ? &n_sockets
				: str_is(word, "mem")   ? &n_pages
							: NULL;
		}
	}
	ret->bytes = n_sockets * TCP_SOCKET_BYTES + n_pages * sysconf(_SC_PAGESIZE);
}

/* The number at the beginning of a small file; `otherwise` where there is none. */
static int64_t read_number(const char *path, int64_t otherwise)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[NUMBER_SIZE];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
	struct str rest = str_make(text, n < 0 ? 0 : (size_t)n), line;
	int64_t number;

	if (!str_split(&rest, '\n', &line) || str_to_int(line, 0, INT64_MAX, &number) < 0)
		return otherwise;
	return number;
}

int64_t tcp_max_closed(void)
{
	return read_number("/proc/sys/net/ipv4/tcp_max_orphans", USUAL_CLOSED);
}

/* ---- one network ---- */

struct use {
	int64_t bytes, n_closed;
};

static void count(void *arg, struct str entry)
{
	static const int parts[] = { SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_FWD_ALLOC,
		SK_MEMINFO_WMEM_QUEUED, SK_MEMINFO_BACKLOG };
	uint32_t memory[SK_MEMINFO_BACKLOG + 1];
	struct inet_diag_msg m;
	struct use *use = arg;
	struct str found;

	if (entry.n < sizeof m)
		return;
	memcpy(&m, entry.p, sizeof m);
	if (m.idiag_inode) /* a program has it open */
		return;
	if (m.idiag_state != TCP_ESTABLISHED && m.idiag_state != TCP_CLOSE_WAIT) {
		use->n_closed++;
		return;
	}
	use->bytes += TCP_SOCKET_BYTES;
	found = netlink_find(str_from(entry, sizeof m), INET_DIAG_SKMEMINFO);
	if (found.n < sizeof memory)
		return;
	memcpy(memory, found.p, sizeof memory);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		use->bytes += memory[parts[i]];
}

/* Of the network that this process is in. A kernel that cannot be asked has nothing to tell. */
static void ask(struct use *ret)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	cleanup_close int fd = -EBADF;

	if (netlink_open(NETLINK_SOCK_DIAG, &fd, NULL) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		const struct inet_diag_req_v2 head = { .sdiag_family = families[i],
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
			.idiag_states = STATES };
		uint8_t data[NETLINK_BATCH_BYTES];
		struct netlink_batch b = netlink_batch(data, sizeof data);

		netlink_begin(&b, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &head, sizeof head);
		(void)netlink_dump(fd, &b, count, ret);
	}
}

/* ---- all of them ---- */

static const char *path_of(const struct cgroups *cg, bool of_memory, const char *key,
	const char *file, char path[PATH_SIZE])
{
	const char *unified = cg->roots[CGROUP_CONTROLLERS];
	bool is_old = of_memory ? !cg->unified_limits : !unified[0];

	(void)snprintf(path, PATH_SIZE, "%s/atoll/%s/%s/%s",
		is_old ? cg->roots[CGROUP_MEMORY] : unified, cg->instance, key, file);
	return path;
}

static int64_t share_of(const struct cgroups *cg, const char *key)
{
	char path[PATH_SIZE];

	return read_number(path_of(cg, true, key,
				   cg->unified_limits ? "memory.max" : "memory.limit_in_bytes",
				   path),
		       INT64_MAX) /
	       TCP_SHARE;
}

/* -EBADF: none. Its process is asked for twice: the number may be another's by then. */
static int open_network(const struct cgroups *cg, const char *key)
{
	char procs[PATH_SIZE], path[NUMBER_SIZE + 16];
	cleanup_close int fd = -EBADF;
	int64_t pid = read_number(path_of(cg, false, key, "cgroup.procs", procs), 0);

	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read_number(procs, 0) != pid)
		return -EBADF;
	return TAKE_FD(fd);
}

struct search {
	const struct cgroups *cgroups;
	int home_fd;
	int64_t most_closed, worst_closed, worst_above;
};

static void look_into(struct search *s, const char *key, struct tcp_taker *ret)
{
	cleanup_close int fd = open_network(s->cgroups, key);
	int64_t share = share_of(s->cgroups, key);
	struct use use = { 0 };

	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
		return;
	ask(&use);
	if (setns(s->home_fd, CLONE_NEWNET) < 0)
		_exit(1); /* it would do the next order in the wrong place */
	if (use.bytes > share && use.bytes - share > s->worst_above) {
		s->worst_above = use.bytes - share;
		*ret = (struct tcp_taker){ .bytes = use.bytes };
	} else if (s->worst_above == 0 && use.n_closed > MAX(s->most_closed, s->worst_closed)) {
		s->worst_closed = use.n_closed;
		*ret = (struct tcp_taker){ 0 };
	} else {
		return;
	}
	(void)snprintf(ret->key, sizeof ret->key, "%s", key);
}

void tcp_find_taker(const struct cgroups *cgroups, struct tcp_taker *ret)
{
	cleanup_close int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	struct search s = { .cgroups = cgroups,
		.home_fd = home,
		.most_closed = tcp_max_closed() / TCP_SHARE };
	struct dirent *entry;
	char path[PATH_SIZE];
	DIR *dir;

	*ret = (struct tcp_taker){ 0 };
	dir = home < 0 ? NULL : opendir(path_of(cgroups, false, "", "", path));
	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
			strlen(entry->d_name) < SLOT_KEY_SIZE)
			look_into(&s, entry->d_name, ret);
	if (dir)
		(void)closedir(dir);
}
