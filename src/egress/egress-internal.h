/* What the files of this room share.
 *
 *   egress.c     life, the sweep that finds what is no longer allowed
 *   tenant.c     one sandbox as seen from here: its policy, its cache, its denials
 *   share.c      how much one sandbox may have at once, and all of one team together
 *   dns-*.c      messages: names, reading, writing
 *   servers.c    where names are asked for
 *   lookup.c     one name asked for upstream
 *   names.c      the sandboxes' questions, by datagram and by connection
 *   hello.c      the name in a TLS hello         sniff.c  what a connection's first bytes are
 *   route.c      addresses that are this host's own
 *   dial.c       from a name to a connected socket
 *   flow.c       one connection: held, decided, passed on
 *   tunnel.c     bytes both ways
 *   web.c        HTTP requests, looked at one by one
 *   headers.c    what a rule adds to them, secrets in their places */
#pragma once

#include "egress/dns.h"
#include "egress/egress.h"
#include "http/http.h"
#include "policy/policy.h"

#include <netinet/in.h>

enum {
	TENANT_ID_SIZE = 64,
	SCRATCH_BYTES = 64 * 1024,
};

/* ---- egress.c ---- */
struct egress {
	struct egress_config config;
	struct private_list opened;
	struct loop *loop;
	struct map tenants, teams;
	struct servers *servers;
	struct names *names;
	struct http_server *http;
	struct tls_server *tls;
	struct loop_listener proxy;
	struct loop_timer sweep;
	int route_fd;
	size_t n_flows, max_flows;
	size_t n_lookups;
	char *scratch; /* SCRATCH_BYTES, used within one callback only */
};

/* ---- share.c ---- */
enum share {
	SHARE_LOOKUPS,
	SHARE_NAME_STREAMS, /* connections for names */
	SHARE_FLOWS,
	N_SHARES,
};

enum rate {
	RATE_QUESTIONS,
	RATE_HELLOS, /* TLS that ends with us: a few bytes of a client cost us a signature */
	N_RATES,
};

struct bucket {
	int64_t tokens, refilled_ms; /* in thousandths */
};

struct team {
	struct egress *egress;
	char id[TENANT_ID_SIZE];
	size_t in_use[N_SHARES]; /* by all of its sandboxes */
	struct bucket buckets[N_RATES];
	size_t n_tenants;
};

struct team *team_join(struct egress *egress, const char *id);
void team_leave(struct team *team);
enum rates_of {
	RATES_OF_ONE,
	RATES_OF_TEAM,
	N_RATES_OF,
};
void rates_fill(const struct egress *egress, enum rates_of whose, struct bucket buckets[N_RATES]);

struct tenant;
/* False when it has its share already, or its team has: both are smaller when all together use much
 * of `max`. */
bool tenant_take(struct tenant *tenant, enum share share, size_t used, size_t max);
void tenant_give_back(struct tenant *tenant, enum share share);
/* One more, within its rate and its team's. */
bool tenant_may(struct tenant *tenant, enum rate rate);

/* ---- tenant.c ---- */
enum denial {
	DENIED_QUESTION,
	DENIED_NAME,
	DENIED_ADDRESS,
	N_DENIALS,
};

struct tenant {
	struct egress *egress;
	char id[TENANT_ID_SIZE];
	struct team *team;
	uint32_t address;    /* where it was last seen */
	struct arena *arena; /* holds the policy and the two it was made from */
	struct policy policy;
	struct str network;
	struct json_bool internet;
	size_t in_use[N_SHARES];
	uint64_t denials[N_DENIALS];
	struct list flows, webs;
	struct list cache; /* the least recently used first */
	size_t n_cached;
	struct bucket buckets[N_RATES];
	int64_t log_from_ms;
	unsigned n_logged, n_unlogged;
	int n_refs; /* of what names it; the map's own among them while it is in there */
};

/* By the address of a peer; NULL: nobody's. Its policy is the one of now. Borrowed: keep it with
 * tenant_ref. */
struct tenant *tenant_find(struct egress *egress, uint32_t address);
struct tenant *tenant_ref(struct tenant *tenant);
struct tenant *tenant_unref(struct tenant *tenant);
/* Out of the map: whoever still holds it may let it go. */
void tenant_forget(struct tenant *tenant);
/* Counts, and logs the first few. */
void tenant_deny(struct tenant *tenant, enum denial kind, const char *what, uint16_t port);

/* Borrowed; NULL: not known, or too old. */
struct dns_answer *cache_get(struct tenant *tenant, const struct dns_question *question,
	uint32_t *ret_age_s);
void cache_put(struct tenant *tenant, const struct dns_question *question,
	struct dns_answer *answer);
void cache_sweep(struct tenant *tenant); /* drops what is too old */
void cache_clear(struct tenant *tenant);

/* ---- servers.c ---- */
enum {
	SERVERS_MAX = 4
};
struct servers;
int servers_new(const char *list, struct servers **ret, struct err *e);
struct servers *servers_free(struct servers *servers);
/* As of now; returns how many. */
int servers_get(struct servers *servers, struct sockaddr_storage out[SERVERS_MAX]);
/* For the tests of its parser. */
int servers_parse_file(struct str text, struct sockaddr_storage out[SERVERS_MAX]);

/* ---- lookup.c ---- */
struct lookup;
/* answer NULL: no server gave one. Private addresses are gone from it, and it may have been kept
 * for a while. Borrowed. */
typedef void (*lookup_fn)(void *arg, const struct dns_answer *answer, uint32_t age_s);
/* fn is called once, on a later turn, unless it is cancelled. NULL: the tenant has its share under
 * way already. The cache is asked first. */
struct lookup *lookup_start(struct tenant *tenant, const struct dns_question *question,
	lookup_fn fn, void *arg);
void lookup_cancel(struct lookup *lookup);

/* ---- names.c ---- */
struct names;
int names_new(struct egress *egress, int udp_fd, int tcp_fd, struct names **ret, struct err *e);
struct names *names_free(struct names *names);

/* ---- hello.c, sniff.c ---- */
enum sniffed {
	SNIFF_MORE,  /* not enough to tell */
	SNIFF_TLS,   /* with the name in it, or none */
	SNIFF_HTTP,  /* a request line of HTTP/1 */
	SNIFF_OTHER, /* nothing that names a host */
};
enum {
	SNIFF_MAX_BYTES = 16 * 1024
};
/* Pure: what these first bytes of a connection are. SNIFF_TLS writes the name, lower case, empty
 * when there is none that could be one. */
enum sniffed sniff(struct str bytes, char name[DNS_TEXT_SIZE]);
enum sniffed hello_parse(struct str bytes, char name[DNS_TEXT_SIZE]);

/* ---- route.c ---- */
/* Whether a connection of ours to this address would stay on this host or reach a sandbox. */
bool route_is_own(struct egress *egress, uint32_t address);
/* Whether nobody's policy opens it: it is this host's own, or private and not opened. */
bool route_is_closed(struct egress *egress, uint32_t address, uint16_t port);
int route_open(struct err *e);

/* ---- dial.c ---- */
struct dial;
/* fd < 0: -ENOENT the name has no address that may be reached, else why none could be connected. */
typedef void (*dial_fn)(void *arg, int fd);
/* name NULL: the address itself. An address of a name that is not allowed as such must be allowed
 * by itself. Calls fn once, on a later turn, unless cancelled. */
struct dial *dial_start(struct tenant *tenant, const char *name, uint32_t address, uint16_t port,
	dial_fn fn, void *arg);
void dial_cancel(struct dial *dial);
uint32_t dial_peer(int fd); /* whom it is connected to; 0: not known */

/* ---- headers.c ---- */
struct headers;
/* text NULL: e says which secret is missing. Both are borrowed. */
typedef void (*headers_fn)(void *arg, const char *text, const struct err *e);
/* Calls fn once, on a later turn, unless cancelled. */
struct headers *headers_start(struct tenant *tenant, const struct policy_rule *rule, headers_fn fn,
	void *arg);
void headers_cancel(struct headers *headers);

/* ---- flow.c ---- */
void flow_accept(struct egress *egress, int fd, const struct sockaddr_storage *peer);
/* Cuts what this tenant's policy no longer allows; `all`: everything. */
void flow_recheck(struct tenant *tenant, bool all);
void flow_free_all(struct tenant *tenant); /* without waiting for the end of the turn */
/* What a connection may do now. */
enum verdict {
	VERDICT_REFUSE,
	VERDICT_ADDRESS, /* to the address it was meant for */
	VERDICT_NAME,    /* to what its name means to us */
};
enum verdict verdict_of(struct tenant *tenant, const char *name, uint32_t address, uint16_t port);
/* Whether what was let through may stay. name NULL: it went by its address; reached 0: it is not
 * connected yet. */
bool verdict_holds(const struct tenant *tenant, const char *name, uint32_t reached, uint16_t port);

/* ---- tunnel.c ---- */
struct tunnel;
typedef void (*tunnel_fn)(void *arg); /* it is over, both sides are closed */
/* Takes both descriptors, non-blocking and connected. */
struct tunnel *tunnel_new(struct loop *loop, char *scratch, int a, int b, tunnel_fn fn, void *arg);
/* Cuts both sides without a callback. */
struct tunnel *tunnel_free(struct tunnel *tunnel);
/* A socket is closed so that its peer sees a reset. */
void close_hard(int fd);

/* ---- web.c ---- */
struct web_connection {
	struct tenant *tenant;
	const struct sockaddr_storage *peer;
	uint32_t address; /* where it was meant to go */
	uint16_t port;
	int fd;
	const char *hello; /* the name that its TLS begins with; NULL: plain HTTP */
};
void web_on_request(void *egress, struct http_exchange *x);
void web_take(const struct web_connection *connection); /* and its descriptor */
void web_recheck(struct tenant *tenant, bool all);
void web_quiet_all(struct tenant *tenant); /* no callback comes any more */
