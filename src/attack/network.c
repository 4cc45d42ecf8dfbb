/* Addresses that a sandbox must not reach. All targets of an attempt are knocked at together, so
 * that those that never answer cost one wait. What counts is not that a connection opens (a proxy
 * may have taken it) but that bytes come back that only the target could have sent. That none come
 * proves something where somebody is known to answer, or where we are told to go away. */
#include "attack/attack.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

enum {
	KNOCKS_MAX = 160,
	WAIT_MS = 2000,
	PING_US = 700000,
	ANSWER_MAX = 2048,
	SSH_PORT = 22,
	DOCKER_PORT = 2375,
	KUBELET_PORT = 10250,
	METADATA_PORT = 80,
};

enum presence {
	ANSWERS,   /* others do get an answer there: silence is a refusal */
	ELSEWHERE, /* not on this host: only being told so is one */
	UNKNOWN,   /* a port of the host where perhaps nobody is: nothing is one */
};

struct knock {
	enum presence presence;
	struct sockaddr_storage to;
	socklen_t to_size;
	char name[80];
	int fd, type, error;
	bool asked;
	char answer[ANSWER_MAX];
	size_t n;
};

struct knocks {
	const struct scene *scene;
	struct knock *v;
	size_t n;
};

static void knocks_done(struct knocks *k)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->v[i].fd >= 0)
			(void)close(k->v[i].fd);
	free(k->v);
}

static bool fill_address(struct knock *k, const char *host, uint16_t port)
{
	struct sockaddr_in *v4 = (void *)&k->to;
	struct sockaddr_in6 *v6 = (void *)&k->to;
	char plain[64];
	const char *zone = strchr(host, '%');

	(void)snprintf(plain, sizeof plain, "%.*s", zone ? (int)(zone - host) : (int)strlen(host),
		host);
	if (inet_pton(AF_INET, plain, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		k->to_size = sizeof *v4;
		return true;
	}
	if (inet_pton(AF_INET6, plain, &v6->sin6_addr) != 1)
		return false;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	/* The host names its link in its own words, or not at all: here there is only one way out.
	 */
	if (zone || IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
		v6->sin6_scope_id = if_nametoindex(zone ? zone + 1 : "eth0");
	k->to_size = sizeof *v6;
	return true;
}

static void knock_at(struct knocks *ks, enum presence presence, int type, const char *host,
	uint16_t port)
{
	struct knock *k;
	const int on = 1;

	if (!port || ks->n == KNOCKS_MAX)
		return;
	if (!ks->v)
		ks->v = XNEW_N(struct knock, KNOCKS_MAX);
	k = &ks->v[ks->n];
	if (!fill_address(k, host, port))
		return;
	ks->n++;
	k->type = type;
	k->presence = presence;
	(void)snprintf(k->name, sizeof k->name, "%s %s:%d", type == SOCK_STREAM ? "tcp" : "udp",
		host, port);
	k->fd = socket(k->to.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (k->fd >= 0)
		(void)setsockopt(k->fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
	if (k->fd < 0 || (connect(k->fd, (void *)&k->to, k->to_size) < 0 && errno != EINPROGRESS))
		k->error = errno;
}

/* The kernel may have chosen the very port that is knocked at: then nobody but ourselves is there.
 */
static bool is_itself(const struct knock *k)
{
	struct sockaddr_storage own = { 0 }, other = { 0 };
	socklen_t own_size = sizeof own, other_size = sizeof other;

	return getsockname(k->fd, (void *)&own, &own_size) == 0 &&
	       getpeername(k->fd, (void *)&other, &other_size) == 0 && own_size == other_size &&
	       memcmp(&own, &other, own_size) == 0;
}

/* One question that both a canary (it answers anything) and the API understand. */
static void ask(const struct knocks *ks, struct knock *k)
{
	char text[256];
	int n = snprintf(text, sizeof text,
		"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nX-Mark: %s\r\n"
		"Connection: close\r\n\r\n",
		ks->scene->mark);

	k->asked = true;
	if (is_itself(k))
		k->error = ECONNREFUSED;
	else if (send(k->fd, text, (size_t)n, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
		k->error = errno;
}

static void knock_ready(const struct knocks *ks, struct knock *k, short events)
{
	ssize_t n;

	if (!k->asked && events & (POLLOUT | POLLERR | POLLHUP)) {
		socklen_t size = sizeof k->error;

		(void)getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &k->error, &size);
		if (k->error == 0)
			ask(ks, k);
		return;
	}
	if (!(events & (POLLIN | POLLERR | POLLHUP)))
		return;
	n = recv(k->fd, k->answer + k->n, sizeof k->answer - 1 - k->n, 0);
	if (n > 0)
		k->n += (size_t)n;
	else if (n == 0)
		k->error = ECONNRESET;
	else if (errno != EAGAIN)
		k->error = errno;
	if (k->n == sizeof k->answer - 1)
		k->error = ECONNRESET;
}

static void knock_all(const struct knocks *ks)
{
	int64_t until_ms = time_now_ms() + WAIT_MS, left_ms;
	struct pollfd p[KNOCKS_MAX];

	while ((left_ms = until_ms - time_now_ms()) > 0) {
		int open_ones = 0;

		for (size_t i = 0; i < ks->n; i++) {
			const struct knock *k = &ks->v[i];

			p[i] = (struct pollfd){ .fd = k->error ? -1 : k->fd,
				.events = k->asked ? POLLIN : POLLOUT };
			open_ones += p[i].fd >= 0;
		}
		if (open_ones == 0 || poll(p, ks->n, (int)left_ms) <= 0)
			break;
		for (size_t i = 0; i < ks->n; i++)
			if (p[i].fd >= 0 && p[i].revents)
				knock_ready(ks, &ks->v[i], p[i].revents);
	}
}

/* Whose words these are. */
static const char *speaker(const struct knocks *ks, const struct knock *k)
{
	if (ks->scene->mark[0] && memmem(k->answer, k->n, ks->scene->mark, strlen(ks->scene->mark)))
		return "the one who must not be reached";
	if (memmem(k->answer, k->n, "\"openapi\"", 9))
		return "the API";
	return NULL;
}

static void judge_silence(const struct knock *k, struct finding *f)
{
	int error = k->error ? k->error : ETIMEDOUT;

	if (error == EAFNOSUPPORT)
		absent(f, "%s: there is no such protocol here", k->name);
	else if (k->presence == UNKNOWN)
		absent(f, "%s does not answer, and perhaps nobody", k->name);
	else if (k->presence == ELSEWHERE && error == ETIMEDOUT)
		absent(f, "%s does not answer, and nobody is known to be there", k->name);
	else
		refused_with(f, error, "%s", k->name);
}

/* strict: nobody at all may answer there. */
static void judge_all(const struct knocks *ks, bool strict, struct finding *f)
{
	knock_all(ks);
	for (size_t i = 0; i < ks->n; i++) {
		const struct knock *k = &ks->v[i];
		const char *who = speaker(ks, k);

		if (who)
			escaped(f, "%s answers, and it is %s", k->name, who);
		else if (k->n && strict)
			escaped(f, "%s answers: %.24s", k->name, k->answer);
		else if (k->asked && k->type == SOCK_STREAM)
			contained(f, "%s is taken by somebody else, and says nothing of the target",
				k->name);
		else
			judge_silence(k, f);
	}
}

/* ---- where to ---- */

/* "eth0 00000000 0100A8C0 ...": destination and gateway as numbers of this machine's byte order. */
static bool read_route(struct str line, struct in_addr *gateway)
{
	struct str name, to, by;
	uint8_t b[4];

	if (!next_word(&line, &name) || !next_word(&line, &to) || !next_word(&line, &by) ||
		!str_is(to, "00000000") || hex_decode(by, b, sizeof b) < 0)
		return false;
	gateway->s_addr = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
	return gateway->s_addr != 0;
}

/* The default route's gateway, as text; false: there is none. */
static bool find_gateway(char text[INET_ADDRSTRLEN])
{
	CLEANUP(buf_done) struct buf table = BUF_INIT(1 << 20);
	struct str rest, line;
	struct in_addr gateway;

	if (file_read(AT_FDCWD, "/proc/net/route", &table, NULL) < 0)
		return false;
	rest = buf_str(&table);
	while (str_split(&rest, '\n', &line))
		if (read_route(line, &gateway))
			return inet_ntop(AF_INET, &gateway, text, INET_ADDRSTRLEN) != NULL;
	return false;
}

static bool is_of_host(const struct scene *scene, const char *address)
{
	for (size_t i = 0; i < scene->n_hosts; i++)
		if (str_is(scene->hosts[i], address))
			return true;
	return false;
}

static void each_host(struct knocks *ks, enum presence presence, int type, uint16_t port)
{
	for (size_t i = 0; i < ks->scene->n_hosts; i++) {
		char host[64];

		(void)snprintf(host, sizeof host, "%.*s", STR_ARG(ks->scene->hosts[i]));
		knock_at(ks, presence, type, host, port);
	}
}

static void metadata(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const addresses[] = { "169.254.169.254", "169.254.170.2",
		"169.254.169.253", "100.100.100.200", "192.0.0.192", "fd00:ec2::254" };
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };

	(void)a;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		enum presence presence = is_of_host(scene, addresses[i]) ? ANSWERS : ELSEWHERE;

		knock_at(&ks, presence, SOCK_STREAM, addresses[i], METADATA_PORT);
		knock_at(&ks, presence, SOCK_STREAM, addresses[i], scene->canary_port);
		knock_at(&ks, presence, SOCK_DGRAM, addresses[i], scene->canary_port);
	}
	judge_all(&ks, true, f);
}

static void link_local(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const addresses[] = { "169.254.0.1", "169.254.1.1", "fe80::1%eth0" };
	/* Everybody on the wire: the host is one of them. */
	static const char *const groups[] = { "224.0.0.1", "255.255.255.255", "ff02::1%eth0",
		"ff02::2%eth0" };
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };

	(void)a;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		knock_at(&ks, ELSEWHERE, SOCK_STREAM, addresses[i], scene->canary_port);
		knock_at(&ks, ELSEWHERE, SOCK_DGRAM, addresses[i], scene->canary_port);
	}
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		knock_at(&ks, ANSWERS, SOCK_DGRAM, groups[i], scene->canary_port);
	judge_all(&ks, true, f);
}

static void gateway(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };
	char text[INET_ADDRSTRLEN];

	(void)a;
	if (!find_gateway(text)) {
		absent(f, "there is no gateway");
		return;
	}
	knock_at(&ks, ANSWERS, SOCK_STREAM, text, scene->canary_port);
	knock_at(&ks, ANSWERS, SOCK_DGRAM, text, scene->canary_port);
	knock_at(&ks, UNKNOWN, SOCK_STREAM, text, scene->api_port);
	knock_at(&ks, UNKNOWN, SOCK_STREAM, text, SSH_PORT);
	knock_at(&ks, UNKNOWN, SOCK_STREAM, text, DOCKER_PORT);
	knock_at(&ks, UNKNOWN, SOCK_STREAM, text, KUBELET_PORT);
	judge_all(&ks, true, f);
}

static void loopback(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const addresses[] = { "127.0.0.1", "127.0.0.53", "127.1.2.3", "0.0.0.0",
		"::1", "::ffff:127.0.0.1", "::" };
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };

	(void)a;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		knock_at(&ks, ANSWERS, SOCK_STREAM, addresses[i], scene->canary_port);
		knock_at(&ks, ANSWERS, SOCK_DGRAM, addresses[i], scene->canary_port);
		knock_at(&ks, ANSWERS, SOCK_STREAM, addresses[i], scene->api_port);
	}
	judge_all(&ks, false, f);
}

static void host_addresses(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };

	(void)a;
	each_host(&ks, ANSWERS, SOCK_STREAM, scene->canary_port);
	each_host(&ks, ANSWERS, SOCK_DGRAM, scene->canary_port);
	each_host(&ks, UNKNOWN, SOCK_STREAM, SSH_PORT);
	judge_all(&ks, false, f);
}

static void api_address(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };
	char text[INET_ADDRSTRLEN];

	(void)a;
	each_host(&ks, UNKNOWN, SOCK_STREAM, scene->api_port);
	knock_at(&ks, ANSWERS, SOCK_STREAM, "127.0.0.1", scene->api_port);
	if (find_gateway(text))
		knock_at(&ks, UNKNOWN, SOCK_STREAM, text, scene->api_port);
	judge_all(&ks, false, f);
}

static void neighbour(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };

	(void)a;
	if (!scene->neighbour)
		return;
	knock_at(&ks, ANSWERS, SOCK_STREAM, scene->neighbour, NEIGHBOUR_PORT);
	knock_at(&ks, ANSWERS, SOCK_DGRAM, scene->neighbour, NEIGHBOUR_PORT);
	knock_at(&ks, UNKNOWN, SOCK_STREAM, scene->neighbour, GUEST_PORT);
	judge_all(&ks, true, f);
}

/* Without a checksum nobody answers; the kernel only makes it for ping sockets. */
static int ping_socket(struct icmphdr *echo)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);

	if (fd >= 0)
		return fd;
	echo->checksum = htons((uint16_t) ~(ICMP_ECHO << 8));
	return socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
}

/* A raw socket also shows the address, the question itself on its way to ourselves, and what others
 * say about it. */
static void listen_for_echo(struct finding *f, int fd, const char *who)
{
	char answer[256];
	ssize_t n;

	while ((n = recv(fd, answer, sizeof answer, 0)) > 0) {
		size_t skip = answer[0] >> 4 == 4 ? (size_t)(answer[0] & 15) * 4 : 0;

		if ((size_t)n <= skip || answer[skip] == ICMP_ECHO)
			continue;
		if (answer[skip] == ICMP_ECHOREPLY)
			escaped(f, "the neighbour answers to ping");
		else
			refused_with(f, EHOSTUNREACH, "ping %s", who);
		return;
	}
	refused_with(f, errno == EAGAIN ? ETIMEDOUT : errno, "ping %s", who);
}

static void ping_neighbour(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	struct icmphdr echo = { .type = ICMP_ECHO };
	cleanup_close int fd = ping_socket(&echo);
	struct timeval wait = { .tv_usec = PING_US };
	struct knock k = { 0 };

	(void)a;
	if (!scene->neighbour || !fill_address(&k, scene->neighbour, 1))
		return;
	if (fd < 0) {
		refused_with(f, errno, "ping socket");
		return;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	if (sendto(fd, &echo, sizeof echo, 0, (void *)&k.to, k.to_size) < 0)
		refused_with(f, errno, "ping %s", scene->neighbour);
	else
		listen_for_echo(f, fd, scene->neighbour);
}

/* The guest's control routes, from inside. It listens where no program of the sandbox can knock. */
static void guest_inside(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	static const char *const addresses[] = { "127.0.0.1", "::1", "0.0.0.0" };
	CLEANUP(knocks_done) struct knocks ks = { .scene = scene };

	(void)a;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		knock_at(&ks, ANSWERS, SOCK_STREAM, addresses[i], GUEST_PORT);
	judge_all(&ks, true, f);
}

/* Dropped, sent back, or no way at all from here. */
static const int by_silence[] = { ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EADDRNOTAVAIL,
	EPERM, EACCES, 0 };

static const struct attempt attempts[] = {
	{ "metadata", "reach the cloud's metadata addresses", metadata, by_silence, NULL, NULL },
	{ "link-local", "reach link-local and multicast addresses, IPv4 and IPv6", link_local,
		by_silence, NULL, NULL },
	{ "gateway", "reach the gateway's ports", gateway, by_silence, NULL, NULL },
	{ "loopback", "reach the host's loopback", loopback, by_silence, NULL, NULL },
	{ "host", "reach the host by its own addresses", host_addresses, by_silence, NULL, NULL },
	{ "api", "reach the API's own address", api_address, by_silence, NULL, NULL },
	{ "neighbour", "reach another sandbox by address", neighbour, by_silence, NULL, NULL },
	{ "ping", "ping another sandbox", ping_neighbour, by_silence, NULL, NULL },
	{ "guest", "reach the guest's control routes from inside", guest_inside, by_silence, NULL,
		NULL },
};
WAITING_FAMILY(network, attempts);
