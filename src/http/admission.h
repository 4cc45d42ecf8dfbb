/* Admission: who holds the server's connections and its memory for replies, and who is evicted when
 * either runs out.
 *
 * Every connection takes a slot when it is accepted, also while TLS shakes hands. The slot belongs
 * to a stranger until a request on it is admitted (http_admit). From then on it belongs to the team
 * or operator of that request, also between requests, and when its client has gone while the
 * request is still worked on.
 *
 * Strangers. A new connection is always accepted: a caller with a key and a health check look like
 * any other stranger at first. When all slots are taken, the slowest stranger is evicted: of the
 * address with the most strangers (to within a factor of two; IPv6 counts by /64) the one that has
 * waited longest. A client that opens many connections therefore evicts its own. An address has no
 * fixed ceiling: behind a reverse proxy all strangers have the proxy's address, and a ceiling would
 * hold for all clients together. There, the slowest stranger of all is evicted.
 *
 * Teams. A team may hold half of the slots that the other teams leave free, at most max_holder.
 * One team alone gets half of the server, a second one half of the rest, and so on: some are always
 * free. Streams may use three quarters of a team's half, visitors of its sandboxes' ports one half,
 * so that calls of the control plane still work. At its limit, a team's own idle connections are
 * closed before a request is refused. Connections in use are never taken from a team. Idle ones of
 * the largest team are closed when a new connection needs a slot and no stranger is left.
 *
 * Operators. A reserve of slots is never given to teams. Operators may use all of it, and
 * administrators of a team half of it, for calls. Strangers may use it too, because they can be
 * evicted at any moment. So a health check always gets a slot.
 *
 * Bytes. Replies not read yet, heads and bodies not complete yet and TLS handshakes count for the
 * holder of the slot, with the same rule of halves. Above half of its limit, a holder's streams are
 * paused earlier (back-pressure). At its limit, its longest waiting reply, head or handshake is
 * cut, and no more body bytes are collected for it. Other holders are not affected.
 *
 * A server that does not tell callers apart has one holder. When it is full, its longest idle
 * connection is closed; when none is idle, new connections get 503. */
#pragma once

#include "http/http.h"

enum {
	ADMISSION_ADDRESSES = 4096, /* told apart, by a hash that nobody else can compute */
	ADMISSION_BUCKETS = 24,     /* addresses by the logarithm of how many strangers they have */
	ADMISSION_NAME_SIZE = 64,
};

struct holder {
	struct list node; /* in admission->teams, if it is a team */
	char name[ADMISSION_NAME_SIZE];
	size_t n, n_idle;
	struct list idle;   /* the longest idle first */
	struct list unread; /* slots whose replies wait to be read, the longest first */
	size_t bytes;
	bool is_pinned; /* in use by a caller: not freed with its last slot */
};

struct address {
	struct list node;      /* in one of admission->buckets, unless n is 0 */
	struct list strangers; /* the slowest first */
	size_t n;
};

struct slot {
	struct list node;            /* among its address's strangers or its holder's idle ones */
	struct list unread;          /* in its holder's list */
	struct admission *admission; /* NULL: none is taken */
	struct holder *holder;
	struct address *address;
	size_t bytes;
	bool is_idle;
	/* Called after the slot was taken away: must close the connection now. */
	void (*evict)(struct slot *slot);
};

struct admission {
	size_t max, reserve, max_holder;
	size_t max_bytes;
	bool tells_apart;
	size_t n, n_teams; /* slots taken, and those of teams */
	size_t bytes;
	uint64_t hash_key[3];
	struct address *addresses;
	struct list buckets[ADMISSION_BUCKETS];
	struct holder strangers, operators, everybody;
	struct map by_name;
	struct list teams;
	struct http_admission counts;
};

void admission_init(struct admission *a, const struct http_limits *limits);
void admission_done(struct admission *a); /* all slots have been left */

/* Gives a new connection a slot, evicting another one if necessary. -EAGAIN: there is none. */
int admission_enter(struct admission *a, struct slot *slot, const struct sockaddr_storage *peer);
void admission_leave(struct slot *slot); /* fine if none is taken */
/* Evicts one connection; false: all are in use. */
bool admission_make_room(struct admission *a);
/* A request begins, and is over. */
void admission_set_busy(struct slot *slot);
void admission_set_idle(struct slot *slot);
/* As http_admit. When it is refused, the slot keeps its holder. */
int admission_admit(struct slot *slot, const struct http_claim *claim, struct err *e);
/* Sets what the connection holds in memory now: of its reply (or a head or handshake), and of a
 * body that is being collected. When its holder then has more than it may, what has waited longest
 * is cut, which may be this connection. */
void admission_note(struct slot *slot, size_t unread, size_t collected);
/* Whether this slot's holder uses more than half of what it may, and its streams should pause. */
bool admission_should_throttle(const struct slot *slot);
/* Whether it may collect so much more. */
bool admission_may_collect(const struct slot *slot, size_t more);

void admission_look(const struct admission *a, struct http_admission *ret);
void admission_each(const struct admission *a, http_holder_fn fn, void *arg);
