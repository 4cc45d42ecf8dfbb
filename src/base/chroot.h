/* A root directory that is not the mount namespace's own. */
#pragma once

#include <stdbool.h>

/* Whether chroot(2) gave this process another root directory than its mount namespace has: then the
 * kernel makes no user namespace for it. For root, without threads; false where it cannot be told.
 */
bool root_is_changed(void);
