/* copy - one image into another: by reference where the file system can, which takes the same time
 * whatever the size, else only what is not a hole. */
#pragma once

#include "base/base.h"

/* `to` is empty. Allocates nothing and logs nothing, so that a forked child may call it. */
int copy_image(int from, int to, struct err *e);
/* Whether files of this directory can be copied by reference. */
bool copy_is_cheap_in(int dir_fd);
