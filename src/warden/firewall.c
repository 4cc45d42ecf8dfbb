#include "warden/firewall.h"
#include "warden/egress.h"
#include "warden/nflog.h"
#include "warden/nft.h"

#include <net/if.h>

#define SHARED "atoll"
#define PREFIX SHARED "_"

int firewall_open(struct firewall *fw, const char *instance, struct err *e)
{
	int r = nft_open(&fw->nft_fd, e);

	if (r >= 0)
		r = egress_open(fw->socket_fds, fw->ports, e);
	if (r < 0)
		return r;
	(void)snprintf(fw->table, sizeof fw->table, PREFIX "%s", instance);
	/* To be told of what was refused is good to have, no more. */
	if (nflog_open(instance, &fw->log_fd, &fw->log_group, e) < 0)
		log_info("nflog.missing", "err=%s", log_quote(str_of(e->msg)));
	fw->enabled = true;
	return 0;
}

void firewall_close(struct firewall *fw)
{
	close_fdp(&fw->nft_fd);
	close_fdp(&fw->log_fd);
	for (int i = 0; i < WARDEN_EGRESS_FDS; i++)
		close_fdp(&fw->socket_fds[i]);
	*fw = (struct firewall)FIREWALL_INIT;
}

static void remove_table(int nft_fd, const char *name)
{
	CLEANUP(nft_freep) struct nft_batch *nft = nft_begin(name, 0);

	nft_remove_table(nft);
	(void)nft_commit(nft_fd, nft);
}

void firewall_remove(struct firewall *fw)
{
	if (fw->enabled)
		remove_table(fw->nft_fd, fw->table);
}

enum {
	TABLES_AT_ONCE = 64,
};

struct found {
	char names[TABLES_AT_ONCE][sizeof((struct firewall *)0)->table];
	int n;
};

static void find_ours(void *arg, const char *name)
{
	struct found *found = arg;

	if (str_has_prefix(str_of(name), STR(PREFIX)) && found->n < TABLES_AT_ONCE &&
		strlen(name) < sizeof found->names[0])
		(void)snprintf(found->names[found->n++], sizeof found->names[0], "%s", name);
}

void firewall_remove_all(struct firewall *fw)
{
	struct found found = { 0 };

	if (!fw->enabled || nft_each_table(fw->nft_fd, find_ours, &found) < 0)
		return;
	for (int i = 0; i < found.n; i++)
		remove_table(fw->nft_fd, found.names[i]);
}

static void find_one(void *arg, const char *name)
{
	const char **wanted = arg;

	if (*wanted && strcmp(name, *wanted) == 0)
		*wanted = NULL;
}

bool firewall_stands(const struct firewall *fw)
{
	const char *names[] = { fw->table, SHARED };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (nft_each_table(fw->nft_fd, find_one, &names[i]) < 0 || names[i])
			return false;
	return true;
}

/* ---- one sandbox ---- */

static void chain_name(int number, char ret[16])
{
	(void)snprintf(ret, 16, "to%d", number);
}

void place_chain(const struct place *place, int number, char ret[16])
{
	if (place->has_chain)
		chain_name(number, ret);
	else
		(void)snprintf(ret, 16, "%s", place->is_closed ? "refuse" : "pass");
}

static void add_policy(struct nft_batch *nft, int number, uint32_t index, const struct reach *reach,
	struct place *ret)
{
	char chain[16];

	*ret = place_of(index, reach);
	place_chain(ret, number, chain);
	if (ret->is_proxied)
		nft_add_member(nft, "proxied", index);
	if (ret->has_chain)
		nft_add_chain(nft, chain, reach, "pass", "refuse");
	nft_add_branch(nft, "reach", index, chain);
}

static void remove_policy(struct nft_batch *nft, int number, const struct place *place)
{
	char chain[16];

	chain_name(number, chain);
	if (place->is_proxied)
		nft_remove_member(nft, "proxied", place->index);
	nft_remove_member(nft, "reach", place->index);
	if (place->has_chain)
		nft_remove_chain(nft, chain);
}

int firewall_enter(struct firewall *fw, int number, uint32_t index, struct err *e)
{
	CLEANUP(nft_freep) struct nft_batch *nft = NULL;
	int r;

	if (!fw->enabled)
		return 0;
	firewall_leave(fw, number);
	nft = nft_begin(fw->table, 0);
	nft_add_member(nft, "mine", index);
	nft_add_member(nft, "denied", index);
	nft_add_branch(nft, "reach", index, "pass");
	r = nft_commit(fw->nft_fd, nft);
	if (r < 0)
		return err_sys(e, r, "let atoll%d through the firewall", number);
	fw->places[number] = (struct place){ .index = index };
	return 0;
}

int firewall_set(struct firewall *fw, int number, const struct reach *reach, struct err *e)
{
	struct place *place = &fw->places[number], now;
	CLEANUP(nft_freep) struct nft_batch *nft = NULL;
	int r;

	if (!fw->enabled)
		return 0;
	if (place->index == 0)
		return err_set(e, -ENOENT, "the firewall does not know atoll%d", number);
	nft = nft_begin(fw->table, reach->n);
	remove_policy(nft, number, place);
	add_policy(nft, number, place->index, reach, &now);
	r = nft_commit(fw->nft_fd, nft);
	if (r < 0)
		return err_sys(e, r, "change the firewall for atoll%d", number);
	*place = now;
	return 0;
}

/* What cannot be removed is of an interface that is gone: it is in nobody's way. */
void firewall_leave(struct firewall *fw, int number)
{
	struct place *place = &fw->places[number];
	CLEANUP(nft_freep) struct nft_batch *nft = NULL;
	int r;

	if (!fw->enabled || place->index == 0)
		return;
	nft = nft_begin(fw->table, 0);
	remove_policy(nft, number, place);
	nft_remove_member(nft, "mine", place->index);
	nft_remove_member(nft, "denied", place->index);
	r = nft_commit(fw->nft_fd, nft);
	if (r < 0)
		log_debug("firewall.leave", "number=%d errno=%d", number, -r);
	*place = (struct place){ 0 };
}

int firewall_number_of(const struct firewall *fw, uint32_t index)
{
	for (int i = 1; index > 0 && i <= NET_MAX_NUMBER; i++)
		if (fw->places[i].index == index)
			return i;
	return 0;
}

struct counts {
	const struct firewall *fw;
	firewall_denied_fn fn;
	void *arg;
};

static void on_count(void *arg, uint32_t index, uint64_t packets)
{
	struct counts *c = arg;
	int number = packets ? firewall_number_of(c->fw, index) : 0;

	if (number)
		c->fn(c->arg, number, packets);
}

int firewall_each_denied(struct firewall *fw, firewall_denied_fn fn, void *arg, struct err *e)
{
	struct counts c = { fw, fn, arg };
	int r = fw->enabled ? nft_each_member(fw->nft_fd, fw->table, "denied", on_count, &c) : 0;

	return r < 0 ? err_sys(e, r, "read the firewall's counters") : 0;
}
