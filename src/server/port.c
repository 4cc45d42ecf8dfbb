/* The kernel says which socket listens on a port, and which processes have that socket open. A
 * keeper and its server have the same one: the keeper is the older. */
#include "server/port.h"
#include "base/process.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>

enum {
	TABLE_BYTES = 16 << 20,
	MAX_SOCKETS = 16,
	FIELD_ADDRESS = 1,
	FIELD_STATE = 3,
	FIELD_INODE = 9,
};

/* The n-th word of a line of words; empty: there is none. */
static struct str word(struct str line, size_t n)
{
	struct str one = STR("");

	for (size_t i = 0; i <= n; i++) {
		line = str_trim(line);
		if (!line.n)
			return STR("");
		(void)str_split(&line, ' ', &one);
	}
	return one;
}

static bool is_all(struct str address)
{
	for (size_t i = 0; i < address.n; i++)
		if (address.p[i] != '0')
			return false;
	return true;
}

bool port_listens(struct str line, uint16_t port, const char *address, uint64_t *ret_inode)
{
	struct str local = word(line, FIELD_ADDRESS), at;
	char text[8];
	int64_t inode;

	(void)snprintf(text, sizeof text, "%04X", port);
	if (!str_split(&local, ':', &at) || !str_is(local, text) ||
		!str_is(word(line, FIELD_STATE), "0A"))
		return false;
	if (address && !str_is(at, address) && !is_all(at))
		return false;
	if (str_to_int(word(line, FIELD_INODE), 1, INT64_MAX, &inode) < 0)
		return false;
	*ret_inode = (uint64_t)inode;
	return true;
}

struct sockets {
	uint64_t v[MAX_SOCKETS];
	size_t n;
};

static void find_sockets(const char *table, uint16_t port, const char *address, struct sockets *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(TABLE_BYTES);
	struct str rest, line;

	if (file_read(AT_FDCWD, table, &text, NULL) < 0)
		return;
	rest = buf_str(&text);
	while (rest.n && str_split(&rest, '\n', &line) && ret->n < MAX_SOCKETS)
		ret->n += port_listens(line, port, address, &ret->v[ret->n]);
}

/* ---- the processes ---- */

static bool is_one_of(const struct sockets *sockets, const char *link)
{
	char text[48];

	for (size_t i = 0; i < sockets->n; i++) {
		(void)snprintf(text, sizeof text, "socket:[%" PRIu64 "]", sockets->v[i]);
		if (strcmp(link, text) == 0)
			return true;
	}
	return false;
}

/* Whether it has one of them open; and the directory of a file `lock` that it holds, as a server
 * does. */
static bool has_open(pid_t pid, const struct sockets *sockets, char data[256])
{
	char path[64], link[512];
	bool found = false;
	struct dirent *entry;
	DIR *dir;

	data[0] = '\0';
	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		found = found || is_one_of(sockets, link);
		if (n > 5 && n < 256 && strcmp(link + n - 5, "/lock") == 0)
			(void)snprintf(data, 256, "%.*s", (int)n - 5, link);
	}
	if (dir)
		(void)closedir(dir);
	return found;
}

static void clean(char *text)
{
	for (; *text; text++)
		if (!isprint((unsigned char)*text) || *text == '\'')
			*text = '?';
}

/* `atoll serve`, by the name of its program and the first word behind it. */
static void describe(struct port_owner *owner)
{
	CLEANUP(buf_done) struct buf line = BUF_INIT(64 << 10);
	char path[64], exe[512];
	const char *name;
	ssize_t n;

	(void)snprintf(path, sizeof path, "/proc/%d/exe", (int)owner->pid);
	n = readlink(path, exe, sizeof exe - 1);
	exe[MAX(n, 0)] = '\0';
	name = strrchr(exe, '/');
	(void)snprintf(owner->name, sizeof owner->name, "%s", name ? name + 1 : "a program");
	clean(owner->name);
	(void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)owner->pid);
	if (strncmp(owner->name, "atoll", 5) == 0 &&
		(owner->name[5] == '\0' || owner->name[5] == ' ') &&
		file_read(AT_FDCWD, path, &line, NULL) >= 0)
		owner->is_atoll = memmem(line.p, line.n, "\0serve", 7) != NULL;
}

static pid_t pid_of(const char *name)
{
	int64_t pid;

	return str_to_int(str_of(name), 1, INT32_MAX, &pid) == 0 ? (pid_t)pid : 0;
}

/* The oldest of them. */
static int find_oldest(const struct sockets *sockets, struct port_owner *ret)
{
	uint64_t oldest = UINT64_MAX, began;
	struct dirent *entry;
	char data[256];
	DIR *dir = opendir("/proc");

	*ret = (struct port_owner){ 0 };
	while (dir && (entry = readdir(dir))) {
		pid_t pid = pid_of(entry->d_name);

		if (!pid || !has_open(pid, sockets, data) || process_start_time(pid, &began) < 0)
			continue;
		if (data[0])
			memcpy(ret->data, data, sizeof ret->data);
		if (began < oldest) {
			oldest = began;
			ret->pid = pid;
		}
	}
	if (dir)
		(void)closedir(dir);
	clean(ret->data);
	return ret->pid ? 0 : -ENOENT;
}

int port_find_owner(const char *listen, struct port_owner *ret)
{
	const char *colon = strrchr(listen, ':');
	struct sockets sockets = { 0 };
	struct in_addr in4;
	char host[64], address[16];
	bool is_named;
	int64_t port;

	if (!colon || str_to_int(str_of(colon + 1), 1, 65535, &port) < 0)
		return -ENOENT;
	(void)snprintf(host, sizeof host, "%.*s", (int)MIN(colon - listen, 63), listen);
	is_named = inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &in4) ==
			   1 &&
		   in4.s_addr != INADDR_ANY;
	(void)snprintf(address, sizeof address, "%08X", is_named ? in4.s_addr : 0);
	find_sockets("/proc/net/tcp", (uint16_t)port, is_named ? address : NULL, &sockets);
	find_sockets("/proc/net/tcp6", (uint16_t)port, is_named ? address : NULL, &sockets);
	if (!sockets.n || find_oldest(&sockets, ret) < 0)
		return -ENOENT;
	describe(ret);
	return 0;
}

int port_explain(const char *listen, struct err *e)
{
	struct port_owner o;

	if (port_find_owner(listen, &o) < 0)
		return err_set(e, -EADDRINUSE,
			"%s is in use by %s: end that, or take another address with --listen "
			"HOST:PORT",
			listen,
			strncmp(listen, "unix:", 5) == 0 ? "another process"
							 : "a process that cannot be seen from "
							   "here (of another container?)");
	if (!o.is_atoll)
		return err_set(e, -EADDRINUSE,
			"%s is in use by %s (pid %d): end that, or take another address with "
			"--listen HOST:PORT",
			listen, o.name, (int)o.pid);
	return err_set(e, -EADDRINUSE,
		"%s is in use by the Atoll server of pid %d%s%s: new programs are put under it by "
		"'atoll upgrade', 'kill %d' ends it, --listen HOST:PORT serves beside it",
		listen, (int)o.pid, o.data[0] ? " with --data " : "", o.data, (int)o.pid);
}
