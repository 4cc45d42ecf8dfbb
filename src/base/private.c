#include "base/private.h"
#include "base/base.h"

#include <arpa/inet.h>

struct prefix {
	uint32_t address;
	uint8_t bits;
	bool may_open; /* else no list opens it */
};

static const struct prefix prefixes[] = {
	{ 0x00000000, 8, false },  /* this network */
	{ 0x0a000000, 8, true },   /* private */
	{ 0x64400000, 10, true },  /* shared, and some clouds' own services */
	{ 0x7f000000, 8, false },  /* loopback */
	{ 0xa83f8110, 32, false }, /* where Azure's hosts serve their machines */
	{ 0xa9fe0000, 16, false }, /* link-local, metadata */
	{ 0xac100000, 12, true },  /* private */
	{ 0xc0000000, 24, false }, /* protocol assignments, metadata of Oracle's */
	{ 0xc0a80000, 16, true },  /* private */
	{ 0xc6120000, 15, true },  /* benchmarking */
	{ 0xe0000000, 3, false },  /* multicast, reserved, broadcast */
};

/* In the middle of what may be opened: where Alibaba's hosts serve their machines. */
#define SHARED_METADATA 0x646464c8

static bool covers(uint32_t address, unsigned bits, uint32_t what)
{
	return bits == 0 || ((address ^ what) & UINT32_MAX << (32 - bits)) == 0;
}

static const struct prefix *prefix_of(uint32_t address)
{
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (covers(prefixes[i].address, prefixes[i].bits, address))
			return &prefixes[i];
	return NULL;
}

bool private_is(uint32_t address)
{
	return prefix_of(address) != NULL;
}

/* ---- the list ---- */

static int parse_address(struct str text, uint32_t *ret)
{
	char address[INET_ADDRSTRLEN];
	struct in_addr in;

	if (text.n >= sizeof address || memchr(text.p ?: "", '\0', text.n))
		return -EINVAL;
	(void)snprintf(address, sizeof address, "%.*s", STR_ARG(text));
	if (inet_pton(AF_INET, address, &in) != 1)
		return -EINVAL;
	*ret = ntohl(in.s_addr);
	return 0;
}

static int parse_range(struct str text, struct private_range *ret)
{
	ptrdiff_t colon = str_find(text, ':'), slash;
	int64_t port = 0, bits = 32;

	if (colon >= 0 && str_to_int(str_from(text, (size_t)colon + 1), 1, 65535, &port) < 0)
		return -EINVAL;
	if (colon >= 0)
		text.n = (size_t)colon;
	slash = str_find(text, '/');
	if (slash >= 0 && str_to_int(str_from(text, (size_t)slash + 1), 1, 32, &bits) < 0)
		return -EINVAL;
	if (slash >= 0)
		text.n = (size_t)slash;
	ret->bits = (uint8_t)bits;
	ret->port = (uint16_t)port;
	return parse_address(text, &ret->address);
}

static int check_range(const struct private_range *range, struct err *e)
{
	const struct prefix *prefix = prefix_of(range->address);

	if (range->address & ~(UINT32_MAX << (32 - range->bits)))
		return err_set(e, -EINVAL, "it has bits set behind its prefix of %u",
			(unsigned)range->bits);
	if (prefix && !prefix->may_open)
		return err_set(e, -EINVAL,
			"loopback, link-local, multicast and what clouds serve their machines "
			"there are never opened to sandboxes");
	if (!prefix || prefix->bits > range->bits)
		return err_set(e, -EINVAL,
			"it is not within a private network (10.0.0.0/8, 172.16.0.0/12, "
			"192.168.0.0/16, 100.64.0.0/10, 198.18.0.0/15): what is public needs no "
			"entry");
	if (covers(range->address, range->bits, SHARED_METADATA))
		return err_set(e, -EINVAL,
			"it covers 100.100.100.200, where a cloud serves its machines: use "
			"smaller ranges");
	return 0;
}

int private_list_add(struct private_list *list, struct str text, struct err *e)
{
	struct private_range range;
	struct str entry;
	int r;

	if (!text.n)
		return 0;
	while (str_split(&text, ',', &entry)) {
		entry = str_trim(entry);
		r = parse_range(entry, &range) < 0 ? err_set(e, -EINVAL,
							     "use ADDRESS[/BITS][:PORT], such as "
							     "10.0.0.5:8443 or 10.1.0.0/16")
						   : check_range(&range, e);
		if (r >= 0 && list->n == PRIVATE_MAX_OPENED)
			r = err_set(e, -E2BIG, "more than %d entries", PRIVATE_MAX_OPENED);
		if (r < 0)
			return err_wrap(e, r, "'%.*s'", (int)MIN(entry.n, (size_t)40),
				entry.p ?: "");
		list->v[list->n++] = range;
	}
	return 0;
}

bool private_list_has(const struct private_list *list, uint32_t address, uint16_t port)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct private_range *range = &list->v[i];

		if (covers(range->address, range->bits, address) &&
			(range->port == 0 || port == 0 || range->port == port))
			return true;
	}
	return false;
}

bool private_is_closed(const struct private_list *list, uint32_t address, uint16_t port)
{
	return private_is(address) && !private_list_has(list, address, port);
}

void private_range_text(const struct private_range *range, char ret[PRIVATE_TEXT_SIZE])
{
	char address[INET_ADDRSTRLEN], bits[8] = "", port[8] = "";
	struct in_addr in = { htonl(range->address) };

	if (range->bits < 32)
		(void)snprintf(bits, sizeof bits, "/%u", (unsigned)range->bits);
	if (range->port)
		(void)snprintf(port, sizeof port, ":%u", (unsigned)range->port);
	(void)snprintf(ret, PRIVATE_TEXT_SIZE, "%s%s%s",
		inet_ntop(AF_INET, &in, address, sizeof address), bits, port);
}

void private_list_write(const struct private_list *list, struct buf *out)
{
	char text[PRIVATE_TEXT_SIZE];

	for (size_t i = 0; i < list->n; i++) {
		private_range_text(&list->v[i], text);
		(void)buf_printf(out, "%s%s", i ? "," : "", text);
	}
}
