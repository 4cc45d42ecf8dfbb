/* The local runtime over a real warden and a probe guest. Needs root. */
#include "limit/limit.h"
#include "policy/policy.h"
#include "runtime/runtime.h"
#include "warden/harness.h"

#include "test.h"

#include <poll.h>
#include <sys/socket.h>

enum {
	PATIENCE_MS = 15000,
};

static const struct limit_set small = {
	.v = { [LIMIT_CPU] = 1, [LIMIT_MEMORY] = 128, [LIMIT_DISK] = 64, [LIMIT_PROCESSES] = 64 }
};

struct fixture {
	struct harness h;
	struct loop *loop;
	struct runtime *rt;
	struct loop_timer timer;
	int r, fd, listed, frozen; /* what the last call came to */
	char exited[32];
	bool done;
	const char *network; /* NULL: none */
	const struct policy *policy;
	uint64_t denied; /* packets of "one" */
	struct runtime_denial told;
};

static void on_done(void *arg, int r, const struct err *e)
{
	struct fixture *f = arg;

	if (r < 0)
		printf("# %s\n", e->msg);
	f->r = r;
	f->done = true;
	loop_stop(f->loop);
}

static void on_dialled(void *arg, int fd, const struct err *e)
{
	struct fixture *f = arg;

	f->fd = fd;
	on_done(f, MIN(fd, 0), e);
}

static void on_listed(void *arg, const char *id, bool is_frozen)
{
	struct fixture *f = arg;

	f->frozen += is_frozen;
	f->listed += strcmp(id, "one") == 0;
}

static void on_exited(void *arg, const char *id, const struct err *why)
{
	struct fixture *f = arg;

	(void)snprintf(f->exited, sizeof f->exited, "%s", id);
	on_done(f, 0, why);
}

static void on_late(void *arg)
{
	struct fixture *f = arg;

	f->r = -ETIMEDOUT;
	loop_stop(f->loop);
}

static int wait_done(struct fixture *f)
{
	f->done = false;
	loop_timer_init(&f->timer, f->loop, on_late, f);
	loop_timer_set(&f->timer, time_now_ms() + PATIENCE_MS);
	(void)loop_run(f->loop, NULL);
	loop_timer_cancel(&f->timer);
	return f->r;
}

static int create(struct fixture *f, const char *template_name)
{
	struct runtime_spec spec = { .id = "one",
		.template_name = template_name,
		.limits = &small,
		.settings = STR("{}"),
		.policy = f->policy };

	runtime_create(f->rt, &spec, on_done, f);
	return wait_done(f);
}

static int create_from(struct fixture *f, const char *id, const char *image)
{
	struct runtime_spec spec = { .id = id,
		.template_name = "empty",
		.image = image,
		.limits = &small,
		.settings = STR("{}") };

	runtime_create(f->rt, &spec, on_done, f);
	return wait_done(f);
}

static int start(struct fixture *f, struct err *e)
{
	struct runtime_local_config config = { .data_dir = f->h.dir };
	int r = harness_make_dir(&f->h, e);

	if (r >= 0)
		r = dir_make(AT_FDCWD, f->h.dir, 0755, e);
	if (r >= 0)
		r = harness_spawn_warden(&f->h, f->network ? f->network : "none", 1, e);
	/* The runtime opens DATA/run: as the server does, wait for the warden to make it. */
	for (int i = 0; r >= 0 && i < 100; i++) {
		struct pollfd p = { .fd = f->h.fd, .events = POLLIN };

		if (poll(&p, 1, 100) == 1)
			break;
	}
	config.warden_fd = f->h.fd;
	if (r >= 0)
		r = loop_new(&f->loop, e);
	return r < 0 ? r : runtime_local_new(f->loop, &config, &f->rt, e);
}

static void stop(struct fixture *f)
{
	f->rt = runtime_free(f->rt);
	if (f->rt == NULL && f->loop)
		f->h.fd = -EBADF; /* it was the runtime's */
	f->loop = loop_free(f->loop);
	if (f->h.warden > 0) {
		struct err e = { 0 };

		(void)harness_stop_warden(&f->h);
		/* What a failed test left running. */
		if (harness_start_warden(&f->h, "none", 0, &e) < 0)
			(void)harness_stop_warden(&f->h);
	}
	harness_stop(&f->h);
}

#define START(f, ...)                                                     \
	CLEANUP(stop) struct fixture f = { .h.fd = -EBADF, __VA_ARGS__ }; \
	do {                                                              \
		struct err start_e = { 0 };                               \
		if (start(&(f), &start_e) == -EPERM)                      \
			TEST_SKIP("needs root and a built warden");       \
		if (start_e.code < 0)                                     \
			TEST_FAIL("start: %s", start_e.msg);              \
	} while (0)

static int dial(struct fixture *f, int port)
{
	char text[8] = "";
	struct pollfd p = { .events = POLLIN };
	int r;

	runtime_dial(f->rt, "one", port, on_dialled, f);
	r = wait_done(f);
	if (r < 0)
		return r;
	p.fd = f->fd;
	(void)poll(&p, 1, 2000);
	r = read(f->fd, text, sizeof text) == 5 && strcmp(text, "hello") == 0 ? 0 : -EPROTO;
	(void)close(TAKE_FD(f->fd));
	return r;
}

TEST(a_sandbox_is_created_listed_dialled_and_destroyed)
{
	START(f);
	ASSERT_EQ(create(&f, "empty"), 0);
	ASSERT_EQ(runtime_ready(f.rt, NULL), 0);
	runtime_list(f.rt, on_listed, on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	ASSERT_EQ(f.listed, 1);
	ASSERT_STR(harness_inside(&f.h, "one", "listen 4 8080"), "0");
	ASSERT_STR(harness_inside(&f.h, "one", "listen 6 8081"), "0");
	ASSERT_EQ(dial(&f, 8080), 0);
	ASSERT_EQ(dial(&f, 8081), 0);
	ASSERT_EQ(dial(&f, 8082), -ECONNREFUSED);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), -ENOENT);
}

TEST(the_guests_own_port_is_its_socket)
{
	START(f);
	ASSERT_EQ(create(&f, "empty"), 0);
	runtime_dial(f.rt, "one", RUNTIME_GUEST_PORT, on_dialled, &f);
	ASSERT_EQ(wait_done(&f), 0);
	ASSERT_EQ(fd_write_all(f.fd, "disk", 4), 0);
	(void)close(TAKE_FD(f.fd));
	runtime_dial(f.rt, "two", RUNTIME_GUEST_PORT, on_dialled, &f);
	ASSERT_EQ(wait_done(&f), -ENOENT);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
}

TEST(a_sandbox_is_paused_listed_as_such_and_resumed)
{
	START(f);
	ASSERT_EQ(create(&f, "empty"), 0);
	runtime_pause(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	runtime_list(f.rt, on_listed, on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	ASSERT_EQ(f.listed, 1);
	ASSERT_EQ(f.frozen, 1);
	runtime_resume(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	ASSERT_STR(harness_inside(&f.h, "one", "write /etc/mine x"), "0");
	runtime_pause(f.rt, "two", on_done, &f);
	ASSERT_EQ(wait_done(&f), -ENOENT);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
}

TEST(an_image_is_saved_started_from_listed_and_discarded)
{
	int saved_mib;

	START(f);
	ASSERT_EQ(create(&f, "empty"), 0);
	ASSERT_STR(harness_inside(&f.h, "one", "write /etc/mine x"), "0");
	runtime_save(f.rt, "one", "one", on_done, &f);
	saved_mib = wait_done(&f);
	ASSERT(saved_mib >= 1 && saved_mib <= 64); /* what it takes, of the disk's 64 */
	runtime_list_images(f.rt, on_listed, on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	ASSERT_EQ(f.listed, 1);
	ASSERT_EQ(create_from(&f, "two", "one"), 0);
	ASSERT_STR(harness_inside(&f.h, "two", "read /etc/mine"), "x");
	runtime_discard(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	runtime_discard(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), -ENOENT);
	ASSERT_EQ(create_from(&f, "three", "one"), -ENOENT);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	runtime_destroy(f.rt, "two", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
}

static void on_denied(void *arg, const char *id, uint64_t packets)
{
	struct fixture *f = arg;

	if (strcmp(id, "one") == 0)
		f->denied = packets;
}

static void on_told(void *arg, const struct runtime_denial *what)
{
	struct fixture *f = arg;

	if (strcmp(what->id, "one") == 0)
		f->told = *what;
}

static void wait_told(struct fixture *f)
{
	for (int i = 0; i < 30 && f->told.address == 0; i++) {
		runtime_denied(f->rt, on_denied, on_done, f);
		(void)wait_done(f);
		(void)poll(NULL, 0, 50);
	}
}

static int count_addresses(const struct fixture *f)
{
	int n = 0;

	for (uint32_t address = 0x0ac40000; address < 0x0ac40100; address++) {
		const char *id = runtime_find_address(f->rt, address);

		n += id && strcmp(id, "one") == 0;
	}
	return n;
}

TEST(what_a_policy_denies_is_refused_counted_and_told)
{
	static struct policy_range all = { 0, 0, false };
	static const struct policy closed = { .ranges = &all, .n_ranges = 1 };
	struct runtime_egress sockets;

	START(f, .network = "10.196.0.0/24", .policy = &closed);
	runtime_on_denied(f.rt, on_told, &f);
	ASSERT_EQ(create(&f, "empty"), 0);
	ASSERT_EQ(runtime_egress_sockets(f.rt, &sockets, NULL), 0);
	ASSERT(sockets.dns_udp_fd >= 0 && sockets.dns_tcp_fd >= 0 && sockets.proxy_fd >= 0);
	ASSERT_EQ(count_addresses(&f), 1);
	ASSERT_STR(harness_inside(&f.h, "one", "connect 203.0.113.9 443"), "-111");
	wait_told(&f);
	ASSERT(f.denied > 0);
	ASSERT_EQ(f.told.address, 0xcb007109);
	ASSERT_EQ(f.told.port, 443);
	ASSERT_EQ(f.told.protocol, 6);
	runtime_set_policy(f.rt, "one", NULL, on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
	runtime_set_policy(f.rt, "two", &closed, on_done, &f);
	ASSERT_EQ(wait_done(&f), -ENOENT);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
}

TEST(without_a_network_there_are_no_sockets_for_it)
{
	struct runtime_egress sockets;

	START(f);
	ASSERT_EQ(create(&f, "empty"), 0);
	ASSERT_EQ(runtime_egress_sockets(f.rt, &sockets, NULL), -EOPNOTSUPP);
	ASSERT_EQ(count_addresses(&f), 0);
	runtime_destroy(f.rt, "one", on_done, &f);
	ASSERT_EQ(wait_done(&f), 0);
}

TEST(failures_come_back_with_their_code)
{
	START(f);
	ASSERT_EQ(create(&f, "missing"), -ENOENT);
	ASSERT_EQ(create(&f, "../../etc"), -EINVAL);
}

TEST(a_sandbox_that_ends_by_itself_is_told)
{
	START(f);
	runtime_on_exited(f.rt, on_exited, &f);
	ASSERT_EQ(create(&f, "empty"), 0);
	(void)harness_inside(&f.h, "one", "exit 1");
	ASSERT_EQ(wait_done(&f), 0);
	ASSERT_STR(f.exited, "one");
}

TEST(a_dead_warden_fails_every_call)
{
	struct err e = { 0 };

	START(f);
	ASSERT_EQ(create(&f, "empty"), 0);
	f.h.fd = -EBADF; /* the runtime's */
	harness_kill_warden(&f.h);
	ASSERT_EQ(create(&f, "empty"), -EPIPE);
	ASSERT_EQ(runtime_ready(f.rt, &e), -EPIPE);
	f.rt = runtime_free(f.rt);
	/* The sandbox lives on: the next warden ends it. */
	ASSERT_EQ(harness_start_warden(&f.h, "none", 0, &e), 0);
	ASSERT_EQ(harness_destroy(&f.h, "one"), 0);
	ASSERT_EQ(harness_stop_warden(&f.h), 0);
}
