/* Who gets a socket, or a filter of its own, and who has too many. */
#include "guest/grant.h"
#include "guest/seccomp.h"

#include "test.h"

#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct seccomp_data call_of(int family, int type, int protocol)
{
	return (struct seccomp_data){ .nr = SYS_socket,
		.args = { (uint64_t)family, (uint64_t)type, (uint64_t)protocol } };
}

TEST(sockets_are_given_up_to_a_number_of_all)
{
	struct seccomp_data netlink = call_of(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	struct seccomp_data ping = call_of(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	struct seccomp_data udp = call_of(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);
	struct grants g = GRANTS_INIT;

	ASSERT_EQ(grant_socket(&g, 1, &netlink, &(struct grant_count){ 3, 0 }, 1000), 0);
	ASSERT_EQ(grant_socket(&g, 1, &netlink, &(struct grant_count){ GRANT_MAX_RARE - 1, 0 },
			  1000),
		0);
	ASSERT_EQ(grant_socket(&g, 1, &netlink, &(struct grant_count){ GRANT_MAX_RARE, 0 }, 1000),
		-ENOBUFS);
	ASSERT_EQ(grant_socket(&g, 1, &ping, &(struct grant_count){ GRANT_MAX_RARE, 0 }, 1000),
		-ENOBUFS);
	ASSERT_EQ(grant_socket(&g, 1, &udp, &(struct grant_count){ GRANT_MAX_RARE, 0 }, 1000), 0);
	ASSERT_EQ(grant_socket(&g, 1, &udp, &(struct grant_count){ GRANT_MAX_DATAGRAM, 0 }, 1000),
		-ENOBUFS);
}

TEST(a_network_inside_gets_fewer)
{
	struct seccomp_data udp = call_of(AF_INET, SOCK_DGRAM, 0),
			    raw = call_of(AF_INET, SOCK_RAW, 1);
	struct grant_count few = { GRANT_MAX_INSIDE - 1, 7 }, many = { GRANT_MAX_INSIDE, 7 };
	struct grants g = GRANTS_INIT;

	ASSERT_EQ(grant_socket(&g, 1, &udp, &few, 1000), 0);
	ASSERT_EQ(grant_socket(&g, 1, &udp, &many, 1000), -ENOBUFS);
	ASSERT_EQ(grant_socket(&g, 1, &raw, &many, 1000), -ENOBUFS);
	ASSERT(grant_errors(&few));
	ASSERT(!grant_errors(&many));
}

/* As programs come and go that each have one. */
TEST(networks_inside_are_counted_apart)
{
	static struct grant_moment inside[NEST_MAX_NETWORKS];
	struct seccomp_data call = call_of(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	struct grants g = GRANTS_INIT;
	int granted = 0;

	g.inside = inside;
	for (uint32_t i = 1; i < 10 * NEST_MAX_NETWORKS; i++)
		ASSERT_EQ(grant_socket(&g, i, &call, &(struct grant_count){ 0, i }, 500 + i), 0);
	for (uint32_t thread = 2; thread < 2 + GRANT_THREADS; thread++)
		granted +=
			grant_socket(&g, thread, &call, &(struct grant_count){ 0, 7 }, 5000) == 0;
	ASSERT_EQ(granted, GRANT_MAX_INSIDE);
	ASSERT_EQ(grant_socket(&g, 9, &call, &(struct grant_count){ 0, 8 }, 5000), 0);
	ASSERT_EQ(grant_socket(&g, 9, &call, &(struct grant_count){ 0, 0 }, 5000), 0);
}

TEST(errors_are_heard_of_by_a_number_of_all)
{
	ASSERT(grant_errors(&(struct grant_count){ GRANT_MAX_RARE - 1, 0 }));
	ASSERT(!grant_errors(&(struct grant_count){ GRANT_MAX_RARE, 0 }));
}

/* The kernel's count is behind: every thread that was told yes may be about to make one. */
TEST(threads_that_ask_at_once_do_not_get_past_it)
{
	struct seccomp_data call = call_of(AF_PACKET, SOCK_RAW, 0);
	struct grants g = GRANTS_INIT;
	int granted = 0;

	for (uint32_t thread = 2; thread < 2 + GRANT_THREADS; thread++)
		granted += grant_socket(&g, thread, &call, &(struct grant_count){ 0, 0 }, 500) == 0;
	ASSERT_EQ(granted, GRANT_MAX_RARE);
	/* One that asks again has made its last one, and that is counted. */
	g = (struct grants)GRANTS_INIT;
	for (int i = 0; i < 10 * GRANT_MAX_RARE; i++)
		ASSERT_EQ(grant_socket(&g, 7, &call, &(struct grant_count){ 0, 0 }, 500), 0);
	/* A moment later all of them have. */
	for (uint32_t thread = 2; thread < 2 + GRANT_THREADS; thread++)
		(void)grant_socket(&g, thread, &call, &(struct grant_count){ 0, 0 }, 500);
	ASSERT_EQ(grant_socket(&g, 7, &call, &(struct grant_count){ 100, 0 }, 500), -ENOBUFS);
	ASSERT_EQ(grant_socket(&g, 7, &call, &(struct grant_count){ 100, 0 }, 5000), 0);
}

/* ---- a process under the real filter, answered by this one ---- */

static int send_fd_number(int pipe_fd, int fd)
{
	return fd_write_all(pipe_fd, &fd, sizeof fd);
}

/* Makes small filters until it is refused; exits with how many hundreds it got. */
static void make_filters(void)
{
	struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { .len = 1, .filter = allow };
	int n = 0;

	while (n < 2 * GRANT_MAX_FILTERS &&
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
		n++;
	_exit(errno == ENOMEM ? n / 100 : 255);
}

static void confined_main(int pipe_fd)
{
	struct err e = { 0 };
	int asked_fd = -1, check;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		seccomp_load(&(struct seccomp_kind){ 0 }, &asked_fd, &e) < 0)
		_exit(255);
	(void)send_fd_number(pipe_fd, asked_fd);
	check = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (check < 0)
		_exit(254);
	make_filters();
}

struct watched {
	struct loop *loop;
	pid_t pid;
	int status;
};

static void on_child(void *arg, int signo)
{
	struct watched *w = arg;

	(void)signo;
	if (waitpid(w->pid, &w->status, WNOHANG) == w->pid)
		loop_stop(w->loop);
}

/* The parent needs the child's descriptor: by pidfd_getfd, which tests may use. */
static int take_asked_fd(pid_t pid, int pipe_fd)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int number;

	if (read(pipe_fd, &number, sizeof number) != sizeof number)
		return -ECHILD;
	return (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
}

TEST(own_filters_are_counted)
{
	CLEANUP(loop_freep) struct loop *loop = NULL;
	struct grants g = GRANTS_INIT;
	struct watched w = { 0 };
	int pipe_fds[2];
	struct err e = { 0 };

	ASSERT_EQ(loop_new(&loop, &e), 0);
	w.loop = loop;
	ASSERT_EQ(loop_signal(loop, SIGCHLD, on_child, &w, &e), 0);
	ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
	w.pid = fork();
	if (w.pid == 0)
		confined_main(pipe_fds[1]);
	ASSERT_EQ(grants_take(&g, loop, take_asked_fd(w.pid, pipe_fds[0]), -EBADF, &e), 0);
	ASSERT_EQ(loop_run(loop, &e), 0);
	ASSERT_EQ(WEXITSTATUS(w.status), GRANT_MAX_FILTERS / 100);
	grants_done(&g);
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
}
