/* Names from a sandbox's socket to a name server and back, all on loopback: each sandbox is one
 * address of 127/8, and so is each name server. */
#include "egress/egress-internal.h"

#include "test.h"

#include <arpa/inet.h>

enum server_mood {
	MOOD_ANSWER,
	MOOD_SILENT,
	MOOD_FAIL,
	MOOD_CUT,        /* by datagram; whole over TCP */
	MOOD_LOWER_CASE, /* by datagram; as asked over TCP */
	MOOD_FORGED,     /* first another id, then the truth */
	MOOD_ALIAS,      /* it is another name for x.internal, which has a public address */
};

struct server {
	struct rig *rig;
	int udp_fd, tcp_fd, stream_fd;
	struct loop_io udp, tcp, stream;
	enum server_mood mood;
	int n_datagrams, n_streams;
	uint8_t last_byte; /* of the address it gives */
};

struct rig {
	struct loop *loop;
	struct egress *egress;
	struct egress_sockets sockets;
	struct server servers[2];
	uint16_t dns_port; /* where the sandboxes ask */
	struct loop_timer timer;
	struct loop_io client;
	const char *networks[4]; /* by the last byte of the sandbox's address, from 2 on */
	bool answered;
};

static int open_udp(const char *address, uint16_t *port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(*port) };
	socklen_t size = sizeof in;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	(void)inet_pton(AF_INET, address, &in.sin_addr);
	(void)setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
	assert(bind(fd, (struct sockaddr *)&in, sizeof in) == 0);
	assert(getsockname(fd, (struct sockaddr *)&in, &size) == 0);
	*port = ntohs(in.sin_port);
	return fd;
}

static int open_tcp(const char *address, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	(void)inet_pton(AF_INET, address, &in.sin_addr);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&in, sizeof in) == 0 && listen(fd, 8) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

/* Both on one port: one that is free for datagrams may be taken for connections. */
static void open_both(const char *address, uint16_t *port, int *udp_fd, int *tcp_fd)
{
	for (int i = 0; i < 100; i++) {
		uint16_t own = *port;

		*udp_fd = open_udp(address, &own);
		*tcp_fd = open_tcp(address, own);
		if (*tcp_fd >= 0) {
			*port = own;
			return;
		}
		(void)close(*udp_fd);
	}
	abort();
}

/* ---- the name server ---- */

/* The question again, a public address and a private one. */
static void make_answer(struct server *s, struct str query, int flags, struct buf *out)
{
	static const char records[] = "\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\x5d\xb8\0\0"
				      "\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\x0a\0\0\1";
	size_t end = 12;

	while (end < query.n && query.p[end])
		end += (size_t)query.p[end] + 1;
	end += 5;
	(void)buf_add(out, query.p, end);
	out->p[2] = (char)(flags >> 8);
	out->p[3] = (char)flags;
	out->p[7] = flags & 0x20f ? 0 : 2;
	out->p[11] = 0;
	if (s->mood == MOOD_ALIAS) {
		size_t target = out->n + 12;

		(void)buf_add(out, "\xc0\x0c\0\5\0\1\0\0\0\x1e\0\x0c\1x\x08internal", 23);
		(void)buf_addc(out, 0);
		(void)buf_addc(out, (char)(0xc0 | target >> 8));
		(void)buf_addc(out, (char)target);
		(void)buf_add(out, records + 2, 14);
	} else if (out->p[7]) {
		(void)buf_add(out, records, sizeof records - 1);
		out->p[out->n - 17] = (char)s->last_byte;
	}
}

static void on_server_datagram(void *arg, uint32_t events)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(2048);
	struct server *s = arg;
	struct sockaddr_in peer;
	socklen_t size = sizeof peer;
	char bytes[1024];
	ssize_t n = recvfrom(s->udp_fd, bytes, sizeof bytes, 0, (struct sockaddr *)&peer, &size);
	int flags = s->mood == MOOD_FAIL ? 0x8182 : s->mood == MOOD_CUT ? 0x8380 : 0x8180;

	(void)events;
	s->n_datagrams++;
	if (n < 12 || s->mood == MOOD_SILENT)
		return;
	make_answer(s, str_make(bytes, (size_t)n), flags, &out);
	for (size_t i = 13; s->mood == MOOD_LOWER_CASE && i < 25; i++)
		if (out.p[i] >= 'A' && out.p[i] <= 'Z')
			out.p[i] = (char)(out.p[i] + 0x20);
	if (s->mood == MOOD_FORGED) {
		out.p[0] ^= 1;
		out.p[out.n - 17] = 66;
		(void)sendto(s->udp_fd, out.p, out.n, 0, (struct sockaddr *)&peer, size);
		out.p[0] ^= 1;
		out.p[out.n - 17] = (char)s->last_byte;
	}
	(void)sendto(s->udp_fd, out.p, out.n, 0, (struct sockaddr *)&peer, size);
}

static void on_server_stream(void *arg, uint32_t events)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(2048);
	struct server *s = arg;
	char bytes[1024], head[2];
	ssize_t n = recv(s->stream_fd, bytes, sizeof bytes, 0);

	(void)events;
	loop_io_remove(&s->stream);
	if (n > 14) {
		make_answer(s, str_make(bytes + 2, (size_t)n - 2), 0x8180, &out);
		head[0] = (char)(out.n >> 8);
		head[1] = (char)out.n;
		(void)send(s->stream_fd, head, 1, 0); /* in pieces, as streams are */
		(void)send(s->stream_fd, head + 1, 1, 0);
		(void)send(s->stream_fd, out.p, out.n, 0);
	}
	close_fdp(&s->stream_fd);
	s->stream_fd = -EBADF;
}

static void on_server_accept(void *arg, uint32_t events)
{
	struct server *s = arg;

	(void)events;
	s->n_streams++;
	s->stream_fd = accept4(s->tcp_fd, NULL, NULL, SOCK_CLOEXEC);
	(void)loop_io_add(s->rig->loop, &s->stream, s->stream_fd, EPOLLIN, on_server_stream, s,
		NULL);
}

static uint16_t server_open(struct rig *rig, struct server *s, const char *address)
{
	uint16_t port = 0;

	s->rig = rig;
	s->stream_fd = -EBADF;
	open_both(address, &port, &s->udp_fd, &s->tcp_fd);
	(void)loop_io_add(rig->loop, &s->udp, s->udp_fd, EPOLLIN, on_server_datagram, s, NULL);
	(void)loop_io_add(rig->loop, &s->tcp, s->tcp_fd, EPOLLIN, on_server_accept, s, NULL);
	return port;
}

static void server_close(struct server *s)
{
	loop_io_remove(&s->udp);
	loop_io_remove(&s->tcp);
	loop_io_remove(&s->stream);
	close_fdp(&s->udp_fd);
	close_fdp(&s->tcp_fd);
	close_fdp(&s->stream_fd);
}

/* ---- the rig ---- */

static bool find(void *arg, uint32_t address, struct egress_sandbox *ret)
{
	static const char *const ids[] = { "sandbox2", "sandbox3", "sandbox4", "sandbox5" };
	struct rig *rig = arg;
	uint32_t which = (address & 0xff) - 2;

	if (address >> 8 != 0x7f0000 || which >= ARRAY_SIZE(ids) || !rig->networks[which])
		return false;
	*ret = (struct egress_sandbox){ .id = ids[which],
		.team_id = "team",
		.network = str_of(rig->networks[which]) };
	return true;
}

static void on_time(void *arg)
{
	struct rig *rig = arg;

	loop_stop(rig->loop);
}

static void rig_new_with(struct rig *rig, const char *opened)
{
	struct private_list list = { 0 };
	struct egress_config config = { .find = find, .find_arg = rig, .opened = &list };
	char servers[64];
	uint16_t ports[2];

	*rig = (struct rig){ .networks = { "", "" } };
	assert(loop_new(&rig->loop, NULL) == 0);
	ports[0] = server_open(rig, &rig->servers[0], "127.0.1.1");
	ports[1] = server_open(rig, &rig->servers[1], "127.0.1.2");
	rig->servers[0].last_byte = 1;
	rig->servers[1].last_byte = 2;
	(void)snprintf(servers, sizeof servers, "127.0.1.1:%u, 127.0.1.2:%u", ports[0], ports[1]);
	assert(private_list_add(&list, str_of(opened), NULL) == 0);
	config.loop = rig->loop;
	config.dns_servers = servers;
	assert(egress_new(&config, &rig->egress, NULL) == 0);
	open_both("0.0.0.0", &rig->dns_port, &rig->sockets.dns_udp_fd, &rig->sockets.dns_tcp_fd);
	rig->sockets.proxy_fd = open_tcp("127.0.0.1", 0);
	assert(egress_start(rig->egress, &rig->sockets, NULL) == 0);
	loop_timer_init(&rig->timer, rig->loop, on_time, rig);
}

static void rig_new(struct rig *rig)
{
	rig_new_with(rig, "");
}

static void rig_done(struct rig *rig)
{
	rig->egress = egress_free(rig->egress);
	server_close(&rig->servers[0]);
	server_close(&rig->servers[1]);
	close_fdp(&rig->sockets.dns_udp_fd);
	close_fdp(&rig->sockets.dns_tcp_fd);
	close_fdp(&rig->sockets.proxy_fd);
	loop_timer_cancel(&rig->timer);
	loop_io_remove(&rig->client);
	rig->loop = loop_free(rig->loop);
}

static void on_client(void *arg, uint32_t events)
{
	struct rig *rig = arg;

	(void)events;
	rig->answered = true;
	loop_stop(rig->loop);
}

/* Until this descriptor has something, or for so long. */
static bool rig_wait(struct rig *rig, int fd, int64_t ms)
{
	rig->answered = false;
	loop_timer_set(&rig->timer, time_now_ms() + ms);
	assert(loop_io_add(rig->loop, &rig->client, fd, EPOLLIN, on_client, rig, NULL) == 0);
	(void)loop_run(rig->loop, NULL);
	loop_io_remove(&rig->client);
	loop_timer_cancel(&rig->timer);
	return rig->answered;
}

/* ---- a sandbox ---- */

static int client_udp(struct rig *rig, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(rig->dns_port) };
	uint16_t port = 0;
	int fd = open_udp(address, &port);

	/* Any address is us; the answer must come from the one that was asked. */
	(void)inet_pton(AF_INET, "127.0.0.53", &to.sin_addr);
	assert(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

static size_t write_question(const char *name, uint16_t type, char out[512])
{
	CLEANUP(buf_done) struct buf query = BUF_INIT(512);
	struct dns_question q = { .type = type, .class = DNS_CLASS_IN };

	assert(dns_name_parse(str_of(name), &q.name) == 0);
	assert(dns_write_query(&query, 0x4242, &q) == 0);
	memcpy(out, query.p, query.n);
	return query.n;
}

static struct dns_answer *read_answer(struct str message, const char *name, uint16_t type)
{
	struct dns_question q = { .type = type, .class = DNS_CLASS_IN };
	struct dns_answer *answer = NULL;

	assert(dns_name_parse(str_of(name), &q.name) == 0);
	return dns_parse_answer(message, 0x4242, &q, true, &answer) == 0 ? answer : NULL;
}

/* NULL: nothing came within ms. */
static struct dns_answer *ask(struct rig *rig, const char *from, const char *name, uint16_t type,
	int64_t ms)
{
	cleanup_close int fd = client_udp(rig, from);
	char bytes[4096];
	ssize_t n = (ssize_t)write_question(name, type, bytes);

	assert(send(fd, bytes, (size_t)n, 0) == n);
	if (!rig_wait(rig, fd, ms))
		return NULL;
	n = recv(fd, bytes, sizeof bytes, 0);
	return n < 0 ? NULL : read_answer(str_make(bytes, (size_t)n), name, type);
}

static uint32_t ask_address(struct rig *rig, const char *from, const char *name)
{
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = ask(rig, from, name, DNS_A, 7000);

	return a && a->n == 1 ? dns_record_address(&a->records[0]) : 0;
}

/* ---- the tests ---- */

TEST(a_name_is_answered_without_its_private_addresses_and_kept_for_the_one_who_asked)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "www.example.com"), 0x5db80001);
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "WWW.example.com"), 0x5db80001);
	ASSERT_EQ(rig.servers[0].n_datagrams, 1);
	/* What one asked for tells a neighbour nothing, not even by its speed. */
	ASSERT_EQ(ask_address(&rig, "127.0.0.3", "www.example.com"), 0x5db80001);
	ASSERT_EQ(rig.servers[0].n_datagrams, 2);
}

TEST(another_name_for_one_of_the_hosts_own_leads_nowhere)
{
	CLEANUP(rig_done) struct rig rig;
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;

	rig_new(&rig);
	rig.servers[0].mood = MOOD_ALIAS;
	a = ask(&rig, "127.0.0.2", "www.example.com", DNS_A, 1000);
	ASSERT(a);
	ASSERT_EQ(a->rcode, DNS_OK);
	ASSERT_EQ(a->n, 0);
}

TEST(who_is_no_sandbox_gets_no_answer)
{
	CLEANUP(rig_done) struct rig rig;
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;

	rig_new(&rig);
	a = ask(&rig, "127.0.0.9", "www.example.com", DNS_A, 100);
	ASSERT(!a);
	ASSERT_EQ(rig.servers[0].n_datagrams, 0);
}

TEST(what_is_not_allowed_is_never_asked_for_and_is_counted)
{
	CLEANUP(rig_done) struct rig rig;
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;

	rig_new(&rig);
	rig.networks[0] = "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"example.com\"]}";
	a = ask(&rig, "127.0.0.2", "secret-data.tunnel.example", DNS_A, 1000);
	ASSERT(a);
	ASSERT_EQ(a->rcode, DNS_NXDOMAIN);
	ASSERT_EQ(rig.servers[0].n_datagrams, 0);
	ASSERT_EQ(egress_denied(rig.egress, "sandbox2").names_asked, 1);
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "example.com"), 0x5db80001);
	ASSERT_EQ(egress_denied(rig.egress, "sandbox2").names_asked, 1);
	/* Another policy while it runs holds from the next question on, kept answers or not. */
	rig.networks[0] = "{\"denyOut\":[\"0.0.0.0/0\"]}";
	a = dns_answer_unref(a);
	a = ask(&rig, "127.0.0.2", "example.com", DNS_A, 1000);
	ASSERT(a);
	ASSERT_EQ(a->rcode, DNS_NXDOMAIN);
	ASSERT_EQ(egress_denied(rig.egress, "sandbox3").names_asked, 0);
}

TEST(there_is_no_ipv6_and_no_hint_to_hide_names)
{
	static const uint16_t types[] = { DNS_AAAA, DNS_HTTPS, DNS_SVCB };
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		CLEANUP(dns_answer_unrefp)
		struct dns_answer *a = ask(&rig, "127.0.0.2", "www.example.com", types[i], 1000);

		ASSERT(a);
		ASSERT_EQ(a->rcode, DNS_OK);
		ASSERT_EQ(a->n, 0);
	}
	ASSERT_EQ(rig.servers[0].n_datagrams, 0);
}

TEST(the_next_server_is_asked_when_one_is_silent_or_fails)
{
	CLEANUP(rig_done) struct rig rig;
	CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;

	rig_new(&rig);
	rig.servers[0].mood = MOOD_FAIL;
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "a.example.com"), 0x5db80002);
	rig.servers[0].mood = MOOD_SILENT;
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "b.example.com"), 0x5db80002);
	rig.servers[0].mood = rig.servers[1].mood = MOOD_FAIL;
	a = ask(&rig, "127.0.0.2", "c.example.com", DNS_A, 1000);
	ASSERT(a);
	ASSERT_EQ(a->rcode, DNS_SERVFAIL);
}

TEST(an_answer_that_was_cut_or_lost_its_case_is_asked_for_over_tcp)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	rig.servers[0].mood = MOOD_CUT;
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "a.example.com"), 0x5db80001);
	ASSERT_EQ(rig.servers[0].n_streams, 1);
	rig.servers[0].mood = MOOD_LOWER_CASE;
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "abcdefghijklmnopqrstuvwxyz.example.com"),
		0x5db80001);
	ASSERT_EQ(rig.servers[0].n_streams, 2);
}

TEST(an_answer_with_another_id_is_not_taken)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	rig.servers[0].mood = MOOD_FORGED;
	ASSERT_EQ(ask_address(&rig, "127.0.0.2", "a.example.com"), 0x5db80001);
}

TEST(a_flood_of_one_leaves_the_others_their_answers)
{
	CLEANUP(rig_done) struct rig rig;
	cleanup_close int fd = -EBADF;
	char bytes[512];
	size_t n;

	rig_new(&rig);
	rig.servers[0].mood = rig.servers[1].mood = MOOD_SILENT;
	fd = client_udp(&rig, "127.0.0.2");
	for (int i = 0; i < 300; i++) {
		char name[64];

		(void)snprintf(name, sizeof name, "n%d.example.com", i);
		n = write_question(name, DNS_A, bytes);
		ASSERT_EQ(send(fd, bytes, n, 0), (ssize_t)n);
	}
	ASSERT(rig_wait(&rig, fd, 1000)); /* those beyond its share fail at once */
	ASSERT_EQ(rig.egress->n_lookups, 64);
	rig.servers[0].mood = MOOD_ANSWER;
	ASSERT_EQ(ask_address(&rig, "127.0.0.3", "a.example.com"), 0x5db80001);
	ASSERT(rig.servers[0].n_datagrams + rig.servers[1].n_datagrams < 200);
}

static int client_tcp(struct rig *rig, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(rig->dns_port) };
	struct sockaddr_in from = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	(void)inet_pton(AF_INET, address, &from.sin_addr);
	assert(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
	assert(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

TEST(several_questions_on_one_stream_are_answered_in_order)
{
	static const char *const names[] = { "a.example.com", "b.example.com", "c.example.com" };
	CLEANUP(rig_done) struct rig rig;
	CLEANUP(buf_done) struct buf in = BUF_INIT(4096);
	cleanup_close int fd = -EBADF;
	char bytes[514], got[4096];
	ssize_t n;

	rig_new(&rig);
	fd = client_tcp(&rig, "127.0.0.2");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t size = write_question(names[i], DNS_A, bytes + 2);

		bytes[0] = 0;
		bytes[1] = (char)size;
		ASSERT_EQ(send(fd, bytes, size + 2, 0), (ssize_t)size + 2);
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL;
		size_t size;

		while (in.n < 2 || in.n < 2 + (size_t)(uint8_t)in.p[1]) {
			ASSERT(rig_wait(&rig, fd, 2000));
			n = recv(fd, got, sizeof got, 0);
			ASSERT(n > 0);
			(void)buf_add(&in, got, (size_t)n);
		}
		size = (uint8_t)in.p[1];
		a = read_answer(str_make(in.p + 2, size), names[i], DNS_A);
		ASSERT(a);
		ASSERT_EQ(a->n, 1);
		buf_consume(&in, size + 2);
	}
}

TEST(a_connection_that_nobody_redirected_is_not_proxied)
{
	CLEANUP(rig_done) struct rig rig;
	struct sockaddr_in to;
	socklen_t size = sizeof to;
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char got[16];

	rig_new(&rig);
	rig.networks[0] = "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"*\"]}";
	ASSERT_EQ(getsockname(rig.sockets.proxy_fd, (struct sockaddr *)&to, &size), 0);
	ASSERT_EQ(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	ASSERT(rig_wait(&rig, fd, 2000));
	ASSERT_EQ(recv(fd, got, sizeof got, 0), -1);
	ASSERT_EQ(errno, ECONNRESET);
}

TEST(name_servers_are_read_as_the_host_writes_them)
{
	static const char text[] =
		"# comment\nsearch lan\nnameserver 127.0.0.53\n"
		"nameserver\t10.0.0.1 \nnameserver ::1 # second\noptions edns0\n"
		"nameserver nonsense\nnameservers 1.1.1.1\n;nameserver 9.9.9.9\n";
	struct sockaddr_storage got[SERVERS_MAX];
	const struct sockaddr_in *in4 = (const void *)&got[0];

	ASSERT_EQ(servers_parse_file(STR(text), got), 3);
	ASSERT_EQ(ntohl(in4->sin_addr.s_addr), 0x7f000035);
	ASSERT_EQ(ntohs(in4->sin_port), 53);
	ASSERT_EQ(got[2].ss_family, AF_INET6);
}

TEST(name_servers_that_are_no_addresses_are_refused)
{
	static const char *const bad[] = { "dns.example.com", "1.1.1.1:0", "1.1.1.1:x", "[::1", "",
		"1.1.1.1,,2.2.2.2", "1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct servers *s = NULL;

		if (servers_new(bad[i], &s, NULL) != -EINVAL)
			TEST_FAIL("'%s' is taken", bad[i]);
	}
}

/* Every answer of the rig's servers has a public address and 10.0.0.1. */
TEST(an_answer_keeps_the_private_addresses_that_are_opened)
{
	static const struct {
		const char *opened;
		size_t n, n_inside; /* of www.example.com, and of a name of the host's network */
	} cases[] = {
		{ "", 1, 0 },
		{ "10.0.0.1:8443", 2, 2 },
		{ "10.0.0.0/24", 2, 2 },
		{ "10.0.0.2", 1, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(rig_done) struct rig rig;
		CLEANUP(dns_answer_unrefp) struct dns_answer *a = NULL, *inside = NULL;

		rig_new_with(&rig, cases[i].opened);
		a = ask(&rig, "127.0.0.2", "www.example.com", DNS_A, 7000);
		inside = ask(&rig, "127.0.0.2", "mirror.corp.internal", DNS_A, 7000);
		ASSERT(a && inside);
		ASSERT_EQ(a->n, cases[i].n);
		ASSERT_EQ(inside->n, cases[i].n_inside);
		ASSERT_EQ(inside->rcode, cases[i].n_inside ? DNS_OK : DNS_NXDOMAIN);
		ASSERT_EQ(rig.servers[0].n_datagrams, cases[i].opened[0] ? 2 : 1);
	}
}
