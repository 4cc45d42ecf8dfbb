/* Where names are asked for: as configured, or as the host's own resolv.conf says. */
#include "egress/egress-internal.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/stat.h>

#define RESOLV_CONF "/etc/resolv.conf"

enum {
	DNS_PORT = 53,
	RESOLV_MAX_BYTES = 64 << 10,
	LOOK_MS = 2000, /* how long the file is taken to be what it was */
};

struct servers {
	bool is_fixed;
	int n;
	struct sockaddr_storage v[SERVERS_MAX];
	int64_t looked_ms;
	struct timespec changed;
	ino_t inode;
};

static bool parse_v6(char *text, in_port_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	char *zone = strchr(text, '%');

	if (zone)
		*zone++ = '\0';
	if (inet_pton(AF_INET6, text, &in6->sin6_addr) != 1)
		return false;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	in6->sin6_scope_id = zone ? if_nametoindex(zone) : 0;
	return true;
}

static bool parse_address(struct str text, in_port_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)ret;
	char copy[128];

	if (text.n == 0 || text.n >= sizeof copy)
		return false;
	(void)snprintf(copy, sizeof copy, "%.*s", STR_ARG(text));
	*ret = (struct sockaddr_storage){ 0 };
	if (inet_pton(AF_INET, copy, &in4->sin_addr) != 1)
		return parse_v6(copy, port, ret);
	in4->sin_family = AF_INET;
	in4->sin_port = htons(port);
	return true;
}

/* "1.1.1.1", "1.1.1.1:5353", "::1", "[::1]:5353". */
static bool parse_one(struct str text, struct sockaddr_storage *ret)
{
	ptrdiff_t close = str_find(text, ']'), colon = str_find(text, ':');
	struct str host = text, port = STR_NONE;
	int64_t number = DNS_PORT;

	if (text.n && text.p[0] == '[') {
		if (close < 0)
			return false;
		host = str_make(text.p + 1, (size_t)close - 1);
		port = str_from(text, (size_t)close + 1);
		if (port.n && port.p[0] != ':')
			return false;
		port = str_from(port, 1);
	} else if (colon >= 0 && str_find(str_from(text, (size_t)colon + 1), ':') < 0) {
		host = str_make(text.p, (size_t)colon);
		port = str_from(text, (size_t)colon + 1);
	}
	if (port.n && str_to_int(port, 1, 65535, &number) < 0)
		return false;
	return parse_address(host, (in_port_t)number, ret);
}

static int parse_list(struct servers *s, const char *list, struct err *e)
{
	struct str rest = str_of(list), one;

	while (str_split(&rest, ',', &one)) {
		if (s->n == SERVERS_MAX)
			return err_set(e, -EINVAL, "name servers '%s': at most %d", list,
				SERVERS_MAX);
		if (!parse_one(str_trim(one), &s->v[s->n]))
			return err_set(e, -EINVAL,
				"name server '%.*s': use ADDRESS or ADDRESS:PORT", STR_ARG(one));
		s->n++;
	}
	s->is_fixed = true;
	return 0;
}

int servers_new(const char *list, struct servers **ret, struct err *e)
{
	struct servers *s = XNEW(struct servers);
	int r = list ? parse_list(s, list, e) : 0;

	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct servers *servers_free(struct servers *s)
{
	free(s);
	return NULL;
}

int servers_parse_file(struct str text, struct sockaddr_storage out[SERVERS_MAX])
{
	struct str line, word;
	int n = 0;

	while (n < SERVERS_MAX && str_split(&text, '\n', &line)) {
		for (size_t i = 0; i < line.n; i++)
			if (line.p[i] == '#' || line.p[i] == ';')
				line.n = i;
		line = str_trim(line);
		if (!str_has_prefix(line, STR("nameserver")))
			continue;
		word = str_trim(str_from(line, 10));
		if (word.p > line.p + 10 && parse_address(word, DNS_PORT, &out[n]))
			n++;
	}
	return n;
}

/* Without the file the C library asks this host; so do we. */
static void read_file(struct servers *s)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(RESOLV_MAX_BYTES);
	int r = file_read(AT_FDCWD, RESOLV_CONF, &text, NULL);

	s->n = r < 0 ? 0 : servers_parse_file(buf_str(&text), s->v);
	if (s->n == 0)
		s->n = parse_address(STR("127.0.0.1"), DNS_PORT, &s->v[0]);
}

static void look(struct servers *s)
{
	int64_t now_ms = time_now_ms();
	struct stat st = { 0 };

	if (s->is_fixed || (s->n > 0 && now_ms - s->looked_ms < LOOK_MS))
		return;
	s->looked_ms = now_ms;
	(void)stat(RESOLV_CONF, &st);
	if (s->n > 0 && st.st_ino == s->inode && st.st_mtim.tv_sec == s->changed.tv_sec &&
		st.st_mtim.tv_nsec == s->changed.tv_nsec)
		return;
	s->inode = st.st_ino;
	s->changed = st.st_mtim;
	read_file(s);
}

int servers_get(struct servers *s, struct sockaddr_storage out[SERVERS_MAX])
{
	look(s);
	memcpy(out, s->v, sizeof s->v);
	return s->n;
}
