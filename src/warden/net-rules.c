/* The nftables table that all servers of a host share, the same on every host. */
#include "warden/firewall.h"
#include "warden/net.h"
#include "warden/run.h"

/* In one transaction: the same outcome whatever was there. A chain that stays where it is, and gets
 * new rules, has them for every packet from one to the next; one that is deleted and created again
 * lets some through in between. That is done only where an older one is not the same. */
/* Which private addresses are opened, each server's own table says by a mark: servers of one host
 * may have different lists. */
/* `source` comes before the kernel puts fragments together: it keeps those of the whole host in one
 * place of a few megabytes, which one sandbox could fill with parts of what never becomes whole. */
int net_rules(bool anew, struct buf *out)
{
	(void)buf_printf(out, "table inet atoll\n%s table inet atoll\n", anew ? "delete" : "flush");
	(void)buf_adds(out, "table inet atoll {\n"
			    "\tchain source {\n"
			    "\t\ttype filter hook prerouting priority raw - 150; policy accept;\n"
			    "\t\tiifname \"atoll*\" meta nfproto ipv6 drop\n"
			    "\t\tiifname \"atoll*\" ip frag-off and 0x3fff != 0 drop\n"
			    "\t\tiifname \"atoll*\" fib saddr . iif oif missing drop\n"
			    "\t}\n"
			    "\tchain host {\n"
			    "\t\ttype filter hook input priority filter - 5; policy accept;\n"
			    "\t\tiifname != \"atoll*\" accept\n"
			    "\t\tct state established,related accept\n");
	(void)buf_printf(out,
		"\t\tct status dnat meta l4proto { tcp, udp } th dport %d-%d accept\n",
		FIREWALL_FIRST_PORT, FIREWALL_FIRST_PORT + FIREWALL_PORTS - 1);
	(void)buf_adds(out,
		"\t\tdrop\n"
		"\t}\n"
		"\tchain through {\n"
		"\t\ttype filter hook forward priority filter - 5; policy accept;\n"
		"\t\toifname \"atoll*\" iifname \"atoll*\" drop\n"
		"\t\toifname \"atoll*\" ct state established,related accept\n"
		"\t\toifname \"atoll*\" drop\n"
		"\t\tiifname \"atoll*\" ip daddr { " NET_NEVER_RANGES " } drop\n"
		"\t\tiifname \"atoll*\" meta mark and " FIREWALL_OPENED
		" == 0 ip daddr { " NET_PRIVATE_RANGES " } drop\n"
		"\t\tiifname \"atoll*\" meta mark and " FIREWALL_PASSED " == 0 drop\n"
		"\t\tiifname \"atoll*\" meta mark set meta mark and " FIREWALL_OTHERS "\n"
		"\t}\n"
		"\tchain out {\n"
		"\t\ttype nat hook postrouting priority srcnat; policy accept;\n"
		"\t\tiifname \"atoll*\" masquerade\n"
		"\t}\n"
		"}\n");
	return out->failed ? -ENOBUFS : 0;
}

/* Docker makes the host's own forward chain drop what it does not know, and a packet must pass
 * every chain of a hook. Docker leaves one chain to others for this. What comes through there has
 * still to pass our own table. Without Docker there is no such chain, and nothing is done. */
static void tell_docker(const char *verb)
{
	const char *const out[] = { "iptables", "-w", verb, "DOCKER-USER", "-i", "atoll+", "-j",
		"ACCEPT", NULL };
	const char *const back[] = { "iptables", "-w", verb, "DOCKER-USER", "-o", "atoll+", "-m",
		"conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT", NULL };

	if (!run_finds("iptables"))
		return;
	(void)run_program(out, STR_NONE, AT_FDCWD, NULL);
	(void)run_program(back, STR_NONE, AT_FDCWD, NULL);
}

static int apply(bool anew, struct err *e)
{
	static const char *const argv[] = { "nft", "-f", "-", NULL };
	CLEANUP(buf_done) struct buf rules = BUF_INIT(16384);
	int r = net_rules(anew, &rules);

	return r < 0 ? r : run_program(argv, buf_str(&rules), AT_FDCWD, e);
}

int net_apply_rules(struct err *e)
{
	int r = apply(false, NULL);

	if (r < 0)
		r = apply(true, e);
	if (r < 0)
		return err_wrap(e, r,
			"firewall for sandboxes (install nftables and use a kernel with nf_tables "
			"and NAT,"
			" or start with --network none)");
	tell_docker("-D"); /* so that there is one rule however often this runs */
	tell_docker("-I");
	return 0;
}

void net_remove_rules(void)
{
	static const char *const argv[] = { "nft", "delete", "table", "inet", "atoll", NULL };

	(void)run_program(argv, STR_NONE, AT_FDCWD, NULL);
	tell_docker("-D");
}
