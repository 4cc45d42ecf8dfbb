#include "warden/leftover.h"
#include "warden/firewall.h"
#include "warden/freezer.h"
#include "warden/fuse.h"
#include "warden/loopdev.h"
#include "warden/net.h"
#include "warden/netlink.h"
#include "warden/nft.h"
#include "warden/owner.h"
#include "warden/worker.h"

#include <ctype.h>
#include <dirent.h>
#include <linux/loop.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <time.h>

enum {
	INSTANCE_LENGTH = 8,
	MAX_INSTANCES = 1024,
	MAX_KEYS = 2 * NET_MAX_NUMBER, /* slots, and some that were being removed */
	MAX_TOLD = 8,
	BACKING_BYTES = 8192,
	END_MS = 30000, /* that processes, and what goes with them, take to be gone */
	LOOK_MS = 20,
	TEXT_BYTES = 8192,
};

struct counts {
	size_t sandboxes, processes, interfaces, loops, tables;
};

struct leftover {
	char instance[INSTANCE_LENGTH + 1], table[24];
	struct cgroups cg;
	enum owner_fate fate;
	struct owner owner;
	bool is_taken;   /* a server has come meanwhile, and it is all that one's */
	bool is_foreign; /* a process of it is in a namespace that is not ours to look into */
	char (*keys)[SLOT_KEY_SIZE];
	uint32_t *indices; /* of interfaces */
	size_t n_keys, n_indices;
	size_t n_processes, n_tables;
};

/* ---- instances ---- */

struct instances {
	char names[MAX_INSTANCES][INSTANCE_LENGTH + 1];
	size_t n;
};

/* Others than ours may be there, such as one that a probe makes. */
static bool is_instance(const char *name)
{
	for (size_t i = 0; name[i]; i++)
		if (i >= INSTANCE_LENGTH || !isxdigit((unsigned char)name[i]))
			return false;
	return strlen(name) == INSTANCE_LENGTH;
}

static void note_instance(void *arg, const char *name)
{
	struct instances *all = arg;

	if (!is_instance(name) || all->n == MAX_INSTANCES)
		return;
	for (size_t i = 0; i < all->n; i++)
		if (strcmp(all->names[i], name) == 0)
			return;
	(void)snprintf(all->names[all->n++], sizeof all->names[0], "%s", name);
}

/* ---- what is there of one ---- */

static void note_key(void *arg, const char *key)
{
	struct leftover *l = arg;

	if (strlen(key) != SLOT_KEY_SIZE - 1 || l->n_keys == MAX_KEYS)
		return;
	for (size_t i = 0; i < l->n_keys; i++)
		if (strcmp(l->keys[i], key) == 0)
			return;
	memcpy(l->keys[l->n_keys++], key, SLOT_KEY_SIZE);
}

static void count_process(void *arg, pid_t pid)
{
	struct leftover *l = arg;

	l->n_processes++;
	l->is_foreign |= pid == 0;
}

static void note_table(void *arg, const char *name)
{
	struct leftover *l = arg;

	l->n_tables += strcmp(name, l->table) == 0;
}

static void note_interface(void *arg, const struct nft_member *member)
{
	struct leftover *l = arg;

	if (l->n_indices < NET_MAX_NUMBER)
		l->indices[l->n_indices++] = member->index;
}

static void look_at_table(struct leftover *l)
{
	cleanup_close int fd = -EBADF;

	l->n_tables = 0;
	if (nft_open(&fd, NULL) >= 0)
		(void)nft_each_table(fd, note_table, l);
}

/* One of the old hierarchies has them all, and so has the unified one: those of one are counted. */
static void count_processes(struct leftover *l)
{
	struct cgroups one = CGROUPS_INIT;

	l->n_processes = 0;
	one.unified_fd = l->cg.unified_fd;
	for (size_t i = 0; one.unified_fd < 0 && i < CGROUP_CONTROLLERS; i++)
		one.unified_fd = l->cg.legacy_fd[i];
	for (size_t i = 0; i < l->n_keys; i++)
		cgroup_each_process(&one, l->keys[i], count_process, l);
}

static int leftover_open(const char *instance, struct leftover *ret)
{
	struct leftover l = { .cg = CGROUPS_INIT };
	cleanup_close int fd = -EBADF;
	int r = cgroups_open_found(&l.cg, instance, NULL);

	if (r < 0)
		return r;
	(void)snprintf(l.instance, sizeof l.instance, "%s", instance);
	(void)snprintf(l.table, sizeof l.table, "atoll_%s", instance);
	l.keys = xcalloc(MAX_KEYS, sizeof *l.keys);
	l.indices = XNEW_N(uint32_t, NET_MAX_NUMBER);
	l.fate = owner_judge(&l.cg, &l.owner);
	cgroup_each(&l.cg, note_key, &l);
	count_processes(&l);
	look_at_table(&l);
	if (l.n_tables && nft_open(&fd, NULL) >= 0)
		(void)nft_each_member(fd, l.table, "mine", note_interface, &l);
	*ret = l;
	return 0;
}

static void leftover_done(struct leftover *l)
{
	cgroups_close_found(&l->cg);
	free(l->keys);
	free(l->indices);
}

/* Its interfaces were in its own table; a name that is not ours is another's all the same. */
static bool is_interface(uint32_t index)
{
	char name[IF_NAMESIZE];

	return if_indextoname(index, name) && str_has_prefix(str_of(name), STR("atoll"));
}

/* Disks in the pool have the key in their names, and nothing else has; those beside it, and the
 * pool, were files of the directory. */
static bool is_disk_of(const struct leftover *l, struct str backing)
{
	static const struct str deleted = { " (deleted)", 10 };
	struct str path = str_of(l->owner.path), end;

	for (size_t i = 0; i < l->n_keys; i++)
		if (memmem(backing.p, backing.n, l->keys[i], SLOT_KEY_SIZE - 1))
			return true;
	if (path.n == 0 || !str_has_prefix(backing, path) || backing.n <= path.n + deleted.n)
		return false;
	end = str_from(backing, backing.n - deleted.n);
	return backing.p[path.n] == '/' && str_eq(end, deleted);
}

static size_t each_loop(const struct leftover *l, void (*fn)(const char *name))
{
	DIR *dir = opendir("/sys/block");
	struct dirent *entry;
	size_t n = 0;

	while (dir && (entry = readdir(dir))) {
		CLEANUP(buf_done) struct buf text = BUF_INIT(BACKING_BYTES);
		struct str rest, line = STR_NONE;
		char path[300];

		(void)snprintf(path, sizeof path, "/sys/block/%s/loop/backing_file", entry->d_name);
		if (!str_has_prefix(str_of(entry->d_name), STR("loop")) ||
			file_read(AT_FDCWD, path, &text, NULL) < 0)
			continue;
		rest = buf_str(&text);
		if (!str_split(&rest, '\n', &line) || !is_disk_of(l, line))
			continue;
		n++;
		if (fn)
			fn(entry->d_name);
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

static struct counts counts_of(const struct leftover *l)
{
	struct counts c = { .sandboxes = l->n_keys,
		.processes = l->n_processes,
		.tables = l->n_tables,
		.loops = each_loop(l, NULL) };

	for (size_t i = 0; i < l->n_indices; i++)
		c.interfaces += is_interface(l->indices[i]);
	return c;
}

static bool is_nothing(const struct counts *c)
{
	return !c->sandboxes && !c->processes && !c->interfaces && !c->loops && !c->tables;
}

/* ---- telling ---- */

static void add_count(struct buf *out, size_t n, const char *one, const char *many)
{
	if (n)
		(void)buf_printf(out, "%s%zu %s", out->n ? ", " : "", n, n == 1 ? one : many);
}

static void add_counts(struct buf *out, const struct counts *c)
{
	add_count(out, c->sandboxes, "sandbox", "sandboxes");
	add_count(out, c->processes, "process", "processes");
	add_count(out, c->interfaces, "interface", "interfaces");
	add_count(out, c->loops, "loop device", "loop devices");
	add_count(out, c->tables, "nftables table", "nftables tables");
}

/* A path may have tabs and ends of lines in it, which have a meaning in what is told. */
static void tell(const char *verdict, struct buf *text, const char *fix)
{
	for (size_t i = 0; i < text->n; i++)
		if ((unsigned char)text->p[i] < ' ')
			text->p[i] = '?';
	(void)printf("leftovers\t%s\t%.*s\t%s\n", verdict, STR_ARG(buf_str(text)), fix);
}

/* False: it is none, or nothing needs to be said. */
static bool tell_one(const struct leftover *l)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TEXT_BYTES);
	struct counts c = counts_of(l);

	if (l->fate == OWNER_GONE && l->is_foreign) {
		(void)buf_printf(&text,
			"%zu sandboxes of %s, which is gone, run in another process "
			"namespace",
			c.sandboxes, l->owner.path);
		tell("warn", &text,
			"run sudo atoll doctor --sweep there, or outside of containers");
		return true;
	}
	if (l->fate == OWNER_GONE) {
		add_counts(&text, &c);
		(void)buf_printf(&text, "%s of %s, which is gone",
			is_nothing(&c) ? "empty cgroups" : "", l->owner.path);
		tell("warn", &text, "sudo atoll doctor --sweep");
		return true;
	}
	if (l->fate == OWNER_LIVES && l->owner.path[0] && owner_look(&l->owner) == OWNER_GONE) {
		(void)buf_printf(&text, "a server runs on %s, which is gone", l->owner.path);
		tell("warn", &text, "stop that server, then sudo atoll doctor --sweep");
		return true;
	}
	if (l->fate == OWNER_UNKNOWN && l->n_processes && l->owner.path[0]) {
		add_count(&text, l->n_keys, "sandbox", "sandboxes");
		(void)buf_printf(&text, " of %s, which may be gone or not (cgroups atoll/%s)",
			l->owner.path, l->instance);
		tell("warn", &text,
			"start a server on that directory, which takes them over; to remove them, "
			"move it away, run sudo atoll doctor --sweep where that server ran, and "
			"move it back");
		return true;
	}
	if (l->fate == OWNER_UNKNOWN && l->n_processes) {
		(void)buf_printf(&text,
			"%zu sandboxes of a server that cannot be found (cgroups "
			"atoll/%s)",
			c.sandboxes, l->instance);
		tell("warn", &text,
			"start this version on their data directory, which labels them, or mount "
			"its file system");
		return true;
	}
	return false;
}

void leftovers_tell(void)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TEXT_BYTES);
	cleanup_free struct instances *all = XNEW(struct instances);
	size_t told = 0;

	if (geteuid() != 0 || cgroups_each_instance(note_instance, all, NULL) < 0)
		return;
	for (size_t i = 0; i < all->n && told < MAX_TOLD; i++) {
		CLEANUP(leftover_done) struct leftover l = { .cg = CGROUPS_INIT };

		told += leftover_open(all->names[i], &l) >= 0 && tell_one(&l);
	}
	if (told)
		return;
	(void)buf_adds(&text, "no sandbox has outlived its data directory");
	tell("ok", &text, "");
}

/* ---- sweeping ---- */

/* To be asked before each thing that is done to it. */
static bool may_go_on(struct leftover *l)
{
	l->is_taken = l->is_taken || !owner_is_still_gone(&l->cg, &l->owner);
	return !l->is_taken;
}

static void kill_process(void *arg, pid_t pid)
{
	const struct leftover *l = arg;
	cleanup_close int fd = pid > 0 ? pidfd_open(pid, 0) : -EBADF;

	/* Held by the descriptor, and then found to be in it: a number may have gone to another. */
	for (size_t i = 0; fd >= 0 && i < l->n_keys; i++)
		if (cgroup_holds(&l->cg, l->keys[i], pid)) {
			(void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
			return;
		}
}

static void cut(void *arg, pid_t pid)
{
	(void)arg;
	if (pid > 0)
		fuse_cut_of(pid);
}

static void kill_all(struct leftover *l)
{
	for (size_t i = 0; i < l->n_keys && may_go_on(l); i++) {
		struct freezer f;

		if (!cgroup_kill(&l->cg, l->keys[i]))
			cgroup_each_process(&l->cg, l->keys[i], kill_process, l);
		/* What the old freezer holds dies when it is let go. */
		if (freezer_open(&l->cg, l->keys[i], &f, NULL) >= 0) {
			(void)freezer_order(&f, false);
			freezer_close(&f);
		}
		/* Nor what waits for a file system that another of them served. */
		cgroup_each_process(&l->cg, l->keys[i], cut, NULL);
	}
}

static void remove_table(const struct leftover *l)
{
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(l->table, 0);
	cleanup_close int fd = -EBADF;

	nft_remove_table(nft);
	if (nft_open(&fd, NULL) >= 0)
		(void)nft_commit(fd, nft);
}

static void remove_interface(uint32_t index)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct ifinfomsg head = { .ifi_index = (int)index };
	cleanup_close int fd = -EBADF;

	netlink_begin(&b, RTM_DELLINK, 0, &head, sizeof head);
	if (is_interface(index) && netlink_open(NETLINK_ROUTE, &fd, NULL) >= 0)
		(void)netlink_run(fd, &b);
}

/* Its last user gone, a device clears itself; one that is told to while it is used does so then. */
static void clear_loop(const char *name)
{
	cleanup_close int fd = -EBADF;
	char path[300];

	(void)snprintf(path, sizeof path, "/dev/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)ioctl(fd, LOOP_CLR_FD, 0);
}

static void look_again(struct leftover *l)
{
	size_t left = 0;

	count_processes(l);
	look_at_table(l);
	for (size_t i = 0; i < l->n_keys; i++)
		if (!may_go_on(l) || cgroup_remove(&l->cg, l->keys[i]) < 0)
			memmove(l->keys[left++], l->keys[i], sizeof *l->keys);
	l->n_keys = left;
}

static bool wait_until_gone(struct leftover *l, int64_t for_ms)
{
	static const struct timespec pause = { .tv_nsec = LOOK_MS * 1000000L };
	int64_t until_ms = time_now_ms() + for_ms;

	for (;;) {
		struct counts c;

		look_again(l);
		c = counts_of(l);
		c.tables = 0; /* the last to go */
		if (is_nothing(&c))
			return true;
		if (!may_go_on(l) || time_now_ms() >= until_ms)
			return false;
		(void)nanosleep(&pause, NULL);
	}
}

/* The interfaces go with the namespaces of their processes, the devices with the mounts there; what
 * a server had not finished making may be outside of them. */
static void sweep(struct leftover *l)
{
	kill_all(l);
	if (!wait_until_gone(l, END_MS)) {
		for (size_t i = 0; i < l->n_indices && may_go_on(l); i++)
			remove_interface(l->indices[i]);
		if (may_go_on(l))
			(void)each_loop(l, clear_loop);
		(void)wait_until_gone(l, END_MS / 10);
	}
	if (may_go_on(l))
		remove_table(l);
	look_again(l);
	if (l->n_keys == 0 && may_go_on(l))
		cgroups_remove_found(&l->cg);
}

/* The locks that judging took are held until it is done: nobody else sweeps it meanwhile. A server
 * that is started does not wait for them, but labels it. */
static int sweep_one(const char *instance)
{
	CLEANUP(leftover_done) struct leftover l = { .cg = CGROUPS_INIT };
	CLEANUP(buf_done) struct buf text = BUF_INIT(TEXT_BYTES);
	struct counts before, after;

	if (leftover_open(instance, &l) < 0 || l.fate != OWNER_GONE || l.is_foreign)
		return 0;
	before = counts_of(&l);
	sweep(&l);
	after = counts_of(&l);
	if (l.is_taken) {
		(void)buf_printf(&text,
			"what is left of %s, on which a server was started meanwhile",
			l.owner.path);
		tell("warn", &text, "");
		return 0;
	}
	add_counts(&text, is_nothing(&after) ? &before : &after);
	(void)buf_printf(&text, "%s of %s", is_nothing(&before) ? "empty cgroups" : "",
		l.owner.path);
	tell(is_nothing(&after) ? "ok" : "fail", &text, "");
	return is_nothing(&after) ? 0 : 1;
}

/* What is nobody's once no sandbox and no server is left in this network. */
static void sweep_network(void)
{
	cleanup_free struct firewall *fw = XNEW(struct firewall);
	struct network net = NETWORK_INIT;

	*fw = (struct firewall)FIREWALL_INIT;
	if (net_look(&net, NULL) >= 0 && nft_open(&fw->nft_fd, NULL) >= 0 && net_is_last(&net)) {
		fw->enabled = true;
		firewall_remove_all(fw);
	}
	close_fdp(&fw->nft_fd);
	net_close(&net);
}

int leftovers_sweep(void)
{
	cleanup_free struct instances *all = XNEW(struct instances);
	struct err e = { 0 };
	int failed = 0;

	if (geteuid() != 0)
		(void)err_set(&e, -EPERM, "only root may remove what servers left");
	else
		(void)cgroups_each_instance(note_instance, all, &e);
	if (e.code < 0) {
		(void)fprintf(stderr, "atoll-warden: %s\n", e.msg);
		return 1;
	}
	for (size_t i = 0; i < all->n; i++)
		failed |= sweep_one(all->names[i]);
	sweep_network();
	return failed;
}
