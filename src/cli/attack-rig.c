/* A server of our own, where none answers. It and we move into network and mount namespaces of
 * their own first, so that a server that runs elsewhere on the machine is neither attacked nor
 * disturbed, and there everything that a sandbox might want is put in its way: a route to nowhere,
 * and the cloud's metadata address on the host itself. */
#include "cli/attack.h"

#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	START_MS = 60 * 1000,
	STOP_MS = 30 * 1000,
	POLL_US = 20 * 1000,
	METADATA_ADDRESS = 0xa9fea9fe, /* 169.254.169.254 */
};

/* 31 sandboxes: addresses are soon used again (attack-addresses.c). */
#define SMALL_NETWORK "10.199.0.0/26"

static int set_up_network(struct err *e)
{
	cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP }, alias = { .ifr_name = "lo:1" };
	struct sockaddr_in *at = (void *)&alias.ifr_addr;
	char device[] = "lo";
	struct rtentry way_out = { .rt_flags = RTF_UP, .rt_dev = device };

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
		return err_sys(e, -errno, "bring up the loopback");
	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(METADATA_ADDRESS);
	/* What the firewall drops must be its own doing, not that of a missing route. */
	way_out.rt_dst.sa_family = way_out.rt_genmask.sa_family = AF_INET;
	if (ioctl(fd, SIOCSIFADDR, &alias) < 0 || ioctl(fd, SIOCADDRT, &way_out) < 0)
		return err_sys(e, -errno, "lay the network");
	return 0;
}

static int be_alone(struct err *e)
{
	if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0)
		return err_sys(e, -errno, "make namespaces");
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_sys(e, -errno, "keep mounts private");
	return set_up_network(e);
}

/* A template works without them. */
static void copy_settings(const struct attack *a)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	char path[CONFIG_VALUE + 64];

	(void)snprintf(path, sizeof path, "%s/base/template.toml", a->templates);
	if (file_read(AT_FDCWD, path, &text, NULL) < 0)
		return;
	(void)snprintf(path, sizeof path, "%s/templates/base/template.toml", a->scratch);
	(void)file_replace(AT_FDCWD, path, buf_str(&text), 0644, NULL);
}

/* The base template, seen from a directory of ours that may also hold hostile ones. */
static int lend_templates(struct attack *a, struct err *e)
{
	char from[CONFIG_VALUE + 32], to[CONFIG_VALUE + 32];
	static const char *const dirs[] = { "templates", "templates/base",
		"templates/base/rootfs" };

	if (!a->templates[0])
		return err_set(e, -ENOENT,
			"no server answers at %s, and there is no template to start one with",
			a->cli->config.api_url);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		(void)snprintf(to, sizeof to, "%s/%s", a->scratch, dirs[i]);
		if (mkdir(to, 0755) < 0)
			return err_sys(e, -errno, "make %s", to);
	}
	(void)snprintf(from, sizeof from, "%s/base/rootfs", a->templates);
	if (mount(from, to, NULL, MS_BIND, NULL) < 0)
		return err_sys(e, -errno, "show %s", from);
	a->rig.has_base = true;
	if (mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0)
		return err_sys(e, -errno, "show %s read-only", from);
	copy_settings(a);
	(void)snprintf(a->templates, sizeof a->templates, "%.480s/templates", a->scratch);
	return 0;
}

static uint16_t free_port(void)
{
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof at;

	if (fd < 0 || bind(fd, (void *)&at, sizeof at) < 0 ||
		getsockname(fd, (void *)&at, &size) < 0)
		return 0;
	return ntohs(at.sin_port);
}

/* On all addresses: that the API cannot be reached must be the firewall's doing. */
static _Noreturn void become_server(const struct attack *a, uint16_t port)
{
	char data[CONFIG_VALUE + 16], listen_at[32], templates[CONFIG_VALUE];
	char name[] = "atoll", serve[] = "serve", data_flag[] = "--data",
	     listen_flag[] = "--listen", cache_flag[] = "--template-cache",
	     stop_flag[] = "--stop-sandboxes", pool_flag[] = "--pool", pool[] = "4",
	     network_flag[] = "--network", network[] = SMALL_NETWORK;
	char *const argv[] = { name, serve, data_flag, data, listen_flag, listen_at, cache_flag,
		templates, pool_flag, pool, network_flag, network, stop_flag, NULL };
	int fd = open(a->rig.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	(void)snprintf(data, sizeof data, "%s/data", a->scratch);
	(void)snprintf(listen_at, sizeof listen_at, "0.0.0.0:%d", port);
	(void)snprintf(templates, sizeof templates, "%s", a->templates);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)dup2(fd, STDOUT_FILENO);
	(void)dup2(fd, STDERR_FILENO);
	(void)execv("/proc/self/exe", argv);
	_exit(127);
}

static int use_config(struct attack *a, struct err *e)
{
	char data[CONFIG_VALUE + 16];
	struct config_input in = { .flag_data = data };

	(void)snprintf(data, sizeof data, "%s/data", a->scratch);
	return cli_config_load(&in, &a->cli->config, e);
}

static int wait_until_healthy(struct attack *a, struct err *e)
{
	const struct api_request request = { .method = "GET",
		.path = "/health",
		.timeout_ms = 3000 };
	int64_t until_ms = time_now_ms() + START_MS;
	struct api_reply reply;
	int status;

	while (time_now_ms() < until_ms) {
		if (waitpid(a->rig.pid, &status, WNOHANG) != 0) {
			a->rig.pid = 0;
			return err_set(e, -EIO, "the server that was started ended: see %s",
				a->rig.log);
		}
		if (use_config(a, e) == 0 && cli_api_call(a->cli, &request, &reply, e) == 0)
			return 0;
		(void)usleep(POLL_US);
	}
	return err_set(e, -ETIMEDOUT, "the server that was started does not answer: see %s",
		a->rig.log);
}

int rig_start(struct attack *a, struct err *e)
{
	uint16_t port;
	int r = be_alone(e);

	if (r == 0)
		r = lend_templates(a, e);
	if (r < 0)
		return r;
	port = free_port();
	(void)snprintf(a->rig.log, sizeof a->rig.log, "%.480s/log", a->scratch);
	a->rig.pid = fork();
	if (a->rig.pid == 0)
		become_server(a, port);
	if (a->rig.pid < 0)
		return err_sys(e, -errno, "fork");
	a->rig.is_ours = true;
	return wait_until_healthy(a, e);
}

bool rig_stop(struct attack *a)
{
	int64_t until_ms = time_now_ms() + STOP_MS;
	char base[CONFIG_VALUE + 32];

	if (a->rig.pid > 0) {
		(void)kill(a->rig.pid, SIGTERM);
		while (waitpid(a->rig.pid, NULL, WNOHANG) == 0) {
			if (time_now_ms() > until_ms)
				(void)kill(a->rig.pid, SIGKILL);
			(void)usleep(POLL_US);
		}
	}
	a->rig.pid = 0;
	if (!a->rig.has_base)
		return true;
	(void)snprintf(base, sizeof base, "%.480s/templates/base/rootfs", a->scratch);
	a->rig.has_base = umount2(base, MNT_DETACH) < 0;
	return !a->rig.has_base;
}
