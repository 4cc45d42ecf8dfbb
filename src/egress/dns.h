/* DNS messages as bytes: reading questions of sandboxes and answers of name servers, writing both.
 * Pure: nothing here knows a socket or a policy. Names stay in their wire form (labels behind their
 * lengths, the root at the end), uncompressed. */
#pragma once

#include "base/base.h"

enum {
	DNS_NAME_MAX = 255,      /* bytes of a name on the wire */
	DNS_TEXT_SIZE = 256,     /* of a name as text, with its NUL */
	DNS_PLAIN_MAX = 512,     /* datagram of a client that knows no EDNS */
	DNS_UDP_MAX = 1232,      /* ours, and what we let others ask for: never fragmented */
	DNS_MESSAGE_MAX = 65535, /* over TCP */
	DNS_MAX_RECORDS = 64,    /* kept of an answer */
};

enum dns_rcode {
	DNS_OK = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
};

enum dns_type {
	DNS_A = 1,
	DNS_NS = 2,
	DNS_CNAME = 5,
	DNS_SOA = 6,
	DNS_PTR = 12,
	DNS_MX = 15,
	DNS_AAAA = 28,
	DNS_SRV = 33,
	DNS_DNAME = 39,
	DNS_OPT = 41,
	DNS_SVCB = 64,
	DNS_HTTPS = 65,
	DNS_FIRST_META = 249, /* TKEY, TSIG, IXFR, AXFR, MAILB, MAILA, ANY */
	DNS_LAST_META = 255,
	DNS_CLASS_IN = 1,
};

struct dns_name {
	uint8_t n;
	uint8_t p[DNS_NAME_MAX];
};

struct dns_question {
	struct dns_name name; /* letter case as sent */
	uint16_t type, class;
};

/* ---- what a sandbox asks ---- */
struct dns_query {
	uint16_t id;
	bool wants_recursion, has_edns;
	uint16_t udp_max; /* what its datagrams may hold */
	struct dns_question question;
};
/* DNS_OK, or what to answer it with; -EBADMSG: not a query at all, to be dropped. With an rcode the
 * question may be empty (name.n == 0). */
int dns_parse_query(struct str message, struct dns_query *ret);

/* ---- what a name server answers ---- */
struct dns_record {
	struct dns_name owner;
	uint16_t type;
	uint32_t ttl_s;
	struct str data; /* in the answer's arena; names in it are uncompressed */
};
struct dns_answer {
	int n_refs;
	struct arena *arena;
	enum dns_rcode rcode;
	uint32_t ttl_s;             /* how long all of it may be kept */
	struct dns_record *records; /* in the arena; NULL: none */
	size_t n;
};
struct dns_answer *dns_answer_new(enum dns_rcode rcode);
struct dns_answer *dns_answer_unref(struct dns_answer *answer);
DEFINE_CLEANUP(struct dns_answer, dns_answer_unref)

/* Of the answer section only what was asked for is kept, and the chain of CNAMEs that leads there.
 * `same_case`: its question must repeat the letter case of ours, which a forger cannot know.
 * -EBADMSG: not an answer to this; -E2BIG: cut short, to be asked for over TCP. */
int dns_parse_answer(struct str message, uint16_t id, const struct dns_question *asked,
	bool same_case, struct dns_answer **ret);

/* ---- writing ---- */
/* Its letter case is chosen at random. */
void dns_mix_case(struct dns_name *name);
int dns_write_query(struct buf *out, uint16_t id, const struct dns_question *question);
/* At most max bytes; what does not fit is left out and marked as cut. answer NULL: none, with this
 * rcode; else the answer's own, age_s old. */
int dns_write_reply(struct buf *out, const struct dns_query *query, enum dns_rcode rcode,
	const struct dns_answer *answer, uint32_t age_s, size_t max);

/* ---- names ---- */
/* "www.example.com": of letters, digits, '-' and '_' only, lower case, no dot at its end; anything
 * else is -EINVAL. */
int dns_name_text(const struct dns_name *name, char out[DNS_TEXT_SIZE]);
int dns_name_parse(struct str text, struct dns_name *ret);
bool dns_name_equal(const struct dns_name *a, const struct dns_name *b); /* whatever the case */
/* The address of an A record; host byte order. */
uint32_t dns_record_address(const struct dns_record *record);
/* Takes out the A records for which `drop` says so; returns how many. */
size_t dns_answer_drop(struct dns_answer *answer, bool (*drop)(const void *arg, uint32_t address),
	const void *arg);
