/* What the kernel's tables hold. */
#include "warden/nft.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

static void begin_list(struct netlink_batch *b, uint16_t type)
{
	struct nfgenmsg head = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };

	netlink_begin(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_DUMP, &head,
		sizeof head);
}

static struct str attributes(struct str entry)
{
	return str_from(entry, NLMSG_ALIGN(sizeof(struct nfgenmsg)));
}

struct members {
	nft_member_fn fn;
	nft_key_fn key_fn;
	void *arg;
};

/* A counter is the only expression an element of these sets has. */
static uint64_t packets_of(struct str element)
{
	struct str data = netlink_find(netlink_find(element, NFTA_SET_ELEM_EXPR), NFTA_EXPR_DATA);
	struct str value = netlink_find(data, NFTA_COUNTER_PACKETS);
	uint64_t packets = 0;

	if (value.n == sizeof packets)
		memcpy(&packets, value.p, sizeof packets);
	return be64toh(packets);
}

static bool value_of(struct str element, uint16_t attribute, void *ret, size_t n)
{
	struct str value = netlink_find(netlink_find(element, attribute), NFTA_DATA_VALUE);

	if (value.n == n)
		memcpy(ret, value.p, n);
	return value.n == n;
}

static void on_elements(void *arg, struct str entry)
{
	struct members *m = arg;
	struct str list = netlink_find(attributes(entry), NFTA_SET_ELEM_LIST_ELEMENTS), element;
	uint32_t key[2];
	uint16_t type;

	while (netlink_next(&list, &type, &element)) {
		struct nft_member member = { .packets = packets_of(element) };

		if (m->key_fn && value_of(element, NFTA_SET_ELEM_KEY, key, sizeof key))
			m->key_fn(m->arg, key[0], ntohl(key[1]));
		if (!m->fn ||
			!value_of(element, NFTA_SET_ELEM_KEY, &member.index, sizeof member.index))
			continue;
		if (value_of(element, NFTA_SET_ELEM_DATA, key, sizeof key))
			member.value = key[1];
		m->fn(m->arg, &member);
	}
}

static int each_element(int fd, const char *table, const char *set, netlink_entry_fn fn, void *arg)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);

	begin_list(&b, NFT_MSG_GETSETELEM);
	netlink_add_str(&b, NFTA_SET_ELEM_LIST_TABLE, table);
	netlink_add_str(&b, NFTA_SET_ELEM_LIST_SET, set);
	return netlink_dump(fd, &b, fn, arg);
}

int nft_each_member(int fd, const char *table, const char *set, nft_member_fn fn, void *arg)
{
	struct members m = { .fn = fn, .arg = arg };

	return each_element(fd, table, set, on_elements, &m);
}

int nft_each_key(int fd, const char *table, const char *set, nft_key_fn fn, void *arg)
{
	struct members m = { .key_fn = fn, .arg = arg };

	return each_element(fd, table, set, on_elements, &m);
}

struct tables {
	nft_table_fn fn;
	void *arg;
};

static void on_table(void *arg, struct str entry)
{
	struct tables *t = arg;
	struct str name = netlink_find(attributes(entry), NFTA_TABLE_NAME);

	if (name.n && name.p[name.n - 1] == '\0')
		t->fn(t->arg, name.p);
}

int nft_each_table(int fd, nft_table_fn fn, void *arg)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);
	struct tables t = { fn, arg };

	begin_list(&b, NFT_MSG_GETTABLE);
	return netlink_dump(fd, &b, on_table, &t);
}

/* ---- what a table is, to know it again ---- */

enum {
	DIGEST_BYTES = 1 << 20, /* ten times what there is */
	MAX_FIXED = 64,
	SET_NAME_SIZE = 32,
};

struct digest {
	const char *table, *seal;
	char *sealed;
	bool (*is_fixed)(const char *set);
	struct buf text;
	uint16_t table_attribute; /* of the entries that come */
	char fixed[MAX_FIXED][SET_NAME_SIZE];
	int n_fixed;
};

static bool is_of_table(const struct digest *d, struct str entry)
{
	struct str name = netlink_find(attributes(entry), d->table_attribute);

	return name.n == strlen(d->table) + 1 && memcmp(name.p, d->table, name.n) == 0;
}

static void on_part(void *arg, struct str entry)
{
	struct digest *d = arg;

	if (is_of_table(d, entry))
		(void)buf_add(&d->text, attributes(entry).p, attributes(entry).n);
}

static void on_chain(void *arg, struct str entry)
{
	struct digest *d = arg;
	struct str name = netlink_find(attributes(entry), NFTA_CHAIN_NAME);
	size_t prefix = strlen(d->seal);

	if (!is_of_table(d, entry))
		return;
	if (!str_has_prefix(name, str_of(d->seal)))
		on_part(arg, entry);
	else
		(void)snprintf(d->sealed, NFT_SEAL_SIZE, "%.*s", (int)(name.n - prefix - 1),
			name.p + prefix);
}

/* Not all that the kernel tells of a set: newer ones also say how many elements it has now. */
static void on_set(void *arg, struct str entry)
{
	static const uint16_t parts[] = { NFTA_SET_NAME, NFTA_SET_FLAGS, NFTA_SET_KEY_TYPE,
		NFTA_SET_KEY_LEN, NFTA_SET_DATA_TYPE, NFTA_SET_DATA_LEN, NFTA_SET_HANDLE };
	struct digest *d = arg;
	struct str name = netlink_find(attributes(entry), NFTA_SET_NAME);

	if (!is_of_table(d, entry))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct str part = netlink_find(attributes(entry), parts[i]);

		(void)buf_add(&d->text, part.p ? part.p : "", part.n);
	}
	if (name.n == 0 || name.n > SET_NAME_SIZE || name.p[name.n - 1] || !d->is_fixed(name.p))
		return;
	if (d->n_fixed == MAX_FIXED) {
		d->text.failed = true;
		return;
	}
	memcpy(d->fixed[d->n_fixed++], name.p, name.n);
}

static int list_parts(int fd, struct digest *d, uint16_t type, uint16_t table_attribute,
	netlink_entry_fn fn)
{
	uint8_t bytes[NETLINK_BATCH_BYTES];
	struct netlink_batch b = netlink_batch(bytes, sizeof bytes);

	d->table_attribute = table_attribute;
	begin_list(&b, type);
	netlink_add_str(&b, table_attribute, d->table);
	return netlink_dump(fd, &b, fn, d);
}

static int collect(int fd, struct digest *d)
{
	int r = list_parts(fd, d, NFT_MSG_GETCHAIN, NFTA_CHAIN_TABLE, on_chain);

	if (r >= 0)
		r = list_parts(fd, d, NFT_MSG_GETRULE, NFTA_RULE_TABLE, on_part);
	if (r >= 0)
		r = list_parts(fd, d, NFT_MSG_GETSET, NFTA_SET_TABLE, on_set);
	d->table_attribute = NFTA_SET_ELEM_LIST_TABLE;
	for (int i = 0; r >= 0 && i < d->n_fixed; i++)
		r = each_element(fd, d->table, d->fixed[i], on_part, d);
	return r;
}

int nft_digest(int fd, const char *table, bool (*is_fixed)(const char *set), const char *seal,
	uint8_t ret[SHA256_SIZE], char ret_sealed[NFT_SEAL_SIZE])
{
	cleanup_free struct digest *d = XNEW(struct digest);
	int r;

	d->table = table;
	d->is_fixed = is_fixed;
	d->seal = seal;
	d->sealed = ret_sealed;
	ret_sealed[0] = '\0';
	d->text = (struct buf)BUF_INIT(DIGEST_BYTES);
	r = collect(fd, d);
	if (r >= 0 && d->text.failed)
		r = -ENOBUFS;
	if (r >= 0)
		sha256(d->text.p, d->text.n, ret);
	buf_done(&d->text);
	return r;
}
