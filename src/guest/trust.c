#include "guest/trust.h"

#include <sys/stat.h>

#define SHARE_DIR "/usr/local/share/ca-certificates"
#define CERTS_DIR "/etc/ssl/certs"
#define SUDO_DIR "/etc/sudoers.d"

enum {
	BUNDLE_MAX_BYTES = 8 << 20,
	MAX_CERTIFICATES = 512,
	MAX_SAME_HASH = 10,
	PATH_SIZE = 256,
	NAME_SIZE = 40,
};

/* ---- the text ---- */

static bool is_hash(struct str line)
{
	if (line.n != TRUST_HASH_CHARS + 2 || !str_has_prefix(line, STR("# ")))
		return false;
	for (size_t i = 2; i < line.n; i++)
		if (!((line.p[i] >= '0' && line.p[i] <= '9') ||
			    (line.p[i] >= 'a' && line.p[i] <= 'f')))
			return false;
	return true;
}

bool trust_next(struct str *rest, struct trust_certificate *ret)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----";
	static const char end[] = "-----END CERTIFICATE-----";
	const char *from = NULL;
	struct str line;

	*ret = (struct trust_certificate){ 0 };
	while (str_split(rest, '\n', &line)) {
		struct str word = str_trim(line);

		if (word.n && word.p[word.n - 1] == '\r')
			word.n--;
		if (is_hash(word))
			memcpy(ret->hash, word.p + 2, TRUST_HASH_CHARS);
		if (str_is(word, begin))
			from = line.p;
		if (!from || !str_is(word, end))
			continue;
		ret->pem = str_make(from, (size_t)(line.p + line.n - from));
		return true;
	}
	return false;
}

/* ---- files ---- */

/* The files are the sandbox's own and may be anything by now: a FIFO must not make us wait. */
static int open_bundle(const char *path, bool *ret_existed)
{
	int fd = open(path, O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	*ret_existed = fd >= 0;
	if (fd < 0 && errno == ENOENT)
		fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	(void)close(fd);
	return -EINVAL;
}

/* What is not in it yet, in one piece. */
static int append(const char *path, struct str pem, bool *ret_existed, struct err *e)
{
	CLEANUP(buf_done)
	struct buf text = BUF_INIT(BUNDLE_MAX_BYTES), more = BUF_INIT(BUNDLE_MAX_BYTES);
	cleanup_close int fd = open_bundle(path, ret_existed);
	int r = fd < 0 ? fd : fd_read_all(fd, &text);
	struct trust_certificate c;

	if (r < 0)
		return err_sys(e, r, "read %s", path);
	if (text.n && text.p[text.n - 1] != '\n')
		(void)buf_addc(&more, '\n');
	while (trust_next(&pem, &c))
		if (!text.n || !memmem(text.p, text.n, c.pem.p, c.pem.n))
			(void)buf_printf(&more, "%.*s\n", STR_ARG(c.pem));
	if (more.n > 1)
		r = fd_write_all(fd, more.p, more.n);
	return r < 0 ? err_sys(e, r, "write %s", path) : 0;
}

static void make_parents(const char *path)
{
	char part[PATH_SIZE];

	for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		(void)snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
		(void)mkdir(part, 0755);
	}
}

static bool leads_to(const char *path, const char *target)
{
	char was[PATH_SIZE];
	ssize_t n = readlink(path, was, sizeof was - 1);

	if (n < 0)
		return false;
	was[n] = '\0';
	return strcmp(was, target) == 0;
}

/* HASH.0, or HASH.1 ... where another authority has the same. */
static void link_hash(const char *root, const struct trust_certificate *c, const char *target)
{
	char path[PATH_SIZE];

	for (int i = 0; c->hash[0] && i < MAX_SAME_HASH; i++) {
		(void)snprintf(path, sizeof path, "%s" CERTS_DIR "/%s.%d", root, c->hash, i);
		if (symlink(target, path) == 0 || errno != EEXIST || leads_to(path, target))
			return;
	}
}

/* The file that update-ca-certificates takes it from, and the links that it makes. */
static int write_one(const char *root, const struct trust_certificate *c, const char *name,
	struct err *e)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(BUNDLE_MAX_BYTES);
	char file[PATH_SIZE], link[PATH_SIZE], target[64];
	int r;

	(void)buf_printf(&text, "%.*s\n", STR_ARG(c->pem));
	(void)snprintf(file, sizeof file, "%s" SHARE_DIR "/%s.crt", root, name);
	(void)snprintf(link, sizeof link, "%s" CERTS_DIR "/%s.pem", root, name);
	(void)snprintf(target, sizeof target, "%s.pem", name);
	r = file_replace(AT_FDCWD, file, buf_str(&text), 0644, e);
	if (r < 0)
		return r;
	/* Without these links the bundle still has it. */
	(void)!symlink(file + strlen(root), link);
	link_hash(root, c, target);
	return 0;
}

/* Of its files: of its hash, and how many before it have the same; the server's own has none. */
static void name_it(const struct trust_certificate *c, struct str before, char ret[NAME_SIZE])
{
	struct trust_certificate other;
	int n = 1;

	while (trust_next(&before, &other))
		n += strcmp(other.hash, c->hash) == 0;
	(void)snprintf(ret, NAME_SIZE, "atoll-%s", c->hash[0] ? c->hash : "egress");
	if (n > 1)
		(void)snprintf(ret + strlen(ret), NAME_SIZE - strlen(ret), "-%d", n);
}

int trust_write(const char *root, struct str pem, bool *ret_existed, struct err *e)
{
	CLEANUP(buf_done) struct buf all = BUF_INIT(BUNDLE_MAX_BYTES);
	char share[PATH_SIZE], bundle[PATH_SIZE], own[PATH_SIZE], name[NAME_SIZE];
	struct str rest = pem;
	struct trust_certificate c;
	int n = 0, r = 0;

	(void)snprintf(share, sizeof share, "%s" SHARE_DIR "/", root);
	(void)snprintf(bundle, sizeof bundle, "%s" TRUST_BUNDLE, root);
	(void)snprintf(own, sizeof own, "%s" TRUST_OWN, root);
	make_parents(share);
	make_parents(bundle);
	for (; r >= 0 && n < MAX_CERTIFICATES && trust_next(&rest, &c); n++) {
		name_it(&c, str_make(pem.p, (size_t)(c.pem.p - pem.p)), name);
		(void)buf_printf(&all, "%.*s\n", STR_ARG(c.pem));
		r = write_one(root, &c, name, e);
	}
	if (r >= 0 && n == 0)
		r = err_set(e, -EINVAL, "there is no certificate in it");
	if (r >= 0)
		r = file_replace(AT_FDCWD, own, buf_str(&all), 0644, e);
	return r < 0 ? r : append(bundle, pem, ret_existed, e);
}

/* ---- sudo ---- */

/* How programs are told of proxies, mirrors and authorities. */
static const char *const kept[] = { "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy",
	"https_proxy", "no_proxy", "NODE_USE_ENV_PROXY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
	"NPM_CONFIG_REGISTRY", "npm_config_registry", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE" };

void trust_keep_env(const char *root)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(4096);
	char dir[PATH_SIZE], path[PATH_SIZE];

	(void)snprintf(dir, sizeof dir, "%s" SUDO_DIR, root);
	(void)snprintf(path, sizeof path, "%s" SUDO_DIR "/atoll-env", root);
	if (access(dir, F_OK) < 0 || access(path, F_OK) == 0)
		return;
	(void)buf_adds(&text, "Defaults env_keep += \"");
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		(void)buf_printf(&text, "%s%s", i ? " " : "", kept[i]);
	(void)buf_adds(&text, "\"\n");
	/* A name with a dot, as it has until it is whole, is one that sudo does not read. */
	(void)file_replace(AT_FDCWD, path, buf_str(&text), 0440, NULL);
}

static bool has_kept(const struct json_map *env)
{
	for (size_t i = 0; i < env->n; i++)
		for (size_t k = 0; k < ARRAY_SIZE(kept); k++)
			if (str_is(env->v[i].key, kept[k]))
				return true;
	return false;
}

void trust_install(struct settings *s)
{
	struct err e = { 0 };
	bool existed = false;

	if (s->authority || has_kept(&s->env))
		trust_keep_env("");
	if (!s->authority || s->is_trusted)
		return;
	if (trust_write("", str_of(s->authority), &existed, &e) < 0) {
		log_warn("trust.failed", "err=%s", log_quote(str_of(e.msg)));
		return;
	}
	s->is_trusted = true;
	s->has_bundle |= existed;
}
