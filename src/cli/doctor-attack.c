/* atoll doctor --attack: real sandboxes, attacked from inside and from outside. */
#include "cli/attack.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const struct {
	const char *name;
	enum out_style style;
} shown[] = {
	[ATTACK_ABSENT] = { "absent", OUT_DIM },
	[ATTACK_REFUSED] = { "refused", OUT_GREEN },
	[ATTACK_CONTAINED] = { "contained", OUT_GREEN },
	[ATTACK_INCONCLUSIVE] = { "inconclusive", OUT_YELLOW },
	[ATTACK_ESCAPED] = { "ESCAPED", OUT_RED },
};

/* ---- rows ---- */

struct attack_row *attack_row_add(struct attack *a)
{
	if (a->n == a->cap) {
		size_t cap = a->cap ? 2 * a->cap : 256;
		struct attack_row *grown = reallocarray(a->rows, cap, sizeof *grown);

		if (!grown)
			abort();
		a->rows = grown;
		a->cap = cap;
	}
	a->rows[a->n] = (struct attack_row){ .as = "" };
	return &a->rows[a->n++];
}

/* The same attempt by several ways is one row: that of the way that came furthest. */
static struct attack_row *find_row(struct attack *a, const char *name, const char *as)
{
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->rows[i].name, name) == 0 && strcmp(a->rows[i].as, as) == 0)
			return &a->rows[i];
	return NULL;
}

void attack_say(struct attack *a, const char *name, const char *as, enum attack_verdict verdict,
	const char *title, const char *fmt, ...)
{
	struct attack_row *row = find_row(a, name, as);
	char raw[2 * ATTACK_TEXT];
	va_list ap;

	if (row && row->verdict >= verdict)
		return;
	if (!row)
		row = attack_row_add(a);
	va_start(ap, fmt);
	(void)vsnprintf(raw, sizeof raw, fmt, ap);
	va_end(ap);
	(void)snprintf(row->name, sizeof row->name, "%s", name);
	(void)snprintf(row->title, sizeof row->title, "%s", title);
	row->as = as;
	row->verdict = verdict;
	out_clean(str_of(raw), row->evidence, sizeof row->evidence);
}

void attack_fold(struct attack *a, size_t from, const char *name, const char *as, const char *title)
{
	struct attack_row worst = { .verdict = ATTACK_ABSENT };
	size_t n = a->n - from;

	for (size_t i = from; i < a->n; i++)
		if (a->rows[i].verdict >= worst.verdict)
			worst = a->rows[i];
	a->n = from;
	attack_say(a, name, as, MAX(worst.verdict, ATTACK_CONTAINED), title,
		"of %zu attempts the furthest is %.80s: %.120s", n, worst.name, worst.evidence);
}

enum attack_verdict attack_judge_status(int r, int status, const int *right)
{
	if (r < 0)
		return ATTACK_INCONCLUSIVE;
	if (status / 100 == 2)
		return ATTACK_ESCAPED;
	for (; *right; right++)
		if (status == *right)
			return ATTACK_REFUSED;
	return ATTACK_INCONCLUSIVE;
}

enum attack_verdict attack_judge_code(int r)
{
	return r == -EBADMSG ? ATTACK_REFUSED : ATTACK_INCONCLUSIVE;
}

bool attack_is_stopped(const struct attack *a)
{
	return a->cli->signal_seen != 0;
}

static size_t count(const struct attack *a, enum attack_verdict verdict)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n; i++)
		n += a->rows[i].verdict == verdict;
	return n;
}

/* ---- telling ---- */

static void tell_json(const struct attack *a)
{
	struct jsonw *w = &a->cli->out.json_writer;

	jsonw_object(w, NULL);
	jsonw_strz(w, "server", a->cli->config.api_url);
	jsonw_bool(w, "ownServer", a->rig.is_ours);
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		jsonw_int(w, shown[i].name, (int64_t)count(a, (enum attack_verdict)i));
	jsonw_array(w, "attempts");
	for (size_t i = 0; i < a->n; i++) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "name", a->rows[i].name);
		jsonw_strz(w, "as", a->rows[i].as);
		jsonw_strz(w, "verdict", shown[a->rows[i].verdict].name);
		jsonw_strz(w, "title", a->rows[i].title);
		jsonw_strz(w, "evidence", a->rows[i].evidence);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
	jsonw_end_object(w);
	(void)buf_addc(&a->cli->out.text, '\n');
}

static void tell_lines(const struct attack *a)
{
	struct out *out = &a->cli->out;

	for (size_t i = 0; i < a->n; i++) {
		const struct attack_row *row = &a->rows[i];

		if (out->quiet && row->verdict < ATTACK_INCONCLUSIVE)
			continue;
		if (!out->stdout_tty)
			out_line(out, "%s\t%s\t%s\t%s\t%s", shown[row->verdict].name, row->name,
				row->as, row->title, row->evidence);
		else
			out_marked(out, shown[row->verdict].style, shown[row->verdict].name,
				"%*s%-28s %-8s %s\n%13s%s",
				MAX(13 - (int)strlen(shown[row->verdict].name), 1), "", row->name,
				row->as, row->title, "", row->evidence);
	}
	out_line(out,
		"%zu attempts: %zu refused, %zu contained, %zu absent, %zu inconclusive, "
		"%zu ESCAPED",
		a->n, count(a, ATTACK_REFUSED), count(a, ATTACK_CONTAINED), count(a, ATTACK_ABSENT),
		count(a, ATTACK_INCONCLUSIVE), count(a, ATTACK_ESCAPED));
}

/* ---- what must be known before ---- */

static int find_probe(struct attack *a, struct err *e)
{
	static const char *const places[] = { "atoll-probe", "../libexec/atoll/atoll-probe" };
	char self[CONFIG_VALUE];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (n < 0)
		return err_sys(e, -errno, "find this program");
	self[n] = '\0';
	slash = strrchr(self, '/');
	*(slash ? slash : self) = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		(void)snprintf(a->probe, sizeof a->probe, "%.400s/%s", self, places[i]);
		if (access(a->probe, R_OK) == 0)
			return 0;
	}
	return err_set(e, -ENOENT, "atoll-probe is not beside this program, nor in libexec/atoll");
}

/* Given, or those of the data directory. */
static void find_templates(struct attack *a)
{
	const char *given = args_value(&a->cli->args, "template-cache");
	const char *data = args_value(&a->cli->args, "data");
	char path[CONFIG_VALUE + 32], *whole;

	if (!data)
		data = a->cli->config.data[0] ? a->cli->config.data : "atoll-data";
	if (given)
		(void)snprintf(path, sizeof path, "%s", given);
	else
		(void)snprintf(path, sizeof path, "%s/templates", data);
	whole = realpath(path, NULL);
	if (whole && strlen(whole) < sizeof a->templates - 32) {
		(void)snprintf(a->templates, sizeof a->templates, "%s", whole);
		(void)snprintf(path, sizeof path, "%s/base/rootfs", whole);
		if (access(path, X_OK) < 0)
			a->templates[0] = '\0';
	}
	free(whole);
}

static int make_scratch(struct attack *a, struct err *e)
{
	(void)snprintf(a->scratch, sizeof a->scratch, "/tmp/atoll-attack-XXXXXX");
	if (!mkdtemp(a->scratch) || chmod(a->scratch, 0755) < 0) {
		a->scratch[0] = '\0';
		return err_sys(e, -errno, "make a directory in /tmp");
	}
	random_id(a->mark, ATTACK_MARK);
	(void)snprintf(a->bait, sizeof a->bait, "%.400s/bait", a->scratch);
	(void)snprintf(a->secret, sizeof a->secret, "%.400s/secret", a->bait);
	if (mkdir(a->bait, 0755) < 0)
		return err_sys(e, -errno, "make %s", a->bait);
	return file_replace(AT_FDCWD, a->secret, str_of(a->mark), 0644, e);
}

static void find_hosts(struct attack *a)
{
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all) < 0)
		return;
	for (const struct ifaddrs *i = all; i && a->n_hosts < ATTACK_MAX_HOSTS; i = i->ifa_next) {
		const void *address;

		if (!i->ifa_addr)
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			address =
				&((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
		else if (i->ifa_addr->sa_family == AF_INET6)
			address = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)
					   ->sin6_addr;
		else
			continue;
		if (inet_ntop(i->ifa_addr->sa_family, address, a->hosts[a->n_hosts],
			    sizeof a->hosts[0]))
			a->n_hosts++;
	}
	freeifaddrs(all);
}

/* > 0: the server is on this machine, so the host's side can be looked at, too. */
static uint16_t local_port(const char *url)
{
	static const char *const starts[] = { "http://127.0.0.1:", "http://localhost:",
		"https://127.0.0.1:", "https://localhost:" };

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		struct str rest = str_of(url);
		int64_t port;

		if (str_has_prefix(rest, str_of(starts[i])) &&
			str_to_int(str_from(rest, strlen(starts[i])), 1, 65535, &port) == 0)
			return (uint16_t)port;
	}
	return 0;
}

static int find_server(struct attack *a, struct err *e)
{
	const struct api_request request = { .method = "GET",
		.path = "/health",
		.timeout_ms = 3000 };
	bool own = args_has(&a->cli->args, "own-server");
	struct api_reply reply;
	int r = own ? -ECONNREFUSED : cli_api_call(a->cli, &request, &reply, e);

	if (r < 0 && cli_failure_of(r)->exit == EXIT_UNREACHABLE && geteuid() == 0) {
		out_note(&a->cli->out, "%sstarting a server in namespaces of its own",
			own ? "" : "no server answers: ");
		r = rig_start(a, e);
	} else if (r < 0) {
		r = err_wrap(e, r, "a server is needed, or root to start one");
	}
	a->api_port = r < 0 ? 0 : local_port(a->cli->config.api_url);
	return r;
}

/* ---- the two sandboxes ---- */

/* What is not reached proves something only when others do reach it. */
static int check_neighbour(struct attack *a, struct err *e)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(64 << 10);
	char *script = arena_printf(a->cli->arena,
		"/tmp/atoll-probe --serve --mark %s || exit 9; "
		"echo control >/dev/udp/127.0.0.1/47321; for i in $(seq 40); do "
		"grep -q control /tmp/atoll-probe-heard && break; sleep 0.05; done; "
		"grep -q control /tmp/atoll-probe-heard || exit 8; : >/tmp/atoll-probe-heard; "
		"exec 3<>/dev/tcp/127.0.0.1/47321 && timeout 2 head -c %d <&3",
		a->mark, ATTACK_MARK);
	char shell[] = "/bin/bash", flag[] = "-c";
	char *const argv[] = { shell, flag, script, NULL };
	const struct attack_command command = { .target = &a->neighbour,
		.user = "user",
		.argv = argv };
	int r = attack_exec(a, &command, &out, e);

	if (r < 0)
		return r;
	if (r != 0 || !str_is(buf_str(&out), a->mark))
		return err_set(e, -EIO,
			"the neighbour does not answer even itself (exit status %d)", r);
	r = attack_address(a, &a->neighbour, a->neighbour_address, e);
	return r < 0 ? r : attack_address(a, &a->attacker, a->attacker_address, e);
}

static int make_sandboxes(struct attack *a, struct err *e)
{
	int r = cli_sandbox_make(a->cli, "base", ATTACK_LIFE_S, &a->attacker, e);

	if (r == 0)
		r = cli_sandbox_make(a->cli, "base", ATTACK_LIFE_S, &a->neighbour, e);
	if (r == 0)
		r = attack_inside_prepare(a, &a->attacker, e);
	if (r == 0)
		r = attack_inside_prepare(a, &a->neighbour, e);
	return r < 0 ? r : check_neighbour(a, e);
}

static void remove_sandboxes(struct attack *a)
{
	struct target *all[] = { &a->attacker, &a->neighbour };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i]->id[0])
			(void)cli_sandbox_remove(a->cli, all[i]->id, &(struct err){ 0 });
}

/* ---- all of it ---- */

static void run_inside(struct attack *a)
{
	attack_inside(a, &a->attacker, "user", false, NULL, NULL);
	attack_inside(a, &a->attacker, "root", false, NULL, NULL);
	attack_inside(a, &a->attacker, "root", true, "fds terminal", NULL);
	attack_descriptors(a);
}

static const struct {
	const char *name;
	void (*run)(struct attack *a);
} steps[] = { { "inside", run_inside }, { "files", attack_files }, { "archives", attack_archives },
	{ "edge", attack_edge }, { "framing", attack_framing }, { "clones", attack_clones },
	{ "templates", attack_templates }, { "volumes", attack_volumes }, { "races", attack_races },
	{ "disk", attack_disk }, { "logs", attack_logs }, { "addresses", attack_addresses } };

static int check_only(const struct attack *a, struct err *e)
{
	const char *only = args_value(&a->cli->args, "only");

	for (size_t i = 0; only && i < ARRAY_SIZE(steps); i++)
		if (strcmp(only, steps[i].name) == 0)
			return 0;
	return only ? err_set(e, -EINVAL, "--only: there is no way '%s'", only) : 0;
}

static void run_all(struct attack *a)
{
	const char *only = args_value(&a->cli->args, "only");
	struct host_view *before = attack_host_look(a);

	for (size_t i = 0; i < ARRAY_SIZE(steps) && !attack_is_stopped(a); i++) {
		if (only && strcmp(only, steps[i].name) != 0)
			continue;
		out_note(&a->cli->out, "by way of: %s", steps[i].name);
		steps[i].run(a);
	}
	attack_host_compare(a, before);
}

static int prepare(struct attack *a, struct err *e)
{
	int r = check_only(a, e);

	if (r == 0)
		r = find_probe(a, e);
	if (r == 0)
		r = cli_api_open(a->cli, e);
	if (r == 0)
		r = make_scratch(a, e);
	if (r < 0)
		return r;
	find_templates(a);
	r = find_server(a, e);
	if (r == 0)
		r = cli_catch_signals(a->cli, e);
	if (r < 0)
		return r;
	find_hosts(a);
	if (a->api_port)
		attack_survey(a);
	r = canary_start(a, e);
	return r < 0 ? r : make_sandboxes(a, e);
}

static void tidy(struct attack *a)
{
	remove_sandboxes(a);
	canary_stop(a);
	if (rig_stop(a) && a->scratch[0])
		(void)dir_remove_tree(AT_FDCWD, a->scratch, NULL);
	free(a->rows);
}

int cmd_attack(struct cli *cli)
{
	CLEANUP(tidy) struct attack a = { .cli = cli };
	int r = prepare(&a, &cli->e);

	if (r < 0)
		return r;
	run_all(&a);
	if (attack_is_stopped(&a))
		return EXIT_SIGNAL + cli->signal_seen;
	if (cli->out.json)
		tell_json(&a);
	else
		tell_lines(&a);
	return count(&a, ATTACK_ESCAPED) || count(&a, ATTACK_INCONCLUSIVE) ? EXIT_FAILED : EXIT_OK;
}
