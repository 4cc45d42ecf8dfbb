/* The beginning and the end of a warden: finding its directories and the host's abilities, taking
 * over what an earlier one left, and going without leaving anything that nobody knows. */
#include "warden/warden.h"
#include "warden/host.h"
#include "warden/owner.h"
#include "warden/saved.h"
#include "warden/state.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/sendfile.h>
#include <time.h>

enum {
	FAREWELL_MS = 10000,
	LOCK_DEADLINE_MS = FAREWELL_MS + 1000,
	LOCK_PAUSE_MS = 10,
	LOCK_AGAIN_MS = 100,
	CGROUPS_TRIES = 10,
	/* What a template that says nothing has: see src/limit. */
	DEFAULT_MEMORY_MB = 1024,
	DEFAULT_INODES_PER_MB = 64,
	DEFAULT_CPU_PERCENT = 200,
	DEFAULT_PIDS = 4096,
};

/* Whatever DATA itself may be: in these directories root alone chooses the names. */
int warden_open_own_dir(int at, const char *name, mode_t mode, int *ret, struct err *e)
{
	cleanup_close int fd = -EBADF;
	struct stat st;
	int r = dir_make(at, name, mode, e);

	if (r < 0)
		return r;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, -errno, "open %s in the data directory", name);
	if (st.st_uid != 0 || st.st_mode & 022)
		return err_set(e, -EPERM, "'%s' in the data directory must belong to root alone",
			name);
	*ret = TAKE_FD(fd);
	return 0;
}

/* A warden whose server was killed still takes its prepared slots down: its successor waits. */
static int take_lock(int fd, const char *data_dir, struct err *e)
{
	static const struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000L };
	int64_t deadline_ms = time_now_ms() + LOCK_DEADLINE_MS;

	while (file_lock_shared_by_forks(fd) < 0) {
		if (time_now_ms() > deadline_ms)
			return err_set(e, -EBUSY, "another warden works on %s", data_dir);
		(void)nanosleep(&pause, NULL);
	}
	return 0;
}

static int open_dirs(struct warden *w, int *ret_images, struct err *e)
{
	const struct options *o = w->options;
	cleanup_close int data = open(o->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (data < 0)
		return err_sys(e, -errno, "open data directory %s", o->data_dir);
	r = warden_open_own_dir(data, "run", 0711, &w->run_fd, e);
	if (r >= 0)
		r = warden_open_own_dir(data, "images", 0700, ret_images, e);
	if (r < 0)
		return r;
	if (!o->templates_dir)
		(void)mkdirat(data, "templates", 0755);
	w->templates_fd = openat(data, o->templates_dir ? o->templates_dir : "templates",
		O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->templates_fd < 0)
		return err_sys(e, -errno, "open the templates directory");
	/* What is in it is the server's, and looked at as such; without it there are no volumes. */
	w->volumes.dir_fd = openat(data, "volumes", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	w->lock_fd = openat(w->run_fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (w->lock_fd < 0)
		return err_sys(e, -errno, "open run/.lock");
	return take_lock(w->lock_fd, o->data_dir, e);
}

/* Short, and the same for the same directory whatever it is called by. */
static int instance_name(const char *data_dir, char ret[9], struct err *e)
{
	cleanup_free char *path = realpath(data_dir, NULL);
	uint8_t digest[SHA256_SIZE];

	if (!path)
		return err_sys(e, -errno, "find %s", data_dir);
	sha256(path, strlen(path), digest);
	hex_encode(digest, 4, ret);
	return 0;
}

static int own_directory(char *ret, size_t size, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", ret, size - 1);
	char *slash;

	if (n < 0)
		return err_sys(e, -errno, "read /proc/self/exe");
	ret[n] = '\0';
	slash = strrchr(ret, '/');
	if (slash)
		*slash = '\0';
	return 0;
}

static int copy_file(int from, int to, struct err *e)
{
	struct stat st;
	off_t at = 0;

	if (fstat(from, &st) < 0)
		return err_sys(e, -errno, "stat the guest program");
	while (at < st.st_size) {
		ssize_t n = sendfile(to, from, &at, (size_t)(st.st_size - at));

		if (n <= 0)
			return err_sys(e, n < 0 ? -errno : -EIO, "copy the guest program");
	}
	return 0;
}

static int exec_memfd(void)
{
	int fd = -1;

#ifdef MFD_EXEC
	fd = memfd_create("atoll-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
#endif
	return fd >= 0 ? fd : memfd_create("atoll-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

/* In memory and sealed: a template needs no copy of it, and nobody inside can change what the next
 * sandbox will run. */
static int load_program(const char *path, int *ret, struct err *e)
{
	cleanup_close int file = open(path, O_RDONLY | O_CLOEXEC), memory = exec_memfd();
	int r;

	if (file < 0)
		return err_sys(e, -errno, "open the guest program %s", path);
	if (memory < 0)
		return err_sys(e, -errno, "memfd_create");
	r = copy_file(file, memory, e);
	if (r < 0)
		return r;
	if (fcntl(memory, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) <
		0)
		return err_sys(e, -errno, "seal the guest program");
	*ret = TAKE_FD(memory);
	return 0;
}

/* Where the guest is built with parts that only the host has (sanitizers), a second one without
 * them lies beside it. */
static int load_guest(struct warden *w, struct err *e)
{
	char dir[3500], path[4096], inner[4096];
	int r = own_directory(dir, sizeof dir, e);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof path, "%s/atoll-guest", dir);
	(void)snprintf(inner, sizeof inner, "%s/atoll-guest-static", dir);
	if (w->options->guest_path)
		(void)snprintf(path, sizeof path, "%s", w->options->guest_path);
	r = load_program(path, &w->guest_fd, e);
	if (r < 0)
		return r;
	return load_program(access(inner, R_OK) == 0 ? inner : path, &w->inner_fd, e);
}

void warden_init(struct warden *w, const struct options *o)
{
	w->options = o;
	w->run_fd = w->templates_fd = w->guest_fd = w->inner_fd = w->lock_fd = -EBADF;
	w->cgroups = (struct cgroups)CGROUPS_INIT;
	w->network = (struct network)NETWORK_INIT;
	w->firewall = (struct firewall)FIREWALL_INIT;
	w->disk = (struct disk)DISK_INIT;
	w->rootfs = (struct rootfs)ROOTFS_INIT;
	w->volumes = (struct volumes)VOLUMES_INIT;
	list_init(&w->slots);
	list_init(&w->prepared);
	list_init(&w->booting);
	list_init(&w->spares);
	list_init(&w->replies);
	list_init(&w->discards);
	list_init(&w->kept_volumes);
	w->expected.disk_size = (struct disk_size){ (uint64_t)o->disk_mb << 20,
		(uint64_t)o->disk_mb * DEFAULT_INODES_PER_MB };
	w->expected.shm_bytes = (uint64_t)DEFAULT_MEMORY_MB / 2 << 20;
	w->expected.limits = (struct limits){ (uint64_t)DEFAULT_MEMORY_MB << 20,
		DEFAULT_CPU_PERCENT, DEFAULT_PIDS };
	(void)snprintf(w->expected.template_name, sizeof w->expected.template_name, "%s",
		o->template_name);
	w->expected.number = w->last_kind = 1;
	w->expected.uses = 1;
	w->kinds[0] = w->expected;
}

static int open_workers(struct warden *w, struct err *e)
{
	w->workers = (struct workers){ .run_fd = w->run_fd,
		.guest_fd = w->guest_fd,
		.server_uid = (uid_t)w->options->server_uid,
		.disk = &w->disk,
		.rootfs = &w->rootfs,
		.volumes = &w->volumes,
		.network = &w->network,
		.opened = &w->options->opened,
		.cgroups = &w->cgroups };
	return workers_open(&w->workers, w->loop, w->lock_fd, e);
}

/* A worker of the warden before may hold the lock for as long as the kernel keeps it. */
static void lock_cgroups(void *arg)
{
	struct warden *w = arg;
	struct err e = { 0 };

	if (owner_lock(&w->cgroups, &e) == -EWOULDBLOCK)
		loop_timer_set(&w->lock_timer, loop_now_ms(w->loop) + LOCK_AGAIN_MS);
	else
		still_settle(w);
	if (e.code < 0 && e.code != -EWOULDBLOCK)
		log_warn("warden.not_claimed", "err=%s", log_quote(str_of(e.msg)));
}

/* So that what lives on without us can be told from what nobody will ever take over. */
static void claim(struct warden *w, uint64_t mount_ns)
{
	struct owner owner;
	struct err e = { 0 };

	if (owner_describe(w->options->data_dir, mount_ns, &owner, &e) >= 0)
		(void)owner_label(&w->cgroups, &owner, &e);
	if (e.code < 0)
		log_warn("warden.not_claimed", "err=%s", log_quote(str_of(e.msg)));
}

/* Who sweeps what was left here may remove a directory before it sees our label in it. */
static int open_cgroups(struct warden *w, const char *instance, uint64_t mount_ns, struct err *e)
{
	int r = -EAGAIN;

	for (int i = 0; i < CGROUPS_TRIES && (r == -EAGAIN || r == -ENOENT); i++) {
		cgroups_close_found(&w->cgroups);
		r = cgroups_open(&w->cgroups, instance, e);
		if (r < 0)
			continue;
		claim(w, mount_ns);
		if (!cgroups_are_there(&w->cgroups))
			r = err_set(e, -EAGAIN, "somebody removes the cgroups atoll/%s", instance);
	}
	if (r < 0)
		return r;
	loop_timer_init(&w->lock_timer, w->loop, lock_cgroups, w);
	lock_cgroups(w);
	return 0;
}

int warden_open(struct warden *w, struct err *e)
{
	uint64_t mount_ns = owner_mount_ns(); /* before we have one of our own */
	char instance[9];
	int images = -EBADF, r;

	if (geteuid() != 0)
		return err_set(e, -EPERM, "the warden must be started by root");
	r = rootfs_open(&w->rootfs, w->options->attach_layers, e);
	if (r >= 0)
		r = open_dirs(w, &images, e);
	if (r >= 0)
		r = load_guest(w, e);
	if (r >= 0)
		r = instance_name(w->options->data_dir, instance, e);
	if (r >= 0)
		r = open_cgroups(w, instance, mount_ns, e);
	if (r >= 0)
		rootfs_use_dir(&w->rootfs, w->run_fd);
	if (r >= 0)
		r = net_parse(w->options->network, &w->network, e);
	if (r >= 0)
		r = net_open(&w->network, e);
	if (r >= 0)
		r = policy_open(w, instance, e);
	if (r < 0)
		close_fdp(&images);
	else
		r = disk_open(&w->disk, images, w->options->plain_layers, w->options->no_pool,
			&w->network, e);
	if (r < 0)
		return r;
	saved_tidy(&w->disk);
	if (volumes_find_images(w, e) < 0)
		log_error("volumes.no_images", "err=%s", log_quote(str_of(e->msg)));
	images_load(w);
	r = disk_prepare(&w->disk, w->expected.disk_size, e);
	return r < 0 ? r : open_workers(w, e);
}

void warden_close(struct warden *w)
{
	workers_close(&w->workers); /* those that save finish by themselves */
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		list_remove(&slot->node);
		loop_timer_cancel(&slot->timer);
		loop_timer_cancel(&slot->lost_timer);
		slot_let_go(slot);
		slot->work = NULL;
		slot->still = (struct warden_request){ 0 };
		still_end(slot);
		policy_forget(slot);
		later_free(slot);
		close_fdp(&slot->image.mount_fd);
		close_fdp(&slot->image.layer_fd);
		while (slot->n_volume_fds > 0)
			(void)close(slot->volume_fds[--slot->n_volume_fds]);
		free(slot);
	}
	spares_close(w);
	volumes_forget(w);
	images_close(w);
	loop_timer_cancel(&w->refill);
	loop_timer_cancel(&w->fade_timer);
	loop_timer_cancel(&w->farewell);
	loop_timer_cancel(&w->kept_timer);
	loop_timer_cancel(&w->lock_timer);
	hold_close(w);
	policy_close(w);
	map_done(&w->by_id);
	net_close(&w->network);
	cgroups_close(&w->cgroups);
	disk_close(&w->disk);
	close_fdp(&w->run_fd);
	close_fdp(&w->templates_fd);
	close_fdp(&w->volumes.dir_fd);
	close_fdp(&w->volumes.images_fd);
	close_fdp(&w->guest_fd);
	close_fdp(&w->inner_fd);
	close_fdp(&w->lock_fd);
}

/* A process that is what the file says, held by a descriptor: pids are used again. */
static int open_process(const struct warden *w, const struct state *s)
{
	int fd = pidfd_open(s->pid, 0);
	uint64_t start = 0;

	if (fd < 0)
		return -errno;
	if (process_start_time(s->pid, &start) < 0 || start != s->start_time ||
		!cgroup_holds(&w->cgroups, s->key, s->pid)) {
		(void)close(fd);
		return -ESRCH;
	}
	return fd;
}

static int open_net(pid_t pid)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -EBADF : fd;
}

static struct slot *slot_of_key(const struct warden *w, const char *key)
{
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (strcmp(slot->key, key) == 0)
			return slot;
	}
	return NULL;
}

/* A slot known only by its key. */
static struct slot *known_slot(struct warden *w, const char *key)
{
	struct slot *slot = slot_new(w, &w->expected);

	(void)snprintf(slot->key, sizeof slot->key, "%s", key);
	disk_find(&w->disk, key, &slot->image.is);
	return slot;
}

static void remove_leftover(void *arg, const char *key)
{
	struct warden *w = arg;
	struct err why = { .code = -ECANCELED };

	if (strlen(key) != SLOT_KEY_SIZE - 1 || slot_of_key(w, key))
		return;
	log_info("slot.leftover", "slot=%s", log_quote(str_of(key)));
	slot_end(known_slot(w, key), &why);
}

/* A sandbox that is no more: its name is free at once, the rest is a leftover like any other. */
static void bury(struct warden *w, const char *id, const char *key)
{
	char unnamed[SLOT_KEY_SIZE + 1] = ".";

	if (key[0])
		(void)snprintf(unnamed, sizeof unnamed, ".%s", key);
	else
		random_id(unnamed + 1, SLOT_KEY_SIZE - 1);
	if (renameat(w->run_fd, id, w->run_fd, unnamed) < 0)
		log_error("sandbox.stuck", "sandbox_id=%s errno=%d", log_quote(str_of(id)), errno);
	remove_leftover(w, unnamed + 1);
}

static int adopt(struct warden *w, const struct state *s, const char *id, struct err *e)
{
	cleanup_close int pid_fd = open_process(w, s), net_fd = -EBADF;
	struct slot *slot;

	net_fd = pid_fd < 0 ? -EBADF : open_net(s->pid);
	if (net_fd < 0)
		return err_set(e, -ESRCH, "it has ended");
	slot = known_slot(w, s->key);
	(void)snprintf(slot->id, sizeof slot->id, "%s", id);
	slot->number = s->number;
	slot->engine = (enum warden_engine)s->engine;
	slot->may_serve_files = true; /* its state does not say */
	slot->image.is.loop = s->loop;
	slot->disk_size.bytes = disk_bytes(&w->disk, &slot->image.is);
	slot->pid = s->pid;
	slot->start_time = s->start_time;
	slot->pid_fd = TAKE_FD(pid_fd);
	slot->net_fd = TAKE_FD(net_fd);
	slot->state = SLOT_RUNNING;
	list_remove(&slot->pool_node);
	net_adopt(&w->network, s->number);
	(void)map_put(&w->by_id, str_of(slot->id), slot);
	linger_adopt(slot);
	if (still_adopt(slot, e) < 0)
		log_error("sandbox.stuck", "sandbox_id=%s err=%s", id, log_quote(str_of(e->msg)));
	if (crossings_watch(slot, e) < 0)
		log_error("sandbox.unwatched", "sandbox_id=%s err=%s", id,
			log_quote(str_of(e->msg)));
	return slot_watch(slot, e);
}

static void adopt_dir(struct warden *w, const char *name)
{
	cleanup_close int fd =
		openat(w->run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct state s = { 0 };
	struct err e = { 0 };

	if (fd < 0 || strlen(name) >= WARDEN_ID_SIZE)
		return;
	if (state_read(fd, &s, &e) >= 0 && adopt(w, &s, name, &e) >= 0) {
		log_info("sandbox.adopted", "sandbox_id=%s pid=%d", name, (int)s.pid);
		return;
	}
	log_info("sandbox.gone", "sandbox_id=%s err=%s", log_quote(str_of(name)),
		log_quote(str_of(e.msg)));
	bury(w, name, s.key);
}

/* The named ones first; then every key that is in none of them belongs to nobody. */
void warden_adopt(struct warden *w)
{
	int fd = openat(w->run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			adopt_dir(w, entry->d_name);
	if (dir)
		rewinddir(dir);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] == '.')
			remove_leftover(w, entry->d_name + 1);
	if (dir)
		(void)closedir(dir);
	cgroup_each(&w->cgroups, remove_leftover, w);
	disk_each(&w->disk, remove_leftover, w);
}

static void farewell(void *arg)
{
	struct warden *w = arg;

	loop_stop(w->loop);
}

void warden_leave(struct warden *w)
{
	struct err why = { .code = -ECANCELED };
	bool waiting = false;

	if (!w->leaving) {
		w->leaving = true;
		loop_timer_cancel(&w->refill);
		loop_timer_cancel(&w->fade_timer);
		loop_timer_init(&w->farewell, w->loop, farewell, w);
		loop_timer_set(&w->farewell, loop_now_ms(w->loop) + FAREWELL_MS);
		spares_drop(w);
		volumes_drop(w);
	}
	LIST_EACH(&w->slots, node)
	{
		struct slot *slot = container_of(node, struct slot, node);

		if (slot->state == SLOT_MAKING || slot->state == SLOT_IDLE || slot->later ||
			slot->settings_fd >= 0)
			slot_end(slot, &why);
		waiting |= slot->state == SLOT_ENDING || slot->work;
	}
	waiting |= w->n_asked > 0;
	if (!waiting)
		loop_stop(w->loop);
}
