#include "test-rig.h"

#include "test.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static void on_gone(void *arg)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);

	atomic_fetch_add(&rig->gone, 1);
	http_abort(x);
}

static void count_piece(void *arg, int r, struct str bytes)
{
	struct http_exchange *x = arg;
	struct rig *rig = http_data(x);
	char text[32];

	if (bytes.n > 0) {
		atomic_fetch_add(&rig->body_bytes, (long)bytes.n);
		return;
	}
	(void)snprintf(text, sizeof text, "%ld", atomic_load(&rig->body_bytes));
	if (r < 0)
		http_abort(x);
	else
		http_reply(x, 200, NULL, str_of(text));
}

struct flood {
	struct http_exchange *x;
	int left;
};

/* Pieces that differ, so that one lost or sent twice shows. */
static void flood_more(void *arg)
{
	static char piece[65536];
	struct flood *flood = arg;
	struct rig *rig = http_data(flood->x);

	while (flood->left > 0) {
		memset(piece, 'a' + flood->left % 26, sizeof piece);
		flood->left--;
		atomic_fetch_add(&rig->body_bytes, sizeof piece);
		if (!http_write(flood->x, str_make(piece, sizeof piece)) && flood->left > 0)
			return;
	}
	http_end(flood->x);
}

enum {
	FLOOD_PIECES = 512 /* 32 MiB */
};

static void flood(struct http_exchange *x)
{
	struct flood *flood = arena_alloc(http_arena(x), sizeof *flood);

	*flood = (struct flood){ x, FLOOD_PIECES };
	http_on_drain(x, flood_more, flood);
	http_begin(x, 200, NULL, FLOOD_PIECES * 65536);
	flood_more(flood);
}

static void count_end(void *arg)
{
	struct rig *rig = arg;

	atomic_fetch_add(&rig->gone, 1);
}

static void reply_admission(struct http_exchange *x)
{
	struct http_admission a;
	char text[64];

	http_server_admission(http_server_of(x), &a);
	(void)snprintf(text, sizeof text, "n=%zu evicted=%" PRIu64 " end", a.connections,
		a.evicted_strangers);
	http_reply(x, 200, NULL, str_of(text));
}

/* More than the client's socket takes, and less than that and the pair of sockets do. */
static const char page[260 << 10];

static void handle(void *arg, struct http_exchange *x)
{
	struct str path = http_path(x);

	http_set_data(x, arg);
	if (str_is(path, "/count")) {
		http_stream_body(x, count_piece, x);
	} else if (str_is(path, "/flood")) {
		flood(x);
	} else if (str_is(path, "/hold")) {
		http_on_gone(x, on_gone, x);
		http_sse_begin(x);
		(void)http_sse_send(x, "here", NULL, STR("1"));
	} else if (str_is(path, "/page")) {
		http_on_end(x, count_end, arg);
		http_reply(x, 200, NULL, str_make(page, sizeof page));
	} else if (str_is(path, "/admission")) {
		reply_admission(x);
	} else if (str_is(path, "/cut")) {
		http_begin(x, 200, NULL, -1);
		(void)http_write(x, STR("half of it"));
		http_abort(x);
	} else {
		http_reply(x, 200, NULL, http_peer(x));
	}
}

#define RIG(limits)                               \
	CLEANUP(rig_stop) struct rig rig = { 0 }; \
	ASSERT(rig_start(&rig, limits))
#define RIG_OF(most)                                                                            \
	CLEANUP(rig_stop)                                                                       \
	struct rig rig = { .limits = { .max_connections = (most), .stranger_body_bytes = 1 } }; \
	ASSERT(rig_start(&rig, NULL))
#define CLIENT(name) CLEANUP(client_done) struct client name = { .fd = -EBADF }

TEST(a_request_is_answered_and_the_connection_kept)
{
	CLIENT(c);
	char text[1024], want[64];
	struct sockaddr_in own = { 0 };
	socklen_t size = sizeof own;
	const unsigned char *protocol;
	unsigned protocol_n;

	RIG(NULL);
	ASSERT(client_open(&c, rig.port, "\x02h2\x08http/1.1", 0));
	SSL_get0_alpn_selected(c.ssl, &protocol, &protocol_n);
	ASSERT_BYTES(str_make(protocol, protocol_n), "http/1.1");
	ASSERT_EQ(getsockname(c.fd, (struct sockaddr *)&own, &size), 0);
	(void)snprintf(want, sizeof want, "\r\n\r\n127.0.0.1:%d", ntohs(own.sin_port));
	for (int i = 0; i < 3; i++) {
		ASSERT(say(&c, GET("/peer")));
		ASSERT(strstr(hear(&c, text, sizeof text, want), want));
	}
	rig_end(&rig, WAKE_STOP);
	ASSERT_EQ(heard_end(&c), END_CLEAN);
}

TEST(versions_and_protocols_that_are_refused)
{
	static const struct {
		const char *protocols;
		int max_version;
		bool accepted;
	} cases[] = {
		{ NULL, 0, true },
		{ NULL, TLS1_2_VERSION, true },
		{ "\x08http/1.1", TLS1_2_VERSION, true },
		{ "\x02h2", 0, false },
		{ "\x02h2", TLS1_2_VERSION, false },
		{ NULL, TLS1_1_VERSION, false },
		{ NULL, TLS1_VERSION, false },
	};

	RIG(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLIENT(c);

		ASSERT_EQ(client_open(&c, rig.port, cases[i].protocols, cases[i].max_version),
			cases[i].accepted);
		if (!cases[i].accepted) /* told by an alert, not by a reset */
			ASSERT_EQ(ERR_GET_LIB(ERR_peek_error()), ERR_LIB_SSL);
	}
}

TEST(plain_http_of_this_machine_is_served)
{
	cleanup_close int fd = -EBADF;
	char text[1024] = "";

	RIG(NULL);
	fd = dial(rig.port);
	ASSERT_EQ(send(fd, GET("/peer"), strlen(GET("/peer")), 0), (ssize_t)strlen(GET("/peer")));
	ASSERT(recv(fd, text, sizeof text - 1, 0) > 0);
	ASSERT(strstr(text, "HTTP/1.1 200") && strstr(text, "127.0.0.1:"));
}

TEST(garbage_is_turned_away_and_others_are_served)
{
	static const char junk[][8] = { "\x16\x03\x01\xff\xff\xff\xff", "\x16garbag",
		"\x16\x03\x01\x00\x02\x01\x02", "\x16\x00\x00\x00\x00\x00\x00" };
	char bytes[256];

	RIG(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(junk); i++) {
		cleanup_close int fd = dial(rig.port);
		CLIENT(c);
		ssize_t n;

		ASSERT_EQ(send(fd, junk[i], 7, 0), 7);
		ASSERT_EQ(shutdown(fd, SHUT_WR), 0);
		do
			n = recv(fd, bytes, sizeof bytes, 0);
		while (n > 0);
		ASSERT_EQ(n, 0);
		ASSERT(client_open(&c, rig.port, NULL, 0));
	}
}

TEST(who_stalls_before_the_handshake_is_done_is_cut)
{
	static const struct tls_limits limits = { .handshake_timeout_ms = 150 };
	static const char *const begun[] = { "", "\x16\x03\x01",
		"\x16\x03\x01\x02\x00\x01\x00\x01" };
	static const size_t begun_n[] = { 0, 3, 8 };

	RIG(&limits);
	for (size_t i = 0; i < ARRAY_SIZE(begun); i++) {
		cleanup_close int fd = dial(rig.port);
		int64_t began_ms = time_now_ms();
		char byte;

		ASSERT_EQ(send(fd, begun[i], begun_n[i], 0), (ssize_t)begun_n[i]);
		ASSERT(recv(fd, &byte, 1, 0) <= 0 && errno != EAGAIN);
		ASSERT(time_now_ms() - began_ms >= 140 && time_now_ms() - began_ms < 8000);
	}
}

/* Before and within the handshake they are strangers like any other: the slowest goes. */
TEST(the_silent_do_not_keep_others_out)
{
	int silent[16];
	CLIENT(c);
	char text[256], byte;

	RIG_OF(4);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++) {
		silent[i] = dial(rig.port);
		if (i % 2)
			ASSERT_EQ(send(silent[i], "\x16\x03", 2, 0), 2);
	}
	for (size_t i = 0; i < ARRAY_SIZE(silent) - 4; i++)
		ASSERT(recv(silent[i], &byte, 1, 0) <= 0 && errno != EAGAIN);
	ASSERT(client_open(&c, rig.port, NULL, 0));
	ASSERT(say(&c, GET("/peer")));
	ASSERT(strstr(hear(&c, text, sizeof text, "127.0.0.1"), "200 OK"));
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		(void)close(silent[i]);
}

/* The HTTP server has done with them, and they still take descriptors and memory. */
TEST(who_leaves_its_last_reply_unread_keeps_its_place)
{
	struct client stuck[6] = { 0 };
	char text[256] = "";
	CLIENT(c);

	RIG_OF(4);
	for (size_t i = 0; i < ARRAY_SIZE(stuck); i++) {
		ASSERT(client_open(&stuck[i], rig.port, NULL, 0));
		ASSERT(say(&stuck[i],
			"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
		ASSERT(becomes(&rig.gone, (int)i + 1));
	}
	ASSERT(client_open(&c, rig.port, NULL, 0));
	for (int i = 0; i < RIG_WAIT_MS && !strstr(text, "n=4"); i += 10) {
		ASSERT(say(&c, GET("/admission")));
		ASSERT(strstr(hear(&c, text, sizeof text, "end"), "200 OK"));
		(void)poll(NULL, 0, 10);
	}
	ASSERT(strstr(text, "evicted=3"));
	for (size_t i = 0; i < ARRAY_SIZE(stuck); i++)
		client_done(&stuck[i]);
}

TEST(a_large_body_arrives_whole)
{
	static char piece[100000];
	CLIENT(c);
	char text[1024];

	RIG(NULL);
	ASSERT(client_open(&c, rig.port, NULL, 0));
	ASSERT(say(&c, "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n"));
	for (int i = 0; i < 200; i++)
		ASSERT_EQ(SSL_write(c.ssl, piece, sizeof piece), sizeof piece);
	ASSERT(strstr(hear(&c, text, sizeof text, "\r\n\r\n20000000"), "200 OK"));
}

/* Reads past the head, then checks every byte. */
static bool flood_is_whole(struct client *c, char *text, int size)
{
	size_t at = 0, total = (size_t)FLOOD_PIECES * 65536;
	int n = SSL_read(c->ssl, text, size);
	char *body;

	if (n <= 0)
		return false;
	body = memmem(text, (size_t)n, "\r\n\r\n", 4);
	if (!body)
		return false;
	n -= (int)(body + 4 - text);
	memmove(text, body + 4, (size_t)n);
	while (at < total) {
		for (int i = 0; i < n; i++, at++)
			if (text[i] != (char)('a' + (FLOOD_PIECES - (int)(at / 65536)) % 26))
				return false;
		if (at == total)
			return true;
		n = SSL_read(c->ssl, text, size);
		if (n <= 0)
			return false;
	}
	return true;
}

TEST(who_reads_slowly_is_sent_slowly_and_loses_nothing)
{
	CLIENT(c);
	static char text[30000];
	long sent;

	RIG(NULL);
	ASSERT(client_open(&c, rig.port, NULL, 0));
	ASSERT(say(&c, GET("/flood")));
	do { /* until the writer rests: nobody buffers for now */
		sent = atomic_load(&rig.body_bytes);
		(void)poll(NULL, 0, 200);
	} while (atomic_load(&rig.body_bytes) != sent || sent == 0);
	ASSERT(sent < FLOOD_PIECES / 2 * 65536L);
	ASSERT(flood_is_whole(&c, text, sizeof text));
}

TEST(who_takes_nothing_is_cut)
{
	static const struct tls_limits limits = { .stall_timeout_ms = 200 };
	CLIENT(c);

	RIG(&limits);
	ASSERT(client_open(&c, rig.port, NULL, 0));
	ASSERT(say(&c, GET("/flood")));
	(void)poll(NULL, 0, 4000);
	ASSERT_EQ(heard_end(&c), END_CUT);
}

TEST(a_client_that_only_stops_sending_gets_its_reply)
{
	CLIENT(c);
	char text[1024];

	RIG(NULL);
	ASSERT(client_open(&c, rig.port, NULL, 0));
	ASSERT(say(&c, GET("/peer")));
	ASSERT_EQ(SSL_shutdown(c.ssl), 0);
	ASSERT(strstr(hear(&c, text, sizeof text, "127.0.0.1"), "200 OK"));
	ASSERT_EQ(heard_end(&c), END_CLEAN);
}

TEST(clean_ends_are_clean_and_cuts_are_cuts)
{
	static const struct {
		const char *request;
		enum ending want;
	} cases[] = {
		{ "GET /peer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", END_CLEAN },
		{ "GET /peer HTTP/1.0\r\nHost: a\r\n\r\n", END_CLEAN },
		{ "nonsense\r\n\r\n", END_CLEAN },
		{ "GET /cut HTTP/1.1\r\nHost: a\r\n\r\n", END_RESET },
		{ "GET /cut HTTP/1.0\r\nHost: a\r\n\r\n", END_RESET },
	};

	RIG(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLIENT(c);
		char text[1024];

		ASSERT(client_open(&c, rig.port, NULL, 0));
		ASSERT(say(&c, cases[i].request));
		ASSERT(strstr(hear(&c, text, sizeof text, "\r\n\r\n"), "HTTP/1.1"));
		ASSERT_EQ(heard_end(&c), cases[i].want);
	}
}

TEST(a_client_that_vanishes_is_noticed)
{
	char text[1024];

	RIG(NULL);
	for (int i = 0; i < 2; i++) {
		CLIENT(c);

		ASSERT(client_open(&c, rig.port, NULL, 0));
		ASSERT(say(&c, GET("/hold")));
		ASSERT(strstr(hear(&c, text, sizeof text, "data: 1"), "event: here"));
		if (i == 0) { /* a reset; else an end without close_notify */
			struct linger now = { .l_onoff = 1 };

			(void)setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
		}
		client_done(&c);
		c = (struct client){ .fd = -EBADF };
		ASSERT(becomes(&rig.gone, i + 1));
	}
}

TEST(a_stopping_server_lets_replies_out_and_says_goodbye)
{
	CLIENT(idle);
	CLIENT(reading);
	static char text[30000];

	RIG(NULL);
	ASSERT(client_open(&idle, rig.port, NULL, 0));
	ASSERT(client_open(&reading, rig.port, NULL, 0));
	ASSERT(say(&reading, GET("/flood")));
	ASSERT(SSL_peek(reading.ssl, text, 1) == 1); /* it is under way */
	rig_wake(&rig, WAKE_STOP_LATE);
	ASSERT(flood_is_whole(&reading, text, sizeof text));
	ASSERT_EQ(heard_end(&idle), END_CLEAN);
	ASSERT_EQ(heard_end(&reading), END_CLEAN);
	(void)pthread_join(rig.thread, NULL);
	(void)close(rig.wake_fd);
	rig.thread = 0;
}

/* ---- the certificate ---- */

static bool reload(struct rig *rig, int want)
{
	int before = atomic_load(&rig->reloads);

	rig_wake(rig, WAKE_RELOAD);
	return becomes(&rig->reloads, before + 1) && atomic_load(&rig->reload_result) == want;
}

static bool shows(struct rig *rig, const char *name)
{
	CLIENT(c);
	char got[64];

	return client_open(&c, rig->port, NULL, 0) && strcmp(shown_name(&c, got), name) == 0;
}

TEST(a_renewed_certificate_is_shown_and_open_streams_go_on)
{
	CLIENT(kept);
	char text[1024];
	cleanup_close int fd = -EBADF;

	RIG(NULL);
	ASSERT(client_open(&kept, rig.port, NULL, 0));
	ASSERT(shows(&rig, "first"));
	pair_write(&rig.pair, "second"); /* renamed over the old files */
	ASSERT(shows(&rig, "first"));
	ASSERT(reload(&rig, 0));
	ASSERT(shows(&rig, "second"));

	fd = open(rig.pair.key, O_WRONLY | O_TRUNC | O_CLOEXEC);
	ASSERT(fd >= 0);
	ASSERT(reload(&rig, -EINVAL)); /* half written: what was good stays */
	ASSERT(shows(&rig, "second"));
	ASSERT_EQ(unlink(rig.pair.key), 0);
	ASSERT(reload(&rig, -ENOENT));
	ASSERT(shows(&rig, "second"));

	ASSERT(say(&kept, GET("/peer")));
	ASSERT(strstr(hear(&kept, text, sizeof text, "127.0.0.1"), "200 OK"));
}

static void write_text(const char *path, const char *text)
{
	(void)unlink(path);
	(void)file_replace(AT_FDCWD, path, str_of(text), 0600, NULL);
}

static void make_missing(const struct pair *pair)
{
	(void)unlink(pair->certificate);
}

static void make_directory(const struct pair *pair)
{
	(void)unlink(pair->key);
	(void)mkdir(pair->key, 0700);
}

static void make_fifo(const struct pair *pair)
{
	(void)unlink(pair->key);
	(void)mkfifo(pair->key, 0600);
}

static void make_empty(const struct pair *pair)
{
	write_text(pair->certificate, "");
}

static void make_text(const struct pair *pair)
{
	write_text(pair->certificate,
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
}

static void make_keyless(const struct pair *pair)
{
	write_text(pair->key, "no key at all\n");
}

static void make_foreign(const struct pair *pair)
{
	EVP_PKEY *key = make_key();

	write_pem(pair->key, NULL, key, NULL);
	EVP_PKEY_free(key);
}

static void make_encrypted(const struct pair *pair)
{
	EVP_PKEY *key = make_key();

	write_pem(pair->key, NULL, key, "password");
	EVP_PKEY_free(key);
}

static void make_swapped(const struct pair *pair)
{
	(void)renameat2(AT_FDCWD, pair->key, AT_FDCWD, pair->certificate, RENAME_EXCHANGE);
}

TEST(files_that_are_not_good_are_named_with_what_is_wrong)
{
	static const struct {
		void (*make)(const struct pair *pair);
		const char *want;
	} cases[] = {
		{ make_missing, "open the certificate" },
		{ make_directory, "open the private key" },
		{ make_fifo, "open the private key" },
		{ make_empty, "there is no certificate in PEM form in it" },
		{ make_text, "there is no certificate in PEM form in it" },
		{ make_swapped, "there is no certificate in PEM form in it" },
		{ make_keyless, "there is no private key in PEM form in it" },
		{ make_foreign, "it does not belong to the certificate" },
		{ make_encrypted, "it is encrypted" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(tls_identity_freep) struct tls_identity *identity = NULL;
		CLEANUP(pair_done) struct pair pair = { 0 };
		struct err e = { 0 };

		pair_init(&pair);
		cases[i].make(&pair);
		ASSERT(tls_identity_open(pair.certificate, pair.key, &identity, &e) < 0);
		if (!strstr(e.msg, cases[i].want) || !strstr(e.msg, pair.dir))
			TEST_FAIL("case %zu: %s", i, e.msg);
	}
}

TEST(a_certificate_tells_when_it_ends)
{
	CLEANUP(tls_identity_freep) struct tls_identity *identity = NULL;
	CLEANUP(pair_done) struct pair pair = { 0 };
	int64_t left_us;

	pair_init(&pair);
	ASSERT_EQ(tls_identity_open(pair.certificate, pair.key, &identity, NULL), 0);
	left_us = tls_identity_expires_us(identity) - time_wall_us();
	ASSERT(left_us > 86000 * 1000000LL && left_us <= 86400 * 1000000LL);
}
