/* The bundle's description. It is the same for all sandboxes of an engine, but for the size of
 * /dev/shm: what else differs between them is mounted, limited and named before the engine starts.
 */
#include "guest/engine.h"
#include "guest/mounts.h"
#include "guest/seal.h"
#include "json/json.h"

#define SHM "/dev/shm"

struct place {
	const char *type, *source, *target;
	const char *options[7];
	bool in_gvisor, in_container;
};

static const struct place places[] = {
	{ "proc", "proc", "/proc", { "nosuid", "nodev", "noexec" }, true, true },
	{ "sysfs", "sysfs", "/sys", { "nosuid", "nodev", "noexec", "ro" }, true, true },
	{ "tmpfs", "tmpfs", "/dev", { "nosuid", "mode=755" }, true, true },
	{ "devpts", "devpts", "/dev/pts",
		{ "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5",
			"max=" MOUNT_MAX_TERMINALS },
		true, true },
	{ "tmpfs", "tmpfs", SHM, { "nosuid", "nodev", "mode=1777" }, true, true },
	{ "mqueue", "mqueue", "/dev/mqueue", { "nosuid", "nodev", "noexec" }, false, true },
	{ "bind", ENGINE_PROGRAM, ENGINE_GUEST, { "bind", "ro", "nosuid", "nodev" }, true, true },
	{ "bind", ENGINE_DOOR_PLACE, ENGINE_DOOR, { "bind", "nosuid", "nodev", "noexec" }, true,
		false },
	{ "bind", ENGINE_GROUPS_PLACE, ENGINE_GROUPS, { "rbind", "nosuid", "nodev", "noexec" },
		false, true },
	/* gVisor would put a file system in memory there: it must be on the sandbox's disk. */
	{ "bind", ENGINE_TMP, "/tmp", { "rbind" }, true, false },
};

const char *const engine_groups[GUEST_GROUPS] = {
	[GROUP_MEMORY] = "memory",
	[GROUP_CPU] = "cpu",
};

static void write_options(struct jsonw *w, const struct place *p, uint64_t shm_bytes)
{
	char size[32];

	jsonw_array(w, "options");
	for (size_t k = 0; k < ARRAY_SIZE(p->options) && p->options[k]; k++)
		jsonw_strz(w, NULL, p->options[k]);
	(void)snprintf(size, sizeof size, "size=%" PRIu64, shm_bytes);
	if (shm_bytes && strcmp(p->target, SHM) == 0)
		jsonw_strz(w, NULL, size);
	jsonw_end_array(w);
}

static void write_places(struct jsonw *w, bool gvisor, uint64_t shm_bytes)
{
	jsonw_array(w, "mounts");
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const struct place *p = &places[i];

		if (gvisor ? !p->in_gvisor : !p->in_container)
			continue;
		jsonw_object(w, NULL);
		jsonw_strz(w, "destination", p->target);
		jsonw_strz(w, "type", p->type);
		jsonw_strz(w, "source", p->source);
		write_options(w, p, shm_bytes);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
}

/* One more than is kept, until the guest has sealed itself, as the first guest does when it is the
 * sandbox itself. */
static void write_caps(struct jsonw *w)
{
	static const char *const sets[] = { "bounding", "effective", "permitted" };

	jsonw_object(w, "capabilities");
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
		jsonw_array(w, sets[i]);
		for (size_t k = 0; k < SEAL_CAPS; k++)
			jsonw_strz(w, NULL, seal_caps[k].name);
		jsonw_strz(w, NULL, "CAP_SYS_ADMIN");
		jsonw_end_array(w);
	}
	jsonw_end_object(w);
}

static void write_process(struct jsonw *w, bool gvisor, bool nested)
{
	jsonw_object(w, "process");
	jsonw_bool(w, "terminal", false);
	jsonw_object(w, "user");
	jsonw_int(w, "uid", 0);
	jsonw_int(w, "gid", 0);
	jsonw_end_object(w);
	jsonw_array(w, "args");
	jsonw_strz(w, NULL, ENGINE_GUEST);
	jsonw_strz(w, NULL, "--inside");
	jsonw_strz(w, NULL, gvisor ? "gvisor" : "container");
	if (nested)
		jsonw_strz(w, NULL, ENGINE_NESTED);
	jsonw_end_array(w);
	jsonw_array(w, "env");
	jsonw_strz(w, NULL, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	jsonw_end_array(w);
	jsonw_strz(w, "cwd", "/");
	jsonw_bool(w, "noNewPrivileges", false);
	write_caps(w);
	jsonw_end_object(w);
}

/* The user namespace is the one we are in, and so is the network, whose addresses gVisor takes over
 * where it is told to look for them. */
static void write_namespaces(struct jsonw *w, bool gvisor)
{
	static const char *const types[] = { "pid", "ipc", "uts", "mount" };

	jsonw_object(w, "linux");
	jsonw_array(w, "namespaces");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "type", types[i]);
		jsonw_end_object(w);
	}
	if (gvisor) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "type", "network");
		jsonw_strz(w, "path", "/proc/self/ns/net");
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
	jsonw_end_object(w);
}

void engine_config(const struct guest_boot *m, struct buf *out)
{
	bool gvisor = m->engine == WARDEN_GVISOR;
	struct jsonw w;

	jsonw_init(&w, out);
	jsonw_object(&w, NULL);
	jsonw_strz(&w, "ociVersion", "1.0.2");
	write_process(&w, gvisor, m->is_nested);
	jsonw_object(&w, "root");
	jsonw_strz(&w, "path", ENGINE_ROOT);
	jsonw_end_object(&w);
	jsonw_strz(&w, "hostname", "atoll");
	write_places(&w, gvisor, m->shm_bytes);
	write_namespaces(&w, gvisor);
	jsonw_end_object(&w);
}
