#include "server/server.h"

#include "access/access.h"
#include "api/api.h"
#include "base/confine.h"
#include "base/fault.h"
#include "edge/edge.h"
#include "execution/execution.h"
#include "http/http.h"
#include "loop/loop.h"
#include "observe/observe.h"
#include "runtime/runtime.h"
#include "sandbox/sandbox.h"
#include "secret/secret.h"
#include "server/become.h"
#include "server/check.h"
#include "server/config.h"
#include "server/front.h"
#include "server/keep.h"
#include "server/outward.h"
#include "server/prepare.h"
#include "server/proof.h"
#include "server/renew.h"
#include "server/watch.h"
#include "store/store.h"
#include "template/template.h"
#include "tls/tls.h"
#include "volume/volume.h"

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
	FINISH_MS = 8000, /* what jobs do for exchanges that were cut */
	STOP_MS = 3000,   /* how long open exchanges may take to finish */
	DRAIN_MS = 1000,  /* and what is left of their replies, to get through TLS */
	HEAR_MS = 200,    /* for clients that ask all the time to hear that they should come anew */
	LOOK_MS = 20,     /* whether all who were accepted have said what they want */
	TRIM_MS = 10000,  /* how soon memory goes back to the host after sandboxes ended */
	USE_MS = 60000,   /* how long the last use of a key may be only in memory */
	NODE_ID_SIZE = 9,
};

struct server {
	struct config config;
	struct prepared prepared;
	struct loop *loop;
	struct store *store;
	struct observe_log *events;
	struct watch *watch;
	struct access_book *access;
	struct template_book *templates;
	struct secret_book *secrets;
	struct volume_book *volumes;
	int volumes_fd;
	char node_id[NODE_ID_SIZE];
	struct runtime *runtime;     /* the default, which has the network */
	struct runtime_set runtimes; /* it and all others */
	struct sandbox_book *sandboxes;
	struct execution_book *executions;
	struct tls_authority *authority;
	struct outward *outward;
	struct api *api;
	struct edge *edge;
	struct http_server *http;
	struct front *front;
	struct renew *renew; /* NULL: no TLS, as the next */
	struct tls_server *tls;
	struct kept kept;
	struct loop_timer trim, door;
	int64_t closed_ms;          /* when the door was */
	size_t trimmed_at;          /* sandboxes at the last look */
	bool stopping, is_replaced; /* by the next build, on the same socket */
	bool on_terminal, is_database_away, is_reconciling;
	int exit_code;
};

static void on_request(void *arg, struct http_exchange *x)
{
	struct server *s = arg;

	if (!edge_handle(s->edge, x))
		api_handle(s->api, x);
}

/* ---- stopping ---- */

static void watch_stopped(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	(void)r;
	(void)e;
	loop_stop(s->loop);
}

static void executions_settled(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	if (r < 0) {
		log_error("stop.unsettled", "err=%s", log_quote(str_of(e->msg)));
		_exit(s->exit_code);
	}
	watch_stop(s->watch, watch_stopped, s);
}

static void settled(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	if (r < 0) {
		/* What is still under way would outlive what it works on. The next start finishes
		 * it, as after a crash. */
		log_error("stop.unsettled", "err=%s", log_quote(str_of(e->msg)));
		_exit(s->exit_code);
	}
	keep_tell(&s->kept, KEEP_STOPPED, sandbox_count(s->sandboxes));
	execution_settle(s->executions, executions_settled, s);
}

static void sandboxes_stopped(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	if (r < 0)
		log_error("stop.failed", "err=%s", log_quote(str_of(e->msg)));
	sandbox_settle(s->sandboxes, settled, s);
}

static void replies_sent(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	(void)r;
	(void)e;
	if (s->config.stop_sandboxes && !s->is_replaced)
		sandbox_kill_all(s->sandboxes, sandboxes_stopped, s);
	else
		sandbox_settle(s->sandboxes, settled, s);
}

static void http_stopped(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	runtime_hang_up(&s->runtimes);
	if (s->tls)
		tls_server_drain(s->tls, loop_now_ms(s->loop) + DRAIN_MS, replies_sent, s);
	else
		replies_sent(s, r, e);
}

/* What reconciling has asked for would outlive what it works on. The next start asks again, as
 * after a crash; only the warden is waited for, which must not meet the next one. */
static _Noreturn void leave_reconciling(struct server *s)
{
	runtime_set_free(&s->runtimes);
	prepared_done(&s->prepared);
	_exit(s->exit_code);
}

static int64_t last_ms(const struct server *s)
{
	return s->closed_ms + (s->is_replaced ? s->config.upgrade_grace_s * 1000 : STOP_MS);
}

static void stop_http(struct server *s)
{
	if (s->tls)
		tls_server_close(s->tls);
	if (s->watch)
		watch_close(s->watch);
	if (s->executions)
		execution_hang_up(s->executions);
	http_server_stop(s->http, last_ms(s), http_stopped, s);
}

/* Nobody is cut who was accepted and is still about to say what it wants. */
static void on_door(void *arg)
{
	struct server *s = arg;
	int64_t now_ms = loop_now_ms(s->loop);
	bool is_empty = http_server_connections(s->http) == 0 &&
			(!s->tls || tls_server_connections(s->tls) == 0);
	bool is_awaited = http_server_newcomers(s->http) > 0 ||
			  (s->tls && tls_server_handshakes(s->tls) > 0) ||
			  now_ms < s->closed_ms + HEAR_MS;

	if (!is_empty && is_awaited && now_ms < last_ms(s))
		loop_timer_set(&s->door, now_ms + LOOK_MS);
	else
		stop_http(s);
}

/* From here on who comes waits for the next server, if there is to be one. */
static void close_door(struct server *s)
{
	s->closed_ms = loop_now_ms(s->loop);
	if (s->tls)
		tls_server_accept_no_more(s->tls);
	http_server_close(s->http);
	on_door(s);
}

static void begin_stop(struct server *s, int exit_code)
{
	if (s->stopping)
		return;
	s->stopping = true;
	s->exit_code = exit_code;
	runtime_stop_trying(&s->runtimes);
	if (s->http)
		close_door(s);
	else if (s->is_reconciling)
		leave_reconciling(s);
	else
		loop_stop(s->loop);
}

static void on_stop_signal(void *arg, int signo)
{
	struct server *s = arg;

	log_info("server.stopping", "signal=%d sandboxes=%zu", signo, sandbox_count(s->sandboxes));
	s->is_replaced = false;
	begin_stop(s, 0);
}

static void on_upgrade_signal(void *arg, int signo)
{
	struct server *s = arg;

	if (!s->kept.keeper) {
		log_warn("upgrade.alone",
			"signal=%d: without its keeper nobody starts the next one", signo);
		return;
	}
	log_info("server.leaving", "signal=%d sandboxes=%zu", signo, sandbox_count(s->sandboxes));
	if (!s->stopping)
		s->is_replaced = true;
	begin_stop(s, KEEP_EXIT_AGAIN); /* if the keeper knows nothing of it: the same build */
}

/* Without TLS there is nothing to read again, and who asks for that does not ask for an end. */
static void on_hangup(void *arg, int signo)
{
	(void)arg;
	log_info("server.nothing_to_reload", "signal=%d", signo);
}

static void fail_start(struct server *s, const struct err *e)
{
	(void)fprintf(stderr, "atoll: %s\n", e->msg);
	begin_stop(s, 1);
}

/* Without its warden a server can make nothing and end nothing. The next pair takes over what lives
 * in a moment, and there is nothing to finish first: no truth is only in memory. */
static void on_warden_lost(void *arg, const struct err *why)
{
	struct server *s = arg;

	if (s->stopping)
		return;
	log_error("warden.lost", "err=%s", log_quote(str_of(why->msg)));
	if (s->kept.keeper && s->http)
		_exit(KEEP_EXIT_AGAIN);
}

/* The allocator keeps what many sandboxes at once have needed; the host may need it more. */
static void on_trim(void *arg)
{
	struct server *s = arg;
	size_t n = sandbox_count(s->sandboxes);

	if (n < s->trimmed_at)
		(void)malloc_trim(0);
	s->trimmed_at = n;
	loop_timer_set(&s->trim, loop_now_ms(s->loop) + TRIM_MS);
}

/* ---- starting ---- */

static void proved(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	if (r < 0)
		(void)fprintf(stderr, "atoll: the first sandbox failed: %s\n", e->msg);
	(void)s;
}

static void greet(struct server *s)
{
	const struct prepared *p = &s->prepared;

	printf("\nAtoll serves at %s\n\n"
	       "    E2B_API_KEY=%s\n    E2B_API_URL=%s\n    E2B_SANDBOX_URL=%s\n    "
	       "E2B_DOMAIN=%s\n\n"
	       "These stand in %s/env:  set -a; . %s/env; set +a\n",
		p->url, p->key, p->url, p->sandbox_url, p->domain, s->config.data, s->config.data);
	(void)fflush(stdout);
	proof_run(s->loop, s->sandboxes, access_first_team(s->access), proved, s);
}

static int take_listener(struct server *s, int fd, struct err *e)
{
	return s->tls ? tls_server_take_listener(s->tls, fd, e)
		      : http_server_take_listener(s->http, fd, e);
}

static int listen_on(struct server *s, struct err *e)
{
	struct listening l = listening_take(&s->prepared.listening);
	int r;

	if (s->renew)
		s->tls = tls_server_new(s->loop, s->http, renew_identity(s->renew), NULL);
	r = take_listener(s, l.fd, e);
	if (r < 0)
		close_fdp(&l.beside_fd);
	else if (l.beside_fd >= 0)
		r = take_listener(s, l.beside_fd, e);
	return r;
}

static void reconciled(void *arg, int r, const struct err *e)
{
	struct http_limits limits;
	struct server *s = arg;
	struct err own = { 0 };

	if (s->stopping)
		return;
	s->is_reconciling = false;
	if (r < 0) {
		fail_start(s, e);
		return;
	}
	if (sandbox_ready(s->sandboxes, &own) < 0) {
		fail_start(s, &own);
		return;
	}
	front_limits(&s->config, &limits);
	s->http = http_server_new(s->loop, &limits, on_request, s);
	s->front = front_watch(s->loop, s->http);
	if (outward_start(s->outward, &own) < 0 || listen_on(s, &own) < 0) {
		fail_start(s, &own);
		return;
	}
	log_info("server.ready", "url=%s sandboxes=%zu max_connections=%zu", s->prepared.url,
		sandbox_count(s->sandboxes), limits.max_connections);
	keep_tell(&s->kept, KEEP_READY, sandbox_count(s->sandboxes));
	if (s->on_terminal)
		greet(s);
	explicit_bzero(s->prepared.key, sizeof s->prepared.key);
}

static void sandboxes_reconciled(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	if (r < 0 || s->stopping)
		reconciled(s, r, e);
	else
		execution_recover(s->executions, reconciled, s);
}

static void ceilings_of(void *arg, const char *team_id, struct limit_ceilings *ret)
{
	const struct server *s = arg;

	access_ceilings(s->access, team_id, ret);
}

static void make_volume(void *arg, const char *id, int64_t bytes, done_fn done, void *done_arg)
{
	runtime_volume_make(arg, id, bytes, done, done_arg);
}

static void open_volume(void *arg, const char *id, volume_opened_fn fn, void *fn_arg)
{
	runtime_volume_open(arg, id, fn, fn_arg);
}

static void remove_volume(void *arg, const char *id, done_fn done, void *done_arg)
{
	runtime_volume_remove(arg, id, done, done_arg);
}

static int open_volumes(struct server *s, struct err *e)
{
	struct volume_book_config config = { .loop = s->loop,
		.store = s->store,
		.dir_fd = TAKE_FD(s->volumes_fd),
		.teams = { ceilings_of, s },
		.events = s->events,
		.maker = { make_volume, open_volume, remove_volume, s->runtime } };

	memcpy(config.seed, s->prepared.seed, sizeof config.seed);
	return volume_book_new(&config, &s->volumes, e);
}

/* The same for this data directory for ever, and nothing that says where it is. */
static void name_node(struct server *s)
{
	uint8_t mac[SHA256_SIZE];

	hmac_sha256(s->prepared.seed, STR("node"), mac);
	hex_encode(mac, (NODE_ID_SIZE - 1) / 2, s->node_id);
}

static int open_outward(struct server *s, struct err *e)
{
	const struct outward_config config = { .loop = s->loop,
		.runtime = s->runtime,
		.sandboxes = s->sandboxes,
		.secrets = s->secrets,
		.authority = s->authority,
		.dns_servers = s->config.dns_server,
		.opened = &s->config.opened };

	return outward_new(&config, &s->outward, e);
}

/* The operator hears once that it went, when the reason becomes another, and once that it is back;
 * who waits for it is told each. */
static void on_database(void *arg, int r, const struct err *e)
{
	struct server *s = arg;

	if (r == 0) {
		s->is_database_away = false;
		log_info("database.back", "ok=1");
		return;
	}
	log_warn(s->is_database_away ? "database.still_away" : "database.away", "err=%s",
		log_quote(str_of(e->msg)));
	s->is_database_away = true;
	if (r != -EREMCHG)
		return;
	if (s->kept.keeper) /* it reads all of it anew */
		_exit(KEEP_EXIT_AGAIN);
	begin_stop(s, 1);
}

static int open_store(struct server *s, struct err *e)
{
	char name[NODE_ID_SIZE + sizeof "atoll "];
	const struct store_config config = {
		.url = s->config.database ? s->config.database : "sqlite:" STATE_DIR "/atoll.db",
		.password = s->prepared.database_password[0] ? s->prepared.database_password : NULL,
		.name = name,
		.is_own_name = true, /* by the data directory's lock */
		.on_state = on_database,
		.state_arg = s,
	};

	(void)snprintf(name, sizeof name, "atoll %s", s->node_id);
	return store_open_as(s->loop, &config, &s->store, e);
}

static int open_executions(struct server *s, struct err *e)
{
	struct execution_config config = { .loop = s->loop,
		.store = s->store,
		.sandboxes = s->sandboxes,
		.secrets = s->secrets,
		.retention_s = s->config.artifact_retention_s,
		.output_s = s->config.output_retention_s,
		.history_s = s->config.history_retention_s,
		.artifact_bytes = s->config.artifact_mb << 20,
		.keep_bytes = s->config.output_mb << 20,
		.teams = { ceilings_of, s } };
	int r = dir_make(AT_FDCWD, STATE_DIR "/artifacts", 0700, e);

	if (r < 0)
		return r;
	config.artifacts_fd = open(STATE_DIR "/artifacts", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (config.artifacts_fd < 0)
		return err_sys(e, -errno, "open the directory of artifacts");
	memcpy(config.seed, s->prepared.seed, sizeof config.seed);
	s->executions = execution_book_new(&config);
	sandbox_on_busy(s->sandboxes, execution_is_busy, s->executions);
	sandbox_on_forget(s->sandboxes, execution_forget);
	explicit_bzero(config.seed, sizeof config.seed);
	return 0;
}

static int open_books(struct server *s, struct err *e)
{
	struct sandbox_book_config books = { 0 };
	int r = open_store(s, e);

	if (r < 0 && s->config.database)
		return r; /* it says itself where it is */
	if (r >= 0)
		r = access_book_new(s->store, &s->access, e);
	if (r >= 0)
		r = access_ensure_key(s->access, s->prepared.key, e);
	if (r >= 0)
		r = template_load_tags(s->templates, s->store, e);
	if (r >= 0)
		s->events = observe_log_new(s->loop, s->store);
	if (r >= 0)
		r = open_volumes(s, e);
	if (r >= 0)
		r = tls_authority_open(AT_FDCWD, STATE_DIR "/egress-ca.pem", &s->authority, e);
	if (r < 0)
		return err_wrap(e, r, "data directory %s", s->config.data);
	access_set_server_ceilings(s->access, &s->config.ceilings);
	access_set_server_quota(s->access, &s->config.quota);
	access_set_server_activity(s->access, s->config.activity);
	template_set_defaults(s->templates, &s->config.default_limits);
	books = (struct sandbox_book_config){
		.loop = s->loop,
		.quota = access_quota,
		.quota_arg = s->access,
		.activity = access_activity,
		.activity_arg = s->access,
		.store = s->store,
		.runtimes = s->runtimes,
		.events = s->events,
		.teams = { ceilings_of, s },
		.templates = s->templates,
		.samples_path = STATE_DIR "/samples",
		.limits = { s->config.max_timeout_s, s->config.max_sandboxes, s->config.no_nested },
		.care = { .max_age_s = s->config.max_age_s,
			.unresponsive_s = s->config.unresponsive_after_s,
			.keep_unresponsive = strcmp(s->config.unresponsive, "keep") == 0,
			.history_s = s->config.history_retention_s },
		.authority = tls_authority_certificate(s->authority),
		.authorities = buf_str(&s->prepared.given.authorities),
		.env = s->prepared.given.env,
		.team_env = access_env,
		.team_env_arg = s->access,
	};
	access_keep_use(s->access, s->loop, USE_MS);
	s->secrets = secret_book_new(s->loop, s->store, &books.teams, s->prepared.seed);
	memcpy(books.seed, s->prepared.seed, sizeof books.seed);
	s->sandboxes = sandbox_book_new(&books);
	r = open_executions(s, e);
	return r < 0 ? r : open_outward(s, e);
}

/* Those whose programs this host lacks as well: they may be installed at any time, and until then
 * say so when they are asked. */
static int open_runtimes(struct server *s, struct err *e)
{
	static const char *const others[] = { "gvisor", "runc", "crun" };
	struct runtime_set *set = &s->runtimes;
	int r = 0;

	static_assert(ARRAY_SIZE(others) < RUNTIME_MAX, "there is room for all");
	set->v[set->n++] = s->runtime;
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(others); i++) {
		r = runtime_oci_new(s->runtime, others[i], &set->v[set->n], e);
		if (r >= 0)
			set->n++;
	}
	return r;
}

/* What is reached by a path is opened while still root; no byte from outside is read yet. */
static int open_paths(struct server *s, struct err *e)
{
	struct runtime_local_config local = { .data_dir = s->config.data,
		.warden_fd = TAKE_FD(s->prepared.warden_fd) };
	int r = loop_new(&s->loop, e);

	if (r >= 0)
		r = runtime_local_new(s->loop, &local, &s->runtime, e);
	if (r >= 0)
		r = open_runtimes(s, e);
	if (r >= 0)
		r = template_book_new(s->prepared.templates, &s->templates, e);
	if (r < 0)
		return r;
	s->volumes_fd = openat(s->prepared.data_fd, "volumes",
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return s->volumes_fd < 0 ? err_sys(e, -errno, "open the volumes directory") : 0;
}

static int wire(struct server *s, struct err *e)
{
	struct api_config api = { .domain = s->prepared.domain,
		.max_timeout_s = s->config.max_timeout_s };
	int r;

	name_node(s);
	r = open_books(s, e);
	if (r >= 0)
		r = watch_new(s->loop, s->store, &s->config,
			&(struct limit_teams){ ceilings_of, s }, s->node_id, &s->watch, e);
	if (r >= 0)
		r = loop_signal(s->loop, SIGTERM, on_stop_signal, s, e);
	if (r >= 0)
		r = loop_signal(s->loop, SIGINT, on_stop_signal, s, e);
	if (r >= 0)
		r = loop_signal(s->loop, SIGUSR2, on_upgrade_signal, s, e);
	if (r >= 0)
		r = s->renew ? renew_on_signal(s->renew, s->loop, e)
			     : loop_signal(s->loop, SIGHUP, on_hangup, s, e);
	if (r < 0)
		return r;
	api.node_id = s->node_id;
	api.admin_token = s->prepared.admin_token[0] ? s->prepared.admin_token : NULL;
	api.store = s->store;
	api.loop = s->loop;
	api.events = s->events;
	api.access = s->access;
	api.secrets = s->secrets;
	api.volumes = s->volumes;
	api.sandboxes = s->sandboxes;
	api.executions = s->executions;
	api.templates = s->templates;
	api.egress = outward_egress(s->outward);
	api.runtimes = &s->runtimes;
	watch_tell_api(s->watch, &api);
	memcpy(api.seed, s->prepared.seed, sizeof api.seed);
	r = api_new(&api, &s->api, e);
	explicit_bzero(api.seed, sizeof api.seed);
	if (r < 0)
		return r;
	s->edge = edge_new(&(struct edge_config){ .loop = s->loop,
		.sandboxes = s->sandboxes,
		.access = s->access,
		.volumes = s->volumes,
		.admin_token = api.admin_token });
	return 0;
}

/* What is still being done for requests whose time to stop was up ends in their exchanges, and in
 * the books: they have to be there. */
static void finish_jobs(struct server *s)
{
	if (s->volumes)
		volume_book_rest(s->volumes);
	if (!s->loop || loop_finish_jobs(s->loop, time_now_ms() + FINISH_MS) >= 0)
		return;
	log_error("stop.unsettled", "err=\"work for requests is still under way\"");
	_exit(s->exit_code);
}

/* Backwards: who uses goes before what it uses. */
static void server_done(struct server *s)
{
	finish_jobs(s);
	loop_timer_cancel(&s->trim);
	loop_timer_cancel(&s->door);
	if (s->watch)
		watch_close(s->watch);
	s->tls = tls_server_free(s->tls);
	s->front = front_free(s->front);
	s->http = http_server_free(s->http);
	s->renew = renew_free(s->renew);
	s->edge = edge_free(s->edge);
	s->api = api_free(s->api);
	s->watch = watch_free(s->watch);
	s->outward = outward_free(s->outward);
	s->executions = execution_book_free(s->executions);
	s->sandboxes = sandbox_book_free(s->sandboxes);
	s->volumes = volume_book_free(s->volumes);
	close_fdp(&s->volumes_fd);
	s->secrets = secret_book_free(s->secrets);
	s->templates = template_book_free(s->templates);
	s->access = access_book_free(s->access);
	s->authority = tls_authority_free(s->authority);
	runtime_set_free(&s->runtimes);
	s->runtime = NULL;
	s->events = observe_log_free(s->events);
	s->store = store_free(s->store);
	s->loop = loop_free(s->loop);
	prepared_done(&s->prepared);
	close_fdp(&s->kept.tell_fd);
	config_done(&s->config);
}

static enum log_level level_of(const char *name)
{
	switch (name[0]) {
	case 'e':
		return LOG_LEVEL_ERROR;
	case 'w':
		return LOG_LEVEL_WARN;
	case 'd':
		return LOG_LEVEL_DEBUG;
	}
	return LOG_LEVEL_INFO;
}

/* A connection over TLS that is passed to a sandbox takes four descriptors. The warden has been
 * started before: what runs in sandboxes keeps the usual limit. */
static void raise_file_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int follow_keeper(const struct server *s, struct err *e)
{
	int r = s->kept.keeper ? keep_follow(s->kept.keeper) : 0;

	return r < 0 ? err_sys(e, r, "follow the process that keeps this one") : 0;
}

/* Nobody but root has anything to keep. */
static int be_kept(struct server *s, char **argv, struct err *e)
{
	struct keep_plan plan = { .listen = s->config.listen,
		.data = s->config.data,
		.database = getenv("ATOLL_DATABASE") ? s->config.database : NULL,
		.argv = argv,
		.grace_ms = s->config.upgrade_grace_s * 1000 };
	int r = listening_inherit(&plan.inherited, e);

	if (r < 0)
		return r;
	if (!s->config.no_restart && geteuid() == 0)
		keep_serving(&plan, &s->kept);
	else
		s->kept.listening = plan.inherited;
	return 0;
}

static int serve(struct server *s, char **argv, struct err *e)
{
	int r = be_kept(s, argv, e);

	if (r < 0)
		return r;
	crash_arm(getenv(CRASH_VARIABLE));
	fault_arm(getenv(FAULT_VARIABLE));
	r = follow_keeper(s, e); /* and once more below: giving up root ends it */
	if (r >= 0 && s->config.tls_cert)
		r = renew_new(&s->config, &s->renew, e);
	if (r >= 0)
		r = prepare(&s->config, listening_take(&s->kept.listening), &s->prepared, e);
	if (r >= 0)
		r = open_paths(s, e);
	if (r >= 0)
		r = drop_root(&s->prepared, e);
	if (r >= 0)
		r = follow_keeper(s, e);
	if (r >= 0)
		r = wire(s, e);
	if (r < 0)
		return r;
	raise_file_limit();
	loop_timer_init(&s->trim, s->loop, on_trim, s);
	loop_timer_init(&s->door, s->loop, on_door, s);
	on_trim(s);
	runtime_on_lost(s->runtime, on_warden_lost, s);
	s->is_reconciling = true;
	sandbox_reconcile(s->sandboxes, sandboxes_reconciled, s);
	return loop_run(s->loop, e);
}

int server_main(int argc, char **argv)
{
	struct server s = { .prepared = PREPARED_NONE, .volumes_fd = -EBADF, .kept = KEPT_INIT };
	struct err e = { 0 };
	int r = config_read(argc, argv, environ, &s.config, &e);

	if (r < 0) {
		(void)fprintf(stderr, "atoll: %s\n", e.msg);
		return 2;
	}
	config_hide_env(environ);
	log_init(level_of(s.config.log_level), STDERR_FILENO);
	log_set_format(log_format_find(str_of(s.config.log_format)));
	confine_memory();
	(void)umask(022); /* whatever root's is: the data directory's modes are ours */
	s.on_terminal = isatty(STDOUT_FILENO);
	r = s.config.check ? check_start(&s.config, &e) : serve(&s, argv, &e);
	if (r < 0) {
		(void)fprintf(stderr, "atoll: %s\n", e.msg);
		s.exit_code = 1;
	}
	server_done(&s);
	return s.exit_code;
}
