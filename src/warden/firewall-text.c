/* The server's table as nft reads it. Names that nft has a meaning for itself cannot be used. */
#include "warden/firewall.h"
#include "warden/run.h"

#include <arpa/inet.h>

/* Sets and maps. `denied` counts by its elements' counters: looking one up is counting it. */
static void add_sets(struct buf *out)
{
	(void)buf_adds(out, "\tset proxied {\n\t\ttypeof iif\n\t}\n"
			    "\tset told {\n\t\ttypeof iif\n\t\tsize 4096\n"
			    "\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n"
			    "\tset asking {\n\t\ttypeof iif\n\t\tsize 4096\n"
			    "\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n"
			    "\tset opened {\n\t\ttypeof iif\n\t\tsize 65535\n"
			    "\t\tflags dynamic\n\t}\n"
			    "\tmap reach {\n\t\ttypeof iif : meta mark . meta mark\n\t}\n");
	for (int i = 0; i < FIREWALL_SHARDS; i++)
		(void)buf_printf(out, "\tset ranges%d {\n\t\ttype mark . ipv4_addr\n\t}\n", i);
}

/* Chains that firewall.c puts rules into, which have no words here. */
static void add_deciding(struct buf *out)
{
	for (int i = 0; i < FIREWALL_SHARDS; i++)
		(void)buf_printf(out,
			"\tchain few%d {\n\t}\n\tchain few%d_denied {\n\t}\n"
			"\tchain any%d {\n\t}\n\tchain any%d_denied {\n\t}\n",
			i, i, i, i);
	(void)buf_adds(out, "\tmap branches {\n\t\ttype mark : verdict\n\t\telements = {");
	for (int i = 0; i < FIREWALL_SHARDS; i++) {
		uint32_t shard = (uint32_t)i << FIREWALL_ID_NUMBER;

		(void)buf_printf(out,
			"%s 0x%x : goto pass, 0x%x : goto refuse, 0x%x : goto few%d, "
			"0x%x : goto any%d",
			i ? "," : "", shard | REACH_PASS, shard | REACH_REFUSE, shard | REACH_FEW,
			i, shard | REACH_ANY, i);
	}
	(void)buf_adds(out, " }\n\t}\n");
}

/* The kernel keeps all connections of the host in one table, and once that is full nobody can make
 * another: each sandbox has a part of it. What is dropped here is not kept. */
#define FEW_CONNECTIONS "\t\tct state new add @opened { iif ct count over 4096 } drop\n"

static const char *few_connections(const struct firewall *fw)
{
	return fw->counts_nothing ? "" : FEW_CONNECTIONS;
}

int firewall_can_count(struct err *e)
{
	static const char *const argv[] = { "nft", "-c", "-f", "-", NULL };
	static const char text[] = "table inet atoll_count {\n"
				   "\tset opened {\n\t\ttypeof iif\n\t\tsize 65535\n"
				   "\t\tflags dynamic\n\t}\n"
				   "\tchain through {\n" FEW_CONNECTIONS "\t}\n}\n";

	return run_program(argv, str_of(text), AT_FDCWD, e);
}

/* A set of protocols in each rule would be more than the seal takes. */
static void add_opened_range(const struct private_range *range, const char *protocol,
	const char *verdict, struct buf *out)
{
	struct private_range addresses = *range;
	char text[PRIVATE_TEXT_SIZE];

	addresses.port = 0;
	private_range_text(&addresses, text);
	(void)buf_printf(out, "\t\tip daddr %s ", text);
	if (range->port)
		(void)buf_printf(out, "%s dport %u ", protocol, (unsigned)range->port);
	(void)buf_printf(out, "%s\n", verdict);
}

#define OPEN "meta mark set meta mark or " FIREWALL_OPENED " return"

/* Which of the private addresses the operator has opened. `opened` marks what goes there and leaves
 * the rest to the sandbox's policy; `opened_dialled` leaves it to the proxy. */
static void add_opened(const struct firewall *fw, struct buf *out)
{
	if (fw->opened.n == 0)
		return;
	(void)buf_adds(out, "\tchain opened {\n"
			    "\t\toifname \"atoll*\" goto refuse\n");
	for (size_t i = 0; i < fw->opened.n; i++) {
		add_opened_range(&fw->opened.v[i], "tcp", OPEN, out);
		if (fw->opened.v[i].port)
			add_opened_range(&fw->opened.v[i], "udp", OPEN, out);
	}
	(void)buf_adds(out, "\t\tgoto refuse\n\t}\n\tchain opened_dialled {\n");
	for (size_t i = 0; i < fw->opened.n; i++)
		add_opened_range(&fw->opened.v[i], "tcp", "return", out);
	(void)buf_adds(out, "\t\taccept\n\t}\n");
}

/* What no policy opens (private addresses, neighbours, this host) is not redirected to the proxy,
 * which would have to accept it first: it goes on to where it is refused for everybody.
 *
 * Before the shared table's chains, whose word is the last: what is accepted here they still see.
 * A connection that goes to one of the server's sockets without having been redirected there was
 * meant for the host, or comes from somewhere else. Other servers' sandboxes are for their own
 * tables to refuse: the ports may be another server's by now, if this one is gone and its table is
 * not. All sandboxes share the socket for their names: what one of them asks beyond reason is
 * dropped before it takes the others' room there. */
static void add_inward(const struct firewall *fw, struct buf *out)
{
	const int *port = fw->ports;

	(void)buf_printf(out,
		"\tchain redirected {\n"
		"\t\ttype nat hook prerouting priority dstnat - 5; policy accept;\n"
		"\t\tiif @mine udp dport 53 redirect to :%d\n"
		"\t\tiif @mine tcp dport 53 redirect to :%d\n"
		"\t\tiif != @proxied accept\n"
		"\t\tip daddr { " NET_PRIVATE_RANGES " } %s\n"
		"\t\tfib daddr type local accept\n"
		"\t\tmeta l4proto tcp redirect to :%d\n"
		"\t}\n",
		port[WARDEN_DNS_UDP], port[WARDEN_DNS_TCP],
		fw->opened.n ? "jump opened_dialled" : "accept", port[WARDEN_PROXY]);
	(void)buf_printf(out,
		"\tchain host {\n"
		"\t\ttype filter hook input priority filter - 10; policy accept;\n"
		"\t\tudp dport %d iifname != \"atoll*\" drop\n"
		"\t\ttcp dport { %d, %d } iifname != \"atoll*\" drop\n"
		"\t\tiif != @mine accept\n%s"
		"\t\tudp dport %d update @asking { iif limit rate over 300/second burst 300 "
		"packets }"
		" drop\n"
		"\t\tct status dnat udp dport %d accept\n"
		"\t\tct status dnat tcp dport { %d, %d } accept\n"
		"\t\tct state established,related accept\n"
		"\t\tgoto refuse\n"
		"\t}\n",
		port[WARDEN_DNS_UDP], port[WARDEN_DNS_TCP], port[WARDEN_PROXY], few_connections(fw),
		port[WARDEN_DNS_UDP], port[WARDEN_DNS_UDP], port[WARDEN_DNS_TCP],
		port[WARDEN_PROXY]);
}

/* What this chain does not decide, because a table or a policy is being replaced while the packet
 * is on its way through it, the shared table drops: only `pass` lets through. */
static void add_outward(const struct firewall *fw, struct buf *out)
{
	(void)buf_adds(out, "\tchain through {\n"
			    "\t\ttype filter hook forward priority filter - 10; policy accept;\n"
			    "\t\tiif != @mine accept\n"
			    "\t\tmeta nfproto != ipv4 drop\n"
			    "\t\tip daddr { " NET_PRIVATE_RANGES " } ");
	(void)buf_adds(out, fw->opened.n ? "jump opened\n" : "goto refuse\n");
	(void)buf_adds(out, few_connections(fw));
	(void)buf_adds(out, "\t}\n"
			    "\tchain pass {\n"
			    "\t\tmeta mark set meta mark or " FIREWALL_PASSED " accept\n"
			    "\t}\n"
			    "\tchain refuse {\n"
			    "\t\tiif @denied\n");
	if (fw->log_group)
		(void)buf_printf(out,
			"\t\tupdate @told { iif limit rate 2/second burst 5 packets }"
			" log group %d snaplen 64\n",
			fw->log_group);
	(void)buf_adds(out, "\t\tmeta l4proto tcp reject with tcp reset\n"
			    "\t\treject with icmp type admin-prohibited\n"
			    "\t}\n");
}

/* Whose packets are dropped until their policies are laid. */
static void add_members(const struct firewall *fw, bool with_members, const char *set,
	const char *more, struct buf *out)
{
	bool any = false;

	(void)buf_printf(out, "\tset %s {\n\t\ttypeof iif\n%s", set, more);
	for (int i = 1; with_members && i <= NET_MAX_NUMBER; i++) {
		if (fw->places[i].index == 0)
			continue;
		(void)buf_printf(out, "%s%" PRIu32, any ? ", " : "\t\telements = { ",
			fw->places[i].index);
		any = true;
	}
	(void)buf_adds(out, any ? " }\n\t}\n" : "\t}\n");
}

void firewall_text(const struct firewall *fw, bool with_members, struct buf *out)
{
	(void)buf_printf(out, "table inet %s\ndelete table inet %s\ntable inet %s {\n", fw->table,
		fw->table, fw->table);
	add_members(fw, with_members, "mine", "", out);
	add_members(fw, with_members, "denied", "\t\tcounter\n", out);
	add_sets(out);
	add_opened(fw, out);
	add_inward(fw, out);
	add_outward(fw, out);
	add_deciding(out);
	(void)buf_adds(out, "}\n");
}
