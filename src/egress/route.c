/* Which addresses are this host's own: the routing table is asked, since it is what would carry the
 * connection, and it is never out of date. */
#include "egress/egress-internal.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

struct question {
	struct nlmsghdr head;
	struct rtmsg route;
	struct rtattr to;
	uint32_t address;
};

int route_open(struct err *e)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	return fd < 0 ? err_sys(e, -errno, "open a socket to the routing table") : fd;
}

static bool stays_here(unsigned interface)
{
	char name[IF_NAMESIZE];

	return !if_indextoname(interface, name) || strcmp(name, "lo") == 0 ||
	       str_has_prefix(str_of(name), STR("atoll"));
}

static bool is_own(struct nlmsghdr *head)
{
	struct rtmsg *route = NLMSG_DATA(head);
	struct rtattr *a = RTM_RTA(route);
	int left = (int)RTM_PAYLOAD(head);

	if (head->nlmsg_type != RTM_NEWROUTE || route->rtm_type != RTN_UNICAST)
		return true;
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		unsigned interface;

		if (a->rta_type != RTA_OIF || RTA_PAYLOAD(a) != sizeof interface)
			continue;
		memcpy(&interface, RTA_DATA(a), sizeof interface);
		return stays_here(interface);
	}
	return true;
}

/* The kernel answers before send() returns. No answer, or no route, counts as our own. */
bool route_is_own(struct egress *egress, uint32_t address)
{
	struct question q = {
		.head = { .nlmsg_len = sizeof q,
			.nlmsg_type = RTM_GETROUTE,
			.nlmsg_flags = NLM_F_REQUEST },
		.route = { .rtm_family = AF_INET, .rtm_dst_len = 32 },
		.to = { .rta_len = RTA_LENGTH(sizeof address), .rta_type = RTA_DST },
		.address = htonl(address),
	};
	union {
		struct nlmsghdr head;
		char space[4096];
	} reply;
	ssize_t n;

	while (recv(egress->route_fd, &reply, sizeof reply, MSG_DONTWAIT) > 0)
		;
	if (send(egress->route_fd, &q, sizeof q, MSG_DONTWAIT) != sizeof q)
		return true;
	n = recv(egress->route_fd, &reply, sizeof reply, MSG_DONTWAIT);
	if (n < 0 || !NLMSG_OK(&reply.head, (size_t)n))
		return true;
	return is_own(&reply.head);
}

bool route_is_closed(struct egress *egress, uint32_t address, uint16_t port)
{
	return private_is_closed(&egress->opened, address, port) || route_is_own(egress, address);
}
