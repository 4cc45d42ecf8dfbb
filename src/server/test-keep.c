/* What is handed from one build to the next, and from a supervisor. */
#include "server/handover.h"
#include "server/keep.h"

#include "test.h"

#include <sys/socket.h>

static struct handover some(void)
{
	return (struct handover){ 7, { .pid = getpid(),
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
	ASSERT_EQ(got.listen_fd, 7);
	ASSERT_EQ(got.note.asked, 2);
	ASSERT_EQ(got.note.had, 3);
	ASSERT(!handover_take(&got));
	put.listen_fd = -EBADF;
	ASSERT_EQ(handover_put(&put, NULL), 0);
	ASSERT(handover_take(&got));
	ASSERT_EQ(got.listen_fd, -EBADF);
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

static void pass_sockets(int fd, const char *count)
{
	char pid[16];

	(void)dup2(fd, 3);
	(void)snprintf(pid, sizeof pid, "%d", (int)getpid());
	(void)setenv("LISTEN_PID", pid, 1);
	(void)setenv("LISTEN_FDS", count, 1);
}

TEST(a_supervisors_socket_is_taken_and_nothing_else)
{
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), got = -EBADF;
	int listens = 0;
	socklen_t size = sizeof listens;

	ASSERT_EQ(keep_inherited(NULL), -EBADF);
	pass_sockets(fd, "1");
	ASSERT_EQ(keep_inherited(NULL), -EINVAL); /* it does not listen */
	ASSERT_EQ(listen(fd, 1), 0);
	pass_sockets(fd, "2");
	ASSERT_EQ(keep_inherited(NULL), -EINVAL);
	pass_sockets(fd, "1");
	(void)setenv("LISTEN_PID", "1", 1);
	ASSERT_EQ(keep_inherited(NULL), -EBADF); /* another's */
	pass_sockets(fd, "1");
	got = keep_inherited(NULL);
	ASSERT(got > 3);
	ASSERT(fcntl(got, F_GETFD) & FD_CLOEXEC);
	ASSERT_EQ(getsockopt(got, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size), 0);
	ASSERT_EQ(listens, 1);
	ASSERT(!getenv("LISTEN_FDS"));
	ASSERT_EQ(keep_inherited(NULL), -EBADF);
}
