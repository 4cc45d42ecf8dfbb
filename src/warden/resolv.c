#include "warden/resolv.h"

#include <arpa/inet.h>

static void add_text(struct resolvers *r, struct str line)
{
	size_t n = strlen(r->text);

	if (n + line.n + 2 <= sizeof r->text)
		(void)snprintf(r->text + n, sizeof r->text - n, "%.*s\n", STR_ARG(line));
}

static void add_server(struct resolvers *r, struct str address)
{
	struct in_addr a;
	char text[64], line[96];

	/* Sandboxes have no IPv6 route, and their loopback is their own. */
	if (r->n == RESOLV_MAX ||
		snprintf(text, sizeof text, "%.*s", STR_ARG(address)) >= (int)sizeof text ||
		inet_pton(AF_INET, text, &a) != 1 || ntohl(a.s_addr) >> 24 == 127 || a.s_addr == 0)
		return;
	r->servers[r->n++] = a;
	(void)snprintf(line, sizeof line, "nameserver %s", text);
	add_text(r, str_of(line));
}

int resolv_parse(struct str text, struct resolvers *ret)
{
	struct str line;

	while (str_split(&text, '\n', &line)) {
		line = str_trim(line);
		if (str_has_prefix(line, STR("nameserver ")))
			add_server(ret, str_trim(str_from(line, strlen("nameserver "))));
		else if (str_has_prefix(line, STR("search ")) ||
			 str_has_prefix(line, STR("options ")))
			add_text(ret, line);
	}
	return ret->n;
}

static int read_one(const char *path, struct resolvers *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(65536);

	*ret = (struct resolvers){ 0 };
	return file_read(AT_FDCWD, path, &text, NULL) < 0 ? 0 : resolv_parse(buf_str(&text), ret);
}

void resolv_read(struct resolvers *ret)
{
	if (read_one("/etc/resolv.conf", ret) > 0 ||
		read_one("/run/systemd/resolve/resolv.conf", ret) > 0)
		return;
	*ret = (struct resolvers){ 0 };
	add_text(ret, STR("# The host names no resolver that a sandbox can reach."));
}
