/* copier-child - what the copying process does. It is forked, not executed: it allocates nothing,
 * logs nothing, and closes what is not its business first. */
#pragma once

#include "warden/copier.h"

_Noreturn void copier_child_main(const struct copy_order *order, struct copy_report *report);
