/* The way out of sandboxes: the egress, wired to the runtime that knows their addresses and the
 * sandbox room that knows their rules. */
#pragma once

#include "runtime/runtime.h"
#include "sandbox/sandbox.h"
#include "secret/secret.h"
#include "tls/tls.h"

struct outward_config {
	struct loop *loop;
	struct runtime *runtime;
	struct sandbox_book *sandboxes;
	struct secret_book *secrets;
	struct tls_authority *authority;
	const char *dns_servers; /* NULL: the host's own */
	const struct private_list *opened;
};

struct outward;
int outward_new(const struct outward_config *config, struct outward **ret, struct err *e);
struct outward *outward_free(struct outward *outward);
/* Once the runtime is ready. Without a network there is nothing to do, which is fine. */
int outward_start(struct outward *outward, struct err *e);
const struct egress *outward_egress(const struct outward *outward);
