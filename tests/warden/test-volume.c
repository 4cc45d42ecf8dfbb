/* Volumes in sandboxes: whose files they are, where they may be, and what hostile trees get. */
#include "warden/harness.h"

#include "test.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

/* Only these tests use it. */
#define NETWORK "10.198.0.0/16"
#define ONE "0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55"
#define TWO "1f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55"

enum {
	USER = 1000,
};

static struct warden_mount mount_of(const char *volume, const char *path)
{
	struct warden_mount m = { 0 };

	(void)snprintf(m.volume, sizeof m.volume, "%s", volume);
	(void)snprintf(m.path, sizeof m.path, "%s", path);
	return m;
}

/* Paths by rising order, as the wire wants them. */
static int create_from(struct harness *h, const char *id, const char *image,
	const struct warden_mount *mounts, uint32_t n)
{
	struct warden_message m = { .request = harness_request(h, WARDEN_CREATE, id) };
	cleanup_close int fd = harness_settings();
	struct warden_reply reply = { 0 };
	int r;

	m.request.n_mounts = n;
	(void)snprintf(m.request.image_name, sizeof m.request.image_name, "%s", image);
	memcpy(m.mounts, mounts, n * sizeof m.mounts[0]);
	r = fd_send(h->fd, &m, warden_message_size(n), &fd, 1);
	while (r >= 0) {
		r = harness_receive(h, &reply);
		if (r >= 0 && reply.kind == WARDEN_REPLY && reply.tag == m.request.tag)
			break;
	}
	if (reply.e.code < 0)
		printf("# create %s: %s\n", id, reply.e.msg);
	return r < 0 ? r : reply.e.code;
}

static int create_one(struct harness *h, const char *id, const char *volume, const char *path)
{
	struct warden_mount m = mount_of(volume, path);

	return create_from(h, id, "", &m, 1);
}

static const char *volume_path(const struct harness *h, const char *volume, const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof path, "%s/volumes/%s%s%s", h->dir, volume, name[0] ? "/" : "",
		name);
	return path;
}

/* As the server would: its own user's. */
static int make_volume(const struct harness *h, const char *volume)
{
	const char *path = volume_path(h, volume, "");

	if (mkdir(path, 0777) < 0 || chmod(path, 0777) < 0 ||
		chown(path, WARDEN_FIRST_UID, WARDEN_FIRST_UID) < 0)
		return -errno;
	return 0;
}

static int make_file(const char *path, uid_t owner)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd < 0 || fchown(fd, owner, owner) < 0 ? -errno : 0;
}

static int start(struct harness *h, struct err *e)
{
	char path[128];
	int r = harness_make_dir(h, e);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "%s/volumes", h->dir);
	if (mkdir(path, 0700) < 0 || make_volume(h, ONE) < 0 || make_volume(h, TWO) < 0)
		return err_sys(e, -errno, "make volumes");
	return harness_start_warden(h, NETWORK, 1, e);
}

#define START(h) START_ON(h, 0, NULL)
#define START_ON(h, mib, more)                                                    \
	CLEANUP(harness_stop)                                                     \
	struct harness h = { .option = (more), .disk_mib = (mib), .fd = -EBADF }; \
	do {                                                                      \
		struct err start_e = { 0 };                                       \
		if (start(&(h), &start_e) == -EPERM)                              \
			TEST_SKIP("needs root and a built warden");               \
		if (start_e.code < 0)                                             \
			TEST_FAIL("start: %s", start_e.msg);                      \
	} while (0)

/* ---- volumes that are file systems of their own ---- */

#define IMAGE "2f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55"

enum {
	IMAGE_MIB = 8,
	MIB = 1 << 20,
};

struct opened {
	int root, beside;
};
static void opened_done(struct opened *o)
{
	close_fdp(&o->root);
	close_fdp(&o->beside);
}

static int ask_volume(struct harness *h, enum warden_op op, const char *volume, struct opened *ret)
{
	struct warden_message m = { .request = harness_request(h, op, "") };
	struct warden_reply reply = { 0 };
	struct opened got = { -EBADF, -EBADF };
	int r;

	m.request.n_mounts = 1;
	m.request.disk_bytes = op == WARDEN_VOLUME_MAKE ? IMAGE_MIB * MIB : 0;
	m.mounts[0] = mount_of(volume, "");
	r = fd_send(h->fd, &m, warden_message_size(1), NULL, 0);
	while (r >= 0) {
		r = harness_receive_two(h, &reply, &got.root, &got.beside);
		if (r >= 0 && reply.kind == WARDEN_REPLY && reply.tag == m.request.tag)
			break;
	}
	if (ret)
		*ret = got;
	else
		opened_done(&got);
	if (reply.e.code < 0)
		printf("# volume: %s\n", reply.e.msg);
	return r < 0 ? r : reply.e.code;
}

static const char *image_path(const struct harness *h, const char *volume)
{
	static char path[256];

	(void)snprintf(path, sizeof path, "%s/volumes/.images/%s", h->dir, volume);
	return path;
}

static int64_t taken_kib(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? -errno : (int64_t)st.st_blocks / 2;
}

/* How many loop devices have a file of that name. */
static int count_devices(const char *name)
{
	int n = 0;

	for (int i = 0; i < 8192; i++) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(8192);
		char path[64];

		(void)snprintf(path, sizeof path, "/sys/block/loop%d/loop/backing_file", i);
		n += file_read(AT_FDCWD, path, &text, NULL) >= 0 && strstr(text.p, name);
	}
	return n;
}

static bool wait_detached(const char *name)
{
	for (int i = 0; i < 100; i++) {
		if (count_devices(name) == 0)
			return true;
		(void)usleep(200000);
	}
	return false;
}

/* A tree of its own, with a link at /way that leads to `target`. */
static int make_hostile_template(const struct harness *h, const char *target)
{
	char path[160];

	(void)snprintf(path, sizeof path, "%s/templates/empty/rootfs/way", h->dir);
	(void)unlink(path);
	return symlink(target, path);
}

TEST(two_sandboxes_share_a_volume_that_outlives_them)
{
	struct stat st;

	START(h);
	ASSERT_EQ(make_file(volume_path(&h, ONE, "users"), WARDEN_FIRST_UID + USER), 0);
	ASSERT_EQ(create_one(&h, "one", ONE, "/data"), 0);
	ASSERT_EQ(create_one(&h, "two", ONE, "/mnt/deep/er"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /data/file hello"), "0");
	ASSERT_STR(harness_inside(&h, "two", "read /mnt/deep/er/file"), "hello");
	ASSERT_STR(harness_inside(&h, "two", "stat /mnt/deep/er/file"), "100644 0 0");
	ASSERT_STR(harness_inside(&h, "two", "stat /mnt/deep/er/users"), "100644 1000 1000");
	ASSERT_STR(harness_inside(&h, "two", "stat /mnt/deep"), "40755 0 0");
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_STR(harness_inside(&h, "two", "write /mnt/deep/er/file again"), "0");
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
	/* Root inside is the server's user outside, whichever sandbox it was. */
	ASSERT_EQ(stat(volume_path(&h, ONE, "file"), &st), 0);
	ASSERT_EQ(st.st_uid, WARDEN_FIRST_UID);
	ASSERT_EQ(st.st_gid, WARDEN_FIRST_UID);
	ASSERT_EQ(st.st_size, 5);
}

TEST(setuid_and_devices_have_no_power_on_a_volume)
{
	const char *mounts, *line;
	char copy[256];

	START(h);
	ASSERT_EQ(create_one(&h, "one", ONE, "/data"), 0);
	mounts = harness_inside(&h, "one", "read /proc/self/mountinfo");
	line = strstr(mounts, " /data ");
	ASSERT(line);
	(void)snprintf(copy, sizeof copy, "%s", line);
	*strchrnul(copy, '\n') = '\0';
	ASSERT(strstr(copy, "nosuid"));
	ASSERT(strstr(copy, "nodev"));
	ASSERT(strstr(copy, "idmapped"));
	ASSERT(!strstr(copy, "shared:") && !strstr(copy, "master:"));
}

TEST(volumes_lie_in_each_other_and_nothing_of_it_is_seen_outside)
{
	struct warden_mount mounts[] = { mount_of(ONE, "/a"), mount_of(TWO, "/a/b/c") };
	struct census before;

	START(h);
	ASSERT_EQ(create_from(&h, "warm", "", mounts, 2), 0);
	ASSERT_EQ(harness_destroy(&h, "warm"), 0);
	before = census_at_rest(&h); /* the next slots are being prepared */
	ASSERT_EQ(create_from(&h, "one", "", mounts, 2), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /a/b/c/inner 2"), "0");
	ASSERT_STR(harness_inside(&h, "one", "write /a/outer 1"), "0");
	ASSERT_EQ(access(volume_path(&h, TWO, "inner"), F_OK), 0);
	ASSERT_EQ(access(volume_path(&h, ONE, "outer"), F_OK), 0);
	ASSERT(access(volume_path(&h, ONE, "b/c/inner"), F_OK) < 0);
	ASSERT_EQ(census_take(&h).mounts, before.mounts);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(unlink(volume_path(&h, TWO, "inner")), 0);
	ASSERT_EQ(unlink(volume_path(&h, ONE, "outer")), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

TEST(a_link_on_the_way_to_a_mount_leads_nowhere)
{
	static const char *const targets[] = { "/", "/proc", "/proc/1/root", "/proc/self/cwd",
		"/dev", "/sys", "../../../../../../../../tmp", "/tmp", "/nowhere", "way" };
	static const char *const paths[] = { "/way", "/way/in", "/way/sys" };

	START(h);
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		ASSERT_EQ(make_hostile_template(&h, targets[i]), 0);
		for (size_t k = 0; k < ARRAY_SIZE(paths); k++)
			ASSERT_EQ(create_one(&h, "one", ONE, paths[k]), -ENOTDIR);
	}
	ASSERT(access("/tmp/in", F_OK) < 0);
	/* A file is no place either, and the next one is not the worse for it. */
	ASSERT_STR("", harness_inside(&h, "one", "list /"));
	ASSERT_EQ(create_one(&h, "one", ONE, "/data"), 0);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 1);
}

TEST(a_link_planted_in_a_saved_image_leads_nowhere)
{
	struct warden_mount m = mount_of(ONE, "/home/link/x");

	START(h);
	ASSERT_EQ(create_one(&h, "one", ONE, "/home/box"), 0);
	ASSERT_STR(harness_inside(&h, "one", "link /proc/1 /home/link"), "0");
	ASSERT_STR(harness_inside(&h, "one", "write /home/file x"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "one", "s1"), 0);
	ASSERT_EQ(create_from(&h, "two", "s1", &m, 1), -ENOTDIR);
	m = mount_of(ONE, "/home/file");
	ASSERT_EQ(create_from(&h, "two", "s1", &m, 1), -ENOTDIR);
	/* As it was made, it comes back, with what was in the volume meanwhile. */
	m = mount_of(ONE, "/home/box");
	ASSERT_STR(harness_inside(&h, "one", "write /home/box/later x"), "0");
	ASSERT_EQ(create_from(&h, "two", "s1", &m, 1), 0);
	ASSERT_STR(harness_inside(&h, "two", "read /home/box/later"), "x");
	/* And the volume is no part of the image. */
	ASSERT_EQ(create_from(&h, "three", "s1", &m, 0), 0);
	ASSERT_STR(harness_inside(&h, "three", "list /home/box"), "");
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "s1"), 0);
}

TEST(what_is_no_volume_of_the_servers_is_refused)
{
	char path[256];

	START(h);
	(void)snprintf(path, sizeof path, "%s", volume_path(&h, TWO, ""));
	ASSERT_EQ(rmdir(path), 0);
	ASSERT_EQ(create_one(&h, "one", TWO, "/data"), -ESTALE);
	ASSERT_EQ(symlink("/etc", path), 0);
	ASSERT_EQ(create_one(&h, "one", TWO, "/data"), -EIO);
	ASSERT_EQ(unlink(path), 0);
	ASSERT_EQ(symlink(ONE, path), 0);
	ASSERT_EQ(create_one(&h, "one", TWO, "/data"), -EIO);
	ASSERT_EQ(unlink(path), 0);
	ASSERT_EQ(make_file(path, 0), 0);
	ASSERT_EQ(create_one(&h, "one", TWO, "/data"), -EIO);
	ASSERT_EQ(harness_count(&h, WARDEN_LIST, NULL), 0);
}

TEST(a_mount_outlives_the_warden_and_goes_with_its_sandbox)
{
	struct census before;
	struct err e = { 0 };

	START(h);
	ASSERT_EQ(create_one(&h, "warm", ONE, "/data"), 0);
	ASSERT_EQ(harness_destroy(&h, "warm"), 0);
	(void)usleep(300000);
	before = census_take(&h);
	ASSERT_EQ(create_one(&h, "one", ONE, "/data"), 0);
	harness_kill_warden(&h);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 1, &e), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /data/file x"), "0");
	ASSERT_EQ(access(volume_path(&h, ONE, "file"), F_OK), 0);
	ASSERT_EQ(unlink(volume_path(&h, ONE, "file")), 0);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(census_wait(&h, &before), 0);
}

enum {
	LINGERING_MAX = 16,
	LINGER_TRIES = 200,
};

/* One that gives something of its own away, and ends. */
static int give_and_end(struct harness *h, const char *what)
{
	int r = create_one(h, "giver", ONE, "/data");

	if (r < 0)
		return r;
	if (strcmp(harness_inside(h, "giver", what), "0") != 0)
		return -EPROTO;
	return harness_destroy(h, "giver");
}

TEST(what_one_sandbox_keeps_of_others_has_a_limit)
{
	int n = 0, r = 0;

	START(h);
	ASSERT_EQ(create_one(&h, "keeper", ONE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "keeper", "keep /data/door"), "0");
	for (; n < LINGERING_MAX && r >= 0; n++)
		r = give_and_end(&h, n % 2 ? "give-file /data/door" : "give-socket /data/door");
	ASSERT_EQ(r, 0);
	for (int i = 0; i < LINGER_TRIES && r >= 0; i++) {
		(void)usleep(100000);
		r = create_one(&h, "giver", ONE, "/data");
		if (r >= 0)
			ASSERT_EQ(harness_destroy(&h, "giver"), 0);
	}
	ASSERT_EQ(r, -EBUSY);
	/* Other volumes are not concerned, and when the keeper ends all is free. */
	ASSERT_EQ(create_one(&h, "other", TWO, "/data"), 0);
	ASSERT_EQ(harness_destroy(&h, "keeper"), 0);
	for (int i = 0; i < LINGER_TRIES && r < 0; i++) {
		(void)usleep(100000);
		r = create_one(&h, "giver", ONE, "/data");
	}
	ASSERT_EQ(r, 0);
}

static int64_t free_mib(const struct harness *h)
{
	struct statvfs st;

	return statvfs(h->dir, &st) < 0 ? -errno : (int64_t)(st.f_bfree * st.f_frsize >> 20);
}

TEST(what_is_kept_of_a_sandbox_that_ended_takes_no_room)
{
	int64_t before, now = 0;

	START_ON(h, 1200, "--no-pool");
	ASSERT_EQ(create_one(&h, "keeper", ONE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "keeper", "keep /data/door"), "0");
	ASSERT_EQ(create_one(&h, "giver", ONE, "/data"), 0);
	before = free_mib(&h);
	ASSERT_STR(harness_inside(&h, "giver", "fill 48"), "0");
	ASSERT_STR(harness_inside(&h, "giver", "give-file /data/door"), "0");
	ASSERT_EQ(harness_do(&h, WARDEN_SAVE, "giver", "image"), 0); /* it is written */
	ASSERT_EQ(harness_do(&h, WARDEN_DISCARD, "", "image"), 0);
	ASSERT(free_mib(&h) < before - 40);
	ASSERT_EQ(harness_destroy(&h, "giver"), 0);
	for (int i = 0; i < LINGER_TRIES && now < before - 8; i++) {
		(void)usleep(50000);
		now = free_mib(&h);
	}
	ASSERT(now >= before - 8);
}

static bool wait_held(struct harness *h, uint32_t n)
{
	struct warden_request q = harness_request(h, WARDEN_HOST, "");
	struct warden_reply reply = { 0 };

	for (int i = 0; i < LINGER_TRIES; i++) {
		if (harness_ask(h, &q, -EBADF, &reply) == 0 && reply.host.held == n)
			return true;
		(void)usleep(50000);
	}
	return false;
}

static int fill_up(const struct harness *h)
{
	char path[80];
	cleanup_close int fd = -EBADF;

	(void)snprintf(path, sizeof path, "%s/filler", h->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return fallocate(fd, 0, 0, (off_t)(free_mib(h) - 224) << 20);
}

/* What it writes there is counted nowhere, and takes of the same room. */
TEST(one_with_a_volume_is_held_when_there_is_no_room)
{
	struct err e = { 0 };

	START_ON(h, 1200, NULL);
	ASSERT_EQ(create_one(&h, "one", ONE, "/data"), 0);
	ASSERT_EQ(harness_create(&h, "other"), 0);
	ASSERT_EQ(fill_up(&h), 0);
	ASSERT(wait_held(&h, 1));
	ASSERT_STR(harness_inside(&h, "other", "write /etc/mine x"), "0");
	/* The next warden knows it as well. */
	harness_kill_warden(&h);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 0, &e), 0);
	ASSERT(wait_held(&h, 1));
}

TEST(an_image_ends_every_write_at_its_size)
{
	static const char *const options[] = { NULL, "--attach-layers" };

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		CLEANUP(opened_done) struct opened o = { -EBADF, -EBADF };
		int mounts;
		struct statvfs st;
		struct stat by;

		START_ON(h, 0, options[i]);
		mounts = census_take(&h).mounts;
		ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
		ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), -EEXIST);
		ASSERT(taken_kib(image_path(&h, IMAGE)) < 512);
		ASSERT_EQ(create_one(&h, "one", IMAGE, "/data"), 0);
		ASSERT_EQ(create_one(&h, "two", IMAGE, "/mnt/deep"), 0);
		ASSERT_STR(harness_inside(&h, "one", "list /data"), "");
		ASSERT_STR(harness_inside(&h, "one", "fill 64 /data/big"), "-28");
		ASSERT_STR(harness_inside(&h, "two", "fill 1 /mnt/deep/more"), "-28");
		/* The server sees the same, and whose files they are. */
		ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_OPEN, IMAGE, &o), 0);
		ASSERT_EQ(fstatvfs(o.root, &st), 0);
		ASSERT(st.f_bavail * st.f_frsize < MIB); /* less than it writes at once */
		ASSERT(st.f_blocks * st.f_frsize <= (uint64_t)IMAGE_MIB * MIB);
		ASSERT(st.f_blocks * st.f_frsize > (uint64_t)(IMAGE_MIB - 1) * MIB);
		ASSERT_EQ(fstatat(o.root, "big", &by, 0), 0);
		ASSERT_EQ(by.st_uid, WARDEN_FIRST_UID);
		ASSERT_EQ(unlinkat(o.root, "big", 0), 0);
		ASSERT_STR(harness_inside(&h, "two", "write /mnt/deep/more x"), "0");
		/* What lies beside it is no part of it. */
		ASSERT_EQ(renameat(o.root, "more", o.beside, "more"), 0);
		ASSERT_STR(harness_inside(&h, "one", "list /data"), "");
		opened_done(&o);
		o = (struct opened){ -EBADF, -EBADF };
		ASSERT_EQ(harness_destroy(&h, "one"), 0);
		ASSERT_EQ(harness_destroy(&h, "two"), 0);
		ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_REMOVE, IMAGE, NULL), 0);
		ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_REMOVE, IMAGE, NULL), -ENOENT);
		ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_OPEN, IMAGE, NULL), -ESTALE);
		ASSERT_EQ(create_one(&h, "one", IMAGE, "/data"), -ESTALE);
		ASSERT(wait_detached(IMAGE));
		ASSERT_EQ(census_take(&h).mounts, mounts);
	}
}

TEST(an_image_takes_as_many_files_as_it_has_room_for)
{
	CLEANUP(opened_done) struct opened o = { -EBADF, -EBADF };
	char name[32];
	int n = 0, r = 0;

	START(h);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_OPEN, IMAGE, &o), 0);
	while (r == 0 && n < 100000) {
		(void)snprintf(name, sizeof name, "%d", n++);
		r = mknodat(o.root, name, S_IFREG | 0600, 0) < 0 ? -errno : 0;
	}
	ASSERT_EQ(r, -ENOSPC);
	ASSERT(n > 64 * IMAGE_MIB / 2 && n < 64 * IMAGE_MIB * 2);
}

TEST(an_image_in_use_is_the_same_for_the_next_warden)
{
	CLEANUP(opened_done) struct opened o = { -EBADF, -EBADF };
	struct err e = { 0 };

	START(h);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
	ASSERT_EQ(create_one(&h, "one", IMAGE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /data/f before"), "0");
	harness_kill_warden(&h);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 1, &e), 0);
	ASSERT_EQ(create_one(&h, "two", IMAGE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "two", "read /data/f"), "before");
	ASSERT_STR(harness_inside(&h, "two", "write /data/f behind"), "0");
	ASSERT_STR(harness_inside(&h, "one", "read /data/f"), "behind");
	/* One device for all of them: two would be two file systems on the same blocks. */
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_OPEN, IMAGE, &o), 0);
	ASSERT_EQ(count_devices(IMAGE), 1);
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	ASSERT_EQ(harness_destroy(&h, "two"), 0);
	harness_kill_warden(&h);
	opened_done(&o);
	o = (struct opened){ -EBADF, -EBADF };
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 1, &e), 0);
	ASSERT(wait_detached(IMAGE));
	/* And nothing of it was lost when nobody had it. */
	ASSERT_EQ(create_one(&h, "three", IMAGE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "three", "read /data/f"), "behind");
}

TEST(an_image_that_is_removed_takes_no_room_though_it_is_in_use)
{
	CLEANUP(opened_done) struct opened o = { -EBADF, -EBADF };
	cleanup_close int file = -EBADF;
	struct stat st;

	START(h);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
	ASSERT_EQ(create_one(&h, "one", IMAGE, "/data"), 0);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_OPEN, IMAGE, &o), 0);
	ASSERT_STR(harness_inside(&h, "one", "fill 4 /data/big"), "0");
	file = open(image_path(&h, IMAGE), O_RDONLY | O_CLOEXEC);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_REMOVE, IMAGE, NULL), 0);
	ASSERT_EQ(fstat(file, &st), 0);
	ASSERT_EQ(st.st_blocks, 0);
	ASSERT_STR(harness_inside(&h, "one", "write /data/more x"), "-5");
	ASSERT_STR(harness_inside(&h, "one", "write /etc/own x"), "0");
	ASSERT(mkdirat(o.root, "d", 0700) < 0 && errno == EIO);
	opened_done(&o);
	o = (struct opened){ -EBADF, -EBADF };
	close_fdp(&file);
	file = -EBADF;
	ASSERT_EQ(harness_destroy(&h, "one"), 0);
	/* The next one of that name is another. */
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
	ASSERT_EQ(create_one(&h, "two", IMAGE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "two", "list /data"), "");
}

TEST(what_a_warden_left_half_made_is_removed_by_the_next)
{
	char path[280];
	struct err e = { 0 };

	START(h);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
	harness_kill_warden(&h);
	(void)snprintf(path, sizeof path, "%s", image_path(&h, ".new-1"));
	ASSERT_EQ(make_file(path, 0), 0);
	(void)snprintf(path, sizeof path, "%s", image_path(&h, ".seed-1"));
	ASSERT_EQ(mkdir(path, 0700), 0);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 1, &e), 0);
	ASSERT(access(path, F_OK) < 0);
	ASSERT(access(image_path(&h, ".new-1"), F_OK) < 0);
	ASSERT_EQ(access(image_path(&h, IMAGE), F_OK), 0);
}

TEST(images_are_in_a_directory_of_roots_own_or_not_at_all)
{
	char away[80];
	struct err e = { 0 };

	START(h);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), 0);
	harness_kill_warden(&h);
	/* Who has got hold of the server owns the directory above. */
	(void)snprintf(away, sizeof away, "%s/away", h.dir);
	ASSERT_EQ(rename(volume_path(&h, ".images", ""), away), 0);
	ASSERT_EQ(symlink(away, volume_path(&h, ".images", "")), 0);
	ASSERT_EQ(harness_start_warden(&h, NETWORK, 1, &e), 0);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_OPEN, IMAGE, NULL), -ESTALE);
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, TWO, NULL), -EOPNOTSUPP);
	ASSERT_EQ(create_one(&h, "one", IMAGE, "/data"), -ESTALE);
	ASSERT_EQ(create_one(&h, "two", ONE, "/data"), 0);
	ASSERT_EQ(unlink(volume_path(&h, ".images", "")), 0);
}

TEST(without_loop_devices_there_are_only_plain_ones)
{
	START_ON(h, 0, "--plain-layers");
	ASSERT_EQ(ask_volume(&h, WARDEN_VOLUME_MAKE, IMAGE, NULL), -EOPNOTSUPP);
	ASSERT_EQ(create_one(&h, "one", ONE, "/data"), 0);
	ASSERT_STR(harness_inside(&h, "one", "write /data/f x"), "0");
}
