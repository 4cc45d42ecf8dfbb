#include "base/filter.h"

#include "filter-rig.h"
#include "test.h"

#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int errno_of(const struct filter_rule *rules, size_t n, int64_t number, int64_t a, int64_t b)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	size_t size = filter_build(rules, n, filter);

	return errno_under(filter, size, number, a, b);
}

TEST(calls_without_a_rule_are_allowed_as_far_as_they_are_known)
{
	ASSERT_EQ(errno_of(NULL, 0, SYS_getpid, 0, 0), 0);
	ASSERT_EQ(errno_of(NULL, 0, FILTER_LAST_KNOWN + 1, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(NULL, 0, 0x40000000 + SYS_getpid, 0, 0), ENOSYS); /* x32 */
}

TEST(a_rule_is_for_its_own_number_only)
{
	static const struct filter_rule rules[] = { { SYS_getppid, FILTER_REFUSE },
		{ SYS_getpid, FILTER_UNKNOWN }, { 0, FILTER_ALLOW },
		{ FILTER_LAST_KNOWN, FILTER_REFUSE } };

	ASSERT_EQ(errno_of(rules, 4, SYS_getppid, 0, 0), EPERM);
	ASSERT_EQ(errno_of(rules, 4, SYS_getpid, 0, 0), ENOSYS);
	ASSERT_EQ(errno_of(rules, 4, SYS_getppid - 1, 0, 0), 0);
	ASSERT_EQ(errno_of(rules, 4, FILTER_LAST_KNOWN, 0, 0), EPERM);
	ASSERT_EQ(errno_of(rules, 4, FILTER_LAST_KNOWN + 1, 0, 0), ENOSYS);
}

TEST(of_two_rules_for_a_number_the_last_counts)
{
	static const struct filter_rule rules[] = { { SYS_getpid, FILTER_REFUSE },
		{ SYS_getpid, FILTER_ALLOW } };

	ASSERT_EQ(errno_of(rules, 2, SYS_getpid, 0, 0), 0);
}

TEST(arguments_decide_where_they_must)
{
	static const struct filter_rule rules[] = { { SYS_ioctl, FILTER_IOCTL },
		{ SYS_socket, FILTER_SOCKET }, { SYS_unshare, FILTER_UNSHARE },
		{ SYS_clone, FILTER_THREAD } };

	ASSERT_EQ(errno_of(rules, 4, SYS_ioctl, -1, TIOCSTI), EPERM);
	ASSERT_EQ(errno_of(rules, 4, SYS_ioctl, -1, TIOCLINUX), EPERM);
	/* The kernel looks at 32 bits of it. */
	ASSERT_EQ(errno_of(rules, 4, SYS_ioctl, -1, INT64_C(0x100000000) | TIOCSTI), EPERM);
	ASSERT_EQ(errno_of(rules, 4, SYS_ioctl, -1, TIOCGWINSZ), EBADF);
	ASSERT_EQ(errno_of(rules, 4, SYS_socket, AF_UNIX, SOCK_STREAM), 0);
	ASSERT_EQ(errno_of(rules, 4, SYS_socket, AF_ALG, SOCK_SEQPACKET), EAFNOSUPPORT);
	ASSERT_EQ(errno_of(rules, 4, SYS_unshare, CLONE_NEWUSER, 0), EPERM);
	ASSERT_EQ(errno_of(rules, 4, SYS_unshare, CLONE_FILES, 0), 0);
	ASSERT_EQ(errno_of(rules, 4, SYS_clone, SIGCHLD, 0), EPERM);
	/* Let through; what the kernel misses are the flags that go with it. */
	ASSERT_EQ(errno_of(rules, 4, SYS_clone, CLONE_THREAD, 0), EINVAL);
}

TEST(every_number_can_have_a_rule_of_its_own)
{
	struct sock_filter filter[FILTER_MAX_INSNS];
	struct filter_rule rules[FILTER_MAX_STARTS / 2 - 1];

	/* The most that there is room for: each is a start, and so is what comes after it. */
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		rules[i] = (struct filter_rule){ (uint32_t)(i * 2 + 1), FILTER_REFUSE };
	ASSERT(filter_build(rules, ARRAY_SIZE(rules), filter) <= FILTER_MAX_INSNS);
}
