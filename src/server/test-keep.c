/* What is handed from one build to the next, and from a supervisor. */
#include "server/handover.h"
#include "server/keep.h"

#include "test.h"

#include <netinet/in.h>
#include <sys/socket.h>

static struct handover some(void)
{
	return (struct handover){ { 7, 9 }, { .pid = getpid(),
						    .start_time = 5,
						    .state = NOTE_STARTING,
						    .asked = 2,
						    .now = { "0.1.0", "aa" },
						    .before = { "0.1.0", "aa" },
						    .stopped_ms = 11,
						    .had = 3,
						    .has = -1 } };
}

TEST(what_is_handed_over_arrives_once)
{
	struct handover put = some(), got;

	ASSERT_EQ(handover_put(&put, NULL), 0);
	ASSERT(handover_take(&got));
	ASSERT_EQ(got.listening.fd, 7);
	ASSERT_EQ(got.listening.beside_fd, 9);
	ASSERT_EQ(got.note.asked, 2);
	ASSERT_EQ(got.note.had, 3);
	ASSERT(!handover_take(&got));
	put.listening = (struct listening)LISTENING_NONE;
	ASSERT_EQ(handover_put(&put, NULL), 0);
	ASSERT(handover_take(&got));
	ASSERT(got.listening.fd == -EBADF && got.listening.beside_fd == -EBADF);
}

TEST(an_older_build_hands_over_one_socket)
{
	struct handover put = some(), got;

	ASSERT_EQ(handover_put(&put, NULL), 0);
	(void)unsetenv("ATOLL_KEPT_BESIDE");
	ASSERT(handover_take(&got));
	ASSERT(got.listening.fd == 7 && got.listening.beside_fd == -EBADF);
}

TEST(what_was_meant_for_another_process_counts_for_nothing)
{
	struct handover put = some(), got;
	char *text, other[2048];

	ASSERT_EQ(handover_put(&put, NULL), 0);
	text = getenv("ATOLL_KEPT");
	(void)snprintf(other, sizeof other, "%d%s", (int)getpid() + 1, strchr(text, ' '));
	(void)setenv("ATOLL_KEPT", other, 1);
	ASSERT(!handover_take(&got));
	ASSERT(!getenv("ATOLL_KEPT"));
	(void)setenv("ATOLL_KEPT", "nonsense", 1);
	ASSERT(!handover_take(&got));
}

static int listen_at(int family)
{
	struct sockaddr_in in4 = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, family == AF_INET ? (void *)&in4 : (void *)&in6,
		    family == AF_INET ? sizeof in4 : sizeof in6) == 0 &&
		listen(fd, 1) == 0)
		return fd;
	(void)close(fd);
	return -EBADF;
}

static int family_of(int fd)
{
	int family = 0;
	socklen_t size = sizeof family;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) < 0 ? -errno : family;
}

static void pass_sockets(int fd, int second, const char *count)
{
	char pid[16];

	(void)dup2(fd, 3);
	(void)dup2(second, 4);
	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", count, 1);
}

/* Out of the way of those that are passed. */
static int high(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 20);

	(void)close(fd);
	return moved;
}

TEST(a_supervisors_sockets_are_taken_and_nothing_else)
{
	cleanup_close int plain = high(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	cleanup_close int one = high(listen_at(AF_INET)), two = high(listen_at(AF_INET6));
	struct listening got = LISTENING_NONE;

	ASSERT(listening_inherit(&got, NULL) == 0 && got.fd == -EBADF);
	pass_sockets(plain, plain, "1");
	ASSERT_EQ(listening_inherit(&got, NULL), -EINVAL); /* it does not listen */
	pass_sockets(one, one, "3");
	ASSERT_EQ(listening_inherit(&got, NULL), -EINVAL);
	pass_sockets(one, plain, "2");
	ASSERT_EQ(listening_inherit(&got, NULL), -EINVAL);
	pass_sockets(one, one, "1");
	(void)setenv("LISTEN_PID", "1", 1);
	ASSERT(listening_inherit(&got, NULL) == 0 && got.fd == -EBADF); /* another's */
	pass_sockets(one, one, "1");
	ASSERT_EQ(listening_inherit(&got, NULL), 0);
	ASSERT(got.fd > 4 && got.beside_fd == -EBADF);
	ASSERT(fcntl(got.fd, F_GETFD) & FD_CLOEXEC);
	ASSERT(!getenv("LISTEN_FDS"));
	listening_close(&got);
	if (two < 0)
		return; /* no IPv6 here */
	pass_sockets(two, one, "2");
	ASSERT_EQ(listening_inherit(&got, NULL), 0);
	ASSERT(family_of(got.fd) == AF_INET && family_of(got.beside_fd) == AF_INET6);
	listening_close(&got);
	ASSERT(listening_inherit(&got, NULL) == 0 && got.fd == -EBADF);
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in6 in6 = { 0 };
	socklen_t size = sizeof in6;

	return getsockname(fd, (struct sockaddr *)&in6, &size) < 0 ? 0 : ntohs(in6.sin6_port);
}

TEST(on_loopback_both_addresses_have_the_port)
{
	cleanup_close int six = listen_at(AF_INET6);
	struct listening l = LISTENING_NONE, other = LISTENING_NONE;

	ASSERT_EQ(listening_open(&l, "127.0.0.1:0", NULL), 0);
	ASSERT_EQ(l.beside_fd >= 0, six >= 0);
	if (six >= 0)
		ASSERT_EQ(port_of(l.beside_fd), port_of(l.fd));
	/* Nothing is opened twice. */
	other = l;
	ASSERT_EQ(listening_open(&l, "127.0.0.1:0", NULL), 0);
	ASSERT(l.fd == other.fd && l.beside_fd == other.beside_fd);
	listening_close(&l);
	ASSERT_EQ(listening_open(&l, ":0", NULL), 0);
	ASSERT_EQ(l.beside_fd, -EBADF);
	listening_close(&l);
	ASSERT(listening_open(&l, "nonsense", NULL) < 0 && l.fd == -EBADF);
}

TEST(what_another_program_has_on_the_second_address_is_no_failure)
{
	cleanup_close int six = listen_at(AF_INET6);
	struct listening l = LISTENING_NONE;
	char address[32];

	if (six < 0)
		return;
	(void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port_of(six));
	if (listening_open(&l, address, NULL) < 0)
		return; /* somebody else has that port, too */
	ASSERT_EQ(l.beside_fd, -EBADF);
	listening_close(&l);
}
