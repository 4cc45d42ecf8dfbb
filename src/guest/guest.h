/* guest - PID 1 of a sandbox, and E2B's envd API on one socket.
 * Owns:   the sandbox's processes, terminals, file transfers and watches; its settings.
 * Uses:   base, loop, json, http, connect; boot (how it became PID 1).
 * Never:  knows the host, a task or another sandbox. What it is told, it was told in its settings
 * or over its socket. */
#pragma once

#include "base/base.h"
#include "guest/activity.h"
#include "guest/gauge.h"
#include "guest/metrics.h"
#include "guest/process.h"
#include "guest/seen.h"
#include "guest/settings.h"
#include "guest/users.h"
#include "guest/watch.h"
#include "http/http.h"
#include "loop/loop.h"

/* A request that lives on between turns, a job of it perhaps right now: what guest_done has to know
 * of. Embedded in its owner. */
struct transfer {
	struct list node;
	/* Its exchange is no more: frees the owner, or leaves that to the job's end. */
	void (*cancel)(struct transfer *t);
};

struct guest {
	struct loop *loop;
	struct settings settings;
	struct users users;
	struct process_table processes;
	struct watch_set watches;
	struct list watchers; /* the polled ones, see rpc-watch.c */
	struct list transfers;
	struct metrics metrics;
	struct gauges gauges;
	struct seen seen;
	struct activity activity;
};

int guest_init(struct guest *g, struct loop *loop, struct err *e);
void guest_done(struct guest *g);
/* Runs the template's start command, if there is one. */
void guest_run_start_command(struct guest *g);
/* The http_handler_fn; arg is the guest. */
void guest_handle(void *arg, struct http_exchange *x);

/* The user by name, or the default user when name.p is NULL. */
int guest_find_user(struct guest *g, struct str name, struct user *ret, struct err *e);
/* path_resolve with the sandbox's working directory. */
int guest_resolve(const struct guest *g, const struct user *user, struct str path,
	char out[PATH_MAX], struct err *e);

void transfer_add(struct guest *g, struct transfer *t, void (*cancel)(struct transfer *t));

/* On whose behalf the request is, by headers that only the server sets. The text lives as long as
 * the exchange. */
struct activity_asker guest_asker(const struct http_exchange *x);
struct activity_asker guest_asker_keep(const struct http_exchange *x, struct arena *arena);

/* {"code":status,"message":...} */
void reply_fail(struct http_exchange *x, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The HTTP routes that are not RPC. */
void files_get(struct guest *g, struct http_exchange *x);
void files_post(struct guest *g, struct http_exchange *x);
void files_compose(struct guest *g, struct http_exchange *x);
void init_post(struct guest *g, struct http_exchange *x);
