/* given - what all sandboxes of this server get besides what their creators and teams say: the
 * environment and the authorities of the options. */
#pragma once

#include "json/json.h"
#include "server/config.h"

struct given {
	struct arena *arena;    /* holds env */
	struct json_map env;    /* no name twice */
	struct buf authorities; /* PEM, as tls_authorities_read has it; empty: none */
};

/* Reads files: while still root. -EINVAL with the option that is wrong. */
int given_read(const struct config *config, struct given *ret, struct err *e);
void given_done(struct given *given);
