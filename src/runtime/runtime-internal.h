/* What an engine provides. */
#pragma once

#include "runtime/breaker.h"
#include "runtime/runtime.h"

struct runtime_ops {
	const char *name; /* as in the configuration and in the rows: "local" ... */
	struct runtime *(*free)(struct runtime *rt);
	int (*ready)(const struct runtime *rt, struct err *e);
	void (*create)(struct runtime *rt, const struct runtime_spec *spec, done_fn done,
		void *arg);
	void (*destroy)(struct runtime *rt, const char *id, done_fn done, void *arg);
	void (*dial)(struct runtime *rt, const char *id, int port, runtime_dial_fn fn, void *arg);
	void (*hang_up)(struct runtime *rt); /* NULL: its dials are short */
	void (*list)(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg);
	void (*pause)(struct runtime *rt, const char *id, done_fn done, void *arg);
	void (*resume)(struct runtime *rt, const char *id, done_fn done, void *arg);
	void (*save)(struct runtime *rt, const char *id, const char *image, done_fn done,
		void *arg);
	void (*discard)(struct runtime *rt, const char *image, done_fn done, void *arg);
	void (*list_images)(struct runtime *rt, runtime_each_fn each, done_fn done, void *arg);
	void (*set_policy)(struct runtime *rt, const char *id, const struct policy *policy,
		done_fn done, void *arg);
	int (*egress_sockets)(const struct runtime *rt, struct runtime_egress *ret, struct err *e);
	const char *(*find_address)(const struct runtime *rt, uint32_t address);
	void (*used)(struct runtime *rt, const char *id, runtime_used_fn fn, void *arg);
	void (*host)(struct runtime *rt, runtime_host_fn fn, void *arg); /* NULL: nothing to say */
	void (*denied)(struct runtime *rt, runtime_denied_fn each, done_fn done, void *arg);
};

struct runtime { /* first member of every implementation */
	const struct runtime_ops *ops;
	struct loop *loop;
	runtime_exited_fn exited;
	void *exited_arg;
	runtime_crossed_fn crossed;
	void *crossed_arg;
	runtime_held_fn held;
	void *held_arg;
	runtime_lost_fn lost;
	void *lost_arg;
	runtime_denial_fn on_denied;
	void *on_denied_arg;
	struct breaker breaker; /* of what it is asked to create */
	runtime_breaker_fn on_breaker;
	void *on_breaker_arg;
	struct list tries; /* that wait; next NULL: there were none yet */
	bool is_stopping;
};
