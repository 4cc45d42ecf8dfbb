/* Whatever comes in, what wire_decode lets through keeps its promises. */
#include "warden/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_path_safe(const char *field, size_t size)
{
	size_t n = strnlen(field, size);

	return n > 0 && n < size && !strchr(field, '/') && field[0] != '.' && field[0] != '-';
}

static bool is_volume_safe(const struct warden_mount *m)
{
	return strlen(m->volume) == WARDEN_VOLUME_SIZE - 1 && !strchr(m->volume, '/') &&
	       m->volume[0] != '.';
}

/* One that cannot be told from a path of the sandbox's own by its text. */
static bool is_mount_safe(const struct warden_mount *m)
{
	static const char *const own[] = { "/proc", "/sys", "/dev", "/run/e2b" };
	size_t n = strnlen(m->path, sizeof m->path);

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (strncmp(m->path, own[i], strlen(own[i])) == 0 &&
			(m->path[strlen(own[i])] == '/' || m->path[strlen(own[i])] == '\0'))
			return false;
	return n > 1 && n < sizeof m->path && m->path[0] == '/' && m->path[n - 1] != '/' &&
	       !strstr(m->path, "//") && !strstr(m->path, "/../") && !strstr(m->path, "/./") &&
	       is_volume_safe(m);
}

static bool is_of_volume(uint32_t op)
{
	return op >= WARDEN_VOLUME_MAKE && op <= WARDEN_VOLUME_REMOVE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct warden_message m;
	const struct warden_request *q = &m.request;
	struct err e = { 0 };
	uint64_t tag;
	int n_fds;

	if (size < 1)
		return 0;
	n_fds = data[0] % 4;
	if (wire_decode(data + 1, size - 1, n_fds, &m, &tag, &e) < 0) {
		if (e.code >= 0 || !e.msg[0])
			abort();
		return 0;
	}
	if (q->op == WARDEN_CREATE && q->engine >= WARDEN_ENGINES)
		abort();
	if (size - 1 != warden_message_size(q->n_mounts) || q->version != WARDEN_VERSION ||
		tag != q->tag)
		abort();
	if (q->op != WARDEN_LIST && q->op != WARDEN_DISCARD && q->op != WARDEN_IMAGES &&
		q->op != WARDEN_DENIALS && q->op != WARDEN_HOST && !is_of_volume(q->op) &&
		!is_path_safe(q->id, sizeof q->id))
		abort();
	if ((q->op == WARDEN_SAVE || q->op == WARDEN_DISCARD ||
		    (q->op == WARDEN_CREATE && q->image_name[0])) &&
		!is_path_safe(q->image_name, sizeof q->image_name))
		abort();
	if (q->op == WARDEN_CREATE &&
		(!is_path_safe(q->template_name, sizeof q->template_name) ||
			n_fds != (q->n_ranges ? 2 : 1) || q->memory_bytes > WIRE_MAX_BYTES ||
			q->disk_bytes > WIRE_MAX_DISK_BYTES || q->shm_bytes > q->memory_bytes ||
			q->disk_inodes > WIRE_MAX_INODES || q->max_pids < WIRE_MIN_PIDS ||
			q->cpu_percent < WIRE_MIN_CPU_PERCENT))
		abort();
	if (q->n_ranges > WARDEN_MAX_RANGES || q->reach_flags > WARDEN_PROXIED ||
		(q->n_ranges && q->op != WARDEN_CREATE && q->op != WARDEN_POLICY))
		abort();
	if (is_of_volume(q->op) &&
		(q->n_mounts != 1 || m.mounts[0].path[0] || !is_volume_safe(&m.mounts[0]) ||
			(q->op == WARDEN_VOLUME_MAKE && q->disk_bytes > WIRE_MAX_DISK_BYTES)))
		abort();
	for (uint32_t i = 0; i < q->n_mounts && !is_of_volume(q->op); i++)
		if (q->op != WARDEN_CREATE || !is_mount_safe(&m.mounts[i]))
			abort();
	return 0;
}
