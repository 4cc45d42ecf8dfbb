/* remove - a file or a whole tree, gone. */
#pragma once

#include "base/base.h"

/* A path that is not there is fine. Links are removed, never followed. May take long: run as a job.
 */
int remove_all(const char *path, struct err *e);
