#include "warden/wire.h"

#include <sys/stat.h>

static bool is_lower_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* A terminated, non-empty name; the rest of the field is zero, so equal names are equal bytes. */
static bool is_name(const char *field, size_t size, const char *also)
{
	size_t n = strnlen(field, size);

	if (n == 0 || n == size || !is_lower_or_digit(field[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_lower_or_digit(field[i]) && !strchr(also, field[i]))
			return false;
	for (size_t i = n; i < size; i++)
		if (field[i])
			return false;
	return true;
}

static int check_range(const char *what, uint64_t value, uint64_t min, uint64_t max, struct err *e)
{
	if (value < min || value > max)
		return err_set(e, -ERANGE, "%s %" PRIu64 " is outside %" PRIu64 "..%" PRIu64, what,
			value, min, max);
	return 0;
}

/* Every byte zero, so that what is not there is not there for anybody. */
static bool is_empty(const char *field, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (field[i])
			return false;
	return true;
}

static int check_create(const struct warden_request *q, struct err *e)
{
	int r;

	if (!is_empty(q->image_name, sizeof q->image_name) &&
		!is_name(q->image_name, sizeof q->image_name, ""))
		return err_set(e, -EINVAL, "bad image name");

	if (!is_name(q->template_name, sizeof q->template_name, "-_"))
		return err_set(e, -EINVAL, "bad template name");
	r = check_range("memory", q->memory_bytes, WIRE_MIN_MEMORY_BYTES, WIRE_MAX_BYTES, e);
	if (r >= 0)
		r = check_range("disk", q->disk_bytes, WIRE_MIN_DISK_BYTES, WIRE_MAX_DISK_BYTES, e);
	if (r >= 0)
		r = check_range("inodes", q->disk_inodes, 0, WIRE_MAX_INODES, e);
	if (r >= 0)
		r = check_range("shared memory", q->shm_bytes, 0, q->memory_bytes, e);
	if (r >= 0)
		r = check_range("cpu", q->cpu_percent, WIRE_MIN_CPU_PERCENT, WIRE_MAX_CPU_PERCENT,
			e);
	if (r >= 0)
		r = check_range("pids", q->max_pids, WIRE_MIN_PIDS, WIRE_MAX_PIDS, e);
	if (r >= 0)
		r = check_range("engine", q->engine, WARDEN_LOCAL, WARDEN_ENGINES - 1, e);
	if (r >= 0)
		r = check_range("nested", q->is_nested, 0, 1, e);
	return r;
}

static bool is_uuid(const char *field)
{
	for (size_t i = 0; i < WARDEN_VOLUME_SIZE - 1; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? field[i] != '-' : !field[i] || !strchr("0123456789abcdef", field[i]))
			return false;
	}
	return field[WARDEN_VOLUME_SIZE - 1] == '\0';
}

static int check_mount(const struct warden_mount *m, struct err *e)
{
	size_t n = strnlen(m->path, sizeof m->path);
	const char *problem;

	if (!is_uuid(m->volume))
		return err_set(e, -EINVAL, "bad volume id");
	if (n == sizeof m->path || !is_empty(m->path + n, sizeof m->path - n))
		return err_set(e, -EINVAL, "bad mount path");
	problem = warden_path_problem(str_make(m->path, n));
	return problem ? err_set(e, -EINVAL, "%s", problem) : 0;
}

static bool is_of_volume(uint32_t op)
{
	return op == WARDEN_VOLUME_MAKE || op == WARDEN_VOLUME_OPEN || op == WARDEN_VOLUME_REMOVE;
}

static int check_volume(const struct warden_message *m, struct err *e)
{
	if (m->request.n_mounts != 1 || !is_uuid(m->mounts[0].volume))
		return err_set(e, -EINVAL, "bad volume id");
	if (!is_empty(m->mounts[0].path, sizeof m->mounts[0].path))
		return err_set(e, -EINVAL, "a volume by itself has no mount path");
	return m->request.op == WARDEN_VOLUME_MAKE
		       ? check_range("size", m->request.disk_bytes, WIRE_MIN_VOLUME_BYTES,
				 WIRE_MAX_DISK_BYTES, e)
		       : 0;
}

static int check_mounts(const struct warden_message *m, struct err *e)
{
	uint32_t n = m->request.n_mounts;
	int r = 0;

	if (is_of_volume(m->request.op))
		return check_volume(m, e);
	if (n && m->request.op != WARDEN_CREATE)
		return err_set(e, -EINVAL, "only a new sandbox can be given volumes");
	for (uint32_t i = 0; r >= 0 && i < n; i++) {
		r = check_mount(&m->mounts[i], e);
		if (r >= 0 && i && strcmp(m->mounts[i - 1].path, m->mounts[i].path) >= 0)
			r = err_set(e, -EINVAL, "mounts are out of order");
	}
	return r;
}

static int check_reach(const struct warden_request *q, struct err *e)
{
	if ((q->reach_flags || q->n_ranges) && q->op != WARDEN_CREATE && q->op != WARDEN_POLICY)
		return err_set(e, -EINVAL, "operation %" PRIu32 " takes no policy", q->op);
	if (q->reach_flags & ~(uint32_t)WARDEN_PROXIED)
		return err_set(e, -EINVAL, "unknown policy flags");
	return check_range("ranges", q->n_ranges, 0, WARDEN_MAX_RANGES, e);
}

static int count_fds(const struct warden_request *q)
{
	return (q->op == WARDEN_CREATE ? 1 : 0) + (q->n_ranges ? 1 : 0);
}

static int check_op(const struct warden_request *q, int n_fds, struct err *e)
{
	bool create = q->op == WARDEN_CREATE;
	bool has_id = q->op != WARDEN_LIST && q->op != WARDEN_DISCARD && q->op != WARDEN_IMAGES &&
		      q->op != WARDEN_DENIALS && q->op != WARDEN_HOST && !is_of_volume(q->op);
	bool has_image = q->op == WARDEN_SAVE || q->op == WARDEN_DISCARD;

	if (q->op < WARDEN_CREATE || q->op >= WARDEN_OPS)
		return err_set(e, -EOPNOTSUPP, "unknown operation %" PRIu32, q->op);
	if (q->zero || (q->is_nested && !create))
		return err_set(e, -EINVAL, "operation %" PRIu32 " cannot be nested", q->op);
	if (n_fds != count_fds(q))
		return err_set(e, -EINVAL, "operation %" PRIu32 " came with %d descriptors", q->op,
			n_fds);
	if (has_id && !is_name(q->id, sizeof q->id, ""))
		return err_set(e, -EINVAL, "bad sandbox id");
	if (has_image && !is_name(q->image_name, sizeof q->image_name, ""))
		return err_set(e, -EINVAL, "bad image name");
	return create ? check_create(q, e) : 0;
}

int wire_decode(const void *p, size_t n, int n_fds, struct warden_message *ret, uint64_t *ret_tag,
	struct err *e)
{
	struct warden_message m = { 0 };
	const struct warden_request *q = &m.request;
	int r;

	*ret_tag = 0;
	if (n < sizeof m.request || n > sizeof m)
		return err_set(e, -EMSGSIZE, "a request has %zu bytes, this one %zu",
			sizeof m.request, n);
	memcpy(&m, p, n);
	*ret_tag = q->tag;
	if (q->version != WARDEN_VERSION)
		return err_set(e, -EPROTONOSUPPORT,
			"the warden speaks version %d, the request is version %" PRIu32
			": the server and the warden are of different builds",
			WARDEN_VERSION, q->version);
	if (q->n_mounts > WARDEN_MAX_MOUNTS || n != warden_message_size(q->n_mounts))
		return err_set(e, -EMSGSIZE, "a request with %" PRIu32 " mounts has not %zu bytes",
			q->n_mounts, n);
	r = check_reach(q, e);
	if (r >= 0)
		r = check_op(q, n_fds, e);
	if (r >= 0)
		r = check_mounts(&m, e);
	if (r >= 0)
		*ret = m;
	return r;
}

int wire_check_settings(int fd, struct err *e)
{
	const int wanted = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & wanted) != wanted)
		return err_set(e, -EINVAL, "the settings are not a sealed memfd");
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, -EINVAL, "the settings are not a file");
	if (st.st_size > WIRE_MAX_SETTINGS_BYTES)
		return err_set(e, -E2BIG, "settings of %jd bytes", (intmax_t)st.st_size);
	return 0;
}
