/* base - what every room stands on.
 * Owns:   errors as values, ownership macros, borrowed and growing strings, an arena, a string map,
 *         descriptors, encodings, clocks, the log.
 * Uses:   libc, libsodium (digests).
 * Never:  starts threads, reads configuration, knows what a sandbox is. */
#pragma once

#include "base/actor.h"
#include "base/err.h"
#include "base/own.h"
#include "base/str.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/codec.h"
#include "base/crash.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/time.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* How everything that may wait ends: exactly once, never from inside the call that asked for it,
 * with -ECANCELED when cancelled. `e` is borrowed and only meaningful when r < 0. */
typedef void (*done_fn)(void *arg, int r, const struct err *e);
