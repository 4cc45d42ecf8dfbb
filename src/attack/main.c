/* atoll-probe: makes every attempt in a process of its own and prints one line for each: family and
 * name, verdict, title, evidence, between tabs. The last line says how many there were. */
#include "attack/attack.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum {
	ATTEMPT_S = 60, /* for one attempt; what takes longer is inconclusive */
	MAX_WANTED = 32,
	MAX_TRIALS = 256,
	SWAP_S = 60,
};

static const struct family *const families[] = { &fds_family, &files_family, &mounts_family,
	&layers_family, &proc_family, &devices_family, &kernel_family, &foreign_family,
	&memory_family, &namespaces_family, &nested_family, &terminal_family, &neighbours_family,
	&network_family, &frames_family };

struct options {
	struct scene scene;
	const char *wanted[MAX_WANTED]; /* families; none: all of them */
	size_t n_wanted;
	int64_t orphans;   /* files to be kept open without a name */
	const char *swaps; /* this directory, against a link to `link_target` */
	const char *link_target;
	const char *told_in; /* a file instead of stdout */
	bool serves, lists, surveys, says_power;
};

static const char *verdict_name(enum verdict verdict)
{
	switch (verdict) {
	case UNTRIED:
	case INCONCLUSIVE:
		break;
	case ABSENT:
		return "absent";
	case REFUSED:
		return "refused";
	case CONTAINED:
		return "contained";
	case ESCAPED:
		return "ESCAPED";
	}
	return "inconclusive";
}

struct trial {
	const struct family *family;
	const struct attempt *attempt;
	struct finding *f;
	pid_t pid;
};

/* One attempt that hangs, crashes or kills its own process must not hide the others. */
static void trial_start(struct trial *t, const struct scene *scene)
{
	*t->f = (struct finding){ .right = t->attempt->right,
		.scene = scene,
		.is_allowed = scene->nested && t->attempt->nests,
		.evidence = "it could not be tried" };
	t->pid = fork();
	if (t->pid != 0)
		return;
	(void)alarm(ATTEMPT_S);
	t->attempt->run(t->attempt, scene, t->f);
	_exit(0);
}

static void trial_end(struct trial *t)
{
	int status = 0;

	if (t->pid > 0)
		(void)waitpid(t->pid, &status, 0);
	if (WIFSIGNALED(status) && t->f->verdict != ESCAPED) {
		t->f->verdict = INCONCLUSIVE;
		(void)snprintf(t->f->evidence, sizeof t->f->evidence, "ended by signal %d",
			WTERMSIG(status));
	}
}

static void make_in_turn(struct trial *trials, size_t n, bool hoarding, const struct scene *scene)
{
	for (size_t i = 0; i < n; i++) {
		if (trials[i].family->waits || trials[i].family->hoards != hoarding)
			continue;
		trial_start(&trials[i], scene);
		trial_end(&trials[i]);
	}
}

/* Those that wait for answers do so while the others work. */
static void make_attempts(struct trial *trials, size_t n, const struct scene *scene)
{
	for (size_t i = 0; i < n; i++)
		if (trials[i].family->waits)
			trial_start(&trials[i], scene);
	make_in_turn(trials, n, false, scene);
	for (size_t i = 0; i < n; i++)
		if (trials[i].family->waits)
			trial_end(&trials[i]);
	make_in_turn(trials, n, true, scene);
}

static void print_clean(const char *text)
{
	for (; *text; text++)
		(void)putchar((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text);
}

static void report(const struct trial *t)
{
	const struct finding *f = t->f;

	(void)printf("%s.%s\t%s\t%s\t", t->family->name, t->attempt->name, verdict_name(f->verdict),
		t->attempt->title);
	print_clean(f->evidence);
	if (f->verdict == REFUSED && f->tries > 1)
		(void)printf(" (and %d more)", f->tries - 1);
	(void)putchar('\n');
}

/* Which errors are a refusal of it. */
static void describe(const struct attempt *a, struct finding *f)
{
	size_t n = 0;

	(void)snprintf(f->evidence, sizeof f->evidence, "not made; refused by what is seen");
	for (const int *right = a->right; right && *right && n < sizeof f->evidence; right++)
		n += (size_t)snprintf(f->evidence + n, sizeof f->evidence - n, "%s%s",
			n ? " " : "not made; refused by ", strerrorname_np(*right));
}

static bool is_wanted(const struct options *o, const char *family)
{
	for (size_t i = 0; i < o->n_wanted; i++)
		if (strcmp(o->wanted[i], family) == 0)
			return true;
	return o->n_wanted == 0;
}

static size_t plan(const struct options *o, struct finding *findings, struct trial *trials)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		for (size_t j = 0; j < families[i]->n && is_wanted(o, families[i]->name); j++) {
			assert(n < MAX_TRIALS);
			trials[n] = (struct trial){ families[i], &families[i]->attempts[j],
				&findings[n], 0 };
			n++;
		}
	}
	return n;
}

static void attack_all(const struct options *o)
{
	static struct trial trials[MAX_TRIALS];
	struct finding *findings = mmap(NULL, MAX_TRIALS * sizeof *findings, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	size_t n;

	if (findings == MAP_FAILED)
		return;
	n = plan(o, findings, trials);
	if (!o->lists)
		make_attempts(trials, n, &o->scene);
	if (o->told_in && !freopen(o->told_in, "w", stdout))
		return;
	for (size_t i = 0; i < n; i++) {
		if (o->lists)
			describe(trials[i].attempt, trials[i].f);
		report(&trials[i]);
	}
	(void)printf("end\t%zu\n", n); /* without this line some are missing */
}

/* What the attempts look for and this machine does not have: told to the probe inside, by --lacks.
 */
static void survey(void)
{
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		for (size_t j = 0; j < families[i]->n; j++) {
			const char *const *path = families[i]->attempts[j].paths;

			for (; path && *path; path++)
				if (lstat(*path, &st) < 0)
					(void)printf("%s\n", *path);
		}
}

/* What this process may do: asked of copies of the program that were given power (files.c). */
static int say_power(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct held[2] = { 0 };

	if (syscall(SYS_capget, &head, held) < 0)
		return 3;
	return held[0].permitted >> CAP_SYS_ADMIN & 1 ? HAS_POWER : HAS_NONE;
}

static int take_port(const char *text, uint16_t *ret)
{
	int64_t port;

	if (str_to_int(str_of(text), 1, 65535, &port) < 0)
		return -EINVAL;
	*ret = (uint16_t)port;
	return 0;
}

static int take_pid(const char *text, int32_t *ret)
{
	int64_t pid;

	if (str_to_int(str_of(text), 1, INT32_MAX, &pid) < 0)
		return -EINVAL;
	*ret = (int32_t)pid;
	return 0;
}

static int take_option(struct options *o, const char *name, const char *value)
{
	struct scene *s = &o->scene;
	struct utsname kernel;

	if (strcmp(name, "--mark") == 0 && strlen(value) < MARK_SIZE && strlen(value) >= MARK_COMM)
		(void)snprintf(s->mark, sizeof s->mark, "%s", value);
	else if (strcmp(name, "--host") == 0 && s->n_hosts < SCENE_MAX_HOSTS)
		s->hosts[s->n_hosts++] = str_of(value);
	else if (strcmp(name, "--neighbour") == 0)
		s->neighbour = value;
	else if (strcmp(name, "--secret") == 0)
		s->secret_path = value;
	else if (strcmp(name, "--host-kernel") == 0)
		s->own_kernel = uname(&kernel) == 0 && strcmp(kernel.release, value) != 0;
	else if (strcmp(name, "--path") == 0 && s->n_paths < SCENE_MAX_PATHS)
		s->paths[s->n_paths++] = value;
	else if (strcmp(name, "--canary-port") == 0)
		return take_port(value, &s->canary_port);
	else if (strcmp(name, "--api-port") == 0)
		return take_port(value, &s->api_port);
	else if (strcmp(name, "--host-pid") == 0)
		return take_pid(value, &s->host_pid);
	else if (strcmp(name, "--lacks") == 0)
		s->lacks = value;
	else if (strcmp(name, "--orphans") == 0)
		return str_to_int(str_of(value), 1, 1 << 20, &o->orphans);
	else if (strcmp(name, "--swap") == 0)
		o->swaps = value;
	else if (strcmp(name, "--link") == 0)
		o->link_target = value;
	else if (strcmp(name, "--family") == 0 && o->n_wanted < MAX_WANTED)
		o->wanted[o->n_wanted++] = value;
	else
		return -EINVAL;
	return 0;
}

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--serve") == 0)
			o->serves = true;
		else if (strcmp(argv[i], "--list") == 0)
			o->lists = true;
		else if (strcmp(argv[i], "--survey") == 0)
			o->surveys = true;
		else if (strcmp(argv[i], "--power") == 0)
			o->says_power = true;
		else if (strcmp(argv[i], "--inside") == 0)
			o->scene.changes_files = true;
		else if (strcmp(argv[i], "--nested") == 0)
			o->scene.nested = true;
		else if (i + 1 == argc || take_option(o, argv[i], argv[i + 1]) < 0)
			return -EINVAL;
		else
			i++;
	}
	return 0;
}

/* `bash -l -c FAMILY`: in a template that has no other shell a start command is run by us. Nobody
 * reads what that prints. */
static bool is_shell(int argc, char **argv)
{
	const char *slash = argc == 4 ? strrchr(argv[0], '/') : NULL;

	return slash && strcmp(slash, "/bash") == 0 && strcmp(argv[1], "-l") == 0;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };

	if (is_shell(argc, argv)) {
		o.wanted[o.n_wanted++] = argv[3];
		o.told_in = START_PATH;
	} else if (parse(argc, argv, &o) < 0) {
		(void)fprintf(stderr,
			"usage: atoll-probe [--list | --survey | --serve | --orphans N |\n"
			"       --swap DIR --link TARGET]\n"
			"       [--inside] [--nested] [--mark TEXT] [--family NAME]...\n"
			"       [--host ADDRESS]... [--canary-port PORT] [--api-port PORT]\n"
			"       [--neighbour ADDRESS] [--secret PATH] [--path PATH]...\n"
			"       [--host-kernel RELEASE] [--host-pid PID] [--lacks PATH:...]\n"
			"Tries to leave the sandbox that it runs in; see 'atoll doctor "
			"--attack'.\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	if (o.says_power)
		return say_power();
	if (o.surveys)
		survey();
	if (o.orphans)
		return orphans_start(o.orphans) < 0;
	if (o.swaps)
		return swap_start(o.swaps, o.link_target ? o.link_target : "/", SWAP_S) < 0;
	if (o.serves)
		return serve_start(&o.scene) < 0;
	if (!o.surveys)
		attack_all(&o);
	return 0;
}
