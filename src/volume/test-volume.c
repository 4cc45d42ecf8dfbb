#include "volume/volume.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "database.h"
#include "test.h"

struct scratch {
	char dir[40], url[256];
	struct loop *loop;
	struct store *store;
	struct volume_book *book;
	int r, fd;
	char id[UUID_SIZE];
	struct volume_entry entry; /* the first, without its strings */
	char text[1024];           /* error, or the paths of the entries */
	struct volume_upload *up;
	struct limit_ceilings ceilings;
	struct loop_timer look;
	int64_t walk_ms;
	bool has_maker; /* see "volumes that are file systems of their own" */
	struct maker {
		int code; /* of what is made */
		int made, opened, removed;
		bool is_silent; /* an opening is not answered */
		volume_opened_fn late_fn;
		void *late_arg;
	} maker;
};

static void ceilings_of(void *arg, const char *team_id, struct limit_ceilings *ret)
{
	struct scratch *s = arg;

	*ret = strcmp(team_id, "t1") == 0 ? s->ceilings : (struct limit_ceilings){ 0 };
}

static int add_teams(struct store_tx *tx, void *arg, struct err *e)
{
	(void)arg;
	return store_exec(tx,
		"INSERT INTO teams (id, name, created_us) VALUES ('t1', 'one', 1), ('t2', 'two', "
		"2)",
		NULL, 0, e);
}

/* What the server's engine does with file systems, in directories. */
static const char *image_path(const struct scratch *s, const char *id, const char *name)
{
	static char path[160];

	(void)snprintf(path, sizeof path, "%s/volumes/" VOLUME_IMAGES "/%s/%s", s->dir, id, name);
	return path;
}

struct answer {
	struct loop_task task;
	struct err e;
	int fds[2];
	done_fn done;
	volume_opened_fn opened;
	void *arg;
};

static void tell_answer(void *arg)
{
	struct answer *a = arg;

	if (a->opened)
		a->opened(a->arg, a->e.code, a->fds, &a->e);
	else
		a->done(a->arg, a->e.code, &a->e);
	free(a);
}

static void answer(struct scratch *s, const struct answer *what)
{
	struct answer *a = XNEW(struct answer);

	*a = *what;
	loop_defer(s->loop, &a->task, tell_answer, a);
}

static void make_image(void *maker, const char *id, int64_t bytes, done_fn fn, void *arg)
{
	struct scratch *s = maker;
	struct answer a = { .done = fn, .arg = arg };

	assert(bytes > 0);
	s->maker.made++;
	if (s->maker.code < 0) {
		(void)err_set(&a.e, s->maker.code, "told to fail");
	} else {
		(void)mkdir(image_path(s, "", ""), 0700);
		if (mkdir(image_path(s, id, ""), 0700) < 0 ||
			mkdir(image_path(s, id, "data"), 0777) < 0 ||
			mkdir(image_path(s, id, "beside"), 0700) < 0)
			(void)err_sys(&a.e, -errno, "make an image");
	}
	answer(s, &a);
}

static void open_image(void *maker, const char *id, volume_opened_fn fn, void *arg)
{
	struct scratch *s = maker;
	struct answer a = { .opened = fn, .arg = arg };

	s->maker.opened++;
	if (s->maker.is_silent) {
		s->maker.late_fn = fn;
		s->maker.late_arg = arg;
		return;
	}
	a.fds[0] = open(image_path(s, id, "data"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	a.fds[1] = open(image_path(s, id, "beside"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a.fds[0] < 0 || a.fds[1] < 0)
		(void)err_sys(&a.e, -errno, "open an image");
	answer(s, &a);
}

static void remove_image(void *maker, const char *id, done_fn fn, void *arg)
{
	struct scratch *s = maker;
	struct answer a = { .done = fn, .arg = arg };

	s->maker.removed++;
	(void)dir_remove_tree(AT_FDCWD, image_path(s, id, ""), &a.e);
	answer(s, &a);
}

static int open_book(struct scratch *s, struct err *e)
{
	struct volume_book_config config = { .loop = s->loop,
		.store = s->store,
		.teams = { ceilings_of, s },
		.walk_ms = s->walk_ms };
	char path[64];

	if (s->has_maker) {
		config.maker = (struct volume_maker){ make_image, open_image, remove_image, s };
		config.idle_ms = 100;
	}
	s->book = volume_book_free(s->book);
	(void)snprintf(path, sizeof path, "%s/volumes", s->dir);
	(void)dir_make(AT_FDCWD, path, 0700, e);
	config.dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return volume_book_new(&config, &s->book, e);
}

static int scratch_open(struct scratch *s, struct err *e)
{
	int r;

	(void)snprintf(s->dir, sizeof s->dir, "/tmp/atoll-volume-XXXXXX");
	if (!mkdtemp(s->dir))
		return -errno;
	(void)database_url(s->dir, s->url, sizeof s->url);
	r = loop_new(&s->loop, e);
	if (r >= 0)
		r = store_open(s->loop, s->url, &s->store, e);
	if (r >= 0)
		r = store_run_now(s->store, add_teams, NULL, e);
	return r < 0 ? r : open_book(s, e);
}

static void scratch_done(struct scratch *s)
{
	struct err e;

	s->book = volume_book_free(s->book);
	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	(void)dir_remove_tree(AT_FDCWD, s->dir, &e);
}

/* ---- each operation, waited for ---- */

static int wait_for(struct scratch *s)
{
	struct err e = { 0 };

	return loop_run(s->loop, &e) < 0 ? -1 : s->r;
}

static void took(struct scratch *s, int r, const struct err *e)
{
	s->r = r;
	if (r < 0)
		(void)snprintf(s->text, sizeof s->text, "%s", e->msg);
	loop_stop(s->loop);
}

static void done(void *arg, int r, const struct err *e)
{
	took(arg, r, e);
}

static void made(void *arg, int r, const struct volume *volume, const struct err *e)
{
	struct scratch *s = arg;

	memcpy(s->id, volume->id, sizeof s->id);
	took(s, r, e);
}

static void entries(void *arg, int r, const struct volume_entry *v, size_t n, const struct err *e)
{
	CLEANUP(buf_done) struct buf paths = BUF_INIT(sizeof(((struct scratch *)0)->text) - 1);
	struct scratch *s = arg;

	for (size_t i = 0; i < n; i++)
		(void)buf_printf(&paths, "%.*s ", STR_ARG(v[i].path));
	(void)snprintf(s->text, sizeof s->text, "%s", buf_str(&paths).p);
	if (n)
		s->entry = v[0];
	took(s, r, e);
}

static void list_paths(struct buf *out, const struct volume_entry *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)buf_printf(out, "%.*s ", STR_ARG(v[i].path));
}

static void listed(void *arg, int r, struct str text, const struct err *e)
{
	struct scratch *s = arg;

	(void)snprintf(s->text, sizeof s->text, "%.*s", STR_ARG(text));
	took(s, r, e);
}

static void opened(void *arg, int fd, int64_t size, const struct err *e)
{
	struct scratch *s = arg;

	s->fd = fd;
	s->entry.size_bytes = size;
	took(s, MIN(fd, 0), e);
}

static void upload_begun(void *arg, int r, struct volume_upload *up, const struct err *e)
{
	struct scratch *s = arg;

	s->up = up;
	took(s, r, e);
}

static int create_as(struct scratch *s, const struct volume_owner *who, const char *name)
{
	volume_create(s->book, who, str_of(name), "test", made, s);
	return wait_for(s);
}

static int create(struct scratch *s, const char *team, const char *name)
{
	return create_as(s, &(struct volume_owner){ .team_id = team }, name);
}

static struct volume_at at(const struct scratch *s, const char *path)
{
	return (struct volume_at){ volume_find(s->book, NULL, str_of(s->id)), str_of(path) };
}

static const struct volume_attr keep = { VOLUME_KEEP, VOLUME_KEEP, VOLUME_KEEP };

static int make_dir(struct scratch *s, const char *path, bool parents)
{
	struct volume_at where = at(s, path);

	volume_mkdir(s->book, &where, &keep, parents, entries, s);
	return wait_for(s);
}

static int stat_of(struct scratch *s, const char *path)
{
	struct volume_at where = at(s, path);

	volume_stat(s->book, &where, entries, s);
	return wait_for(s);
}

static int save(struct scratch *s, const char *path, const char *text, bool replace)
{
	struct volume_at where = at(s, path);
	int r;

	volume_upload(s->book, &where, &keep, replace, upload_begun, s);
	r = wait_for(s);
	if (r < 0)
		return r;
	volume_upload_write(s->up, str_of(text), done, s);
	r = wait_for(s);
	if (r < 0) {
		volume_upload_abort(s->up);
		return r;
	}
	volume_upload_finish(s->up, entries, s);
	return wait_for(s);
}

static int read_back(struct scratch *s, const char *path, struct buf *out)
{
	struct volume_at where = at(s, path);
	int r;

	volume_open(s->book, &where, opened, s);
	r = wait_for(s);
	if (r < 0)
		return r;
	r = fd_read_all(s->fd, out);
	(void)close(s->fd);
	return r;
}

static int delete (struct scratch *s, const char *path)
{
	struct volume_at where = at(s, path);

	volume_delete(s->book, &where, done, s);
	return wait_for(s);
}

static int chmod_to(struct scratch *s, const char *path, int mode)
{
	struct volume_attr attr = { mode, VOLUME_KEEP, VOLUME_KEEP };
	struct volume_at where = at(s, path);

	volume_change(s->book, &where, &attr, entries, s);
	return wait_for(s);
}

/* A path below the volume's directory, as somebody inside it would name it. */
static const char *host_path(struct scratch *s, const char *name)
{
	(void)snprintf(s->text, sizeof s->text, "%s/volumes/%s/%s", s->dir, s->id, name);
	return s->text;
}

static size_t left_over(const struct scratch *s)
{
	struct stat st;
	char path[80];

	(void)snprintf(path, sizeof path, "%s/volumes/.incoming", s->dir);
	return stat(path, &st) == 0 ? (size_t)st.st_nlink : 0;
}

static void look_again(void *arg)
{
	struct scratch *s = arg;

	loop_stop(s->loop);
}

/* Lets the loop work for a moment; false after a minute of them. */
static bool work_on(struct scratch *s, int *turns)
{
	loop_timer_init(&s->look, s->loop, look_again, s);
	loop_timer_set(&s->look, time_now_ms() + 10);
	(void)wait_for(s);
	loop_timer_cancel(&s->look);
	return ++*turns < 6000;
}

static size_t wait_swept(struct scratch *s)
{
	int turns = 0;

	while (left_over(s) != 2 && work_on(s, &turns))
		;
	return left_over(s);
}

/* ---- tests ---- */

static const struct volume_owner t1 = { .team_id = "t1" }, t2 = { .team_id = "t2" };

TEST(volumes_are_a_teams_own_and_outlive_the_book)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	char token[VOLUME_TOKEN_SIZE], again[VOLUME_TOKEN_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "bad name"), -EINVAL);
	ASSERT_EQ(create(&s, "t1", "data"), 0);
	ASSERT(!volume_find(s.book, &t2, str_of(s.id)));
	ASSERT(!volume_find_name(s.book, &t2, STR("data")));
	ASSERT_STR(volume_find_name(s.book, &t1, STR("data"))->id, s.id);
	volume_token(s.book, volume_find(s.book, NULL, str_of(s.id)), token);
	ASSERT_EQ(make_dir(&s, "/d", false), 0);

	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_STR(volume_find(s.book, &t1, str_of(s.id))->name, "data");
	volume_token(s.book, volume_find(s.book, NULL, str_of(s.id)), again);
	ASSERT_STR(token, again);
	ASSERT_EQ(stat_of(&s, "d"), 0);
	volume_remove(s.book, &t2, str_of(s.id), "test", done, &s);
	ASSERT_EQ(wait_for(&s), -ENOENT);
	volume_remove(s.book, &t1, str_of(s.id), "test", done, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT(!volume_find(s.book, &t1, str_of(s.id)));
	ASSERT_EQ(create(&s, "t1", "data"), 0);
	ASSERT_EQ(create(&s, "t2", "data"), 0);
	ASSERT_EQ(create(&s, "t2", "data"), -EINVAL);
	ASSERT(strstr(s.text, "exists already"));
}

static void count_volume(void *arg, const struct volume *v)
{
	(void)v;
	++*(size_t *)arg;
}

TEST(what_an_agent_made_is_all_that_it_sees)
{
	static const struct volume_owner one = { "t1", "one" }, two = { "t1", "two" };
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct err e = { 0 };
	size_t n = 0;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "teams"), 0);
	ASSERT(!volume_find(s.book, &one, str_of(s.id)));
	ASSERT(!volume_find_name(s.book, &one, STR("teams")));
	volume_remove(s.book, &one, str_of(s.id), "test", done, &s);
	ASSERT_EQ(wait_for(&s), -ENOENT);
	volume_rotate_token(s.book, &one, str_of(s.id), "test", made, &s);
	ASSERT_EQ(wait_for(&s), -ENOENT);

	ASSERT_EQ(create_as(&s, &one, "ones"), 0);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT(!volume_find_name(s.book, &two, STR("ones")));
	ASSERT_STR(volume_find_name(s.book, &one, STR("ones"))->agent_id, "one");
	volume_each(s.book, &one, count_volume, &n);
	ASSERT_EQ(n, 1);
	volume_each(s.book, &t1, count_volume, &n);
	ASSERT_EQ(n, 1 + 2);
	volume_remove(s.book, &one, str_of(volume_find_name(s.book, &t1, STR("ones"))->id), "test",
		done, &s);
	ASSERT_EQ(wait_for(&s), 0);
}

static void count_notice(void *arg)
{
	(*(int *)arg)++;
}

TEST(a_replaced_token_opens_nothing_also_after_a_restart)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	char first[VOLUME_TOKEN_SIZE], second[VOLUME_TOKEN_SIZE], id[UUID_SIZE];
	const struct volume *v;
	struct notice held = { 0 };
	struct err e = { 0 };
	int told = 0;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "data"), 0);
	v = volume_find(s.book, NULL, str_of(s.id));
	volume_token(s.book, v, first);
	volume_hold(s.book, v, &held, count_notice, &told);
	ASSERT(volume_opens(s.book, v, str_of(first)) && volume_is_token(s.book, str_of(first)));
	ASSERT(!volume_opens(s.book, NULL, str_of(first)));
	memcpy(id, s.id, sizeof id);
	volume_rotate_token(s.book, &t2, str_of(id), "test", made, &s);
	ASSERT_EQ(wait_for(&s), -ENOENT);
	ASSERT_EQ(told, 0);
	volume_rotate_token(s.book, &t1, str_of(id), "test", made, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_EQ(told, 1);

	ASSERT_EQ(open_book(&s, &e), 0);
	v = volume_find(s.book, NULL, str_of(s.id));
	volume_token(s.book, v, second);
	ASSERT(volume_opens(s.book, v, str_of(second)));
	ASSERT(!volume_opens(s.book, v, str_of(first)));
	ASSERT(!volume_is_token(s.book, str_of(first)));
	volume_hold(s.book, v, &held, count_notice, &told);
	volume_remove(s.book, &t1, str_of(s.id), "test", done, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_EQ(told, 2);
}

TEST(files_are_written_whole_read_and_replaced_only_when_asked)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	struct volume_at where;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(save(&s, "/a/b.txt", "x", false), -ENOENT);
	ASSERT_EQ(make_dir(&s, "/a/deep/er", false), -ENOENT);
	ASSERT_EQ(make_dir(&s, "/a/deep/er", true), 0);
	ASSERT_EQ(make_dir(&s, "/a/deep/er", true), 0);
	ASSERT_EQ(make_dir(&s, "/a/deep/er", false), -EEXIST);
	ASSERT_EQ(save(&s, "a//b.txt", "one", false), 0);
	ASSERT_STR(s.text, "/a/b.txt ");
	ASSERT_EQ(s.entry.mode, 0666);
	ASSERT_EQ(s.entry.size_bytes, 3);
	ASSERT_EQ(s.entry.uid, geteuid());
	ASSERT_EQ(chmod_to(&s, "/a/b.txt", 0600), 0);
	ASSERT_EQ(save(&s, "/a/b.txt", "two", false), -EEXIST);
	ASSERT_EQ(save(&s, "/a/b.txt", "three", true), 0);
	ASSERT_EQ(s.entry.mode, 0600);
	ASSERT_EQ(read_back(&s, "/a/b.txt", &text), 0);
	ASSERT_BYTES(buf_str(&text), "three");
	ASSERT_EQ(save(&s, "/a", "x", true), -EEXIST);
	ASSERT_EQ(save(&s, "/", "x", true), -EEXIST);
	ASSERT_EQ(read_back(&s, "/a", &text), -ENOENT);

	where = at(&s, "/half");
	volume_upload(s.book, &where, &keep, false, upload_begun, &s);
	ASSERT_EQ(wait_for(&s), 0);
	volume_upload_abort(s.up);
	ASSERT_EQ(stat_of(&s, "/half"), -ENOENT);
}

TEST(listings_go_as_deep_as_asked_and_trees_go_whatever_their_modes)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_at root;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(make_dir(&s, "/b/c", true), 0);
	ASSERT_EQ(save(&s, "/a", "x", false), 0);
	ASSERT_EQ(save(&s, "/b/c/f", "x", false), 0);
	root = at(&s, "/");
	volume_list(s.book, &root, 1, list_paths, listed, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_STR(s.text, "/a /b ");
	volume_list(s.book, &root, 3, list_paths, listed, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_STR(s.text, "/a /b /b/c /b/c/f ");
	root = at(&s, "/a");
	volume_list(s.book, &root, 1, list_paths, listed, &s);
	ASSERT_EQ(wait_for(&s), -ENOENT);

	ASSERT_EQ(chmod_to(&s, "/b/c", 0), 0);
	ASSERT_EQ(delete (&s, "/b"), 0);
	ASSERT_EQ(stat_of(&s, "/b"), -ENOENT);
	ASSERT_EQ(delete (&s, "/b"), -ENOENT);
	ASSERT_EQ(delete (&s, "/"), -EINVAL);
	ASSERT_EQ(wait_swept(&s), 2);
}

static int make_files(struct scratch *s, const char *dir, int n)
{
	cleanup_close int fd = open(host_path(s, dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[16];
	int r = 0;

	for (int i = 0; r == 0 && i < n; i++) {
		(void)snprintf(name, sizeof name, "f%d", i);
		r = mknodat(fd, name, S_IFREG | 0600, 0);
	}
	return r;
}

TEST(a_listing_ends_at_its_limit_however_the_entries_lie)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_at root;
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(make_dir(&s, "/a", false), 0);
	/* Each is listed before the rest of what is above it is. */
	ASSERT_EQ(make_files(&s, "a", VOLUME_MAX_LISTED / 2), 0);
	ASSERT_EQ(make_files(&s, "", VOLUME_MAX_LISTED / 2), 0);
	root = at(&s, "/");
	volume_list(s.book, &root, 2, list_paths, listed, &s);
	ASSERT_EQ(wait_for(&s), -E2BIG);
	volume_list(s.book, &root, 1, list_paths, listed, &s);
	ASSERT_EQ(wait_for(&s), 0);
}

/* Deeper than any path can name, as a sandbox may make it, and with no way in. */
static int make_well(struct scratch *s, const char *name, int depth)
{
	cleanup_close int fd = open(host_path(s, ""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = mkdirat(fd, name, 0700);

	for (int i = 0; r == 0 && i < depth; i++) {
		int next = openat(fd, i ? "d" : name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		(void)close(fd);
		fd = next;
		r = mkdirat(fd, "d", 0700) < 0 || (i % 100 == 0 && mkdirat(fd, "e", 0) < 0) ? -1
											    : 0;
	}
	return r;
}

TEST(a_tree_of_any_depth_is_removed_and_leaves_nothing)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(make_well(&s, "well", 2000), 0);
	ASSERT_EQ(delete (&s, "/well"), 0);
	ASSERT_EQ(stat_of(&s, "/well"), -ENOENT); /* the rest of it goes in the background */
	ASSERT_EQ(wait_swept(&s), 2);
	/* A volume goes the same way. */
	ASSERT_EQ(make_well(&s, "well", 2000), 0);
	volume_remove(s.book, &t1, str_of(s.id), "test", done, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_EQ(wait_swept(&s), 2);
}

TEST(many_removals_at_once_hold_nobody_up)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct err e = { 0 };
	char name[16], path[16];

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	for (int i = 0; i < 8; i++) { /* more than there are threads */
		(void)snprintf(name, sizeof name, "well%d", i);
		(void)snprintf(path, sizeof path, "/well%d", i);
		ASSERT_EQ(make_well(&s, name, 500), 0);
		ASSERT_EQ(delete (&s, path), 0);
	}
	/* Not to the same one: it was too deep to be measured, and nobody has looked again. */
	ASSERT_EQ(create(&s, "t1", "w"), 0);
	ASSERT_EQ(save(&s, "/f", "x", false), 0);
	ASSERT_EQ(wait_swept(&s), 2);
}

TEST(a_server_that_ends_while_trees_are_removed_leaves_the_rest_to_the_next)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct err e = { 0 };

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(make_well(&s, "well", 500), 0);
		ASSERT_EQ(delete (&s, "/well"), 0);
	}
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(wait_swept(&s), 2);
}

static int64_t used(struct scratch *s)
{
	struct volume_use use;

	volume_use(s->book, volume_find(s->book, NULL, str_of(s->id)), &use);
	return use.used_bytes;
}

/* As a sandbox does, past all of us. */
static int fill(struct scratch *s, const char *name, size_t bytes)
{
	cleanup_close int fd =
		open(host_path(s, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	cleanup_free char *text = xcalloc(1, bytes);

	memset(text, 'x', bytes);
	return fd_write_all(fd, text, bytes);
}

TEST(a_volume_that_was_filled_from_inside_takes_no_more)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_team_use team;
	struct err e = { 0 };
	int turns = 0;

	s.ceilings.v[LIMIT_VOLUME_SIZE] = 2;
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(save(&s, "/before", "x", false), 0);
	ASSERT_EQ(fill(&s, "inside", 3 << 20), 0);
	while (used(&s) < 3 << 20 && work_on(&s, &turns))
		;
	ASSERT(used(&s) >= 3 << 20);
	ASSERT_EQ(save(&s, "/more", "x", false), -ENOSPC);
	ASSERT_STR(s.text, "the volume 'v' is full: its limit of 2 MiB was reached");
	ASSERT_EQ(make_dir(&s, "/d", false), -ENOSPC);
	ASSERT_EQ(delete (&s, "/before"), 0); /* which still helps */
	volume_team_use(s.book, "t1", &team);
	ASSERT_EQ(team.count, 1);
	ASSERT(team.used_bytes >= 3 << 20);
	/* Others go on. */
	ASSERT_EQ(create(&s, "t2", "w"), 0);
	ASSERT_EQ(save(&s, "/f", "x", false), 0);
}

static int make_names(struct scratch *s, int n)
{
	char name[16];
	int r = 0;

	for (int i = 0; r >= 0 && i < n; i++) {
		(void)snprintf(name, sizeof name, "n%d", i);
		r = fill(s, name, 1);
	}
	return r;
}

/* It could be kept from its end for ever, and no other volume would be measured. */
TEST(a_volume_that_cannot_be_measured_in_time_counts_as_full)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF, .walk_ms = 1 };
	char many[UUID_SIZE], few[UUID_SIZE];
	struct err e = { 0 };
	int turns = 0, r = 0;

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "many"), 0);
	memcpy(many, s.id, sizeof many);
	ASSERT_EQ(create(&s, "t2", "few"), 0);
	memcpy(few, s.id, sizeof few);
	ASSERT_EQ(fill(&s, "inside", 1 << 20), 0);
	memcpy(s.id, many, sizeof many);
	ASSERT_EQ(make_names(&s, 8000), 0);
	(void)work_on(&s, &turns); /* its clock stood still meanwhile */
	do {
		r = save(&s, "/more", "x", true);
	} while (r != -ENOSPC && work_on(&s, &turns));
	ASSERT_EQ(r, -ENOSPC);
	ASSERT(strstr(s.text, "it counts as full"));
	/* Others are measured, and go on. */
	memcpy(s.id, few, sizeof few);
	while (used(&s) < 1 << 20 && work_on(&s, &turns))
		;
	ASSERT(used(&s) >= 1 << 20);
	ASSERT_EQ(save(&s, "/f", "x", false), 0);
}

TEST(an_upload_ends_at_the_volumes_limit_and_gives_back_what_it_took)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	cleanup_free char *text = xcalloc(1, (2 << 20) + 1);
	struct volume_at where;
	struct err e = { 0 };

	memset(text, 'x', 2 << 20);
	s.ceilings.v[LIMIT_VOLUME_STORAGE] = 3;
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	where = at(&s, "/f");
	volume_upload(s.book, &where, &keep, false, upload_begun, &s);
	ASSERT_EQ(wait_for(&s), 0);
	volume_upload_write(s.up, str_of(text), done, &s);
	ASSERT_EQ(wait_for(&s), 0);
	volume_upload_write(s.up, str_of(text), done, &s);
	ASSERT_EQ(wait_for(&s), -ENOSPC);
	ASSERT(strstr(s.text, "limit of 3 MiB in all"));
	volume_upload_abort(s.up);
	ASSERT_EQ(save(&s, "/g", text, false), 0);
	ASSERT_EQ(wait_swept(&s), 2);
}

TEST(a_team_has_as_many_volumes_as_it_may)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct err e = { 0 };

	s.ceilings.v[LIMIT_VOLUMES] = 1;
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "one"), 0);
	ASSERT_EQ(create(&s, "t1", "two"), -EDQUOT);
	ASSERT_EQ(create(&s, "t2", "two"), 0);
}

TEST(owners_are_given_and_kept_when_a_file_is_replaced)
{
	static const struct volume_attr user = { 0640, 1000, 1001 };
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_at where;
	struct err e = { 0 };

	if (geteuid() != 0)
		TEST_SKIP("only root gives files away");
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(save(&s, "/f", "x", false), 0);
	where = at(&s, "/f");
	volume_change(s.book, &where, &user, entries, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_EQ(s.entry.uid, 1000);
	ASSERT_EQ(save(&s, "/f", "y", true), 0);
	ASSERT_EQ(s.entry.uid, 1000);
	ASSERT_EQ(s.entry.gid, 1001);
	ASSERT_EQ(s.entry.mode, 0640);
	where = at(&s, "/d");
	volume_mkdir(s.book, &where, &user, false, entries, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_EQ(s.entry.gid, 1001);
	/* A link's own owner, not that of where it leads. */
	ASSERT_EQ(symlink("f", host_path(&s, "link")), 0);
	where = at(&s, "/link");
	volume_change(s.book, &where, &(struct volume_attr){ VOLUME_KEEP, 5, 5 }, entries, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT_EQ(s.entry.uid, 5);
	ASSERT_EQ(stat_of(&s, "/f"), 0);
	ASSERT_EQ(s.entry.uid, 1000);
}

TEST(links_made_by_a_sandbox_never_lead_out)
{
	static const char *const links[][2] = { { "/etc", "abs" }, { "../../../../etc", "up" },
		{ "/proc/self/root/etc", "magic" }, { "loop", "loop" } };
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	struct err e = { 0 };
	char path[64];

	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		ASSERT_EQ(symlink(links[i][0], host_path(&s, links[i][1])), 0);
		(void)snprintf(path, sizeof path, "/%s/passwd", links[i][1]);
		ASSERT(stat_of(&s, path) < 0);
		ASSERT(read_back(&s, path, &text) < 0);
		(void)snprintf(path, sizeof path, "/%s/planted", links[i][1]);
		ASSERT(save(&s, path, "x", true) < 0);
		ASSERT(make_dir(&s, path, true) < 0);
		ASSERT(delete (&s, path) < 0);
		(void)snprintf(path, sizeof path, "/%s", links[i][1]);
		ASSERT_EQ(stat_of(&s, path), 0);
		ASSERT_EQ(s.entry.type, VOLUME_SYMLINK);
		ASSERT_EQ(chmod_to(&s, path, 0777), -EINVAL);
		ASSERT_EQ(save(&s, path, "mine", true), 0);
		ASSERT_EQ(s.entry.type, VOLUME_FILE);
	}
	ASSERT(access("/etc/planted", F_OK) < 0);
	ASSERT_EQ(make_dir(&s, "/etc", false), 0);
	ASSERT_EQ(symlink("/etc", host_path(&s, "inside")), 0);
	ASSERT_EQ(save(&s, "/inside/ok", "x", false), 0);
	ASSERT_EQ(stat_of(&s, "/etc/ok"), 0);
	ASSERT_EQ(mkfifo(host_path(&s, "fifo"), 0600), 0);
	ASSERT_EQ(read_back(&s, "/fifo", &text), -EINVAL);
}

TEST(what_is_no_path_is_refused)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	char long_name[400], long_path[5000];
	struct volume_at where;
	struct err e = { 0 };

	memset(long_name, 'n', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	memset(long_path, '/', sizeof long_path - 1);
	long_path[sizeof long_path - 1] = '\0';
	ASSERT_EQ(scratch_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(stat_of(&s, long_name), -EINVAL);
	ASSERT_EQ(stat_of(&s, long_path), -EINVAL);
	ASSERT_EQ(stat_of(&s, "/\xff"), -EINVAL);
	where = (struct volume_at){ volume_find(s.book, NULL, str_of(s.id)), STR("a\0b") };
	volume_stat(s.book, &where, entries, &s);
	ASSERT_EQ(wait_for(&s), -EINVAL);
	ASSERT_EQ(stat_of(&s, ""), 0);
	ASSERT_STR(s.text, "/ ");
	ASSERT_EQ(stat_of(&s, "/../.."), 0);
	ASSERT_STR(s.text, "/ ");
}

/* ---- volumes that are file systems of their own ---- */

static int images_open(struct scratch *s, struct err *e)
{
	s->has_maker = true;
	s->ceilings.v[LIMIT_VOLUME_SIZE] = s->ceilings.v[LIMIT_VOLUME_STORAGE] = INT64_C(1) << 40;
	return scratch_open(s, e);
}

/* Descriptors of this process that lead below the image. */
static int count_open(const char *id)
{
	char link[64], to[PATH_MAX];
	int n = 0;

	for (int fd = 0; fd < 256; fd++) {
		ssize_t got;

		(void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		got = readlink(link, to, sizeof to - 1);
		to[MAX(got, (ssize_t)0)] = '\0';
		n += strstr(to, id) != NULL;
	}
	return n;
}

TEST(an_image_is_opened_once_and_closed_when_nobody_uses_it)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	struct volume_use use;
	struct err e = { 0 };
	int turns = 0;

	ASSERT_EQ(images_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(s.maker.made, 1);
	ASSERT_EQ(save(&s, "/f", "text", false), 0);
	ASSERT_EQ(make_dir(&s, "/d/e", true), 0);
	ASSERT_EQ(delete (&s, "/d"), 0);
	ASSERT_EQ(read_back(&s, "/f", &text), 0);
	ASSERT_BYTES(buf_str(&text), "text");
	ASSERT_EQ(access(image_path(&s, s.id, "data/f"), F_OK), 0);
	ASSERT_EQ(s.maker.opened, 1);
	volume_use(s.book, volume_find(s.book, NULL, str_of(s.id)), &use);
	ASSERT(use.is_hard);
	/* Used again and again it stays; what was removed has gone from beside it. */
	for (int i = 0; i < 20; i++) {
		ASSERT(work_on(&s, &turns));
		ASSERT_EQ(stat_of(&s, "/f"), 0);
	}
	ASSERT_EQ(s.maker.opened, 1);
	while (count_open(s.id) && work_on(&s, &turns))
		;
	ASSERT_EQ(count_open(s.id), 0);
	ASSERT(rmdir(image_path(&s, s.id, "beside")) == 0);
	ASSERT_EQ(mkdir(image_path(&s, s.id, "beside"), 0700), 0);
	ASSERT_EQ(stat_of(&s, "/f"), 0);
	ASSERT(s.maker.opened >= 2);
}

TEST(an_image_is_asked_how_much_is_in_it)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_use use = { .used_bytes = -1 };
	struct statvfs st;
	struct err e = { 0 };
	int turns = 0;

	ASSERT_EQ(images_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	while (use.used_bytes < 0 && work_on(&s, &turns))
		volume_use(s.book, volume_find(s.book, NULL, str_of(s.id)), &use);
	ASSERT_EQ(statvfs(image_path(&s, s.id, "data"), &st), 0);
	/* The double's file system is everybody's: about that much. */
	ASSERT(use.used_bytes > (int64_t)((st.f_blocks - st.f_bfree) * st.f_frsize) / 2);
}

TEST(what_an_earlier_server_left_beside_an_image_goes_before_anything_comes)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct err e = { 0 };
	int turns = 0;

	ASSERT_EQ(images_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	ASSERT_EQ(mkdir(image_path(&s, s.id, "beside/tree"), 0700), 0);
	ASSERT_EQ(mkdir(image_path(&s, s.id, "beside/tree/in"), 0700), 0);
	ASSERT_EQ(mkdir(image_path(&s, s.id, "beside/other"), 0700), 0);
	ASSERT_EQ(save(&s, "/f", "text", false), 0);
	while ((access(image_path(&s, s.id, "beside/tree"), F_OK) == 0 ||
		       access(image_path(&s, s.id, "beside/other"), F_OK) == 0) &&
		work_on(&s, &turns))
		;
	ASSERT(access(image_path(&s, s.id, "beside/tree"), F_OK) < 0);
	ASSERT(access(image_path(&s, s.id, "beside/other"), F_OK) < 0);
	ASSERT_EQ(stat_of(&s, "/f"), 0);
}

TEST(images_without_a_row_go_and_a_volume_that_is_refused_makes_none)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	static const char other[] = "0f8a6c1e-11d2-4a57-9f3b-6f2a0c9d7e55";
	char kept[UUID_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(images_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	memcpy(kept, s.id, sizeof kept);
	ASSERT_EQ(create(&s, "t1", "v"), -EINVAL);
	ASSERT_EQ(s.maker.made, 1);
	s.maker.code = -ENOSPC;
	ASSERT_EQ(create(&s, "t1", "w"), -ENOSPC);
	ASSERT_EQ(s.maker.removed, 0);
	ASSERT_EQ(mkdir(image_path(&s, other, ""), 0700), 0);
	ASSERT_EQ(mkdir(image_path(&s, ".seed-1", ""), 0700), 0);
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT(access(image_path(&s, other, ""), F_OK) < 0);
	ASSERT_EQ(access(image_path(&s, ".seed-1", ""), F_OK), 0);
	ASSERT_EQ(access(image_path(&s, kept, "data"), F_OK), 0);
	volume_remove(s.book, &t1, str_of(kept), "test", done, &s);
	ASSERT_EQ(wait_for(&s), 0);
	ASSERT(access(image_path(&s, kept, ""), F_OK) < 0);
}

TEST(where_there_are_no_images_volumes_are_plain_and_plain_ones_stay)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_use use;
	char plain[UUID_SIZE];
	struct err e = { 0 };

	ASSERT_EQ(images_open(&s, &e), 0);
	s.maker.code = -EOPNOTSUPP;
	ASSERT_EQ(create(&s, "t1", "plain"), 0);
	ASSERT_EQ(save(&s, "/f", "text", false), 0);
	memcpy(plain, s.id, sizeof plain);
	s.maker.code = 0;
	ASSERT_EQ(open_book(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "image"), 0);
	memcpy(s.id, plain, sizeof plain);
	ASSERT_EQ(stat_of(&s, "/f"), 0);
	ASSERT_EQ(access(host_path(&s, "f"), F_OK), 0);
	volume_use(s.book, volume_find(s.book, NULL, str_of(plain)), &use);
	ASSERT(!use.is_hard);
	ASSERT_EQ(s.maker.opened, 0);
}

TEST(who_waits_for_an_image_hears_when_the_server_stops_and_a_late_answer_leaks_nothing)
{
	CLEANUP(scratch_done) struct scratch s = { .fd = -EBADF };
	struct volume_at where;
	struct err e = { 0 };

	ASSERT_EQ(images_open(&s, &e), 0);
	ASSERT_EQ(create(&s, "t1", "v"), 0);
	s.maker.is_silent = true;
	where = at(&s, "/f");
	volume_stat(s.book, &where, entries, &s);
	s.r = 1;
	volume_book_rest(s.book);
	ASSERT_EQ(wait_for(&s), -ECANCELED);
	s.maker.is_silent = false;
	open_image(&s, s.id, s.maker.late_fn, s.maker.late_arg);
	ASSERT_EQ(stat_of(&s, "/f"), -EIO);
	ASSERT_EQ(count_open(s.id), 0);
}
