/* What the server keeps when it gives up root: a block of uids of its own. */
#pragma once

#include "base/base.h"

/* Enters a user namespace of exactly the server's block of uids (warden/proto.h), as the first of
 * them, with the capabilities that its volumes need and no way to get another. Before any thread.
 */
int block_enter(struct err *e);
