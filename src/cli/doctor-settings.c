/* Settings of the kernel that all sandboxes of a host share: whether they are large enough that a
 * few sandboxes cannot use them up, and --fix, which makes them so. */
#include "cli/doctor.h"

#include <sys/stat.h>

#define SYSCTL_DIR "/etc/sysctl.d"
#define SYSCTL_FILE DOCTOR_SYSCTL_FILE

enum {
	FILE_BYTES = 256, /* the least that an open file costs a sandbox of its memory */
	TEXT_MAX = 16 << 10,
};

/* `least` is what a host needs, or `most` what it bears, and `wanted` what --fix sets. */
struct setting {
	const char *check; /* that warns of it */
	const char *name, *path;
	int64_t least, most, wanted;
	bool is_wardens; /* it makes that check */
};

static int64_t memory_bytes(void)
{
	return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}

enum {
	MAX_SETTINGS = 6,
};

static void all_settings(struct setting out[MAX_SETTINGS])
{
	/* 64 sandboxes of the usual 4,096 processes, of three quarters of all. */
	const int64_t pids = (int64_t)64 * 4096 * 4 / 3, most_pids = 4194304;
	const int64_t files = memory_bytes() / FILE_BYTES;
	const struct setting settings[MAX_SETTINGS] = {
		{ "pids", "kernel.pid_max", "/proc/sys/kernel/pid_max", pids, INT64_MAX, most_pids,
			true },
		{ "pids", "kernel.threads-max", "/proc/sys/kernel/threads-max", pids, INT64_MAX,
			most_pids, true },
		{ "file-max", "fs.file-max", "/proc/sys/fs/file-max", files, INT64_MAX, INT64_MAX,
			false },
		/* Eight sandboxes of 1,024 filters of 56 KiB. */
		{ "filters", "net.core.bpf_jit_limit", "/proc/sys/net/core/bpf_jit_limit",
			(int64_t)8 * 1024 * 56 << 10, INT64_MAX, (int64_t)504 << 20, false },
		/* One of each sandbox, and of each that is kept ready. */
		{ "userns", "user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", 4096,
			INT64_MAX, 65536, false },
		{ "memfd", "vm.memfd_noexec", "/proc/sys/vm/memfd_noexec", 0, 0, 0, true },
	};

	memcpy(out, settings, sizeof settings);
}

/* -ENOENT: this kernel, or this network namespace, has none. */
static int read_setting(const struct setting *s, int64_t *ret)
{
	CLEANUP(buf_done) struct buf text = BUF_INIT(64);
	int r = file_read(AT_FDCWD, s->path, &text, NULL);
	struct str rest = buf_str(&text), line = STR_NONE;

	(void)str_split(&rest, '\n', &line);
	return r < 0 ? r : str_to_int(line, 0, INT64_MAX, ret);
}

static bool is_wrong(const struct setting *s)
{
	int64_t now;

	return read_setting(s, &now) == 0 && (now < s->least || now > s->most);
}

void doctor_check_settings(struct doctor *d)
{
	struct setting settings[MAX_SETTINGS];
	char fix[DOCTOR_TEXT];
	int64_t now;

	all_settings(settings);
	for (size_t i = 0; i < MAX_SETTINGS; i++) {
		const struct setting *s = &settings[i];

		if (s->is_wardens || read_setting(s, &now) < 0)
			continue;
		(void)snprintf(fix, sizeof fix, DOCTOR_SETS ", or sysctl %s=%" PRId64, s->name,
			s->wanted);
		doctor_add(d, s->check, now < s->least ? CHECK_WARN : CHECK_OK, fix,
			"%s is %" PRId64 "%s", s->name, now,
			now < s->least ? ", a few sandboxes can use that up" : "");
	}
}

/* ---- --fix ---- */

/* What the file has of other settings stays. */
static bool is_about(struct str line, const char *name)
{
	struct str key;

	return str_split(&line, '=', &key) && str_is(str_trim(key), name);
}

static int remember(const char *name, int64_t value, struct err *e)
{
	CLEANUP(buf_done) struct buf old = BUF_INIT(TEXT_MAX), text = BUF_INIT(TEXT_MAX);
	struct str rest, line;

	if (file_read(AT_FDCWD, SYSCTL_FILE, &old, NULL) < 0)
		(void)buf_printf(&text, "# Written by 'atoll doctor --fix'.\n");
	rest = buf_str(&old);
	while (str_split(&rest, '\n', &line))
		if (line.n && !is_about(line, name))
			(void)buf_printf(&text, "%.*s\n", STR_ARG(line));
	if (buf_printf(&text, "%s = %" PRId64 "\n", name, value) < 0)
		return err_set(e, -EFBIG, "%s is too large", SYSCTL_FILE);
	if (mkdir(SYSCTL_DIR, 0755) < 0 && errno != EEXIST)
		return err_sys(e, -errno, "make %s", SYSCTL_DIR);
	return file_replace(AT_FDCWD, SYSCTL_FILE, buf_str(&text), 0644, e);
}

static int fix_setting(struct cli *cli, const struct setting *s, struct err *e)
{
	char text[24];
	int64_t before = 0;
	int r;

	(void)read_setting(s, &before);
	(void)snprintf(text, sizeof text, "%" PRId64, s->wanted);
	r = file_write(AT_FDCWD, s->path, str_of(text), e);
	if (r >= 0)
		r = remember(s->name, s->wanted, e);
	if (r < 0)
		return err_wrap(e, r, "set %s", s->name);
	if (!cli->out.json)
		out_line(&cli->out, "set %s = %s (was %" PRId64 "), also in %s", s->name, text,
			before, SYSCTL_FILE);
	return 0;
}

int doctor_fix(struct cli *cli)
{
	struct setting settings[MAX_SETTINGS];
	int n = 0;

	if (geteuid() != 0) {
		(void)snprintf(cli->hint, sizeof cli->hint, "sudo atoll doctor --fix");
		return err_set(&cli->e, -EPERM,
			"--fix: only root may change the kernel's settings");
	}
	all_settings(settings);
	for (size_t i = 0; i < MAX_SETTINGS; i++) {
		struct err e = { 0 };

		if (!is_wrong(&settings[i]))
			continue;
		n++;
		if (fix_setting(cli, &settings[i], &e) >= 0)
			continue;
		/* In a container some are not its own to change. The others are. */
		if (!cli->out.json)
			out_line(&cli->out, "%s", e.msg);
		if (cli->e.code >= 0)
			cli->e = e;
	}
	if (n == 0 && !cli->out.json)
		out_line(&cli->out, "No setting of the kernel needs a change.");
	return cli->e.code;
}
