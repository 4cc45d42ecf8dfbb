/* `atoll serve --check`: whether this build would start with these words on this data directory,
 * whose sandboxes it would take over. Changes nothing, and a server may run there meanwhile: the
 * keeper asks the next build, before it lets the old one go. */
#pragma once

#include "server/config.h"

int check_start(const struct config *config, struct err *e);
