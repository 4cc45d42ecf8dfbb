#include "cli/attack.h"
#include "cli/doctor.h"

static const struct check_lore lore[] = {
	{ "kernel",
		"the running kernel; what it can do is tried out, never guessed from its number",
		NULL },
	{ "arch", "the processor: the system call filter is made for x86_64 and aarch64",
		"sandboxes cannot be made" },
	{ "memory", "memory that programs can still get",
		"sandboxes may be ended for lack of memory" },
	{ "disk", "free space where the data directory is or would be",
		"templates and sandboxes' files do not fit" },
	{ "inodes", "how many files can still be made there", "no more files can be made" },
	{ "files", "open files one process may have; each sandbox and connection takes a few",
		"fewer sandboxes and connections at a time" },
	{ "git", "git, for tasks that work on repositories", "tasks cannot fetch or push code" },
	{ "mmdebstrap", "mmdebstrap, which makes the base template at the first start",
		"the base template cannot be made; one given by --template-cache works" },
	{ "e2fsprogs", "mkfs.ext4, which makes the disk images of sandboxes and volumes",
		"sandboxes have no disk limit" },
	{ "nftables", "nft, which lays the network rules at the start of the server",
		"sandboxes run only with --network none" },
	{ "names", "whether programs on this machine find names below localhost (getaddrinfo)",
		"Node, Python and others do not reach a sandbox's port by PORT-ID.localhost" },
	{ "authorities",
		"certificate authorities that were added to this machine, and whom sandboxes trust",
		"programs in sandboxes refuse hosts with certificates of these authorities" },
	{ "config", "the env file with the server's address and key",
		"this shell cannot use the server" },
	{ "server", "the server that this shell would speak to, and whether it makes sandboxes",
		NULL },
	{ "key", "the API key that this shell would use", "commands of this shell are refused" },
	{ "port", "the server's port on this machine", "the server cannot listen there" },
	{ "warden", "atoll-warden, the small program with root's rights that makes sandboxes",
		"sandboxes cannot be made on this machine" },
	{ "root",
		"who may make sandboxes: the server, started by root, gives root up but for the "
		"warden",
		"an ordinary user cannot start a server that makes local sandboxes" },
	{ "chroot",
		"the root directory: in a chroot it is not the mount namespace's own, and the "
		"kernel then makes no user namespaces",
		"sandboxes cannot be made" },
	{ "template",
		"the base template: whether it is the one that this version makes, and complete",
		"new sandboxes start from an older one" },
	{ "namespaces", "user and all other namespaces, which make a sandbox its own world",
		"sandboxes cannot be made" },
	{ "overlay", "the overlay file system, which puts a writable layer over a template",
		"sandboxes cannot be made" },
	{ "idmap", "mounts with shifted user ids, so that root inside is nobody outside",
		"sandboxes cannot be made" },
	{ "loop", "loop devices, which give each sandbox and each volume a disk of its own",
		"sandboxes and volumes have no disk limit, and sandboxes are copied more slowly" },
	{ "cgroup", "limits on memory, processors and processes", "sandboxes cannot be limited" },
	{ "pids", "numbers for processes and threads, of which sandboxes get three quarters",
		"a few sandboxes full of processes leave the others none" },
	{ "file-max", "open files that all of this machine may have together (fs.file-max)",
		"one sandbox's memory is enough to open them all, and then nobody opens another" },
	{ "userns", "user namespaces that this machine may have (user.max_user_namespaces)",
		"each sandbox has one, and one that is kept ready too: no more are made" },
	{ "filters", "room for the machine code of system call filters (net.core.bpf_jit_limit)",
		"a few sandboxes can fill it with filters of their own, and then no other is "
		"made" },
	{ "nft", "nftables with address translation, the way out for sandboxes",
		"sandboxes have no network" },
	{ "connlimit",
		"connections are counted by the kernel (nft_connlimit): no sandbox takes the whole "
		"host's table of them",
		"sandboxes' connections have no limit: one alone can fill the host's table, and "
		"then nobody can make another" },
	{ "veth", "virtual network interfaces, a sandbox's own network card",
		"sandboxes have no network" },
	{ "seccomp", "the filter on system calls", "sandboxes cannot be made" },
	{ "memfd", "programs run from memory: how the guest gets into a sandbox without a file",
		"sandboxes cannot be made" },
	{ "gvisor", "runsc, which gives a sandbox a kernel of its own when it is asked for",
		"sandboxes with the runtime 'gvisor' are refused; all others work" },
	{ "runc", "runc, another program that can run sandboxes",
		"sandboxes with the runtime 'runc' are refused; all others work" },
	{ "leftovers",
		"sandboxes of servers whose data directory was removed; no server will ever take "
		"them over",
		"they take memory, processors and disk until they are removed" },
	{ "crun", "crun, another program that can run sandboxes",
		"sandboxes with the runtime 'crun' are refused; all others work" },
};

const struct check_lore *doctor_lore_at(size_t i)
{
	return i < ARRAY_SIZE(lore) ? &lore[i] : NULL;
}

const struct check_lore *doctor_lore(const char *id)
{
	for (size_t i = 0; i < ARRAY_SIZE(lore); i++)
		if (strcmp(lore[i].id, id) == 0)
			return &lore[i];
	return NULL;
}

static const struct {
	const char *name, *mark;
	enum out_style style;
} shown[] = {
	[CHECK_OK] = { "ok", "✓", OUT_GREEN },
	[CHECK_WARN] = { "warn", "!", OUT_YELLOW },
	[CHECK_FAIL] = { "fail", "✖", OUT_RED },
	[CHECK_SKIPPED] = { "skipped", "·", OUT_DIM },
};

/* A server that works is proof enough; without one every needed check must pass. */
static bool is_ready(const struct doctor *d)
{
	if (d->server_works)
		return true;
	for (size_t i = 0; i < d->n; i++)
		if (d->checks[i].status == CHECK_FAIL || d->checks[i].status == CHECK_SKIPPED)
			return false;
	return d->probe_ran;
}

static const char *effect_of(const struct check *c)
{
	const struct check_lore *known = doctor_lore(c->id);

	return c->status == CHECK_WARN || c->status == CHECK_FAIL ? known ? known->effect : NULL
								  : NULL;
}

static void print_check(struct out *out, const struct check *c)
{
	const char *effect = effect_of(c);

	out_marked(out, shown[c->status].style, shown[c->status].mark, " %-11s %s", c->id, c->text);
	if (effect)
		out_line(out, "    effect  %s", effect);
	if (c->fix[0] && c->status != CHECK_SKIPPED)
		out_line(out, "    fix     %s     more: atoll doctor --explain %s", c->fix, c->id);
}

static void print_all(const struct doctor *d)
{
	struct out *out = &d->cli->out;
	bool skipped = false, settable = false;

	for (size_t i = 0; i < d->n; i++) {
		print_check(out, &d->checks[i]);
		skipped = skipped || d->checks[i].status == CHECK_SKIPPED;
		settable = settable || str_has_prefix(str_of(d->checks[i].fix), STR(DOCTOR_SETS));
	}
	if (settable)
		out_line(out, DOCTOR_SETS " sets what the kernel has too little of, now and in %s",
			DOCTOR_SYSCTL_FILE);
	if (skipped)
		out_line(out, "Some of it only root can tell: sudo atoll doctor");
	if (d->server_works)
		out_line(out, "Sandboxes run here.");
	else
		out_line(out, "%s",
			is_ready(d) ? "Sandboxes can be run here: atoll serve"
				    : "Sandboxes cannot be run here as things are.");
}

static void check_members(struct jsonw *w, const struct check *c)
{
	jsonw_strz(w, "id", c->id);
	jsonw_strz(w, "status", shown[c->status].name);
	jsonw_strz(w, "text", c->text);
	jsonw_strz(w, "effect", effect_of(c));
	jsonw_strz(w, "fix", c->fix[0] ? c->fix : NULL);
}

static void json_all(const struct doctor *d)
{
	struct jsonw *w = &d->cli->out.json_writer;

	jsonw_object(w, NULL);
	jsonw_bool(w, "ready", is_ready(d));
	jsonw_bool(w, "root", geteuid() == 0);
	jsonw_array(w, "checks");
	for (size_t i = 0; i < d->n; i++) {
		jsonw_object(w, NULL);
		check_members(w, &d->checks[i]);
		jsonw_end_object(w);
	}
	jsonw_end_array(w);
	jsonw_end_object(w);
	(void)buf_addc(&d->cli->out.text, '\n');
}

static int explain(const struct doctor *d, const char *id)
{
	const struct check_lore *known = doctor_lore(id);
	struct out *out = &d->cli->out;
	const struct check *found = NULL;

	for (size_t i = 0; i < d->n; i++)
		if (strcmp(d->checks[i].id, id) == 0)
			found = &d->checks[i];
	if (out->json) {
		jsonw_object(&out->json_writer, NULL);
		jsonw_strz(&out->json_writer, "what", known->what);
		if (found)
			check_members(&out->json_writer, found);
		jsonw_end_object(&out->json_writer);
		(void)buf_addc(&out->text, '\n');
		return EXIT_OK;
	}
	out_line(out, "%s: %s", id, known->what);
	if (known->effect)
		out_line(out, "If it fails: %s.", known->effect);
	if (found)
		print_check(out, found);
	else
		out_line(out, "There was nothing to check here.");
	return EXIT_OK;
}

static int unknown_id(struct cli *cli, const char *id)
{
	size_t at = (size_t)snprintf(cli->hint, sizeof cli->hint, "one of:");

	for (size_t i = 0; doctor_lore_at(i) && at < sizeof cli->hint; i++)
		at += (size_t)snprintf(cli->hint + at, sizeof cli->hint - at, " %s",
			doctor_lore_at(i)->id);
	return err_set(&cli->e, -EINVAL, "--explain: there is no check '%s'", id);
}

int cmd_doctor(struct cli *cli)
{
	const char *id = args_value(&cli->args, "explain");
	struct doctor d = { .cli = cli };
	int r;

	if (args_has(&cli->args, "attack"))
		return cmd_attack(cli);
	if (id && !doctor_lore(id))
		return unknown_id(cli, id);
	r = args_has(&cli->args, "fix") ? doctor_fix(cli) : 0;
	if (r >= 0 && args_has(&cli->args, "sweep"))
		r = doctor_sweep(cli);
	if (r < 0)
		return r;
	(void)cli_api_open(cli,
		NULL); /* where the data is; what is wrong is told with the server */
	doctor_check_machine(&d);
	doctor_check_settings(&d);
	doctor_check_names(&d);
	doctor_check_trust(&d);
	doctor_probe(&d);
	doctor_check_server(&d);
	if (id)
		return explain(&d, id);
	if (cli->out.json)
		json_all(&d);
	else
		print_all(&d);
	return is_ready(&d) ? EXIT_OK : EXIT_FAILED;
}
