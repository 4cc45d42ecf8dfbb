/* Whatever comes in, what wire_decode lets through keeps its promises. */
#include "warden/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_path_safe(const char *field, size_t size)
{
	size_t n = strnlen(field, size);

	return n > 0 && n < size && !strchr(field, '/') && field[0] != '.' && field[0] != '-';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct warden_request q;
	struct err e = { 0 };
	uint64_t tag;
	int n_fds;

	if (size < 1)
		return 0;
	n_fds = data[0] % 4;
	if (wire_decode(data + 1, size - 1, n_fds, &q, &tag, &e) < 0) {
		if (e.code >= 0 || !e.msg[0])
			abort();
		return 0;
	}
	if (size - 1 != sizeof q || q.version != WARDEN_VERSION || tag != q.tag)
		abort();
	if (q.op != WARDEN_LIST && q.op != WARDEN_DISCARD && q.op != WARDEN_IMAGES &&
		!is_path_safe(q.id, sizeof q.id))
		abort();
	if ((q.op == WARDEN_SAVE || q.op == WARDEN_DISCARD ||
		    (q.op == WARDEN_CREATE && q.image_name[0])) &&
		!is_path_safe(q.image_name, sizeof q.image_name))
		abort();
	if (q.op == WARDEN_CREATE &&
		(!is_path_safe(q.template_name, sizeof q.template_name) || n_fds != 1 ||
			q.memory_bytes > WIRE_MAX_BYTES || q.disk_bytes > WIRE_MAX_BYTES ||
			q.max_pids < WIRE_MIN_PIDS || q.cpu_percent < WIRE_MIN_CPU_PERCENT))
		abort();
	return 0;
}
