#include "server/prepare.h"
#include "base/chroot.h"
#include "server/become.h"
#include "server/port.h"
#include "server/program.h"
#include "server/seed.h"
#include "server/template-make.h"
#include "warden/proto.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
	DATA_VERSION = 2,
	LOCK_ATTEMPTS = 8,
};

int prepare_version(int data_fd, struct err *e)
{
	char line[16];
	int n = snprintf(line, sizeof line, "%d\n", DATA_VERSION);

	return file_replace(data_fd, "version", str_make(line, (size_t)n), 0644, e);
}

/* What it is; 0: nobody's yet. */
static int read_version(int data_fd, int64_t *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	int r = file_read(data_fd, "version", &text, NULL);

	*ret = 0;
	if (r == -ENOENT)
		return 0;
	if (text.n && text.p[text.n - 1] == '\n')
		text.n--;
	if (r < 0 || str_to_int(buf_str(&text), 1, INT32_MAX, ret) < 0)
		return err_set(e, -EBADMSG,
			"its file 'version' cannot be read: is this Atoll's directory?");
	if (*ret > DATA_VERSION)
		return err_set(e, -ENOTSUP,
			"it has data of version %" PRId64
			" and this program knows up to %d: start the newer "
			"program, or use another directory",
			*ret, DATA_VERSION);
	return 0;
}

static int open_lock(int data_fd, struct err *e)
{
	int fd = openat(data_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(e, -errno, "open its lock file");
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	(void)close(fd);
	return faccessat(data_fd, PREPARE_HALF, F_OK, AT_SYMLINK_NOFOLLOW) == 0
		       ? err_set(e, -EBUSY, "a backup is just restored into it: wait for its end")
		       : err_set(e, -EBUSY,
				 "another server runs on it: stop that one, or give this one its "
				 "own --data");
}

/* A restore that fails takes the file away, while it has the lock: one that was opened before is
 * nobody's any more. */
int prepare_lock(int data_fd, struct err *e)
{
	struct stat st;

	for (int i = 0; i < LOCK_ATTEMPTS; i++) {
		int fd = open_lock(data_fd, e);

		if (fd < 0 || (fstat(fd, &st) == 0 && st.st_nlink > 0))
			return fd;
		(void)close(fd);
	}
	return err_set(e, -EBUSY, "its lock file is removed again and again");
}

int prepare_check_whole(int data_fd, struct err *e)
{
	return faccessat(data_fd, PREPARE_HALF, F_OK, AT_SYMLINK_NOFOLLOW) == 0
		       ? err_set(e, -EUCLEAN,
				 "a backup was restored into it and not to the end (" PREPARE_HALF
				 " is there): remove all that is in it but 'seed', and restore "
				 "again")
		       : 0;
}

static int open_dir(int data_fd, const char *name, struct err *e)
{
	int fd = openat(data_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, -errno, "open its directory %s", name) : fd;
}

/* Also one that was there: a restored backup may have forgotten modes and owners. */
static int make_dir(int data_fd, const char *name, mode_t mode, uid_t owner, struct err *e)
{
	int r = dir_make(data_fd, name, mode, e);
	cleanup_close int fd = r < 0 ? -EBADF : open_dir(data_fd, name, e);

	if (fd < 0)
		return r < 0 ? r : fd;
	if (fchmod(fd, mode) < 0 || (owner && fchown(fd, owner, owner) < 0))
		return err_sys(e, -errno, "set mode and owner of its directory %s", name);
	return 0;
}

/* The server may pass through the data directory and own its state and the volumes; the rest is the
 * warden's. */
static int make_dirs(const struct prepared *p, struct err *e)
{
	static const struct {
		const char *name;
		mode_t mode;
		uid_t owner; /* 0: root's, or as it is */
	} dirs[] = { { "state", 0700, WARDEN_FIRST_UID }, { "volumes", 0700, WARDEN_FIRST_UID },
		{ "images", 0700, 0 }, { "run", 0711, 0 } };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(dirs); i++)
		r = make_dir(p->data_fd, dirs[i].name, dirs[i].mode, dirs[i].owner, e);
	/* The operator may have put a link there; find_templates closes what it leads to. */
	return r < 0 ? r : dir_make(p->data_fd, "templates", 0750, e);
}

/* Root opens files in it by their names: the server must not be among those who choose them. One
 * with the sticky bit is everybody's by intent, such as /tmp. */
static int close_to_server(int data_fd, struct err *e)
{
	struct stat st;

	if (fstat(data_fd, &st) < 0)
		return err_sys(e, -errno, "look at it");
	if (st.st_mode & S_IWOTH && st.st_mode & S_ISVTX)
		return err_set(e, -EPERM,
			"every user may make files in it: use a directory of its own");
	if (st.st_mode & S_IWOTH && fchmod(data_fd, st.st_mode & 07775) < 0)
		return err_sys(e, -errno, "close it to others");
	if (st.st_uid - WARDEN_FIRST_UID < WARDEN_UID_BLOCK && fchown(data_fd, 0, 0) < 0)
		return err_sys(e, -errno, "take it back from the server's user");
	return 0;
}

/* Version 2 has the seed where the server cannot put another: an older program would make a new
 * one.
 */
static int use_seed(struct prepared *p, int64_t version, struct err *e)
{
	cleanup_close int state = open_dir(p->data_fd, "state", e);
	int r = state < 0 ? state : seed_open(p->data_fd, state, WARDEN_FIRST_UID, p->seed, e);

	return r < 0 || version == DATA_VERSION ? r : prepare_version(p->data_fd, e);
}

static int open_data(const struct config *config, struct prepared *p, struct err *e)
{
	int64_t version = 0;
	int r = dir_make(AT_FDCWD, config->data, 0711, e);

	if (r < 0)
		return r;
	p->data_fd = open(config->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->data_fd < 0)
		return err_sys(e, -errno, "open it");
	r = p->lock_fd = prepare_lock(p->data_fd, e);
	if (r >= 0)
		r = prepare_check_whole(p->data_fd, e);
	if (r >= 0)
		r = close_to_server(p->data_fd, e);
	if (r >= 0)
		r = read_version(p->data_fd, &version, e);
	if (r >= 0)
		r = make_dirs(p, e);
	return r < 0 ? r : use_seed(p, version, e);
}

/* A certificate is made for names: with TLS the URLs use the domain's, and `sandbox.` is the one
 * that takes the E2b-Sandbox-* headers. */
static void set_urls(const struct config *config, struct prepared *p, struct str host, int port)
{
	if (config->tls_cert && config->domain) {
		(void)snprintf(p->url, sizeof p->url, "https://api.%s", p->domain);
		(void)snprintf(p->sandbox_url, sizeof p->sandbox_url, "https://sandbox.%s",
			p->domain);
		return;
	}
	if (config->tls_cert)
		(void)snprintf(p->url, sizeof p->url, "https://localhost:%d", port);
	else
		(void)snprintf(p->url, sizeof p->url, "http://%.*s:%d", STR_ARG(host), port);
	memcpy(p->sandbox_url, p->url, sizeof p->sandbox_url);
}

/* Where clients find us, from the socket itself: the port may have been 0. */
static int learn_address(const struct config *config, struct prepared *p, struct err *e)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t size = sizeof addr;
	struct str host = str_of(config->listen);
	int port;

	if (getsockname(p->listening.fd, (struct sockaddr *)&addr, &size) < 0)
		return err_sys(e, -errno, "read the listening address");
	if (addr.ss_family != AF_INET && addr.ss_family != AF_INET6)
		return err_set(e, -EINVAL, "--listen must be HOST:PORT");
	port = ntohs(addr.ss_family == AF_INET ? ((struct sockaddr_in *)&addr)->sin_port
					       : ((struct sockaddr_in6 *)&addr)->sin6_port);
	while (host.n && host.p[host.n - 1] != ':')
		host.n--;
	host.n -= host.n > 0;
	if (host.n == 0 || str_is(host, "0.0.0.0") || str_is(host, "[::]") || str_is(host, "*"))
		host = STR("127.0.0.1");
	if (config->domain)
		(void)snprintf(p->domain, sizeof p->domain, "%s", config->domain);
	else
		(void)snprintf(p->domain, sizeof p->domain, "localhost:%d", port);
	set_urls(config, p, host, port);
	return 0;
}

/* The key that the env file holds, or a new one when there is no file. */
static int read_key(const struct prepared *p, char key[ACCESS_KEY_SIZE], struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64 << 10);
	static const struct str name = { "E2B_API_KEY=", 12 };
	struct str rest, line;
	int r = file_read(p->data_fd, "env", &text, e);

	if (r == -ENOENT) {
		access_make_key(key);
		return 0;
	}
	if (r < 0)
		return r;
	rest = buf_str(&text);
	while (str_split(&rest, '\n', &line))
		if (str_has_prefix(line, name) && line.n == name.n + ACCESS_KEY_SIZE - 1) {
			memcpy(key, line.p + name.n, ACCESS_KEY_SIZE - 1);
			key[ACCESS_KEY_SIZE - 1] = '\0';
			explicit_bzero(text.p, text.n);
			return 0;
		}
	return err_set(e, -EBADMSG,
		"its file 'env' has no E2B_API_KEY: remove the file to get a new key");
}

static int write_env(const struct prepared *p, struct err *e)
{
	char text[2048];
	int n = snprintf(text, sizeof text,
		"E2B_API_KEY=%s\nE2B_API_URL=%s\nE2B_SANDBOX_URL=%s\nE2B_VOLUME_API_URL=%s\n"
		"E2B_DOMAIN=%s\n",
		p->key, p->url, p->sandbox_url, p->url, p->domain);
	int r = file_replace(p->data_fd, "env", str_make(text, (size_t)n), 0600, e);

	explicit_bzero(text, sizeof text);
	return r;
}

/* Whom its sandboxes trust besides: for who looks whether that is whom this machine trusts. */
static int write_authorities(const struct prepared *p, struct err *e)
{
	struct str text = buf_str(&p->given.authorities);

	if (text.n)
		return file_replace(p->data_fd, "authorities.pem", text, 0644, e);
	if (unlinkat(p->data_fd, "authorities.pem", 0) < 0 && errno != ENOENT)
		return err_sys(e, -errno, "remove its file authorities.pem");
	return 0;
}

/* The operator's token: one line of a file that root alone need be able to read. */
static int read_admin_token(const struct config *config, struct prepared *p, struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(sizeof p->admin_token);
	int r = config->admin_token_file ? file_read(AT_FDCWD, config->admin_token_file, &text, e)
					 : 0;

	while (text.n && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == '\r'))
		text.n--;
	if (r >= 0 && config->admin_token_file &&
		(text.n < 16 || text.n >= sizeof p->admin_token || !str_is_utf8(buf_str(&text))))
		r = err_set(e, -EINVAL, "it must hold one line of 16 to %zu characters",
			sizeof p->admin_token - 1);
	if (r < 0)
		return err_wrap(e, r, "--admin-token-file %s", config->admin_token_file);
	(void)snprintf(p->admin_token, sizeof p->admin_token, "%.*s", STR_ARG(buf_str(&text)));
	if (text.p)
		explicit_bzero(text.p, text.n);
	return 0;
}

static int read_database_password(const struct config *config, struct prepared *p, struct err *e)
{
	const char *path = config->database_password_file;

	return path ? config_read_password(path, p->database_password, sizeof p->database_password,
			      e)
		    : 0;
}

static void exec_warden(int exe_fd, int control_fd, const struct config *config,
	const struct prepared *p, const char *opened)
{
	bool debug = strcmp(config->log_level, "debug") == 0;
	char uid[16], pool[24], disk[24], hold[24], overcommit[24];
	const char *const argv[] = { "atoll-warden", "--data", config->data, "--templates",
		p->templates, "--server-uid", uid, "--network", config->network, "--pool", pool,
		"--disk-mb", disk, "--hold-seconds", hold, "--disk-overcommit", overcommit,
		"--allow-private", opened, debug ? "--debug" : NULL, NULL };
	char crash[128];
	const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", crash, NULL };
	sigset_t none;

	(void)snprintf(crash, sizeof crash, "%s=%s", CRASH_VARIABLE, getenv(CRASH_VARIABLE) ?: "");
	(void)snprintf(uid, sizeof uid, "%u", (unsigned)WARDEN_FIRST_UID);
	(void)snprintf(pool, sizeof pool, "%" PRId64, config->pool);
	(void)snprintf(disk, sizeof disk, "%" PRId64, config->disk_mb);
	(void)snprintf(hold, sizeof hold, "%" PRId64, config->disk_hold_s);
	(void)snprintf(overcommit, sizeof overcommit, "%" PRId64, config->disk_overcommit);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setpgid(0,
		0); /* Ctrl+C is for the server: the warden leaves when its socket closes */
	if (dup2(control_fd, WARDEN_CONTROL_FD) >= 0) {
		if (exe_fd == WARDEN_CONTROL_FD)
			_exit(127); /* cannot be: stdin, stdout, stderr, lock and data come before
				     */
		(void)fexecve(exe_fd, (char *const *)(uintptr_t)argv,
			(char *const *)(uintptr_t)env);
	}
	_exit(127);
}

static int spawn_warden(const struct config *config, struct prepared *p, struct err *e)
{
	CLEANUP(buf_done) struct buf opened = BUF_INIT(PRIVATE_MAX_OPENED * PRIVATE_TEXT_SIZE);
	cleanup_close int exe = -EBADF;
	char path[PROGRAM_PATH_SIZE];
	int pair[2], r;

	(void)buf_adds(&opened, ""); /* terminated, also when it is empty */
	private_list_write(&config->opened, &opened);
	r = program_find_helper("atoll-warden", path, e);
	if (r < 0)
		return r;
	exe = open(path, O_PATH | O_CLOEXEC);
	if (exe < 0)
		return err_sys(e, -errno, "open %s", path);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "make the warden's socket");
	p->warden_pid = fork();
	if (p->warden_pid == 0)
		exec_warden(exe, pair[1], config, p, opened.p);
	(void)close(pair[1]);
	p->warden_fd = pair[0];
	return p->warden_pid < 0 ? err_sys(e, -errno, "start the warden") : 0;
}

/* A template's tree holds setuid programs of its own making: nobody on this host but the server may
 * pass, or they would run here with the host's root. */
static int close_to_others(const char *path, struct err *e)
{
	if (chown(path, 0, WARDEN_FIRST_UID) < 0 || chmod(path, 0750) < 0)
		return err_sys(e, -errno, "close %s to others", path);
	return 0;
}

static int find_templates(const struct config *config, struct prepared *p, struct err *e)
{
	char path[4096];
	int r = 0;

	if (config->template_cache) {
		(void)snprintf(path, sizeof path, "%s", config->template_cache);
		r = dir_make(AT_FDCWD, path, 0750, e);
	} else {
		(void)snprintf(path, sizeof path, "%s/templates", config->data);
	}
	if (r >= 0 && !realpath(path, p->templates))
		r = err_sys(e, -errno, "open %s", path);
	if (r >= 0)
		r = close_to_others(p->templates, e);
	return r < 0 ? r : template_make_base(p->templates, e);
}

static int check_root(struct err *e)
{
	if (geteuid() != 0)
		return err_set(e, -EPERM,
			"making sandboxes needs root to start (it is given up at once): run it "
			"with sudo; atoll doctor says more");
	if (root_is_changed())
		return err_set(e, -EPERM,
			"this is a chroot, and the kernel makes no user namespaces in one: serve "
			"outside of it, or enter the tree by pivot_root, as docs/operations.md "
			"shows and systemd-nspawn does");
	return 0;
}

int prepare(const struct config *config, struct listening take, struct prepared *ret, struct err *e)
{
	struct prepared p = PREPARED_NONE;
	int r = check_root(e);

	p.listening = take;
	if (r < 0) {
		prepared_done(&p);
		return r;
	}
	r = open_data(config, &p, e);
	if (r < 0)
		(void)err_wrap(e, r, "data directory %s", config->data);
	if (r >= 0)
		r = listening_open(&p.listening, config->listen, e);
	if (r == -EADDRINUSE)
		(void)port_explain(config->listen, e);
	if (r >= 0)
		r = learn_address(config, &p, e);
	if (r >= 0)
		r = find_templates(config, &p, e);
	if (r >= 0)
		r = read_key(&p, p.key, e);
	if (r >= 0)
		r = write_env(&p, e);
	if (r >= 0)
		r = read_admin_token(config, &p, e);
	if (r >= 0)
		r = read_database_password(config, &p, e);
	if (r >= 0)
		r = given_read(config, &p.given, e);
	if (r >= 0)
		r = write_authorities(&p, e);
	if (r >= 0)
		r = spawn_warden(config, &p, e);
	if (r < 0) {
		prepared_done(&p);
		return r;
	}
	*ret = p;
	return 0;
}

int prepare_empty(int data_fd, struct err *e)
{
	const struct prepared p = { .data_fd = data_fd };
	int r = close_to_server(data_fd, e);

	return r < 0 ? r : make_dirs(&p, e);
}

int prepare_check(const struct config *config, struct err *e)
{
	struct prepared p = { .data_fd = open(config->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	int64_t version;
	int r = check_root(e);

	if (r >= 0 && p.data_fd < 0 && errno != ENOENT)
		r = err_sys(e, -errno, "data directory %s", config->data);
	if (r >= 0 && p.data_fd >= 0) {
		r = prepare_check_whole(p.data_fd, e);
		if (r >= 0)
			r = read_version(p.data_fd, &version, e);
		if (r < 0)
			(void)err_wrap(e, r, "data directory %s", config->data);
	}
	if (r >= 0)
		r = read_admin_token(config, &p, e);
	if (r >= 0)
		r = read_database_password(config, &p, e);
	if (r >= 0)
		r = given_read(config, &p.given, e);
	given_done(&p.given);
	explicit_bzero(p.admin_token, sizeof p.admin_token);
	explicit_bzero(p.database_password, sizeof p.database_password);
	close_fdp(&p.data_fd);
	return r;
}

void prepared_done(struct prepared *p)
{
	explicit_bzero(p->key, sizeof p->key);
	explicit_bzero(p->admin_token, sizeof p->admin_token);
	explicit_bzero(p->database_password, sizeof p->database_password);
	given_done(&p->given);
	listening_close(&p->listening);
	close_fdp(&p->warden_fd); /* its end of file is the warden's signal to leave */
	if (p->warden_pid > 0)
		(void)waitpid(p->warden_pid, NULL, 0);
	close_fdp(&p->data_fd);
	close_fdp(&p->lock_fd);
}

int drop_root(const struct prepared *p, struct err *e)
{
	cleanup_close int state = open_dir(p->data_fd, "state", e);

	return state < 0 ? state : become_server(state, e);
}
