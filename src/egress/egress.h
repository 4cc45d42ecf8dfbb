/* egress - what sandboxes send to the world, where a policy must look at it.
 * Owns:   the answers to their names, the proxy for policies by name, the header rules, the counts
 *         of what was denied.
 * Uses:   base, loop, http, tls, policy, secret.
 * Never:  decides what a policy says; touches the kernel's rules; trusts an address or a name that
 *         a sandbox claims: names are resolved here, again.
 *
 * The kernel sends every packet to port 53, and every connection of a sandbox whose policy goes by
 * name, to sockets of ours. Who sends is told by the address, which the kernel does not let it
 * forge. A name is asked for only if the policy lets it through, answers lose their private
 * addresses, and there is no IPv6. A connection is held until its first bytes say whom it is for:
 * the name in a TLS hello, the Host of each HTTP request. What its address alone would allow
 * passes; else the name must be allowed, and then it is connected to what the name means to us. */
#pragma once

#include "base/base.h"
#include "base/private.h"
#include "json/json.h"
#include "loop/loop.h"

/* Whose address this is, as found at the moment; everything is borrowed for the call. */
struct egress_sandbox {
	const char *id, *team_id;
	struct str network; /* as policy_parse takes them */
	struct json_bool internet;
};
typedef bool (*egress_find_fn)(void *arg, uint32_t address, struct egress_sandbox *ret);

struct secret_book;
struct tls_authority;
struct egress;
struct egress_config {
	struct loop *loop;
	struct secret_book *secrets;
	struct tls_authority *authority; /* signs for hosts with header rules; NULL: none have */
	egress_find_fn find;
	void *find_arg;
	/* Where names are asked for: "ADDRESS[:PORT]", separated by commas; NULL: as the host's
	 * /etc/resolv.conf says, read again when it changes. */
	const char *dns_servers;
	/* Private addresses that the operator has opened; NULL: none. Borrowed. */
	const struct private_list *opened;
};
/* -EINVAL: the name servers are not addresses. */
int egress_new(const struct egress_config *config, struct egress **ret, struct err *e);
struct egress *egress_free(struct egress *egress);
DEFINE_CLEANUP(struct egress, egress_free)

/* Begins to serve. The descriptors stay the caller's and must outlive the egress (runtime_egress
 * says what they are). */
struct egress_sockets {
	int dns_udp_fd, dns_tcp_fd, proxy_fd;
};
int egress_start(struct egress *egress, const struct egress_sockets *sockets, struct err *e);

/* Its policy has changed or it is gone: what is no longer allowed is cut at once. (Noticed by
 * itself as well, within a second.) */
void egress_recheck(struct egress *egress, const char *id);

struct egress_denials {
	uint64_t names_asked;   /* names that it must not ask for */
	uint64_t names_dialled; /* connections and requests to names it must not reach */
	uint64_t addresses;     /* connections to addresses it must not reach */
};
/* Zeroes for one that was never denied anything. */
struct egress_denials egress_denied(const struct egress *egress, const char *id);
