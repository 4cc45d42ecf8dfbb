/* A real warden with a probe guest in a data directory of its own, spoken to as the server would.
 */
#pragma once

#include "base/base.h"
#include "warden/proto.h"

#include <sys/types.h>

struct harness {
	const char *option; /* one more for the warden, or NULL */
	const char *guest;  /* instead of the probe guest, or NULL */
	const char *log;    /* the file that its log is added to, or NULL */
	int disk_mib;       /* its directory is a file system of that size; 0: it is none */
	char dir[64];
	pid_t warden;
	int fd;
	uint64_t tag;
};

/* -EPERM: not root. `network` as the warden's option; `pool` slots are prepared. Only option,
 * guest, log and disk_mib are looked at of what was in *h. */
int harness_start(struct harness *h, const char *network, int pool, struct err *e);
int harness_make_dir(struct harness *h, struct err *e); /* its first half: no warden yet */
/* Only the warden, on the directory that is there; the second without waiting for it to be ready.
 */
int harness_start_warden(struct harness *h, const char *network, int pool, struct err *e);
int harness_spawn_warden(struct harness *h, const char *network, int pool, struct err *e);
void harness_kill_warden(struct harness *h); /* SIGKILL */
/* Closes its socket and waits for it; its wait status. */
int harness_stop_warden(struct harness *h);
void harness_stop_sandboxes(struct harness *h);
void harness_stop(struct harness *h); /* all of it, with the directory */

struct warden_request harness_request(struct harness *h, enum warden_op op, const char *id);
int harness_send(struct harness *h, const struct warden_request *q, int fd);
/* The next message, within 15 s. */
int harness_receive(struct harness *h, struct warden_reply *ret);
/* And the descriptors that came along, -EBADF where there was none. */
int harness_receive_two(struct harness *h, struct warden_reply *ret, int *ret_one, int *ret_two);
/* Request and its answer; the code in it. */
int harness_create(struct harness *h, const char *id);
int harness_create_from(struct harness *h, const char *id, const char *image);
int harness_destroy(struct harness *h, const char *id);
/* Any other operation on a sandbox, an image, or both. */
int harness_do(struct harness *h, enum warden_op op, const char *id, const char *image);
/* How many LISTED come to a LIST or IMAGES; ret_frozen (may be NULL): how many of them are. */
int harness_count(struct harness *h, enum warden_op op, int *ret_frozen);
int harness_ask(struct harness *h, const struct warden_request *q, int fd,
	struct warden_reply *ret);
/* A sealed memfd. */
int harness_settings(void);
/* Whether the data directory's own file system cannot copy by reference. */
bool harness_has_pool(const struct harness *h);
/* What the probe guest in the sandbox says to a command; "" when it does not answer. */
const char *harness_inside(struct harness *h, const char *id, const char *command);

/* To the workers that touch what sandboxes have written to; how many it was sent to. */
int harness_signal_workers(const struct harness *h, int signo);
/* Which they are; how many. */
int harness_workers(const struct harness *h, pid_t *ret, int max);
int harness_signal_makers(const struct harness *h, int signo); /* the others */
int harness_zombies(const struct harness *h); /* that the warden has and does not wait for */

/* What a test must leave as it found it. */
struct census {
	int processes, mounts, cgroups, links, loops, files;
};
struct census census_take(const struct harness *h);
/* When nothing has changed for a while: what was begun is prepared or removed. */
struct census census_at_rest(const struct harness *h);
/* Waits for the counts to be those of `before`, up to 20 s; -1 and a note on stdout if not. */
int census_wait(const struct harness *h, const struct census *before);
