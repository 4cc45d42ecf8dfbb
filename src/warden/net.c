#include "warden/net.h"
#include "warden/netlink.h"
#include "warden/host.h"
#include "warden/tracks.h"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define TABLE_LOCK "/run/atoll.lock"

enum {
	LOOPBACK_INDEX = 1, /* in every network namespace */
	PAIR_PREFIX = 31,
	ETHER_SIZE = 6,
	LOCK_TRIES = 500,
	LOCK_PAUSE_US = 10000,
	SENT_FIELD = 9, /* of a line of /proc/net/dev: bytes sent */
};

/* Both ends know each other's hardware address from the start: no ARP, and no entry that counts
 * against the host's neighbour table limit. */
struct ends {
	char name[IFNAMSIZ];
	uint32_t host_ip, guest_ip; /* network byte order */
	uint8_t host_mac[ETHER_SIZE], guest_mac[ETHER_SIZE];
};

static struct ends ends_of(const struct network *net, int number)
{
	uint8_t high = (uint8_t)(number >> 8), low = (uint8_t)number;
	struct ends x = {
		.host_ip = htonl(net->base + (uint32_t)number * 2),
		.guest_ip = htonl(net->base + (uint32_t)number * 2 + 1),
		.host_mac = { 0x06, 0xa0, 0x11, 0x00, high, low },
		.guest_mac = { 0x06, 0xa0, 0x11, 0x01, high, low },
	};

	(void)snprintf(x.name, sizeof x.name, "atoll%d", number);
	return x;
}

int net_parse(const char *text, struct network *ret, struct err *e)
{
	struct str rest = str_of(text), address;
	struct network net = NETWORK_INIT;
	char dotted[INET_ADDRSTRLEN];
	struct in_addr a;
	int64_t prefix;

	net.next = 1;
	net.max_number = NET_MAX_NUMBER;
	if (strcmp(text, "none") == 0) {
		*ret = net;
		return 0;
	}
	if (!str_split(&rest, '/', &address) ||
		snprintf(dotted, sizeof dotted, "%.*s", STR_ARG(address)) >= (int)sizeof dotted ||
		inet_pton(AF_INET, dotted, &a) != 1 || str_to_int(rest, 8, 29, &prefix) < 0 ||
		ntohl(a.s_addr) & ((UINT32_C(1) << (32 - prefix)) - 1))
		return err_set(e, -EINVAL, "network '%s' is not like 10.199.0.0/16 or none", text);
	net.enabled = true;
	net.base = ntohl(a.s_addr);
	net.max_number = (int)MIN((INT64_C(1) << (31 - prefix)) - 1, NET_MAX_NUMBER);
	*ret = net;
	return 0;
}

int net_open_own(struct network *net, struct err *e)
{
	int r = netlink_open(NETLINK_ROUTE, &net->rtnl_fd, e);

	if (r < 0)
		return r;
	net->own_ns_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (net->own_ns_fd < 0)
		return err_sys(e, -errno, "open /proc/self/ns/net");
	net->has_ipv6 = access("/proc/sys/net/ipv6", F_OK) == 0;
	return 0;
}

/* The table belongs to a network namespace: so does the lock, a byte of one file for each. */
static int ask_lock(const struct network *net, int command, struct flock *lock)
{
	struct stat st;

	if (fstat(net->own_ns_fd, &st) < 0)
		return -errno;
	lock->l_whence = SEEK_SET;
	lock->l_start = (off_t)st.st_ino;
	lock->l_len = 1;
	return fcntl(net->table_fd, command, lock) < 0 ? -errno : 0;
}

static int lock_table(const struct network *net, short type)
{
	struct flock lock = { .l_type = type };

	return ask_lock(net, F_SETLK, &lock);
}

/* Every warden with a network holds it, so that none removes the table under another's feet. */
static int hold_table(struct network *net, struct err *e)
{
	net->table_fd = open(TABLE_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (net->table_fd < 0)
		return err_sys(e, -errno, "open " TABLE_LOCK);
	/* Another warden that just leaves holds it alone for as long as nft takes. */
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (lock_table(net, F_RDLCK) >= 0)
			return 0;
		(void)usleep(LOCK_PAUSE_US);
	}
	return err_set(e, -EBUSY, TABLE_LOCK " is held by another program");
}

static void wear(struct network *net, int number)
{
	net->worn[number / 8] |= (uint8_t)(1 << number % 8);
}

static void wear_source(void *arg, uint32_t address)
{
	struct network *net = arg;
	int number = net_number(net, address);

	if (number)
		wear(net, number);
}

/* Sandboxes of earlier days may have connections that the kernel remembers. A kernel that cannot be
 * asked is no reason to stop: it is said, once. */
static void open_tracks(struct network *net)
{
	cleanup_close int fd = -EBADF;
	int r = tracks_open(&fd, NULL);

	if (r >= 0)
		r = tracks_each(fd, wear_source, net);
	net->can_forget = r >= 0;
	if (r >= 0)
		return;
	log_warn("net.remembers",
		"err=\"%s\" why=\"what is still sent to a sandbox that ended may come "
		"to the one that has its address next\"",
		strerrordesc_np(-r));
}

void net_look_for_others(struct network *net)
{
	struct flock lock = { .l_type = F_WRLCK };

	if (ask_lock(net, F_GETLK, &lock) >= 0 && lock.l_type != F_UNLCK)
		net->is_shared = true;
}

static bool is_worn(const struct network *net, int number)
{
	return net->worn[number / 8] >> number % 8 & 1;
}

static bool is_used(const struct network *net, int number)
{
	return net->used[number / 8] >> number % 8 & 1;
}

int net_list_worn(const struct network *net, uint32_t *ret, int max)
{
	int n = 0;

	for (int number = 1; n < max && net->can_forget && number <= net->max_number; number++)
		if (is_worn(net, number) && !is_used(net, number))
			ret[n++] = net_address(net, number);
	return n;
}

void net_forgot(struct network *net, const uint32_t *addresses, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int number = net_number(net, addresses[i]);

		if (number)
			net->worn[number / 8] &= (uint8_t) ~(1 << number % 8);
	}
}

uint32_t net_must_forget(struct network *net, int number)
{
	if (number <= 0 || !net->can_forget)
		return 0;
	net_look_for_others(net);
	return net->is_shared || is_worn(net, number) ? net_address(net, number) : 0;
}

int net_open(struct network *net, struct err *e)
{
	int r = net_open_own(net, e);

	if (r < 0 || !net->enabled)
		return r;
	r = hold_table(net, e);
	if (r >= 0)
		r = net_apply_rules(e);
	if (r >= 0)
		r = file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", STR("1"), e);
	if (r >= 0)
		open_tracks(net);
	return r;
}

/* Neither makes the table nor waits for anybody. */
int net_look(struct network *net, struct err *e)
{
	int r = net_open_own(net, e);

	if (r < 0)
		return r;
	net->table_fd = open(TABLE_LOCK, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	return net->table_fd < 0 ? err_sys(e, -errno, "open " TABLE_LOCK) : 0;
}

int net_try(struct network *net, int *ret_number, struct err *e)
{
	int r = net_open_own(net, e);

	if (r >= 0)
		r = net_take(net, ret_number, e);
	return r < 0 ? r : net_attach(net, net->own_ns_fd, *ret_number, e);
}

static bool any_interface(void)
{
	struct if_nameindex *all = if_nameindex();
	bool found = false;

	for (struct if_nameindex *i = all; i && i->if_index && !found; i++)
		found = str_has_prefix(str_of(i->if_name), STR("atoll"));
	if_freenameindex(all);
	return found;
}

bool net_is_last(const struct network *net)
{
	return net->table_fd >= 0 && lock_table(net, F_WRLCK) >= 0 && !any_interface();
}

void net_close(struct network *net)
{
	if (net_is_last(net))
		net_remove_rules();
	close_fdp(&net->rtnl_fd);
	close_fdp(&net->own_ns_fd);
	close_fdp(&net->table_fd);
	net->rtnl_fd = net->own_ns_fd = net->table_fd = -EBADF;
}

/* Runs the batch of a namespace in that namespace. Failing to come back would leave the warden in a
 * sandbox's network, so it does not survive it. */
static int enter(int ns_fd, struct err *e)
{
	return setns(ns_fd, CLONE_NEWNET) < 0 ? err_sys(e, -errno, "enter the network namespace")
					      : 0;
}

static void leave(const struct network *net)
{
	if (setns(net->own_ns_fd, CLONE_NEWNET) < 0)
		abort();
}

static void add_up(struct netlink_batch *b, int index, unsigned more)
{
	struct ifinfomsg head = { .ifi_index = index,
		.ifi_flags = IFF_UP | more,
		.ifi_change = IFF_UP | more };

	netlink_begin(b, RTM_NEWLINK, 0, &head, sizeof head);
}

/* No IPv6 link-local address: it would be a way around the rules made for IPv4. */
static void add_no_ipv6(struct netlink_batch *b, int index)
{
	struct ifinfomsg head = { .ifi_index = index };
	uint8_t mode = IN6_ADDR_GEN_MODE_NONE;
	size_t spec, family;

	netlink_begin(b, RTM_NEWLINK, 0, &head, sizeof head);
	spec = netlink_nest(b, IFLA_AF_SPEC);
	family = netlink_nest(b, AF_INET6);
	netlink_add(b, IFLA_INET6_ADDR_GEN_MODE, &mode, sizeof mode);
	netlink_nest_end(b, family);
	netlink_nest_end(b, spec);
}

static void add_address(struct netlink_batch *b, int index, uint32_t ip)
{
	struct ifaddrmsg head = { .ifa_family = AF_INET,
		.ifa_prefixlen = PAIR_PREFIX,
		.ifa_index = (uint32_t)index };

	netlink_begin(b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_add(b, IFA_LOCAL, &ip, sizeof ip);
	netlink_add(b, IFA_ADDRESS, &ip, sizeof ip);
}

static void add_neighbour(struct netlink_batch *b, int index, uint32_t ip, const uint8_t *mac)
{
	struct ndmsg head = { .ndm_family = AF_INET,
		.ndm_ifindex = index,
		.ndm_state = NUD_PERMANENT };

	netlink_begin(b, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof head);
	netlink_add(b, NDA_DST, &ip, sizeof ip);
	netlink_add(b, NDA_LLADDR, mac, ETHER_SIZE);
}

static void add_default_route(struct netlink_batch *b, int index, uint32_t gateway)
{
	struct rtmsg head = { .rtm_family = AF_INET,
		.rtm_table = RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_BOOT,
		.rtm_scope = RT_SCOPE_UNIVERSE,
		.rtm_type = RTN_UNICAST };

	netlink_begin(b, RTM_NEWROUTE, NLM_F_CREATE, &head, sizeof head);
	netlink_add(b, RTA_GATEWAY, &gateway, sizeof gateway);
	netlink_add_u32(b, RTA_OIF, (uint32_t)index);
}

/* The pair, its far end born in the namespace. The kernel refuses to create it up. */
static int make_pair(const struct network *net, const struct ends *x, int ns_fd)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct ifinfomsg head = { 0 };
	size_t info, data, peer;

	netlink_begin(&b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_add_str(&b, IFLA_IFNAME, x->name);
	netlink_add(&b, IFLA_ADDRESS, x->host_mac, ETHER_SIZE);
	info = netlink_nest(&b, IFLA_LINKINFO);
	netlink_add_str(&b, IFLA_INFO_KIND, "veth");
	data = netlink_nest(&b, IFLA_INFO_DATA);
	peer = netlink_nest(&b, VETH_INFO_PEER);
	netlink_raw(&b, &head, sizeof head);
	netlink_add_str(&b, IFLA_IFNAME, "eth0");
	netlink_add(&b, IFLA_ADDRESS, x->guest_mac, ETHER_SIZE);
	netlink_add_u32(&b, IFLA_NET_NS_FD, (uint32_t)ns_fd);
	netlink_nest_end(&b, peer);
	netlink_nest_end(&b, data);
	netlink_nest_end(&b, info);
	return netlink_run(net->rtnl_fd, &b);
}

static int set_up_host(const struct network *net, const struct ends *x, struct err *e)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	int index = (int)if_nametoindex(x->name), r;

	if (index == 0)
		return err_sys(e, -errno, "find interface %s", x->name);
	if (net->has_ipv6)
		add_no_ipv6(&b, index);
	add_address(&b, index, x->host_ip);
	/* Whoever asks by ARP becomes a neighbour, and one can ask in thousands of names until the
	 * host's table of neighbours is full. Setting the flag forgets those of the interface. */
	add_up(&b, index, IFF_NOARP);
	add_neighbour(&b, index, x->guest_ip, x->guest_mac);
	r = netlink_run(net->rtnl_fd, &b);
	return r < 0 ? err_sys(e, r, "set up interface %s", x->name) : 0;
}

/* Called inside the namespace; x is NULL where there is only a loopback. */
static int set_up_guest(const struct network *net, const struct ends *x, struct err *e)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	cleanup_close int fd = -EBADF;
	int r = netlink_open(NETLINK_ROUTE, &fd, e);

	if (r < 0)
		return r;
	add_up(&b, LOOPBACK_INDEX, 0);
	if (x) {
		int index = (int)if_nametoindex("eth0");

		if (net->has_ipv6)
			add_no_ipv6(&b, index);
		add_address(&b, index, x->guest_ip);
		add_up(&b, index, 0);
		add_neighbour(&b, index, x->host_ip, x->host_mac);
		add_default_route(&b, index, x->host_ip);
	}
	r = netlink_run(fd, &b);
	return r < 0 ? err_sys(e, r, "set up the sandbox's network") : 0;
}

void net_adopt(struct network *net, int number)
{
	assert(number > 0 && number <= NET_MAX_NUMBER);
	net->used[number / 8] |= (uint8_t)(1 << number % 8);
}

void net_look_elsewhere(struct network *net)
{
	uint16_t any;

	random_bytes(&any, sizeof any);
	net->is_shared = true;
	net->next = 1 + any % net->max_number;
}

void net_give_back(struct network *net, int number)
{
	if (number > 0)
		net->used[number / 8] &= (uint8_t) ~(1 << number % 8);
}

void net_release(struct network *net, int number)
{
	net_give_back(net, number);
	if (number > 0)
		wear(net, number);
}

/* Numbers go round, since the kernel takes a while to remove the interface of one just released. */
static int try_numbers(struct network *net, bool worn)
{
	for (int tried = 0; tried < net->max_number; tried++) {
		int number = net->next;

		net->next = number % net->max_number + 1;
		if (is_used(net, number) || (net->can_forget && is_worn(net, number) != worn))
			continue;
		if (net->enabled && net_index(number)) {
			net->is_shared = true;
			continue;
		}
		net_adopt(net, number);
		return number;
	}
	return -EUSERS;
}

int net_take(struct network *net, int *ret_number, struct err *e)
{
	int r = try_numbers(net, false);

	if (r == -EUSERS && net->can_forget)
		r = try_numbers(net, true);
	if (r == -EUSERS)
		return err_set(e, r, "all %d network slots of this host are taken",
			net->max_number);
	*ret_number = r;
	return 0;
}

int net_take_spare(struct network *net, int *ret_number)
{
	int next = net->next;
	int r = net_take(net, ret_number, NULL);

	net->next = next;
	return r;
}

int net_attach(struct network *net, int ns_fd, int number, struct err *e)
{
	struct ends x = ends_of(net, number);
	int r = net->enabled ? make_pair(net, &x, ns_fd) : 0;

	if (r < 0)
		return err_sys(e, r, "make interface pair %d", number);
	if (net->enabled)
		r = set_up_host(net, &x, e);
	if (r >= 0)
		r = enter(ns_fd, e);
	if (r < 0)
		return r;
	r = set_up_guest(net, net->enabled ? &x : NULL, e);
	leave(net);
	return r;
}

int net_sockets(const struct network *net, int ns_fd, int ret[NET_SOCKETS], int *ret_n,
	struct err *e)
{
	const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
	int v4, v6, r = enter(ns_fd, e);

	if (r < 0)
		return r;
	v4 = socket(AF_INET, type, 0);
	r = v4 < 0 ? -errno : 0;
	v6 = r < 0 ? -1 : socket(AF_INET6, type, 0);
	leave(net);
	if (r < 0)
		return err_sys(e, r, "open a socket in the sandbox");
	ret[0] = v4;
	ret[1] = v6;
	*ret_n = v6 < 0 ? 1 : 2;
	return 0;
}

uint32_t net_index(int number)
{
	char name[IFNAMSIZ];

	(void)snprintf(name, sizeof name, "atoll%d", number);
	return if_nametoindex(name);
}

/* The line of an interface: `name: 8 numbers of what it received, then of what it sent`. */
static uint64_t sent_by(struct str text, const char *name)
{
	struct str line, word;
	int64_t n = 0;
	int field = 0;

	while (str_split(&text, '\n', &line)) {
		line = str_trim(line);
		if (!str_split(&line, ':', &word) || !str_is(word, name))
			continue;
		while (field < SENT_FIELD && str_split(&line, ' ', &word))
			field += word.n > 0;
		return field == SENT_FIELD && str_to_int(word, 0, INT64_MAX, &n) >= 0 ? (uint64_t)n
										      : 0;
	}
	return 0;
}

uint64_t net_sent_bytes(pid_t pid)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(65536);
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/net/dev", (int)pid);
	return pid > 0 && file_read(AT_FDCWD, path, &text, NULL) >= 0
		       ? sent_by(buf_str(&text), "eth0")
		       : 0;
}

int net_number(const struct network *net, uint32_t address)
{
	uint32_t number = (address - net->base) / 2;

	return address > net->base && number <= (uint32_t)net->max_number ? (int)number : 0;
}

uint32_t net_address(const struct network *net, int number)
{
	return net->enabled && number > 0 ? net->base + (uint32_t)number * 2 + 1 : 0;
}

void net_resolv_conf(const struct network *net, char ret[NET_CONF_SIZE])
{
	struct in_addr a = { htonl(net->base + 1) };
	char text[INET_ADDRSTRLEN];

	(void)inet_ntop(AF_INET, &a, text, sizeof text);
	if (net->enabled)
		(void)snprintf(ret, NET_CONF_SIZE, "nameserver %s\n", text);
	else
		(void)snprintf(ret, NET_CONF_SIZE, "# This sandbox has no network.\n");
}
