/* leftover - what servers left that are gone for good: sandboxes, their interfaces and disks, and
 * tables of the firewall, of a data directory that was removed. Found by the cgroups, whose label
 * and lock say whose they are (owner.h); what belongs to a server that lives, to a directory that
 * is still there, or to nobody knows whom is named at most. */
#pragma once

#include "base/base.h"

/* For `atoll doctor`: lines as of probe_host. */
void leftovers_tell(void);
/* Removes them, a line for each instance. The exit status: 1 if something is still there. */
int leftovers_sweep(void);
