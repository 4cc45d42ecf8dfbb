/* The host's side of it: what must look afterwards as it did before, and what must not have been
 * heard. */
#include "cli/attack.h"

#include <dirent.h>
#include <net/if.h>
#include <sys/stat.h>

enum {
	PROGRAM_MAX = 256 << 20,
	TABLE_MAX = 16 << 20,
	OUTPUT_MAX = 1 << 20,
	LOOKS = 5,
	LOOK_PAUSE_US = 200000,
	SANDBOX_FIRST_UID = 0x70010000, /* block 0 is the server's own */
};

static const char *const programs[] = { "atoll", "atoll-warden", "atoll-guest", "atoll-probe" };
static const char *const layer_files[] = { "usr/lib/os-release", "etc/debian_version",
	"etc/services", "etc/passwd", "usr/bin/env" };

struct host_view {
	uint8_t programs[ARRAY_SIZE(programs)][SHA256_SIZE];
	uint8_t files[ARRAY_SIZE(layer_files)][SHA256_SIZE];
	struct buf interfaces, mounts, neighbours;
};

/* ---- looking ---- */

static void digest_file(const char *dir, const char *name, uint8_t ret[SHA256_SIZE])
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(PROGRAM_MAX);
	char path[CONFIG_VALUE + 64];

	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	memset(ret, 0, SHA256_SIZE);
	if (file_read(AT_FDCWD, path, &bytes, NULL) >= 0)
		sha256(bytes.p, bytes.n, ret);
}

static void look_at_interfaces(struct buf *out)
{
	struct if_nameindex *list = if_nameindex();

	for (const struct if_nameindex *i = list; i && i->if_index; i++)
		if (strncmp(i->if_name, "atoll", 5) != 0) /* other sandboxes come and go */
			(void)buf_printf(out, "%s ", i->if_name);
	if (list)
		if_freenameindex(list);
}

static void look_at_mounts(struct buf *out)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TABLE_MAX);
	struct str rest, line;

	if (file_read(AT_FDCWD, "/proc/self/mountinfo", &text, NULL) < 0)
		return;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		struct str target = line, field = STR_NONE;

		for (int i = 0; i < 5; i++)
			(void)str_split(&target, ' ', &field);
		(void)buf_printf(out, "%.*s\n", STR_ARG(field));
	}
}

static void find_neighbour(struct str table, const char *address, struct buf *out)
{
	struct str line;

	while (str_split(&table, '\n', &line))
		if (str_has_prefix(line, str_of(address)) && line.p[strlen(address)] == ' ')
			(void)buf_printf(out, "%.*s\n", STR_ARG(line));
}

/* Who is at which address, as this host believes: each by itself, since the kernel lists them in
 * another order once its table has grown. */
static void look_at_neighbours(const struct attack *a, struct buf *out)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TABLE_MAX);
	const char *const addresses[] = { a->attacker_address, a->neighbour_address };

	if (file_read(AT_FDCWD, "/proc/net/arp", &text, NULL) < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++)
		if (addresses[i][0])
			find_neighbour(buf_str(&text), addresses[i], out);
}

struct host_view *attack_host_look(struct attack *a)
{
	struct host_view *view = XNEW(struct host_view);
	char beside[CONFIG_VALUE], rootfs[CONFIG_VALUE + 16];
	char *slash;

	(void)snprintf(beside, sizeof beside, "%s", a->probe);
	slash = strrchr(beside, '/');
	*(slash ? slash : beside) = '\0';
	(void)snprintf(rootfs, sizeof rootfs, "%s/base/rootfs", a->templates);
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		digest_file(beside, programs[i], view->programs[i]);
	for (size_t i = 0; a->templates[0] && i < ARRAY_SIZE(layer_files); i++)
		digest_file(rootfs, layer_files[i], view->files[i]);
	view->interfaces = view->mounts = view->neighbours = BUF_INIT(TABLE_MAX);
	look_at_interfaces(&view->interfaces);
	look_at_mounts(&view->mounts);
	look_at_neighbours(a, &view->neighbours);
	return view;
}

static void view_free(struct host_view *view)
{
	buf_done(&view->interfaces);
	buf_done(&view->mounts);
	buf_done(&view->neighbours);
	free(view);
}

/* ---- comparing ---- */

static void say_same(struct attack *a, const char *name, const char *title, bool same,
	const char *what)
{
	attack_say(a, name, "host", same ? ATTACK_REFUSED : ATTACK_ESCAPED, title, "%s %s", what,
		same ? "are as they were" : "changed");
}

static void compare_programs(struct attack *a, const struct host_view *was,
	const struct host_view *is)
{
	static const uint8_t nothing[SHA256_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (memcmp(was->programs[i], nothing, SHA256_SIZE) != 0)
			say_same(a, "host.programs", "leave Atoll's own programs changed",
				memcmp(was->programs[i], is->programs[i], SHA256_SIZE) == 0,
				"the programs on disk");
	if (!a->templates[0])
		attack_say(a, "host.layers", "host", ATTACK_INCONCLUSIVE,
			"leave the template changed on disk",
			"its directory is not known: --data DIR or --template-cache DIR");
	for (size_t i = 0; a->templates[0] && i < ARRAY_SIZE(layer_files); i++)
		say_same(a, "host.layers", "leave the template changed on disk",
			memcmp(was->files[i], is->files[i], SHA256_SIZE) == 0,
			"files of the base template");
}

/* A process with a sandbox's user id that stands where we stand, and not in a sandbox. */
static bool is_outside(const char *pid, const char *own_mount_ns)
{
	char path[300], link[64];
	struct stat st;
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%s", pid);
	if (stat(path, &st) < 0 || st.st_uid < SANDBOX_FIRST_UID || st.st_uid == (uid_t)-1)
		return false;
	(void)snprintf(path, sizeof path, "/proc/%s/ns/mnt", pid);
	n = readlink(path, link, sizeof link - 1);
	if (n <= 0)
		return false;
	link[n] = '\0';
	return strcmp(link, own_mount_ns) == 0;
}

static void look_at_processes(struct attack *a)
{
	static const char title[] = "leave a process on the host";
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char own[64];
	ssize_t n = readlink("/proc/self/ns/mnt", own, sizeof own - 1);

	own[n > 0 ? n : 0] = '\0';
	if (geteuid() != 0)
		attack_say(a, "host.processes", "host", ATTACK_INCONCLUSIVE, title,
			"only root can tell");
	while (dir && geteuid() == 0 && (entry = readdir(dir)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
			is_outside(entry->d_name, own))
			attack_say(a, "host.processes", "host", ATTACK_ESCAPED, title,
				"process %s is a sandbox's, and not in one", entry->d_name);
	if (dir)
		(void)closedir(dir);
	attack_say(a, "host.processes", "host", ATTACK_REFUSED, title,
		"no process with a sandbox's user id is outside of one");
}

static void compare_heard(struct attack *a)
{
	static const char title[] = "have a datagram arrive, whoever seems to have sent it";
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };
	int r = attack_shell(a, &a->neighbour, "root", "cat /tmp/atoll-probe-heard", &out, &e);

	if (a->canary.memory->datagrams)
		attack_say(a, "host.heard", "host", ATTACK_ESCAPED, title, "the host got %d: %s",
			a->canary.memory->datagrams, a->canary.memory->first);
	if (r != 0)
		attack_say(a, "host.heard", "host", ATTACK_INCONCLUSIVE, title,
			"the neighbour cannot be asked: %s", e.msg);
	else if (out.n)
		attack_say(a, "host.heard", "host", ATTACK_ESCAPED, title,
			"the neighbour got %.100s", out.p);
	else
		attack_say(a, "host.heard", "host", ATTACK_REFUSED, title,
			"neither the host nor the neighbour got any");
}

/* A table that grows while it is read may leave entries out: what has really changed stays so. */
static bool has_same_neighbours(const struct attack *a, const struct host_view *before)
{
	for (int i = 0; i < LOOKS; i++) {
		CLEANUP(buf_done) struct buf now = BUF_INIT(TABLE_MAX);

		look_at_neighbours(a, &now);
		if (str_eq(buf_str(&before->neighbours), buf_str(&now)))
			return true;
		(void)usleep(LOOK_PAUSE_US);
	}
	return false;
}

void attack_host_compare(struct attack *a, struct host_view *take_before)
{
	struct host_view *now = attack_host_look(a);

	compare_programs(a, take_before, now);
	if (a->api_port) {
		say_same(a, "host.interfaces", "leave an interface on the host",
			str_eq(buf_str(&take_before->interfaces), buf_str(&now->interfaces)),
			"the host's interfaces");
		say_same(a, "host.mounts", "leave a mount on the host",
			str_eq(buf_str(&take_before->mounts), buf_str(&now->mounts)),
			"the host's mounts");
		say_same(a, "host.neighbours", "change who the host believes to be at an address",
			has_same_neighbours(a, take_before), "its neighbour entries");
	} else {
		attack_say(a, "host.mounts", "host", ATTACK_INCONCLUSIVE,
			"leave something on the host", "the server is on another machine");
	}
	look_at_processes(a);
	compare_heard(a);
	view_free(take_before);
	view_free(now);
}
