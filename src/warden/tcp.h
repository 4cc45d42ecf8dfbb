/* tcp - what waits in TCP connections that nobody has accepted is charged to nobody, and there is
 * no limit for it but one that all of a host share. So is the number of those that are closed with
 * something unsent. The warden looks, and ends the sandbox that has most of either.
 *
 * To ask each sandbox's network is expensive, so that is done only when the whole host has more
 * than a little more, or many closed ones. */
#pragma once

#include "loop/loop.h"
#include "warden/worker.h"

enum {
	TCP_SHARE = 8, /* of its memory, in unaccepted ones; of all the closed ones there may be */
	TCP_SOCKET_BYTES = 3072, /* of one that is empty */
};

/* What a host's /proc/net/sockstat tells: the same in each network. */
struct tcp_host {
	int64_t bytes, n_closed;
};
void tcp_read_host(struct str sockstat, struct tcp_host *ret);
int64_t tcp_max_closed(void);

/* Waits: the sandbox that has most, if that is more than its share. */
struct tcp_taker {
	char key[SLOT_KEY_SIZE]; /* empty: nobody */
	int64_t bytes;           /* in unaccepted ones; 0: it is about the closed ones */
};
void tcp_find_taker(const struct cgroups *cgroups, struct tcp_taker *ret);

/* tcp-watch.c */
struct warden;
struct tcp_watch {
	struct warden *w;
	struct loop_timer timer;
	bool is_looking, has_found; /* has_found: at the last look, so there may be another */
	int64_t low_bytes;          /* when there was least of it, or when we last looked */
	int64_t max_closed;
};
void tcp_watch_start(struct tcp_watch *watch, struct warden *w);
void tcp_watch_stop(struct tcp_watch *watch);
