/* atoll-probe: makes every attempt in a process of its own and prints one line for each: family and
 * name, verdict, title, evidence, between tabs. The last line says how many there were. */
#include "attack/attack.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum {
	ATTEMPT_S = 20, /* for one attempt; what takes longer is inconclusive */
	MAX_WANTED = 32,
};

static const struct family *const families[] = { &fds_family, &files_family, &mounts_family,
	&layers_family, &proc_family, &devices_family, &kernel_family, &foreign_family,
	&namespaces_family, &terminal_family, &neighbours_family, &network_family, &frames_family };

struct options {
	struct scene scene;
	const char *wanted[MAX_WANTED]; /* families; none: all of them */
	size_t n_wanted;
	bool serves, lists, says_power;
};

static const char *verdict_name(enum verdict verdict)
{
	switch (verdict) {
	case INCONCLUSIVE:
		return "inconclusive";
	case REFUSED:
		return "refused";
	case CONTAINED:
		return "contained";
	case ESCAPED:
		return "ESCAPED";
	}
	return "inconclusive";
}

/* One attempt that hangs, crashes or kills its own process must not hide the others. */
static void make_attempt(const struct attempt *a, const struct scene *scene, struct finding *f)
{
	int status = 0;
	pid_t pid;

	*f = (struct finding){ .own_kernel = scene->own_kernel,
		.evidence = "it could not be tried" };
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)alarm(ATTEMPT_S);
		a->run(a, scene, f);
		_exit(0);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && f->verdict != ESCAPED) {
		f->verdict = INCONCLUSIVE;
		(void)snprintf(f->evidence, sizeof f->evidence, "ended by signal %d",
			WTERMSIG(status));
	}
}

static void print_clean(const char *text)
{
	for (; *text; text++)
		(void)putchar((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text);
}

static void report(const struct family *family, const struct attempt *a, const struct finding *f)
{
	(void)printf("%s.%s\t%s\t%s\t", family->name, a->name, verdict_name(f->verdict), a->title);
	print_clean(f->evidence);
	if (f->verdict == REFUSED && f->tries > 1)
		(void)printf(" (and %d more)", f->tries - 1);
	(void)putchar('\n');
}

static bool is_wanted(const struct options *o, const char *family)
{
	for (size_t i = 0; i < o->n_wanted; i++)
		if (strcmp(o->wanted[i], family) == 0)
			return true;
	return o->n_wanted == 0;
}

static void attack_all(const struct options *o)
{
	struct finding *f =
		mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	int n = 0;

	if (f == MAP_FAILED)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		for (size_t j = 0; j < families[i]->n; j++) {
			const struct attempt *a = &families[i]->attempts[j];

			if (!is_wanted(o, families[i]->name))
				continue;
			*f = (struct finding){ .evidence = "not made" };
			if (!o->lists)
				make_attempt(a, &o->scene, f);
			report(families[i], a, f);
			n++;
		}
	}
	(void)printf("end\t%d\n", n); /* without this line some are missing */
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
		else if (strcmp(argv[i], "--power") == 0)
			o->says_power = true;
		else if (strcmp(argv[i], "--inside") == 0)
			o->scene.changes_files = true;
		else if (i + 1 == argc || take_option(o, argv[i], argv[i + 1]) < 0)
			return -EINVAL;
		else
			i++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };

	if (parse(argc, argv, &o) < 0) {
		(void)fprintf(stderr,
			"usage: atoll-probe [--list | --serve] [--inside] [--mark TEXT] "
			"[--family NAME]...\n"
			"       [--host ADDRESS]... [--canary-port PORT] [--api-port PORT]\n"
			"       [--neighbour ADDRESS] [--secret PATH] [--path PATH]...\n"
			"       [--host-kernel RELEASE]\n"
			"Tries to leave the sandbox that it runs in; see 'atoll doctor "
			"--attack'.\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	if (o.says_power)
		return say_power();
	if (o.serves)
		return serve_start(&o.scene) < 0;
	attack_all(&o);
	return 0;
}
