/* Policies as the kernel gets them: what ranges come to, and that a table changed step by step is
 * the same as one that was built at once. */
#include "warden/firewall.h"
#include "warden/nflog.h"
#include "warden/reach.h"

#include "test.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct warden_range range(uint32_t address, uint8_t bits, bool allow)
{
	return (struct warden_range){ .address = address, .bits = bits, .allow = allow };
}

static struct reach *reach_from(const struct warden_range *v, uint32_t n, uint32_t flags)
{
	cleanup_free struct ranges *ranges = XNEW(struct ranges);
	struct reach *reach = XNEW(struct reach);

	ranges->flags = flags;
	ranges->n = n;
	memcpy(ranges->v, v, n * sizeof *v);
	reach_of(ranges, reach);
	return reach;
}

TEST(allowing_cuts_holes_into_what_is_denied)
{
	const struct warden_range v[] = { range(0, 0, false), range(0x08080800, 24, true),
		range(0x08080808, 32, false) };
	cleanup_free struct reach *reach = reach_from(v, ARRAY_SIZE(v), 0);

	ASSERT_EQ(reach->n, 3);
	ASSERT_EQ(reach->segments[0].last, 0x080807ff);
	ASSERT(reach->segments[1].allow);
	ASSERT_EQ(reach->segments[1].first, 0x08080800);
	ASSERT_EQ(reach->segments[1].last, 0x080808ff);
	ASSERT_EQ(reach->segments[2].last, UINT32_MAX);
	ASSERT(!reach_is_open(reach) && !reach_is_closed(reach));
}

TEST(neighbouring_ranges_become_one)
{
	const struct warden_range v[] = { range(0x80000000, 1, false), range(0, 1, false),
		range(0x0a000000, 8, false) };
	cleanup_free struct reach *reach = reach_from(v, ARRAY_SIZE(v), 0);

	ASSERT_EQ(reach->n, 1);
	ASSERT(reach_is_closed(reach));
}

TEST(allowing_alone_denies_nothing)
{
	const struct warden_range v[] = { range(0x08080800, 24, true) };
	cleanup_free struct reach *one = reach_from(v, 1, WARDEN_PROXIED);
	cleanup_free struct reach *none = reach_from(v, 0, 0);

	ASSERT(reach_is_open(one) && one->is_proxied);
	ASSERT(reach_is_open(none) && !none->is_proxied);
}

static int memory_file(const void *p, size_t n, bool sealed)
{
	int fd = memfd_create("ranges", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (write(fd, p, n) != (ssize_t)n ||
		(sealed && fcntl(fd, F_ADD_SEALS,
				   F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0))
		abort();
	return fd;
}

TEST(ranges_come_from_a_sealed_file_of_their_size)
{
	static const struct {
		struct warden_range v[2];
		int want;
	} cases[] = {
		{ { { .address = 0x0a000000, .bits = 8 }, { .bits = 0 } }, 0 },
		{ { { .address = 0xffffffff, .bits = 32 }, { .address = 1, .bits = 32 } }, 0 },
		{ { { .address = 0x0a000001, .bits = 8 } }, -EINVAL },
		{ { { .address = 1, .bits = 0 } }, -EINVAL },
		{ { { .bits = 33 } }, -EINVAL },
		{ { { .allow = 2 } }, -EINVAL },
		{ { { .zero = 1 } }, -EINVAL },
	};
	cleanup_free struct ranges *got = XNEW(struct ranges);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_close int fd = memory_file(cases[i].v, sizeof cases[i].v, true);
		cleanup_close int loose = memory_file(cases[i].v, sizeof cases[i].v, false);

		ASSERT_EQ(ranges_receive(fd, 0, 2, got, NULL), cases[i].want);
		ASSERT_EQ(ranges_receive(fd, 0, 1, got, NULL), -EINVAL);
		ASSERT_EQ(ranges_receive(loose, 0, 2, got, NULL), -EINVAL);
	}
	ASSERT_EQ(ranges_receive(-EBADF, WARDEN_PROXIED, 0, got, NULL), 0);
}

TEST(a_kept_policy_comes_back_and_nothing_kept_is_an_open_one)
{
	char dir[] = "/tmp/atoll-policy-XXXXXX";
	cleanup_free struct ranges *in = XNEW(struct ranges), *out = XNEW(struct ranges);
	cleanup_close int fd = -EBADF;

	if (geteuid() != 0)
		TEST_SKIP("only root's files count");
	ASSERT(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	in->n = 2;
	in->flags = WARDEN_PROXIED;
	in->v[0] = range(0, 0, false);
	in->v[1] = range(0x08080808, 32, true);
	ASSERT_EQ(ranges_write(fd, in, NULL), 0);
	ASSERT_EQ(ranges_read(fd, out, NULL), 0);
	ASSERT(ranges_equal(in, out));
	in->n = in->flags = 0;
	ASSERT_EQ(ranges_write(fd, in, NULL), 0);
	ASSERT_EQ(ranges_write(fd, in, NULL), 0);
	ASSERT_EQ(ranges_read(fd, out, NULL), 0);
	ASSERT(ranges_equal(in, out));
	ASSERT_EQ(faccessat(fd, "policy", F_OK, 0), -1);
	(void)dir_remove_tree(AT_FDCWD, dir, NULL);
}

TEST(a_told_packet_is_read_with_its_port_if_it_has_one)
{
	/* Attributes: the interface's index, and the packet. */
	static const uint8_t tcp[] = { 8, 0, 4, 0, 0, 0, 0, 7, 28, 0, 9, 0, 0x45, 0, 0, 40, 0, 0, 0,
		0, 64, 6, 0, 0, 10, 199, 0, 3, 203, 0, 113, 5, 0x9c, 0x40, 1, 0xbb };
	struct logged_packet got = { 0 };
	uint8_t other[sizeof tcp];

	ASSERT(nflog_parse(str_make(tcp, sizeof tcp), &got));
	ASSERT_EQ(got.index, 7);
	ASSERT_EQ(got.protocol, 6);
	ASSERT_EQ(got.address, 0xcb007105);
	ASSERT_EQ(got.port, 443);
	memcpy(other, tcp, sizeof tcp);
	other[21] = 1; /* ICMP */
	ASSERT(nflog_parse(str_make(other, sizeof other), &got));
	ASSERT_EQ(got.port, 0);
	other[12] = 0x65; /* not IPv4 */
	ASSERT(!nflog_parse(str_make(other, sizeof other), &got));
	ASSERT(!nflog_parse(str_make(tcp, 8), &got));
}

/* ---- in the kernel ---- */

/* The table as nft shows it, without what it counted. */
static int show(const struct firewall *fw, struct buf *out)
{
	cleanup_close int file = memfd_create("shown", MFD_CLOEXEC);
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		(void)dup2(file, 1);
		(void)dup2(file, 2);
		(void)execl("/usr/sbin/nft", "nft", "-n", "-s", "list", "table", "inet", fw->table,
			NULL);
		_exit(127);
	}
	buf_done(out);
	if (waitpid(child, &status, 0) != child || status != 0)
		return -EIO;
	(void)lseek(file, 0, SEEK_SET);
	return fd_read_all(file, out);
}

/* All at once, with one interface and what it may reach; NULL: without. */
static int build(struct firewall *fw, const struct reach *reach)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(1 << 20);

	firewall_text_begin(fw, &text);
	if (reach)
		firewall_text_add(fw, 7, 1, reach, &text);
	return firewall_build(fw, &text, NULL);
}

static struct reach *reach_of_case(int i)
{
	struct warden_range many[WARDEN_MAX_RANGES];
	const struct warden_range all[] = { range(0, 0, false) },
				  some[] = { range(0, 0, false), range(0x08080800, 24, true) };

	for (uint32_t n = 0; n < WARDEN_MAX_RANGES; n++)
		many[n] = range(0x14000000 + (n << 16), 24, n % 2);
	switch (i) {
	case 0:
		return reach_from(all, 0, 0);
	case 1:
		return reach_from(all, 1, 0);
	case 2:
		return reach_from(some, 2, WARDEN_PROXIED);
	case 3:
		return reach_from(many, WARDEN_MAX_RANGES, 0);
	default:
		return reach_from(all, 0, WARDEN_PROXIED);
	}
}

/* Every policy after every other. */
static int change_all_to_all(struct firewall *fw, struct buf *now, struct buf *wanted)
{
	for (int i = 0; i < 25; i++) {
		cleanup_free struct reach *from = reach_of_case(i / 5), *to = reach_of_case(i % 5);
		int r = build(fw, to);

		if (r >= 0)
			r = show(fw, wanted);
		if (r >= 0)
			r = build(fw, NULL);
		if (r >= 0)
			r = firewall_enter(fw, 7, 1, NULL);
		if (r >= 0)
			r = firewall_set(fw, 7, from, NULL);
		if (r >= 0)
			r = firewall_set(fw, 7, to, NULL);
		if (r >= 0)
			r = show(fw, now);
		if (r < 0 || strcmp(now->p, wanted->p) != 0)
			return r < 0 ? r : -(1000 + i);
	}
	return 0;
}

static bool has_nft(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNET) == 0 && access("/usr/sbin/nft", X_OK) == 0;
}

TEST(a_table_changed_in_steps_is_one_built_at_once)
{
	CLEANUP(buf_done) struct buf now = BUF_INIT(1 << 20), wanted = BUF_INIT(1 << 20);
	cleanup_free struct firewall *fw = XNEW(struct firewall);
	struct err e = { 0 };

	if (!has_nft())
		TEST_SKIP("needs root and nft");
	*fw = (struct firewall)FIREWALL_INIT;
	ASSERT_EQ(firewall_open(fw, "0123abcd", &e), 0);
	ASSERT_EQ(change_all_to_all(fw, &now, &wanted), 0);
	ASSERT_EQ(build(fw, NULL), 0);
	ASSERT_EQ(show(fw, &wanted), 0);
	ASSERT_EQ(firewall_enter(fw, 7, 1, NULL), 0);
	firewall_leave(fw, 7);
	ASSERT_EQ(show(fw, &now), 0);
	ASSERT_STR(now.p, wanted.p);
	firewall_remove(fw);
	ASSERT(show(fw, &now) < 0);
	ASSERT(!firewall_stands(fw));
	firewall_close(fw);
}

TEST(a_refused_change_changes_nothing)
{
	cleanup_free struct firewall *fw = XNEW(struct firewall);
	cleanup_free struct reach *closed = reach_of_case(1);
	struct err e = { 0 };

	if (!has_nft())
		TEST_SKIP("needs root and nft");
	*fw = (struct firewall)FIREWALL_INIT;
	ASSERT_EQ(firewall_open(fw, "0123abcd", &e), 0);
	ASSERT_EQ(firewall_enter(fw, 7, 1, &e), -ENOENT); /* there is no table yet */
	ASSERT_EQ(firewall_number_of(fw, 1), 0);
	ASSERT_EQ(build(fw, NULL), 0);
	ASSERT_EQ(firewall_set(fw, 7, closed, &e), -ENOENT);
	ASSERT_EQ(firewall_enter(fw, 7, 1, &e), 0);
	ASSERT_EQ(firewall_number_of(fw, 1), 7);
	ASSERT_EQ(firewall_enter(fw, 7, 1, &e), 0); /* again, whatever was there */
	firewall_close(fw);
}

TEST(where_connections_cannot_be_counted_the_rest_of_the_table_is_the_same)
{
	CLEANUP(buf_done) struct buf with = BUF_INIT(1 << 20), without = BUF_INIT(1 << 20);
	cleanup_free struct firewall *fw = XNEW(struct firewall);
	struct str rest, line, other;

	if (!has_nft())
		TEST_SKIP("needs root and nft");
	*fw = (struct firewall)FIREWALL_INIT;
	ASSERT_EQ(firewall_can_count(NULL), 0);
	ASSERT_EQ(firewall_open(fw, "0123abcd", NULL), 0);
	ASSERT_EQ(build(fw, NULL), 0);
	ASSERT_EQ(show(fw, &with), 0);
	fw->counts_nothing = true;
	ASSERT_EQ(build(fw, NULL), 0);
	ASSERT_EQ(show(fw, &without), 0);
	ASSERT(strstr(with.p, "ct count over") && !strstr(without.p, "ct count"));
	rest = buf_str(&without);
	for (struct str all = buf_str(&with); str_split(&all, '\n', &line);) {
		if (memmem(line.p, line.n, "ct count", 8))
			continue;
		ASSERT(str_split(&rest, '\n', &other));
		ASSERT(str_eq(line, other));
	}
	firewall_close(fw);
}
