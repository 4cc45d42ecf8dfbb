/* Two ways to name a sandbox's port. A host name that can only be ours (localhost, an address,
 * sandbox.*) is looked at with the headers; any other name carries the target in its first label.
 */
#include "edge/edge.h"

static struct str without_port(struct str host)
{
	ptrdiff_t at;

	if (host.n && host.p[0] == '[') {
		at = str_find(host, ']');
		return at < 0 ? host : (struct str){ host.p, (size_t)at + 1 };
	}
	at = str_find(host, ':');
	return at < 0 ? host : (struct str){ host.p, (size_t)at };
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_address(struct str host)
{
	if (host.n && host.p[0] == '[')
		return true;
	for (size_t i = 0; i < host.n; i++)
		if (!is_digit(host.p[i]) && host.p[i] != '.')
			return false;
	return host.n > 0;
}

static bool takes_headers(struct str host)
{
	static const struct str prefix = { "sandbox.", 8 };

	return str_eq_nocase(host, STR("localhost")) || is_address(host) ||
	       (host.n > prefix.n && str_eq_nocase((struct str){ host.p, prefix.n }, prefix));
}

static struct edge_target bad(const char *why)
{
	return (struct edge_target){ .kind = EDGE_BAD, .why = why };
}

static struct edge_target target(struct str port_text, struct str id)
{
	int64_t port = 0;

	if (str_to_int(port_text, 1, 65535, &port) < 0)
		return bad("Invalid port");
	if (id.n == 0 || id.n >= 2 * (size_t)SANDBOX_ID_SIZE)
		return bad("Invalid sandbox ID");
	for (size_t i = 0; i < id.n; i++)
		if (!is_digit(id.p[i]) && !(id.p[i] >= 'a' && id.p[i] <= 'z'))
			return bad("Invalid sandbox ID");
	return (struct edge_target){ .kind = EDGE_TARGET, .id = id, .port = (int)port };
}

/* "8000-iabc.example.com", also "8000-iabc-oldclient.example.com". A label that does not begin with
 * digits and a dash is some name of the server itself. */
static struct edge_target from_label(struct str host)
{
	struct str label, port, id = STR_NONE;
	size_t digits = 0;

	if (str_find(host, '.') < 0)
		return (struct edge_target){ .kind = EDGE_OTHER };
	(void)str_split(&host, '.', &label);
	while (digits < label.n && is_digit(label.p[digits]))
		digits++;
	if (digits == 0 || digits == label.n || label.p[digits] != '-')
		return (struct edge_target){ .kind = EDGE_OTHER };
	(void)str_split(&label, '-', &port);
	(void)str_split(&label, '-', &id);
	return target(port, id);
}

struct edge_target edge_parse(struct str host, struct str id_header, struct str port_header)
{
	struct edge_target found;

	host = without_port(host);
	if (!takes_headers(host))
		return from_label(host);
	if (!id_header.p && !port_header.p)
		return (struct edge_target){ .kind = EDGE_OTHER };
	if (!id_header.p || !port_header.p)
		return bad("missing header: both E2b-Sandbox-Id and E2b-Sandbox-Port are needed");
	id_header.n =
		str_find(id_header, '-') >= 0 ? (size_t)str_find(id_header, '-') : id_header.n;
	found = target(port_header, id_header);
	found.by_headers = true;
	return found;
}
