/* Policies as the kernel gets them: what ranges come to, that after any change just the keys of the
 * last policy are there, and that a next warden takes over what is right and nothing else. */
#include "warden/firewall.h"
#include "warden/nflog.h"
#include "warden/nft.h"
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

static bool has(const struct reach *reach, uint32_t flags, uint32_t address)
{
	for (uint32_t i = 0; i < reach->n; i++)
		if (reach->keys[i].flags == flags && reach->keys[i].address == address)
			return true;
	return false;
}

TEST(ranges_of_all_lengths_have_different_keys)
{
	const struct warden_range v[] = { range(0x08000000, 8, false), range(0x08000000, 9, false),
		range(0x08000000, 31, false), range(0x08000000, 32, false),
		range(0x08000000, 8, true), range(0x08000000, 8, true) };
	cleanup_free struct reach *reach = reach_from(v, ARRAY_SIZE(v), 0);

	ASSERT_EQ(reach->kind, REACH_ANY);
	ASSERT_EQ(reach->n, 6); /* one was given twice, and that they are whole is one more */
	ASSERT(has(reach, 0, 0x08800000));
	ASSERT(has(reach, 0, 0x08400000));
	ASSERT(has(reach, 0, 0x08000001));
	ASSERT(has(reach, REACH_HOST, 0x08000000));
	ASSERT(has(reach, REACH_ALLOW, 0x08800000));
	ASSERT_EQ(reach->keys[0].flags, REACH_WHOLE); /* it is removed first */
}

TEST(where_all_is_denied_only_what_is_allowed_is_kept)
{
	const struct warden_range v[] = { range(0, 0, false), range(0x08080800, 24, true),
		range(0x08080808, 32, false) };
	cleanup_free struct reach *reach = reach_from(v, ARRAY_SIZE(v), 0);

	ASSERT_EQ(reach->kind, REACH_FEW);
	ASSERT_EQ(reach->n, 1);
	ASSERT(has(reach, REACH_ALLOW, 0x08080880));
}

TEST(what_holds_for_all_needs_no_keys)
{
	static const struct {
		struct warden_range v[2];
		uint32_t n, want;
	} cases[] = {
		{ { { 0 } }, 0, REACH_PASS },
		{ { { .bits = 0, .allow = 0 } }, 1, REACH_REFUSE },
		{ { { .bits = 0, .allow = 1 }, { .address = 0x0a000000, .bits = 8 } }, 2,
			REACH_PASS },
		{ { { .address = 0x08080800, .bits = 24, .allow = 1 } }, 1, REACH_PASS },
		{ { { .bits = 0 }, { .address = 0x0a000000, .bits = 8 } }, 2, REACH_REFUSE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_free struct reach *reach =
			reach_from(cases[i].v, cases[i].n, i % 2 ? WARDEN_PROXIED : 0);

		ASSERT_EQ(reach->kind, cases[i].want);
		ASSERT_EQ(reach->n, 0);
		ASSERT_EQ(reach->is_proxied, i % 2);
	}
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

static struct reach *reach_of_case(int i)
{
	struct warden_range many[WARDEN_MAX_RANGES];
	const struct warden_range all[] = { range(0, 0, false) },
				  some[] = { range(0, 0, false), range(0x08080800, 24, true) };

	for (uint32_t n = 0; n < WARDEN_MAX_RANGES; n++)
		many[n] = range(0x14000000 + (n << 16), 16 + n % 16, n % 2);
	switch (i) {
	case 0:
		return reach_from(all, 0, 0);
	case 1:
		return reach_from(all, 1, 0);
	case 2:
		return reach_from(some, 2, WARDEN_PROXIED);
	case 3:
		return reach_from(many, WARDEN_MAX_RANGES, 0);
	case 4:
		return reach_from(many, WARDEN_MAX_RANGES - 1, WARDEN_PROXIED);
	default:
		return reach_from(all, 0, WARDEN_PROXIED);
	}
}

/* Interfaces 1 to 5 have the numbers 7 to 11. */
struct rig {
	struct firewall *fw;
};

static void rig_done(struct rig *rig)
{
	if (rig->fw) {
		firewall_remove(rig->fw);
		firewall_close(rig->fw);
	}
	free(rig->fw);
}

static bool has_nft(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNET) == 0 && access("/usr/sbin/nft", X_OK) == 0;
}

static void expect(struct firewall *fw, int n)
{
	firewall_begin(fw);
	for (int i = 0; i < n; i++)
		firewall_expect(fw, 7 + i, (uint32_t)i + 1);
}

static int rig_open(struct rig *rig)
{
	struct err e = { 0 };
	int r;

	rig->fw = XNEW(struct firewall);
	*rig->fw = (struct firewall)FIREWALL_INIT;
	r = firewall_open(rig->fw, "0123abcd", &e);
	expect(rig->fw, 5);
	if (r >= 0)
		r = firewall_make(rig->fw, &e);
	if (r < 0)
		printf("# %s\n", e.msg);
	return r;
}

#define RIG(rig)                                         \
	CLEANUP(rig_done) struct rig rig = { 0 };        \
	do {                                             \
		if (!has_nft())                          \
			TEST_SKIP("needs root and nft"); \
		ASSERT_EQ(rig_open(&(rig)), 0);          \
	} while (0)

static int set(struct firewall *fw, int number, const struct reach *reach)
{
	int r = firewall_set(fw, number, reach, NULL);

	while (r >= 0 && (r = firewall_turn(fw, NULL)) > 0)
		;
	return r;
}

static void count_key(void *arg, uint32_t id, uint32_t address)
{
	int *n = arg;

	(void)id;
	(void)address;
	(*n)++;
}

static int keys_in(const struct firewall *fw, int number)
{
	char name[16];
	int n = 0;

	(void)snprintf(name, sizeof name, "ranges%d", number % FIREWALL_SHARDS);
	return nft_each_key(fw->nft_fd, fw->table, name, count_key, &n) < 0 ? -1 : n;
}

/* As the next warden does. 1: it is taken over as it is, with this policy and no other key. */
static int finds(struct rig *rig, int number, const struct reach *reach)
{
	expect(rig->fw, 5);
	if (firewall_adopt(rig->fw) != 1)
		return -1;
	return firewall_keep(rig->fw, number, reach) && keys_in(rig->fw, number) == (int)reach->n;
}

static int run_nft(const char *a, const char *b, const char *c, const char *d)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		(void)execl("/usr/sbin/nft", "nft", a, b, "inet", "atoll_0123abcd", c, d, NULL);
		_exit(127);
	}
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}

/* An address that its policy does not allow. */
static void add_one_more(struct firewall *fw, int number)
{
	const struct reach_key key = { .flags = REACH_ALLOW | REACH_HOST, .address = 0x01020304 };
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(fw->table, 1);
	char name[16];

	(void)snprintf(name, sizeof name, "ranges%d", number % FIREWALL_SHARDS);
	nft_add_keys(nft, name, fw->places[number].id, &key, 1);
	if (nft_commit(fw->nft_fd, nft) < 0)
		abort();
}

TEST(after_any_change_the_keys_are_those_of_the_last_policy)
{
	RIG(rig);
	for (int i = 0; i < 36; i++) {
		cleanup_free struct reach *from = reach_of_case(i / 6), *to = reach_of_case(i % 6);

		ASSERT_EQ(set(rig.fw, 7, from), 0);
		ASSERT_EQ(set(rig.fw, 7, to), 0);
		ASSERT_EQ(keys_in(rig.fw, 7), (int)to->n);
		ASSERT_EQ(finds(&rig, 7, to), 1);
	}
}

TEST(a_change_that_overtakes_another_leaves_nothing_of_it)
{
	cleanup_free struct reach *some = reach_of_case(2), *many = reach_of_case(3);

	RIG(rig);
	ASSERT_EQ(set(rig.fw, 7, some), 0);
	ASSERT_EQ(firewall_set(rig.fw, 7, many, NULL), 1);
	ASSERT(firewall_is_laying(rig.fw, 7) && !firewall_is_laying(rig.fw, 8));
	ASSERT_EQ(firewall_turn(rig.fw, NULL), 1);
	ASSERT(keys_in(rig.fw, 7) > (int)some->n);
	ASSERT_EQ(set(rig.fw, 7, some), 0);
	ASSERT_EQ(finds(&rig, 7, some), 1);
	ASSERT_EQ(firewall_set(rig.fw, 7, many, NULL), 1);
	ASSERT_EQ(firewall_turn(rig.fw, NULL), 1);
	firewall_leave(rig.fw, 7);
	while (firewall_turn(rig.fw, NULL) > 0)
		;
	ASSERT_EQ(keys_in(rig.fw, 7), 0);
}

TEST(what_was_half_laid_is_removed_and_the_old_policy_holds)
{
	cleanup_free struct reach *some = reach_of_case(2), *many = reach_of_case(3);

	RIG(rig);
	ASSERT_EQ(set(rig.fw, 7, some), 0);
	ASSERT_EQ(firewall_set(rig.fw, 7, many, NULL), 1);
	ASSERT_EQ(firewall_turn(rig.fw, NULL), 1);
	ASSERT_EQ(finds(&rig, 7, some), 1);
}

TEST(what_differs_is_laid_anew_and_the_rest_is_kept)
{
	cleanup_free struct reach *some = reach_of_case(2), *many = reach_of_case(3);

	RIG(rig);
	ASSERT_EQ(set(rig.fw, 7, some), 0);
	ASSERT_EQ(set(rig.fw, 8, many), 0);
	ASSERT_EQ(run_nft("flush", "set", "ranges8", NULL), 0);
	ASSERT_EQ(finds(&rig, 7, some), 1);
	ASSERT(!firewall_keep(rig.fw, 8, many));
	ASSERT_EQ(set(rig.fw, 8, many), 0);
	ASSERT_EQ(finds(&rig, 8, many), 1);
	/* One more key, and a policy that the file does not have. */
	add_one_more(rig.fw, 8);
	ASSERT_EQ(finds(&rig, 8, many), 0);
	ASSERT_EQ(keys_in(rig.fw, 8), 0);
	ASSERT_EQ(set(rig.fw, 8, some), 0);
	ASSERT_EQ(finds(&rig, 8, some), 1);
	ASSERT_EQ(finds(&rig, 8, many), 0);
	/* Everything that says whose it is. */
	ASSERT_EQ(run_nft("flush", "set", "mine", NULL), 0);
	ASSERT_EQ(run_nft("flush", "set", "proxied", NULL), 0);
	ASSERT_EQ(finds(&rig, 7, some), 0);
	ASSERT_EQ(set(rig.fw, 7, some), 0);
	ASSERT_EQ(finds(&rig, 7, some), 1);
}

TEST(nothing_is_left_of_who_is_gone)
{
	cleanup_free struct reach *many = reach_of_case(4);

	RIG(rig);
	ASSERT_EQ(set(rig.fw, 11, many), 0);
	ASSERT_EQ(keys_in(rig.fw, 11), (int)many->n);
	expect(rig.fw, 4);
	ASSERT_EQ(firewall_adopt(rig.fw), 1);
	ASSERT_EQ(keys_in(rig.fw, 11), 0);
	ASSERT_EQ(firewall_enter(rig.fw, 11, 5, NULL), 0); /* it is in no set any more */
}

TEST(a_table_that_somebody_changed_is_not_taken_over)
{
	RIG(rig);
	expect(rig.fw, 5);
	ASSERT_EQ(firewall_adopt(rig.fw), 1);
	ASSERT_EQ(run_nft("flush", "chain", "any3_denied", NULL), 0);
	expect(rig.fw, 5);
	ASSERT_EQ(firewall_adopt(rig.fw), 0);
	ASSERT_EQ(firewall_make(rig.fw, NULL), 0);
	ASSERT_EQ(run_nft("add", "chain", "another", NULL), 0);
	ASSERT_EQ(firewall_adopt(rig.fw), 0);
	ASSERT_EQ(firewall_make(rig.fw, NULL), 0);
	ASSERT_EQ(firewall_adopt(rig.fw), 1);
	rig.fw->ports[WARDEN_PROXY]++;
	ASSERT_EQ(firewall_adopt(rig.fw), 0);
	firewall_remove(rig.fw);
	ASSERT(!firewall_stands(rig.fw));
	ASSERT_EQ(firewall_adopt(rig.fw), 0);
}

TEST(a_refused_change_changes_nothing)
{
	cleanup_free struct reach *closed = reach_of_case(1), *many = reach_of_case(3);
	struct err e = { 0 };

	RIG(rig);
	ASSERT_EQ(firewall_set(rig.fw, 12, closed, &e), -ENOENT);
	ASSERT_EQ(firewall_enter(rig.fw, 12, 6, &e), 0);
	ASSERT_EQ(firewall_number_of(rig.fw, 6), 12);
	ASSERT_EQ(firewall_enter(rig.fw, 12, 6, &e), 0); /* again, whatever was there */
	firewall_remove(rig.fw);
	ASSERT_EQ(firewall_set(rig.fw, 12, closed, &e), -ENOENT);
	ASSERT_EQ(firewall_set(rig.fw, 7, many, &e), 1);
	ASSERT_EQ(firewall_turn(rig.fw, &e), -ENOENT);
	ASSERT_EQ(firewall_enter(rig.fw, 13, 7, &e), -ENOENT);
	ASSERT_EQ(firewall_number_of(rig.fw, 7), 0);
}

TEST(where_connections_cannot_be_counted_the_rest_of_the_table_is_the_same)
{
	CLEANUP(buf_done) struct buf with = BUF_INIT(1 << 20), without = BUF_INIT(1 << 20);
	struct str rest, line, other;

	RIG(rig);
	ASSERT_EQ(firewall_can_count(NULL), 0);
	ASSERT_EQ(show(rig.fw, &with), 0);
	rig.fw->counts_nothing = true;
	ASSERT_EQ(firewall_make(rig.fw, NULL), 0);
	ASSERT_EQ(show(rig.fw, &without), 0);
	ASSERT(strstr(with.p, "ct count over") && !strstr(without.p, "ct count"));
	rest = buf_str(&without);
	for (struct str all = buf_str(&with); str_split(&all, '\n', &line);) {
		if (memmem(line.p, line.n, "ct count", 8))
			continue;
		ASSERT(str_split(&rest, '\n', &other));
		ASSERT(str_eq(line, other) || memmem(line.p, line.n, "sealed_", 7));
	}
}

/* As the one of a sandbox whose policy denies a range. */
static int make_with(struct rig *rig, const char *opened, const struct reach *reach)
{
	int r;

	rig->fw->opened.n = 0;
	r = private_list_add(&rig->fw->opened, str_of(opened), NULL);
	expect(rig->fw, 5);
	if (r >= 0)
		r = firewall_make(rig->fw, NULL);
	return r < 0 ? r : set(rig->fw, 7, reach);
}

TEST(a_table_is_taken_over_by_who_opens_the_same_and_by_nobody_else)
{
	cleanup_free struct reach *some = reach_of_case(2);
	struct private_list same;

	RIG(rig);
	ASSERT_EQ(make_with(&rig, "10.0.0.5:8443,10.1.0.0/16", some), 0);
	ASSERT_EQ(finds(&rig, 7, some), 1);
	same = rig.fw->opened;
	rig.fw->opened.n = 1;
	ASSERT_EQ(finds(&rig, 7, some), -1);
	rig.fw->opened.n = 0;
	ASSERT_EQ(finds(&rig, 7, some), -1);
	rig.fw->opened = same;
	rig.fw->opened.v[0].port = 8444;
	ASSERT_EQ(finds(&rig, 7, some), -1);
	rig.fw->opened = same;
	ASSERT_EQ(finds(&rig, 7, some), 1);
}

TEST(the_kernel_takes_the_longest_list)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(8192);
	cleanup_free struct reach *some = reach_of_case(2);

	RIG(rig);
	for (int i = 0; i < PRIVATE_MAX_OPENED; i++)
		(void)buf_printf(&text, "%s10.%d.0.0/%d:%d", i ? "," : "", i, 16 + i % 17,
			1000 + i);
	ASSERT_EQ(make_with(&rig, text.p, some), 0);
	ASSERT_EQ(rig.fw->opened.n, PRIVATE_MAX_OPENED);
	ASSERT_EQ(finds(&rig, 7, some), 1);
}
