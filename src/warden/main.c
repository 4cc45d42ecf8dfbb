#include "warden/leftover.h"
#include "warden/locks.h"
#include "warden/tcp.h"
#include "warden/warden.h"
#include "warden/powers.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The warden lives exactly as long as its control socket. A Ctrl-C or a service manager's signal to
 * the whole group is meant for the server, which may still have sandboxes to end. */
static void ignore_signals(void)
{
	static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		(void)signal(ignored[i], SIG_IGN);
}

/* Two descriptors per sandbox. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* What is second best on this host, for the doctor and the log. */
static void describe(const struct warden *w, struct err *ret)
{
	bool slow = w->disk.slow.code < 0;

	(void)snprintf(ret->msg, sizeof ret->msg, "%s%s%.100s%s%s%s",
		disk_has_images(&w->disk)
			? ""
			: "no disk images: sandboxes and volumes have no disk limit; ",
		slow ? "copies of disks take time (" : "", slow ? w->disk.slow.msg : "",
		slow ? "); " : "", w->network.enabled ? "" : "sandboxes have no network; ",
		w->rootfs.attach ? "layers are attached by path; " : "");
}

static int serve(struct warden *w, struct err *e)
{
	struct lock_watch locks;
	struct tcp_watch tcp;
	struct err note = { 0 };
	int r = control_open(w, e);

	if (r < 0)
		return r;
	r = warden_open(w, e);
	if (r < 0) {
		control_reply(w, WARDEN_READY, 0, "", e, NULL, 0);
		return r;
	}
	warden_adopt(w);
	r = policy_build(w, e);
	if (r < 0) {
		control_reply(w, WARDEN_READY, 0, "", e, NULL, 0);
		return r;
	}
	describe(w, &note);
	control_reply(w, WARDEN_READY, 0, "", &note, w->firewall.socket_fds,
		w->firewall.enabled ? WARDEN_EGRESS_FDS : 0);
	hold_open(w);
	refill_soon(w);
	lock_watch_start(&locks, w->loop, &w->workers);
	tcp_watch_start(&tcp, w);
	r = loop_run(w->loop, e);
	tcp_watch_stop(&tcp);
	lock_watch_stop(&locks);
	return r;
}

int main(int argc, char *argv[])
{
	struct options options = { 0 };
	struct warden w = { 0 };
	struct err e = { 0 };
	int r = options_parse(argc, argv, &options, &e);

	if (r < 0) {
		(void)fprintf(stderr, "atoll-warden: %s\n", e.msg);
		return 2;
	}
	crash_arm(getenv(CRASH_VARIABLE));
	if (options.probe)
		return probe_host(&options);
	if (options.check)
		return check_sandboxes(&options);
	if (options.hold_volume)
		return hold_volume(&options);
	if (options.lend_images)
		return lend_images(&options);
	if (options.sweep)
		return leftovers_sweep();
	log_init(options.debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, STDERR_FILENO);
	(void)umask(022);
	ignore_signals();
	raise_file_limit();
	warden_init(&w, &options);
	r = powers_drop(&e);
	if (r >= 0)
		r = loop_new(&w.loop, &e);
	if (r >= 0)
		r = serve(&w, &e);
	if (r < 0)
		log_error("warden.failed", "err=%s", log_quote(str_of(e.msg)));
	control_close(&w);
	warden_close(&w);
	w.loop = loop_free(w.loop);
	return r < 0 ? 1 : 0;
}
