/* Whose cgroups are: the label, and what the file system says of the directory in it. */
#include "warden/owner.h"

#include "test.h"

#include <sys/stat.h>

static char scratch[] = "/tmp/atoll-owner-XXXXXX";

static const char *path_of(const char *name)
{
	static char paths[4][128];
	static int at;
	char *path = paths[at++ % 4];

	(void)snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
	return path;
}

static bool begin(void)
{
	(void)snprintf(scratch, sizeof scratch, "/tmp/atoll-owner-XXXXXX");
	return mkdtemp(scratch);
}

static void end(void)
{
	(void)dir_remove_tree(AT_FDCWD, scratch, NULL);
}

TEST(labels_are_read_as_they_were_written)
{
	struct owner owner = { .major = 8,
		.minor = 17,
		.handle_type = -3,
		.n_handle = 3,
		.handle = { 1, 0, 255 },
		.mount_ns = 4026531840,
		.path = "/a directory/with blanks" };
	CLEANUP(buf_done) struct buf text = BUF_INIT(OWNER_LABEL_BYTES);
	struct owner got;

	ASSERT_EQ(owner_write(&owner, &text), 0);
	ASSERT_EQ(owner_parse(buf_str(&text), &got), 0);
	ASSERT(memcmp(&got, &owner, sizeof owner) == 0);
	owner.n_handle = 0;
	memset(owner.handle, 0, sizeof owner.handle);
	buf_clear(&text);
	ASSERT_EQ(owner_write(&owner, &text), 0);
	ASSERT_EQ(owner_parse(buf_str(&text), &got), 0);
	ASSERT(memcmp(&got, &owner, sizeof owner) == 0);
}

TEST(what_is_no_label_is_refused)
{
	static const char *const texts[] = { "", "1", "2 8 1 1 00 5 /a", "1 8 1 1 0 5 /a",
		"1 8 1 1 0g 5 /a", "1 8 1 1  5 /a", "1 8 1 1 00 5 a", "1 8 1 1 00 5 /",
		"1 8 1 1 00 5 ", "1 8 1 1 00 /a", "1 -8 1 1 00 5 /a", "1 8 99999999999 1 00 5 /a" };
	struct owner got = { .major = 77 };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		ASSERT_EQ(owner_parse(str_of(texts[i]), &got), -EINVAL);
		ASSERT_EQ(got.major, 77);
	}
}

/* By its handle, whatever it is called; the file system is asked with root's rights alone. */
TEST(a_directory_is_gone_when_it_was_removed_and_not_when_it_was_moved)
{
	struct owner owner;

	ASSERT(begin());
	ASSERT_EQ(mkdir(path_of("data"), 0700), 0);
	ASSERT_EQ(owner_describe(path_of("data"), owner_mount_ns(), &owner, NULL), 0);
	if (owner.n_handle == 0 || geteuid() != 0) {
		end();
		TEST_SKIP("needs root and a file system with handles");
	}
	ASSERT_EQ(owner_look(&owner), OWNER_AWAY);
	ASSERT_EQ(rename(path_of("data"), path_of("moved")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_AWAY);
	ASSERT_EQ(rmdir(path_of("moved")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_GONE);
	owner.minor += 1000;
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	end();
}

/* A handle that is not found proves nothing as long as the path may be the directory's: FUSE
 * forgets handles, and a copy has another one. */
TEST(what_may_be_at_its_path_is_not_gone)
{
	struct owner owner;

	ASSERT(begin());
	ASSERT_EQ(mkdir(path_of("above"), 0700), 0);
	ASSERT_EQ(mkdir(path_of("above/data"), 0700), 0);
	ASSERT_EQ(owner_describe(path_of("above/data"), owner_mount_ns(), &owner, NULL), 0);
	if (owner.n_handle == 0 || geteuid() != 0) {
		end();
		TEST_SKIP("needs root and a file system with handles");
	}
	ASSERT_EQ(rmdir(path_of("above/data")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_GONE);
	owner.mount_ns++; /* its path is one elsewhere */
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	owner.mount_ns--;
	ASSERT_EQ(mkdir(path_of("above/data"), 0700), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	ASSERT_EQ(rmdir(path_of("above/data")), 0);
	ASSERT_EQ(symlink("/nowhere", path_of("above/data")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	ASSERT_EQ(unlink(path_of("above/data")), 0);
	ASSERT_EQ(rmdir(path_of("above")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_GONE);
	ASSERT_EQ(symlink("/proc", path_of("above")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	ASSERT_EQ(unlink(path_of("above")), 0);
	ASSERT_EQ(symlink("/nowhere", path_of("above")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	end();
}

TEST(without_handles_the_path_counts_where_it_is_one)
{
	struct owner owner;

	ASSERT(begin());
	ASSERT_EQ(mkdir(path_of("above"), 0700), 0);
	ASSERT_EQ(mkdir(path_of("above/data"), 0700), 0);
	ASSERT_EQ(owner_describe(path_of("above/data"), owner_mount_ns(), &owner, NULL), 0);
	owner.n_handle = 0;
	ASSERT_EQ(owner_look(&owner), OWNER_AWAY);
	ASSERT_EQ(rmdir(path_of("above/data")), 0);
	ASSERT_EQ(rmdir(path_of("above")), 0);
	ASSERT_EQ(owner_look(&owner), OWNER_GONE);
	owner.mount_ns++;
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	owner.mount_ns--;
	owner.minor++; /* what it was on is not mounted there now */
	ASSERT_EQ(owner_look(&owner), OWNER_UNKNOWN);
	end();
}

static struct cgroups cg = CGROUPS_INIT;
static bool open_cgroups(struct cgroups *found, struct err *e)
{
	char instance[9];

	(void)snprintf(instance, sizeof instance, "%08x", (unsigned)getpid());
	return geteuid() == 0 && cgroups_open(&cg, instance, e) >= 0 &&
	       cgroups_open_found(found, instance, e) >= 0;
}

TEST(what_was_judged_is_no_longer_so_when_a_server_has_come)
{
	CLEANUP(cgroups_close_found) struct cgroups found = CGROUPS_INIT;
	struct owner gone, other, got;
	struct err e = { 0 };

	if (!open_cgroups(&found, &e)) {
		cgroups_close(&cg);
		TEST_SKIP("needs root and cgroups");
	}
	ASSERT(begin());
	ASSERT_EQ(owner_describe(scratch, owner_mount_ns(), &other, NULL), 0);
	ASSERT_EQ(mkdir(path_of("data"), 0700), 0);
	ASSERT_EQ(owner_describe(path_of("data"), owner_mount_ns(), &gone, NULL), 0);
	ASSERT_EQ(rmdir(path_of("data")), 0);
	ASSERT_EQ(owner_label(&cg, &gone, &e), 0);
	ASSERT_EQ(owner_judge(&found, &got), OWNER_GONE);
	ASSERT(owner_is_still_gone(&found, &got));
	/* Its lock is held by us now, and its label is written all the same. */
	ASSERT_EQ(owner_lock(&cg, NULL), -EWOULDBLOCK);
	ASSERT_EQ(owner_label(&cg, &other, &e), 0);
	ASSERT(!owner_is_still_gone(&found, &got));
	ASSERT_EQ(owner_label(&cg, &gone, &e), 0);
	ASSERT(owner_is_still_gone(&found, &got));
	ASSERT_EQ(mkdir(path_of("data"), 0700), 0);
	ASSERT(!owner_is_still_gone(&found, &got));
	cgroups_close_found(&found);
	ASSERT_EQ(owner_lock(&cg, NULL), 0);
	cgroups_close(&cg);
	end();
}

TEST(cgroups_that_somebody_removed_are_not_there)
{
	CLEANUP(cgroups_close_found) struct cgroups found = CGROUPS_INIT;
	struct err e = { 0 };

	if (!open_cgroups(&found, &e)) {
		cgroups_close(&cg);
		TEST_SKIP("needs root and cgroups");
	}
	ASSERT(cgroups_are_there(&cg));
	cgroups_remove_found(&found);
	ASSERT(!cgroups_are_there(&cg));
	cgroups_close(&cg);
}
