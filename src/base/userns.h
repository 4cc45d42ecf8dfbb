/* User namespaces that are only a map of uids: for a mount, or to be entered. */
#pragma once

#include "base/err.h"

#include <stdint.h>

/* A descriptor of a new one in which `count` uids and gids from `inside` on are those from
 * `outside` on of this one. Needs root; the caller must have no threads. */
int userns_make(uint32_t inside, uint32_t outside, uint32_t count, struct err *e);
