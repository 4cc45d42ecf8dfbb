/* rpc-process - what the two files of process.Process share: which process a call means. */
#pragma once

#include "guest/rpc.h"

struct rpc_selector {
	struct json_int pid;
	struct str tag;
};
extern const struct json_shape rpc_selector_shape;

/* The live process, or NULL. */
struct process *rpc_select(struct process_table *t, const struct rpc_selector *s);
/* Why there was none: not_found, or unimplemented for an empty selector. */
enum connect_code rpc_select_error(const struct rpc_selector *s, struct err *e);
/* NULL: the call was answered. */
struct process *rpc_select_or_fail(struct rpc *rpc, const struct rpc_selector *s);
