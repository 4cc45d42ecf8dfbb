/* Both sides in one loop: a server that is whoever it is asked to be, and connections of our own to
 * it, which believe it only as far as the authority is trusted. */
#include "tls/tls.h"

#include "test.h"

#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

struct rig {
	char home[64], certificate[96];
	int dir_fd;
	struct loop *loop;
	struct http_server *http;
	struct tls_server *tls;
	struct tls_authority *authority;
	struct loop_timer timer;
	int result, status; /* of the one who connects; of its request */
	char body[64];
	int n_gone;
	struct stream *stream;
	struct http_carriage *carriage; /* of the connection of our own */
	int fd;                         /* its plain bytes */
};

struct carried {
	struct http_carriage carriage;
	struct rig *rig;
};

static void on_request(void *arg, struct http_exchange *x)
{
	struct carried *c = container_of(http_carriage(x), struct carried, carriage);

	(void)arg;
	assert(c->rig == arg);
	if (str_is(http_path(x), "/cut"))
		http_abort(x);
	else
		http_reply(x, 200, "text/plain", http_header(x, "Host"));
}

static void on_gone(struct http_carriage *carriage)
{
	struct carried *c = container_of(carriage, struct carried, carriage);

	c->rig->n_gone++;
	free(c);
}

static void on_time(void *arg)
{
	struct rig *rig = arg;

	loop_stop(rig->loop);
}

static void rig_new(struct rig *rig)
{
	*rig = (struct rig){ 0 };
	(void)snprintf(rig->home, sizeof rig->home, "/tmp/atoll-authority-XXXXXX");
	assert(mkdtemp(rig->home));
	(void)snprintf(rig->certificate, sizeof rig->certificate, "%s/ca.pem", rig->home);
	rig->dir_fd = open(rig->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(loop_new(&rig->loop, NULL) == 0);
	assert(tls_authority_open(rig->dir_fd, "authority", &rig->authority, NULL) == 0);
	rig->http = http_server_new(rig->loop, NULL, on_request, rig);
	rig->tls = tls_server_new(rig->loop, rig->http, NULL, NULL);
	loop_timer_init(&rig->timer, rig->loop, on_time, rig);
}

static void rig_done(struct rig *rig)
{
	rig->tls = tls_server_free(rig->tls);
	rig->http = http_server_free(rig->http);
	rig->authority = tls_authority_free(rig->authority);
	loop_timer_cancel(&rig->timer);
	rig->loop = loop_free(rig->loop);
	close_fdp(&rig->dir_fd);
	(void)dir_remove_tree(AT_FDCWD, rig->home, NULL);
}

static void trust(struct rig *rig)
{
	assert(file_replace(AT_FDCWD, rig->certificate, tls_authority_certificate(rig->authority),
		       0644, NULL) == 0);
	(void)setenv("SSL_CERT_FILE", rig->certificate, 1);
}

static void on_reply(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct rig *rig = arg;

	(void)e;
	rig->status = r < 0 ? r : status;
	(void)snprintf(rig->body, sizeof rig->body, "%.*s", STR_ARG(body));
	loop_stop(rig->loop);
}

static void on_connected(void *arg, int fd, const struct err *e)
{
	static const struct http_request request = { .method = "GET",
		.target = "/",
		.host = "carried.example",
		.max_bytes = 4096,
		.timeout_ms = 2000 };
	struct rig *rig = arg;

	(void)e;
	rig->result = MIN(fd, 0);
	if (fd >= 0)
		http_request(rig->loop, fd, &request, on_reply, rig);
	else
		loop_stop(rig->loop);
}

/* The server is `is`, and the client wants `wanted`. */
static void meet(struct rig *rig, const char *is, const char *wanted)
{
	struct carried *c = XNEW(struct carried);
	int pair[2];

	c->rig = rig;
	c->carriage = (struct http_carriage){ .n_refs = 1, .gone = on_gone };
	rig->result = 1;
	rig->status = 0;
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	(void)tls_server_connect(rig->tls, pair[0], wanted, on_connected, rig);
	tls_server_take_connection(rig->tls, pair[1], &c->carriage, rig->authority, is);
	(void)http_carriage_unref(&c->carriage);
	loop_timer_set(&rig->timer, time_now_ms() + 5000);
	(void)loop_run(rig->loop, NULL);
	loop_timer_set(&rig->timer, time_now_ms() + 50); /* for what ends afterwards */
	(void)loop_run(rig->loop, NULL);
}

TEST(a_trusted_authority_makes_us_whoever_we_want_to_be)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	trust(&rig);
	meet(&rig, "api.example.com", "api.example.com");
	ASSERT_EQ(rig.result, 0);
	ASSERT_EQ(rig.status, 200);
	ASSERT_STR(rig.body, "carried.example");
	meet(&rig, "other.example", "other.example");
	ASSERT_EQ(rig.status, 200);
	ASSERT_EQ(rig.n_gone, 2);
}

TEST(another_name_or_an_unknown_authority_is_not_believed)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	trust(&rig);
	meet(&rig, "api.example.com", "bank.example.com");
	ASSERT_EQ(rig.result, -EKEYREJECTED);
	ASSERT_EQ(rig.status, 0);
	(void)setenv("SSL_CERT_FILE", "/dev/null", 1);
	rig.tls = tls_server_free(rig.tls); /* it would look again in a while only */
	rig.tls = tls_server_new(rig.loop, rig.http, NULL, NULL);
	meet(&rig, "api.example.com", "api.example.com");
	ASSERT_EQ(rig.result, -EKEYREJECTED);
}

TEST(who_is_put_on_the_list_or_taken_from_it_later_is_noticed)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	trust(&rig);
	for (int i = 0; i < 2; i++) {
		meet(&rig, "api.example.com", "api.example.com");
		ASSERT_EQ(rig.result, 0);
		assert(file_replace(AT_FDCWD, rig.certificate, STR(""), 0644, NULL) == 0);
		(void)usleep(1100000);
		meet(&rig, "api.example.com", "api.example.com");
		ASSERT_EQ(rig.result, -EKEYREJECTED);
		trust(&rig);
		(void)usleep(1100000);
	}
}

/* ---- how it ends ---- */

static void tcp_pair(int ret[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof address;
	cleanup_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
	assert(listen(listener, 1) == 0);
	assert(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
	ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert(connect(ret[0], (struct sockaddr *)&address, sizeof address) == 0);
	ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert(fd_set_nonblock(ret[0], true) == 0 && fd_set_nonblock(ret[1], true) == 0);
}

static void on_ready(void *arg, int fd, const struct err *e)
{
	struct rig *rig = arg;

	(void)e;
	assert(fd >= 0);
	rig->fd = fd;
	rig->carriage = tls_connect_carriage(rig->stream);
	rig->carriage->n_refs++;
	loop_stop(rig->loop);
}

/* One request on a connection of our own, to its end; whether that was a cut. */
static bool ends_cut(struct rig *rig, const char *request)
{
	struct carried *c = XNEW(struct carried);
	char bytes[1024];
	bool was_cut;
	int pair[2];

	c->rig = rig;
	c->carriage = (struct http_carriage){ .n_refs = 1, .gone = on_gone };
	tcp_pair(pair);
	rig->stream = tls_server_connect(rig->tls, pair[0], "api.example.com", on_ready, rig);
	tls_server_take_connection(rig->tls, pair[1], &c->carriage, rig->authority,
		"api.example.com");
	(void)http_carriage_unref(&c->carriage);
	(void)loop_run(rig->loop, NULL);
	assert(send(rig->fd, request, strlen(request), 0) == (ssize_t)strlen(request));
	loop_timer_set(&rig->timer, time_now_ms() + 100);
	(void)loop_run(rig->loop, NULL);
	while (recv(rig->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		;
	was_cut = rig->carriage->cut;
	close_fdp(&rig->fd);
	rig->carriage = http_carriage_unref(rig->carriage);
	return was_cut;
}

TEST(what_is_cut_out_there_can_be_told_from_what_ended)
{
	CLEANUP(rig_done) struct rig rig;

	rig_new(&rig);
	trust(&rig);
	ASSERT(!ends_cut(&rig, "GET / HTTP/1.0\r\n\r\n"));
	ASSERT(ends_cut(&rig, "GET /cut HTTP/1.0\r\n\r\n"));
}

TEST(who_speaks_no_tls_is_an_error_and_who_says_nothing_is_not_waited_for)
{
	CLEANUP(rig_done) struct rig rig;
	struct tls_limits limits = { .handshake_timeout_ms = 50 };
	cleanup_close int other = -EBADF;
	int pair[2];

	rig_new(&rig);
	trust(&rig);
	for (int i = 0; i < 2; i++) {
		rig.tls = tls_server_free(rig.tls);
		rig.tls = tls_server_new(rig.loop, rig.http, NULL, &limits);
		assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) ==
			0);
		close_fdp(&other);
		other = pair[1];
		if (i == 0)
			ASSERT_EQ(send(other, "SSH-2.0-x\r\n", 11, 0), 11);
		(void)tls_server_connect(rig.tls, pair[0], "api.example.com", on_connected, &rig);
		loop_timer_set(&rig.timer, time_now_ms() + 5000);
		(void)loop_run(rig.loop, NULL);
		ASSERT_EQ(rig.result, i == 0 ? -EPROTO : -ETIMEDOUT);
	}
}

TEST(a_cancelled_connection_calls_nobody)
{
	CLEANUP(rig_done) struct rig rig;
	cleanup_close int other = -EBADF;
	struct stream *stream;
	int pair[2];

	rig_new(&rig);
	trust(&rig);
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	other = pair[1];
	rig.result = 7;
	stream = tls_server_connect(rig.tls, pair[0], "api.example.com", on_connected, &rig);
	tls_connect_cancel(stream);
	loop_timer_set(&rig.timer, time_now_ms() + 30);
	(void)loop_run(rig.loop, NULL);
	ASSERT_EQ(rig.result, 7);
	ASSERT_EQ(tls_server_connections(rig.tls), 0);
}

TEST(it_stays_the_same_and_its_file_is_nobodys_business)
{
	CLEANUP(rig_done) struct rig rig;
	struct tls_authority *again = NULL;
	struct err e = { 0 };
	struct stat st;

	rig_new(&rig);
	ASSERT_EQ(fstatat(rig.dir_fd, "authority", &st, 0), 0);
	ASSERT_EQ(st.st_mode & 0777, 0600);
	ASSERT_EQ(tls_authority_open(rig.dir_fd, "authority", &again, NULL), 0);
	ASSERT(str_eq(tls_authority_certificate(again), tls_authority_certificate(rig.authority)));
	again = tls_authority_free(again);
	ASSERT(!memmem(tls_authority_certificate(rig.authority).p,
		tls_authority_certificate(rig.authority).n, "PRIVATE", 7));
	ASSERT_EQ(file_replace(rig.dir_fd, "authority", STR("nonsense"), 0600, NULL), 0);
	ASSERT_EQ(tls_authority_open(rig.dir_fd, "authority", &again, &e), -EINVAL);
	ASSERT(strstr(e.msg, "damaged"));
	ASSERT(unlinkat(rig.dir_fd, "authority", 0) == 0 &&
		mkfifoat(rig.dir_fd, "authority", 0600) == 0);
	ASSERT_EQ(tls_authority_open(rig.dir_fd, "authority", &again, &e), -EPERM);
}
