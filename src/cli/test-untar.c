#include "cli/untar.h"
#include "test.h"

#include <sys/stat.h>

/* A directory with a neighbour that no archive may touch. */
struct place {
	char path[64];
	int fd, root_fd;
};

static void place_init(struct place *p)
{
	(void)snprintf(p->path, sizeof p->path, "/tmp/test-untar.%d", getpid());
	(void)dir_remove_tree(AT_FDCWD, p->path, NULL);
	if (mkdir(p->path, 0700) < 0)
		abort();
	p->fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(p->fd, "root", 0700) < 0 || mkdirat(p->fd, "outside", 0700) < 0)
		abort();
	p->root_fd = openat(p->fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void place_done(struct place *p)
{
	(void)close(p->fd);
	(void)close(p->root_fd);
	(void)dir_remove_tree(AT_FDCWD, p->path, NULL);
}

struct item {
	int type;
	unsigned mode;
	const char *path, *text; /* content, or a link's target */
};

static void add_block(struct buf *out, const struct item *item, size_t size)
{
	static const char magic[] = { 'u', 's', 't', 'a', 'r', '\0', '0', '0' };
	char block[TAR_BLOCK] = "";
	unsigned sum = 0;

	(void)snprintf(block, 100, "%s", item->path);
	(void)snprintf(block + 100, 8, "%07o", item->mode);
	(void)snprintf(block + 124, 12, "%011o", (unsigned)size);
	(void)snprintf(block + 136, 12, "%011o", 1000000000u);
	block[156] = (char)item->type;
	if (item->type == '1' || item->type == '2')
		(void)snprintf(block + 157, 100, "%s", item->text);
	memcpy(block + 257, magic, sizeof magic);
	memset(block + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)block[i];
	(void)snprintf(block + 148, 8, "%06o", sum);
	(void)buf_add(out, block, sizeof block);
}

static void add_item(struct buf *out, const struct item *item)
{
	static const char zeroes[TAR_BLOCK];
	size_t size = item->type == '0' || item->type == 'x' || item->type == 'L'
			      ? strlen(item->text)
			      : 0;

	add_block(out, item, size);
	(void)buf_add(out, item->text, size);
	(void)buf_add(out, zeroes, -size & (TAR_BLOCK - 1));
}

static int extract(struct place *p, const struct item *items, size_t n, struct untar *u,
	struct err *e)
{
	static const char zeroes[2 * TAR_BLOCK];
	CLEANUP(buf_done) struct buf archive = BUF_INIT(1 << 20);
	int r;

	for (size_t i = 0; i < n; i++)
		add_item(&archive, &items[i]);
	(void)buf_add(&archive, zeroes, sizeof zeroes);
	untar_init(u, p->root_fd, u->all_links);
	r = untar_feed(u, buf_str(&archive), e);
	if (r == 0)
		r = untar_finish(u, e);
	untar_done(u);
	return r;
}

static bool holds(int dir_fd, const char *path, const char *text)
{
	CLEANUP(buf_done) struct buf got = BUF_INIT(1 << 16);

	return file_read(dir_fd, path, &got, NULL) == 0 && str_is(buf_str(&got), text);
}

TEST(makes_files_directories_and_links)
{
	static const struct item items[] = {
		{ '5', 0755, "./", "" },
		{ '5', 0755, "./sub/", "" },
		{ '0', 04755, "./sub/file", "hello" },
		{ '2', 0777, "link", "sub/file" },
		{ '1', 0644, "hard", "sub/file" },
		{ 'x', 0644, "ignored", "19 path=sub/by-pax\n" },
		{ '0', 0644, "short", "pax" },
		{ 'L', 0644, "ignored", "sub/by-gnu" },
		{ '0', 0644, "short", "gnu" },
		{ '0', 0644, "made/on/the/way", "deep" },
		{ '3', 0666, "device", "" },
		{ '6', 0666, "pipe", "" },
	};
	CLEANUP(place_done) struct place p = { 0 };
	struct err e = { 0 };
	struct untar u = { 0 };
	struct stat st;

	place_init(&p);
	if (extract(&p, items, ARRAY_SIZE(items), &u, &e) != 0)
		TEST_FAIL("%s", e.msg);
	ASSERT(holds(p.root_fd, "sub/file", "hello"));
	ASSERT(holds(p.root_fd, "link", "hello"));
	ASSERT(holds(p.root_fd, "hard", "hello"));
	ASSERT(holds(p.root_fd, "sub/by-pax", "pax"));
	ASSERT(holds(p.root_fd, "sub/by-gnu", "gnu"));
	ASSERT(holds(p.root_fd, "made/on/the/way", "deep"));
	ASSERT_EQ(fstatat(p.root_fd, "sub/file", &st, 0), 0);
	ASSERT_EQ(st.st_mode & 07777, 0755); /* no set-id bit */
	ASSERT_EQ(st.st_mtime, 1000000000);
	ASSERT_EQ(st.st_nlink, 2);
	ASSERT_EQ(u.skipped, 2);
	ASSERT(faccessat(p.root_fd, "pipe", F_OK, 0) < 0);
}

TEST(nothing_leads_out_of_the_directory)
{
	static const struct {
		struct item items[3];
		size_t n;
		int r;
	} cases[] = {
		{ { { '0', 0644, "../outside/evil", "x" } }, 1, -EPERM },
		{ { { '0', 0644, "a/../../outside/evil", "x" } }, 1, -EPERM },
		{ { { '5', 0755, "..", "" } }, 1, -EPERM },
		{ { { '2', 0777, "door", "../outside" }, { '0', 0644, "door/evil", "x" } }, 2,
			-EPERM },
		{ { { '2', 0777, "door", "../outside" }, { '5', 0755, "door/evil", "" } }, 2,
			-EPERM },
		{ { { '2', 0777, "door", "../outside/evil" }, { '0', 0644, "door", "x" } }, 2, 0 },
		{ { { '1', 0644, "hard", "../outside/secret" } }, 1, -EPERM },
		{ { { '2', 0777, "door", "../outside" }, { '1', 0644, "hard", "door/secret" } }, 2,
			-EPERM },
		{ { { '0', 0644, "/absolute", "x" } }, 1, 0 }, /* taken as relative */
		{ { { '0', 0644, "", "x" } }, 1, -EPROTO },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(place_done) struct place p = { 0 };
		struct err e = { 0 };
		struct untar u = { .all_links = true };
		int r;

		place_init(&p);
		ASSERT(mknodat(p.fd, "outside/secret", S_IFREG | 0600, 0) == 0);
		r = extract(&p, cases[i].items, cases[i].n, &u, &e);
		if (r != cases[i].r)
			TEST_FAIL("case %zu: got %d (%s), want %d", i, r, e.msg, cases[i].r);
		ASSERT(faccessat(p.fd, "outside/evil", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
		ASSERT(faccessat(p.root_fd, "hard", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
	}
}

TEST(nothing_is_written_through_a_link_that_was_there)
{
	static const struct item cases[] = {
		{ '0', 0644, "door/evil", "x" },
		{ '5', 0755, "door", "" },
		{ '5', 0755, "door/evil", "" },
		{ '2', 0777, "door/evil", "x" },
		{ '1', 0644, "door/evil", "own" },
		{ '1', 0644, "hard", "door/secret" },
		{ '0', 0644, "sub/inner/evil", "x" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(place_done) struct place p = { 0 };
		struct untar u = { 0 };
		struct err e = { 0 };
		int r;

		place_init(&p);
		ASSERT(mknodat(p.fd, "outside/secret", S_IFREG | 0600, 0) == 0 &&
			mknodat(p.root_fd, "own", S_IFREG | 0600, 0) == 0 &&
			mkdirat(p.root_fd, "sub", 0700) == 0 &&
			symlinkat("../outside", p.root_fd, "door") == 0 &&
			symlinkat("../../outside", p.root_fd, "sub/inner") == 0);
		r = extract(&p, &cases[i], 1, &u, &e);
		if (r != -EPERM || !strstr(e.msg, "through a link"))
			TEST_FAIL("case %zu: got %d (%s)", i, r, e.msg);
		ASSERT(faccessat(p.fd, "outside/evil", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
		ASSERT(faccessat(p.root_fd, "hard", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
	}
}

/* A link that is a link in another directory, by its second name, is what it says there. */
TEST(links_that_lead_out_are_left_out)
{
	static const struct {
		struct item items[2];
		size_t n;
		const char *name;
		bool is_made;
	} cases[] = {
		{ { { '2', 0777, "l", "file" } }, 1, "l", true },
		{ { { '2', 0777, "l", "./sub//dir/x" } }, 1, "l", true },
		{ { { '2', 0777, "sub/dir/l", "../../file" } }, 1, "sub/dir/l", true },
		{ { { '2', 0777, "sub/./dir/../l", "../file" } }, 1, "sub/l", true },
		{ { { '2', 0777, "l", "/etc" } }, 1, "l", false },
		{ { { '2', 0777, "l", ".." } }, 1, "l", false },
		{ { { '2', 0777, "l", "./../x" } }, 1, "l", false },
		{ { { '2', 0777, "sub/l", "../../x" } }, 1, "sub/l", false },
		{ { { '2', 0777, "sub/./l", "../../x" } }, 1, "sub/l", false },
		{ { { '2', 0777, "sub/dir/../l", "../../x" } }, 1, "sub/l", false },
		{ { { '2', 0777, "sub//l", "../../x" } }, 1, "sub/l", false },
		/* Each of them stays inside, and together they lead out. */
		{ { { '2', 0777, "sub/top", ".." }, { '2', 0777, "l", "sub/top/.." } }, 2, "l",
			false },
		{ { { '2', 0777, "sub/up", "../x" }, { '1', 0777, "l", "sub/up" } }, 2, "l",
			false },
		{ { { '2', 0777, "sub/up", "../x" }, { '1', 0777, "sub/l", "sub/up" } }, 2, "sub/l",
			true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		CLEANUP(place_done) struct place p = { 0 };
		struct untar u = { 0 };
		struct err e = { 0 };
		bool is_made;
		int r;

		place_init(&p);
		ASSERT(mkdirat(p.root_fd, "sub", 0700) == 0 &&
			mkdirat(p.root_fd, "sub/dir", 0700) == 0);
		r = extract(&p, cases[i].items, cases[i].n, &u, &e);
		is_made = faccessat(p.root_fd, cases[i].name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
		if (r != 0 || is_made != cases[i].is_made || u.links != (cases[i].is_made ? 0 : 1))
			TEST_FAIL("case %zu: got %d (%s), made %d, left out %d", i, r, e.msg,
				is_made, (int)u.links);
	}
}

TEST(broken_archives_are_refused)
{
	CLEANUP(place_done) struct place p = { 0 };
	static const struct item sparse = { 'S', 0644, "sparse", "" };
	char rubbish[2 * TAR_BLOCK];
	struct untar u = { 0 };

	place_init(&p);
	memset(rubbish, 'x', sizeof rubbish);
	untar_init(&u, p.root_fd, false);
	ASSERT_EQ(untar_feed(&u, str_make(rubbish, sizeof rubbish), NULL), -EPROTO);
	untar_done(&u);
	untar_init(&u, p.root_fd, false);
	ASSERT_EQ(untar_finish(&u, NULL), -EPROTO);
	untar_done(&u);
	ASSERT_EQ(extract(&p, &sparse, 1, &u, NULL), -EPROTO);
}
