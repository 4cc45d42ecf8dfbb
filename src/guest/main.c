/* atoll-guest: boots into its sandbox and serves, or, with --listen, serves where it stands. */
#include "guest/boot.h"
#include "guest/compat.h"
#include "guest/grant.h"
#include "guest/guest.h"
#include "guest/marks.h"
#include "guest/ports.h"
#include "guest/trust.h"
#include "guest/uptime.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
	SETTINGS_MAX_BYTES = 4 << 20,
	/* Who talks to us is our own edge, which has its own deadlines for clients; a paused
	 * sandbox must not find all its streams expired when it wakes. */
	STALL_MS = 3600 * 1000,
};

struct program {
	struct guest guest;
	struct http_server *server;
	struct ports ports;
	struct grants grants;
	struct marks marks;
	struct loop *loop;
};

static void on_child(void *arg, int signo)
{
	struct program *p = arg;

	(void)signo;
	process_table_reap(&p->guest.processes);
}

static void on_stop(void *arg, int signo)
{
	struct program *p = arg;

	(void)signo;
	loop_stop(p->loop);
}

/* Nothing inherited is ignored, so that nothing we start has it ignored; a client that goes away is
 * an error of write, not our end. */
static void reset_signals(void)
{
	/* By the system call itself: libc keeps two signals of its own out of reach, and whoever
	 * started us may have ignored them. The kernel's form of the struct: all zero is the
	 * default. */
	unsigned long standard[4] = { 0 };
	sigset_t none;

	for (int signo = 1; signo < NSIG; signo++)
		(void)syscall(SYS_rt_sigaction, signo, standard, NULL, (size_t)(NSIG - 1) / 8);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int read_settings(struct guest *g, int fd, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(SETTINGS_MAX_BYTES);
	int r = fd_read_all(fd, &text);

	if (r < 0)
		return err_sys(e, r, "read the settings");
	r = settings_apply(&g->settings, buf_str(&text), SETTINGS_BOOT, e);
	return r < 0 ? err_wrap(e, r, "settings") : 0;
}

/* Up to four for each command of all the clients: what would do for a program is too few. Those
 * that we start get the usual limit (spawn-child.c). */
static void raise_file_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int set_up(struct program *p, int take_listen_fd, struct err *e)
{
	const struct http_limits limits = { .stall_timeout_ms = STALL_MS };
	int r;

	raise_file_limit();
	p->server = http_server_new(p->loop, &limits, guest_handle, &p->guest);
	r = http_server_take_listener(p->server, take_listen_fd, e);
	if (r == 0)
		r = loop_signal(p->loop, SIGCHLD, on_child, p, e);
	return r;
}

static void last_turn(void *arg)
{
	loop_stop(arg);
}

static void tear_down(struct program *p)
{
	struct loop_task last = { 0 };

	guest_done(&p->guest);
	ports_done(&p->ports);
	grants_done(&p->grants);
	p->server = http_server_free(p->server);
	/* What was to be freed at the end of the turn is freed in one more. */
	loop_defer(p->loop, &last, last_turn, p->loop);
	(void)loop_run(p->loop, NULL);
	p->loop = loop_free(p->loop);
}

/* Nobody waits, so what can be guessed of the sandbox is made now. */
static void show_ahead(struct program *p, struct boot *boot)
{
	marks_prepare(&p->marks);
	seen_prepare(&p->guest.seen, &boot->covers, boot->expected_memory_mb, boot->expected_cpus);
	seen_watch(&p->guest.seen, p->loop, &p->guest.gauges);
}

/* What programs inside look at to know where they are and what they have. */
static void show_itself(struct program *p, struct boot *boot)
{
	const struct settings *s = &p->guest.settings;
	bool has_own_time = uptime_start(TAKE_FD(boot->uptime_fd));

	if (!boot->expected_memory_mb)
		seen_prepare(&p->guest.seen, &boot->covers, s->memory_mb, s->cpu_count);
	seen_start(&p->guest.seen, s->memory_mb, s->cpu_count, has_own_time);
	if (!boot->expected_memory_mb)
		seen_watch(&p->guest.seen, p->loop, &p->guest.gauges);
	trust_install(&p->guest.settings);
	marks_write(&p->marks, s);
}

static int run_booted(struct program *p, enum boot_place place)
{
	bool is_gvisor = place == BOOT_GVISOR || place == BOOT_GVISOR_NESTED;
	struct boot boot = BOOT_INIT;
	struct err e = { 0 };
	int r = boot_prepare(place, &boot, &e);

	if (r < 0)
		return r == -ECANCELED ? 0 : 1;
	/* Nobody waits yet: all that does not depend on the settings is done now. */
	reset_signals();
	r = loop_new(&p->loop, &e);
	if (r == 0)
		r = guest_init(&p->guest, p->loop, &e);
	if (r == 0 && boot.asked_fd >= 0)
		r = grants_take(&p->grants, p->loop, TAKE_FD(boot.asked_fd), TAKE_FD(boot.place_fd),
			&e);
	for (int i = 0; i < GUEST_METERS; i++)
		p->guest.gauges.meters[i] = TAKE_FD(boot.meters[i]);
	p->guest.gauges.use_fd = TAKE_FD(boot.use_fd);
	if (r == 0)
		r = set_up(p, TAKE_FD(boot.listen_fd), &e);
	p->guest.processes.no_hangup = is_gvisor;
	p->guest.settings.needs_preload = is_gvisor && compat_prepare();
	if (r == 0 && boot.dial_fd >= 0)
		r = ports_take(&p->ports, p->loop, TAKE_FD(boot.dial_fd), &e);
	if (r == 0 && boot.expected_memory_mb)
		show_ahead(p, &boot);
	if (r == 0) {
		r = boot_wait(&boot, &e);
		if (r < 0)
			return r == -ECANCELED ? 0 : 1;
		r = read_settings(&p->guest, boot.settings_fd, &e);
	}
	/* It may have waited for long, and nobody shall be given a disk that is broken. */
	if (r == 0 && place == BOOT_SLOT && gauges_check_disk() < 0)
		r = err_set(&e, -EAGAIN, "the disk that was prepared for it has failed");
	boot_ready(&boot, r, e.msg);
	/* Whoever was told that we are ready cannot be served before these. */
	if (r == 0)
		show_itself(p, &boot);
	boot_done(&boot);
	if (r < 0)
		return 1;
	guest_run_start_command(&p->guest);
	return loop_run(p->loop, &e) < 0;
}

/* ---- development ---- */

static int choose_own_user(struct guest *g)
{
	struct user user;

	if (users_find_id(&g->users, geteuid(), &user, NULL) < 0)
		return 0;
	free(g->settings.default_user);
	g->settings.default_user = xstrdup(user.name);
	return 0;
}

static int develop(struct program *p, const char *address, const char *settings, struct err *e)
{
	cleanup_close int fd = -EBADF;
	int listen_fd, r;

	reset_signals();
	(void)umask(022);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come to us, as they do to PID 1 */
	r = loop_new(&p->loop, e);
	if (r == 0)
		r = guest_init(&p->guest, p->loop, e);
	if (r == 0)
		r = choose_own_user(&p->guest);
	if (r == 0 && settings) {
		fd = open(settings, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? err_sys(e, -errno, "open %s", settings)
			   : read_settings(&p->guest, fd, e);
	}
	if (r < 0)
		return r;
	listen_fd = http_listen(address, e);
	r = listen_fd < 0 ? listen_fd : set_up(p, listen_fd, e);
	if (r == 0)
		r = loop_signal(p->loop, SIGTERM, on_stop, p, e);
	if (r == 0)
		r = loop_signal(p->loop, SIGINT, on_stop, p, e);
	if (r < 0)
		return r;
	guest_run_start_command(&p->guest);
	return loop_run(p->loop, e);
}

static int usage(void)
{
	(void)fprintf(stderr,
		"usage: atoll-guest --listen ADDRESS [--settings FILE]\n"
		"Without a warden that boots it, it serves the current machine to whoever\n"
		"reaches ADDRESS: for development only.\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *address = NULL, *settings = NULL;
	enum boot_place place = boot_place(argc, argv);
	struct program p = { .grants = GRANTS_INIT, .marks = MARKS_INIT };
	struct err e = { 0 };

	if (place != BOOT_NOWHERE)
		return run_booted(&p, place);
	if (argc == 2 && strcmp(argv[1], "--protocol") == 0) /* for who checks a build */
		return printf("protocol %d\n", WARDEN_VERSION) < 0;
	for (int i = 1; i < argc; i++) {
		bool has_value = i + 1 < argc;

		if (strcmp(argv[i], "--listen") == 0 && has_value)
			address = argv[++i];
		else if (strcmp(argv[i], "--settings") == 0 && has_value)
			settings = argv[++i];
		else
			return usage();
	}
	if (!address)
		return usage();
	if (develop(&p, address, settings, &e) < 0) {
		(void)fprintf(stderr, "atoll-guest: %s\n", e.msg);
		return 1;
	}
	tear_down(&p);
	return 0;
}
