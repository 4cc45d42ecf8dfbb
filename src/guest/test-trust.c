#include "guest/trust.h"

#include "test.h"

#include <sys/stat.h>

struct place {
	char home[64], bundle[128], file[128];
};

static void place_new(struct place *p)
{
	(void)snprintf(p->home, sizeof p->home, "/tmp/atoll-trust-XXXXXX");
	assert(mkdtemp(p->home));
	(void)snprintf(p->bundle, sizeof p->bundle, "%s/etc/ssl/certs/bundle", p->home);
	(void)snprintf(p->file, sizeof p->file, "%s/share/own", p->home);
}

static void place_done(struct place *p)
{
	(void)dir_remove_tree(AT_FDCWD, p->home, NULL);
}

static bool holds(const char *path, const char *want)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);

	return file_read(AT_FDCWD, path, &text, NULL) == 0 && str_is(buf_str(&text), want);
}

TEST(an_authority_is_added_once_and_others_stay)
{
	CLEANUP(place_done) struct place p;
	bool existed = true;

	place_new(&p);
	ASSERT_EQ(trust_write(p.bundle, p.file, STR("A\n"), &existed, NULL), 0);
	ASSERT(!existed);
	ASSERT(holds(p.file, "A\n") && holds(p.bundle, "A\n"));
	ASSERT_EQ(trust_write(p.bundle, p.file, STR("A\n"), &existed, NULL), 0);
	ASSERT(existed);
	ASSERT(holds(p.bundle, "A\n"));
	ASSERT_EQ(trust_write(p.bundle, p.file, STR("B\n"), &existed, NULL), 0);
	ASSERT(holds(p.file, "B\n") && holds(p.bundle, "A\nB\n"));
}

TEST(a_bundle_without_a_last_line_break_gets_one)
{
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	ASSERT_EQ(trust_write(p.bundle, p.file, STR("first"), &existed, NULL), 0);
	ASSERT_EQ(trust_write(p.bundle, p.file, STR("second\n"), &existed, NULL), 0);
	ASSERT(holds(p.bundle, "first\nsecond\n"));
}

TEST(what_is_no_file_is_neither_waited_for_nor_written_to)
{
	CLEANUP(place_done) struct place p;
	bool existed;

	place_new(&p);
	ASSERT_EQ(trust_write(p.bundle, p.file, STR("A\n"), &existed, NULL), 0);
	ASSERT_EQ(unlink(p.bundle), 0);
	ASSERT_EQ(mkfifo(p.bundle, 0600), 0);
	ASSERT(trust_write(p.bundle, p.file, STR("A\n"), &existed, NULL) < 0);
	ASSERT_EQ(unlink(p.bundle), 0);
	ASSERT_EQ(mkdir(p.bundle, 0700), 0);
	ASSERT(trust_write(p.bundle, p.file, STR("A\n"), &existed, NULL) < 0);
}
