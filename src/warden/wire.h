/* What the server sent, looked at as if the server were hostile: it parses bytes from the world,
 * the warden is root. Everything past this point may rely on what is promised here. */
#pragma once

#include "warden/proto.h"

enum {
	WIRE_MIN_MEMORY_BYTES = 16 << 20,
	WIRE_MIN_DISK_BYTES = 16 << 20,
	WIRE_MIN_VOLUME_BYTES = 1 << 20,
	WIRE_MIN_PIDS = 16,
	WIRE_MAX_PIDS = 1 << 20,
	WIRE_MIN_CPU_PERCENT = 1,
	WIRE_MAX_CPU_PERCENT = 100 * 1024,
	WIRE_MAX_INODES = 1 << 28,
	WIRE_MAX_SETTINGS_BYTES = 4 << 20,
};
#define WIRE_MAX_BYTES (UINT64_C(1) << 50)
/* The largest file that ext4 holds; mkfs takes half a second for it, while nobody is served. */
#define WIRE_MAX_DISK_BYTES (UINT64_C(1) << 44)

/* Checks a received message of n bytes and n_fds descriptors and copies it out. On success: version
 * and op are known, names are terminated and of their character set, limits are in range and mounts
 * in order at paths that may carry one (CREATE), and the number of descriptors is what the op
 * takes. `ret_tag` is set even on failure where there was one, so that the sender can be told. */
int wire_decode(const void *p, size_t n, int n_fds, struct warden_message *ret, uint64_t *ret_tag,
	struct err *e);
/* A sealed memfd of bounded size, and nothing else: never a directory or a device of the host. */
int wire_check_settings(int fd, struct err *e);
