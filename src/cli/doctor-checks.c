/* What an ordinary user can see of this machine, and what the server says of itself. */
#include "cli/cli.h"
#include "cli/doctor.h"
#include "server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

enum {
	SERVER_TIMEOUT_MS = 3000,
};

static const uint64_t gib = (uint64_t)1 << 30;

struct check *doctor_add(struct doctor *d, const char *id, enum check_status status,
	const char *fix, const char *fmt, ...)
{
	struct check *c;
	va_list ap;

	assert(d->n < DOCTOR_MAX);
	c = &d->checks[d->n++];
	c->status = status;
	(void)snprintf(c->id, sizeof c->id, "%s", id);
	(void)snprintf(c->fix, sizeof c->fix, "%s", status == CHECK_OK ? "" : fix);
	va_start(ap, fmt);
	(void)vsnprintf(c->text, sizeof c->text, fmt, ap);
	va_end(ap);
	return c;
}

static void check_kernel(struct doctor *d)
{
	struct utsname u;
	bool known;

	if (uname(&u) < 0)
		return;
	known = strcmp(u.machine, "x86_64") == 0 || strcmp(u.machine, "aarch64") == 0;
	doctor_add(d, "kernel", CHECK_OK, "", "%s %s", u.sysname, u.release);
	doctor_add(d, "arch", known ? CHECK_OK : CHECK_FAIL,
		"use a machine with an x86_64 or aarch64 processor", "%s", u.machine);
}

static uint64_t meminfo(const char *key)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	struct str rest, line, name;
	int64_t kib = 0;

	if (file_read(AT_FDCWD, "/proc/meminfo", &text, NULL) < 0)
		return 0;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line)) {
		if (!str_split(&line, ':', &name) || !str_is(name, key))
			continue;
		line = str_trim(line);
		if (str_split(&line, ' ', &name))
			(void)str_to_int(name, 0, INT64_MAX >> 10, &kib);
	}
	return (uint64_t)kib << 10;
}

static void check_memory(struct doctor *d)
{
	uint64_t total = meminfo("MemTotal"), available = meminfo("MemAvailable");
	char free_text[OUT_CELL], total_text[OUT_CELL];

	out_size(available, free_text);
	out_size(total, total_text);
	doctor_add(d, "memory", available < gib / 2 ? CHECK_WARN : CHECK_OK,
		"end other programs or add memory; templates ask for 1 GiB a sandbox",
		"%s of %s available", free_text, total_text);
}

/* The data directory may not exist yet: then its nearest parent that does has the same disk. */
static int statvfs_near(const char *path, struct statvfs *ret)
{
	char part[CONFIG_VALUE];

	(void)snprintf(part, sizeof part, "%s", path);
	while (statvfs(part, ret) < 0) {
		char *slash = strrchr(part, '/');

		if (errno != ENOENT)
			return -errno;
		if (!slash || slash == part)
			return statvfs(slash ? "/" : ".", ret) < 0 ? -errno : 0;
		*slash = '\0';
	}
	return 0;
}

const char *doctor_data(const struct doctor *d)
{
	const char *flag = args_value(&d->cli->args, "data");

	return flag ? flag : d->cli->config.data[0] ? d->cli->config.data : "atoll-data";
}

static void check_disk(struct doctor *d)
{
	const char *data = doctor_data(d);
	char free_text[OUT_CELL];
	struct statvfs fs;
	uint64_t bytes;
	int r = statvfs_near(data, &fs);

	if (r < 0) {
		doctor_add(d, "disk", CHECK_WARN, "choose another place with --data", "%s: %s",
			data, strerrordesc_np(-r));
		return;
	}
	bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	out_size(bytes, free_text);
	doctor_add(d, "disk",
		bytes < gib       ? CHECK_FAIL
		: bytes < 5 * gib ? CHECK_WARN
				  : CHECK_OK,
		"make room, or keep the data elsewhere: --data DIR", "%s free for %s", free_text,
		data);
	if (fs.f_files > 0 && fs.f_favail < 100000)
		doctor_add(d, "inodes", CHECK_WARN,
			"remove small files, or use another file system",
			"%" PRIu64 " files can still be made", (uint64_t)fs.f_favail);
}

static void check_limits(struct doctor *d)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	doctor_add(d, "files", files.rlim_max < 4096 ? CHECK_WARN : CHECK_OK,
		"raise the hard limit: ulimit -Hn 65536, or LimitNOFILE= in the systemd unit",
		"%" PRIu64 " open files allowed", (uint64_t)files.rlim_max);
}

/* In PATH and where Debian keeps what only root usually runs. */
static bool finds(const char *program)
{
	static const char *const places[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
		"/usr/bin", "/sbin", "/bin" };
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		(void)snprintf(path, sizeof path, "%s/%s", places[i], program);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

static void check_programs(struct doctor *d)
{
	static const struct {
		const char *program, *package;
	} programs[] = {
		{ "git", "git" },
		{ "mmdebstrap", "mmdebstrap" },
		{ "mkfs.ext4", "e2fsprogs" },
		{ "nft", "nftables" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		bool found = finds(programs[i].program);
		char fix[64];

		(void)snprintf(fix, sizeof fix, "apt-get install %s", programs[i].package);
		doctor_add(d, programs[i].package, found ? CHECK_OK : CHECK_WARN, fix, "%s %s",
			programs[i].program, found ? "is installed" : "is not installed");
	}
}

/* Of the data directory that is known, or of --template-cache. */
static void check_template(struct doctor *d)
{
	const char *cache = args_value(&d->cli->args, "template-cache");
	const char *data = args_value(&d->cli->args, "data") ?: d->cli->config.data;
	const char *again = "make it anew when you can: docs/templates.md says how";
	char path[CONFIG_VALUE + 32];
	struct server_base base;
	struct err e = { 0 };
	int r;

	(void)snprintf(path, sizeof path, "%s/templates", data[0] ? data : "atoll-data");
	r = d->cli->parts->base_look(cache ? cache : path, &base, &e);
	if (r == -ENOENT)
		return; /* it is made at the first start */
	if (r < 0)
		doctor_add(d, "template", r == -EACCES ? CHECK_SKIPPED : CHECK_WARN,
			"sudo atoll doctor", "%s", e.msg);
	else if (base.version != SERVER_BASE_VERSION)
		doctor_add(d, "template", CHECK_WARN, again,
			"the base template is of version %" PRId64 ", this Atoll makes version %d",
			base.version, SERVER_BASE_VERSION);
	else
		doctor_add(d, "template", base.lacks[0] ? CHECK_WARN : CHECK_OK, again,
			"the base template has Node.js %s%s%s", base.node,
			base.lacks[0] ? ", Debian's: " : "", base.lacks);
}

void doctor_check_machine(struct doctor *d)
{
	check_kernel(d);
	check_memory(d);
	check_disk(d);
	check_limits(d);
	check_programs(d);
	check_template(d);
}

/* ---- the server ---- */

/* The port of an address on this machine; -ENOENT: it is elsewhere. */
static int local_port(const char *url)
{
	static const char *const starts[] = { "http://127.0.0.1", "http://localhost" };
	int64_t port;

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		struct str rest = str_of(url);

		if (!str_has_prefix(rest, str_of(starts[i])))
			continue;
		rest = str_from(rest, strlen(starts[i]));
		if (rest.n == 0)
			return 80;
		if (rest.p[0] == ':' && str_to_int(str_from(rest, 1), 1, 65535, &port) == 0)
			return (int)port;
	}
	return -ENOENT;
}

static void check_port(struct doctor *d)
{
	int port = local_port(d->cli->config.api_url);
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)port) };
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (port < 0 || fd < 0)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (void *)&address, sizeof address) == 0)
		doctor_add(d, "port", CHECK_OK, "", "port %d is free", port);
	else if (errno == EADDRINUSE)
		doctor_add(d, "port", CHECK_WARN,
			"end that program, or serve with --listen HOST:PORT",
			"port %d is taken by another program", port);
	else
		doctor_add(d, "port", CHECK_WARN, "serve with --listen HOST:PORT", "port %d: %s",
			port, strerrordesc_np(errno));
}

static void check_key(struct doctor *d)
{
	struct api_request request = { .method = "GET",
		.path = "/v2/sandboxes?limit=1",
		.timeout_ms = SERVER_TIMEOUT_MS };
	struct api_reply reply;
	struct err e = { 0 };
	int r;

	if (!d->cli->config.api_key[0]) {
		doctor_add(d, "key", CHECK_WARN, "set E2B_API_KEY, or say --data DIR",
			"no API key was found");
		return;
	}
	r = cli_api_call(d->cli, &request, &reply, &e);
	doctor_add(d, "key", r == 0 ? CHECK_OK : CHECK_WARN,
		"take E2B_API_KEY from the data directory's env file, or make one with 'atoll key "
		"create'",
		"%s: %s", d->cli->config.api_key_source, r == 0 ? "the key works" : e.msg);
}

void doctor_check_server(struct doctor *d)
{
	struct api_request request = { .method = "GET",
		.path = "/health",
		.timeout_ms = SERVER_TIMEOUT_MS };
	struct api_reply reply;
	struct err e = { 0 };
	int r = cli_api_open(d->cli, &e);

	if (r < 0) {
		doctor_add(d, "config", CHECK_WARN, "mend or remove it", "%s", e.msg);
		return;
	}
	r = cli_api_call(d->cli, &request, &reply, &e);
	if (r == 0) {
		d->server_works = true;
		doctor_add(d, "server", CHECK_OK, "", "%s makes sandboxes", d->cli->config.api_url);
		check_key(d);
	} else if (cli_failure_of(r)->exit == EXIT_UNREACHABLE) {
		doctor_add(d, "server", CHECK_WARN, "atoll serve", "no server at %s (from %s)",
			d->cli->config.api_url, d->cli->config.api_url_source);
		check_port(d);
	} else {
		doctor_add(d, "server", CHECK_WARN, "look at the server's log", "%s: %s",
			d->cli->config.api_url, e.msg);
	}
}
