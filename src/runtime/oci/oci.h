/* The runtimes that other programs of the host are: the warden makes their sandboxes in the same
 * places as those of `local`, so most of what is asked goes there. */
#pragma once

#include "runtime/local/local.h"

struct oci {
	struct runtime base;
	struct local *local;
	enum warden_engine engine;
	struct list dials; /* under way */
};

/* dial.c: a port of a network that only the guest can reach. */
void oci_dial_inside(struct oci *oci, const char *id, int port, runtime_dial_fn fn, void *arg);
void oci_dials_end(struct oci *oci); /* none of them succeeds any more */
