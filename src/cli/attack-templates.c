/* Hostile templates: trees with symbolic links where the runtime mounts, with devices, with files
 * that never end. That such a small tree works at all is tried first. And a small disk, for uploads
 * that are larger than it. */
#include "cli/attack.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <zlib.h>

enum {
	BOMB_BYTES = 512 << 20,
	BOMB_STEP = 1 << 20,
	PACKED_MAX = 8 << 20,
	START_POLL_US = 20 * 1000,
};

static void plant_devices(const char *rootfs)
{
	char path[HOSTILE_PATH];

	(void)snprintf(path, sizeof path, "%.560s/memory", rootfs);
	(void)mknod(path, S_IFCHR | 0666, makedev(1, 1));
	(void)snprintf(path, sizeof path, "%.560s/disk", rootfs);
	(void)mknod(path, S_IFBLK | 0666, makedev(7, 0));
	(void)snprintf(path, sizeof path, "%.560s/tmp/fuse", rootfs);
	(void)mknod(path, S_IFCHR | 0666, makedev(10, 229));
}

static void plant_fifo(const char *rootfs)
{
	char path[HOSTILE_PATH];

	(void)snprintf(path, sizeof path, "%.560s/etc/passwd", rootfs);
	(void)unlink(path);
	(void)mkfifo(path, 0644);
}

static const struct hostile all[] = {
	{ "templates.plain", "start from a tree with nothing in it", NULL, NULL, NULL, NULL,
		false },
	{ "templates.proc", "have /proc mounted elsewhere by a link", "proc", "%s", NULL, NULL,
		false },
	{ "templates.proc-up", "have /proc mounted above by a link", "proc", "../../../../tmp",
		NULL, NULL, false },
	{ "templates.sys", "have /sys mounted elsewhere by a link", "sys", "%s", NULL, NULL,
		false },
	{ "templates.dev", "have /dev mounted elsewhere by a link", "dev", "%s", NULL, NULL,
		false },
	{ "templates.null", "have a link in the place of /dev/null", "dev/null", "%s/secret", NULL,
		NULL, false },
	{ "templates.pts", "have a link in the place of /dev/pts", "dev/pts", "%s", NULL, NULL,
		false },
	{ "templates.etc", "have /etc lead out by a link", "etc", "%s", NULL, NULL, true },
	{ "templates.run", "have /run lead out by a link", "run", "%s", NULL, NULL, false },
	{ "templates.devices", "bring devices along", NULL, NULL, NULL, plant_devices, false },
	{ "templates.fifo", "have the list of users never end", NULL, NULL, NULL, plant_fifo,
		true },
	{ "templates.workdir", "start above the root", NULL, NULL, "workdir = \"/../../..\"\n",
		NULL, false },
};

/* ---- what a start command is born with ---- */

/* The probe is the only shell there is. */
static void plant_shell(const char *rootfs)
{
	char path[HOSTILE_PATH], probe[HOSTILE_PATH];

	(void)snprintf(path, sizeof path, "%.560s/bin", rootfs);
	(void)mkdir(path, 0755);
	(void)snprintf(path, sizeof path, "%.560s/bin/bash", rootfs);
	(void)snprintf(probe, sizeof probe, "%.560s/tmp/atoll-probe", rootfs);
	(void)!link(probe, path);
}

static bool read_start(struct attack *a, const struct target *target, struct str *ret)
{
	int64_t until_ms = time_now_ms() + ATTACK_HANGS_MS;

	while (time_now_ms() < until_ms) {
		struct attack_answer answer = { 0 };
		struct err e = { 0 };

		if (attack_file(a, target, "GET", "/tmp/atoll-probe-start", STR_NONE, &answer,
			    &e) == 0 &&
			answer.status == 200 && memmem(answer.body.p, answer.body.n, "end\t", 4)) {
			*ret = answer.body;
			return true;
		}
		(void)usleep(START_POLL_US);
	}
	return false;
}

static void try_start(struct attack *a)
{
	static const struct hostile h = { "descriptors.start",
		"find a descriptor that leaked to the start command", NULL, NULL,
		"workdir = \"/tmp\"\nstart = \"fds\"\n", plant_shell, false };
	struct target target = { 0 };
	struct str lines;
	struct err e = { 0 };
	int r = hostile_start(a, &h, "", &target, &e);

	if (r < 0 || !read_start(a, &target, &lines)) {
		attack_say(a, h.name, "root", ATTACK_INCONCLUSIVE, h.title, "%s",
			r < 0 ? e.msg : "the start command says nothing");
	} else {
		size_t from = a->n;

		attack_take_lines(a, lines, "root", "start-");
		attack_fold(a, from, h.name, "root", h.title);
	}
	if (target.id[0])
		(void)cli_sandbox_remove(a->cli, target.id, &e);
	hostile_remove(a, &h);
}

/* ---- trying it ---- */

static void probe_inside(struct attack *a, const struct hostile *h, const struct target *target)
{
	size_t from = a->n;
	char evidence[ATTACK_TEXT];

	attack_inside(a, target, "root", false, "mounts fds files devices neighbours", "hostile-");
	if (h->has_no_users && a->n == from + 1 && a->rows[from].verdict == ATTACK_INCONCLUSIVE) {
		memcpy(evidence, a->rows[from].evidence, sizeof evidence);
		a->n = from;
		attack_say(a, h->name, "client", ATTACK_CONTAINED, h->title,
			"it starts, and nothing runs in it: %s", evidence);
	} else {
		attack_fold(a, from, h->name, "client", h->title);
	}
}

static void try_template(struct attack *a, const struct hostile *h)
{
	struct target target = { 0 };
	struct err e = { 0 };
	int r = hostile_start(a, h, "", &target, &e);

	if (r < 0)
		attack_say(a, h->name, "client",
			h == &all[0] ? ATTACK_INCONCLUSIVE : attack_judge_code(r), h->title, "%s",
			e.msg);
	else
		probe_inside(a, h, &target);
	if (target.id[0])
		(void)cli_sandbox_remove(a->cli, target.id, &e);
	hostile_remove(a, h);
}

/* ---- bombs ---- */

static const int no_room[] = { 507, 413, 0 };

static int pack_zeroes(struct buf *out)
{
	static unsigned char zeroes[BOMB_STEP];
	z_stream z = { 0 };
	int r = deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8,
		Z_DEFAULT_STRATEGY);

	if (r != Z_OK)
		return -ENOMEM;
	for (int64_t left = BOMB_BYTES; r == Z_OK && left > 0; left -= BOMB_STEP) {
		z.next_in = zeroes;
		z.avail_in = BOMB_STEP;
		do {
			char *at = buf_reserve(out, BOMB_STEP);

			if (!at) {
				(void)deflateEnd(&z);
				return -ENOBUFS;
			}
			z.next_out = (unsigned char *)at;
			z.avail_out = BOMB_STEP;
			r = deflate(&z, left > BOMB_STEP ? Z_NO_FLUSH : Z_FINISH);
			out->n += BOMB_STEP - z.avail_out;
		} while (r == Z_OK && z.avail_out == 0);
	}
	(void)deflateEnd(&z);
	return 0;
}

static void throw_bomb(struct attack *a, const struct target *target)
{
	static const char title[] = "fill the machine by an upload that grows when unpacked";
	CLEANUP(buf_done) struct buf packed = BUF_INIT(PACKED_MAX + 2 * BOMB_STEP);
	static const char *const type[] = { "Content-Encoding: gzip",
		"Content-Type: application/octet-stream", NULL };
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	int r = pack_zeroes(&packed);

	if (r == 0)
		r = attack_fetch(a, target,
			&(struct attack_request){ "POST", "/files?username=root&path=/tmp/bomb",
				type, buf_str(&packed) },
			&answer, &e);
	if (!attack_is_alive(a, target))
		attack_say(a, "bombs.gzip", "client", ATTACK_ESCAPED, title,
			"the guest does not answer any more: %s", e.msg);
	else if (attack_judge_status(r, answer.status, no_room) == ATTACK_INCONCLUSIVE)
		attack_say(a, "bombs.gzip", "client", ATTACK_INCONCLUSIVE, title, "status %d %s",
			answer.status, e.msg);
	else if (answer.status / 100 == 2)
		attack_say(a, "bombs.gzip", "client", ATTACK_ESCAPED, title,
			"%d MiB fit on a disk of %d", BOMB_BYTES >> 20, HOSTILE_DISK_MB);
	else
		attack_say(a, "bombs.gzip", "client", ATTACK_REFUSED, title,
			"%zu bytes that become %d MiB on a disk of %d MiB: status %d, and it "
			"serves on",
			packed.n, BOMB_BYTES >> 20, HOSTILE_DISK_MB, answer.status);
}

static void fill_disk(struct attack *a, const struct target *target)
{
	static const char title[] = "fill the machine by a plain upload";
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	size_t size = (size_t)(HOSTILE_DISK_MB + 64) << 20;
	cleanup_free char *zeroes = calloc(1, size);
	int r = zeroes ? attack_file(a, target, "POST", "/tmp/fill", str_make(zeroes, size),
				 &answer, &e)
		       : -ENOMEM;

	if (!attack_is_alive(a, target))
		attack_say(a, "bombs.upload", "client", ATTACK_ESCAPED, title,
			"the guest does not answer any more: %s", e.msg);
	else if (attack_judge_status(r, answer.status, no_room) == ATTACK_INCONCLUSIVE)
		attack_say(a, "bombs.upload", "client", ATTACK_INCONCLUSIVE, title, "status %d %s",
			answer.status, e.msg);
	else if (answer.status / 100 == 2)
		attack_say(a, "bombs.upload", "client", ATTACK_ESCAPED, title,
			"%zu MiB fit on a disk of %d", size >> 20, HOSTILE_DISK_MB);
	else
		attack_say(a, "bombs.upload", "client", ATTACK_REFUSED, title,
			"%zu MiB on a disk of %d MiB: status %d, and it serves on", size >> 20,
			HOSTILE_DISK_MB, answer.status);
}

static void try_bombs(struct attack *a)
{
	static const struct hostile small = { "bombs.gzip", "start with a small disk", NULL, NULL,
		NULL, NULL };
	struct target target = { 0 };
	struct err e = { 0 };
	int r = hostile_start(a, &small, "", &target, &e);

	if (r < 0) {
		attack_say(a, "bombs.gzip", "client", ATTACK_INCONCLUSIVE, small.title, "%s",
			e.msg);
	} else {
		throw_bomb(a, &target);
		fill_disk(a, &target);
		(void)cli_sandbox_remove(a->cli, target.id, &e);
	}
	hostile_remove(a, &small);
}

void attack_templates(struct attack *a)
{
	if (!hostile_is_possible(a)) {
		attack_say(a, "templates.plain", "client", ATTACK_INCONCLUSIVE,
			"start from hostile templates",
			"only root, on the server's machine, who knows where its templates are: "
			"--data DIR or --template-cache DIR");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(all) && !attack_is_stopped(a); i++)
		try_template(a, &all[i]);
	try_start(a);
	try_bombs(a);
}
