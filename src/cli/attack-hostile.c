/* Templates with a trap in them. Each holds nothing but the probe, so nothing in it helps by
 * accident. */
#include "cli/attack.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	LIFE_S = 120,
};

bool hostile_is_possible(const struct attack *a)
{
	return a->templates[0] && geteuid() == 0 && a->api_port;
}

static void make_parent(const char *rootfs, const char *name)
{
	char path[HOSTILE_PATH];

	(void)snprintf(path, sizeof path, "%.560s/%.60s", rootfs, name);
	(void)mkdir(path, strcmp(name, "tmp") == 0 ? 0777 : 0755);
	if (strcmp(name, "tmp") == 0)
		(void)chmod(path, 01777);
}

static int copy_probe(const struct attack *a, const char *rootfs, struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = BUF_INIT(64 << 20);
	char path[HOSTILE_PATH];
	int r = file_read(AT_FDCWD, a->probe, &bytes, e);

	(void)snprintf(path, sizeof path, "%.560s/tmp/atoll-probe", rootfs);
	return r < 0 ? r : file_replace(AT_FDCWD, path, buf_str(&bytes), 0755, e);
}

static int make_link(const struct attack *a, const char *rootfs, const struct hostile *h,
	struct err *e)
{
	const char *hole = strstr(h->target, "%s");
	char path[HOSTILE_PATH], target[HOSTILE_PATH];

	(void)snprintf(path, sizeof path, "%.560s/%.60s", rootfs, h->link);
	(void)snprintf(target, sizeof target, "%.*s%s%s",
		(int)(hole ? hole - h->target : (ptrdiff_t)strlen(h->target)), h->target,
		hole ? a->bait : "", hole ? hole + 2 : "");
	return symlink(target, path) < 0 ? err_sys(e, -errno, "make %s", path) : 0;
}

/* Its name, which is also that of its directory. */
static void name_of(const struct attack *a, const struct hostile *h, char ret[64])
{
	(void)snprintf(ret, 64, "attack-%.8s-%s", a->mark, strchr(h->name, '.') + 1);
}

static int make_template(struct attack *a, const struct hostile *h, struct err *e)
{
	static const char *const parents[] = { "tmp", "etc", "dev", "run", "proc", "sys" };
	char name[64], dir[HOSTILE_PATH], rootfs[HOSTILE_PATH], path[HOSTILE_PATH + 32], text[256];
	int r = 0;

	name_of(a, h, name);
	(void)snprintf(dir, sizeof dir, "%s/%s", a->templates, name);
	(void)snprintf(rootfs, sizeof rootfs, "%.500s/rootfs", dir);
	if (mkdir(dir, 0755) < 0 || mkdir(rootfs, 0755) < 0)
		return err_sys(e, -errno, "make %s", dir);
	for (size_t i = 0; i < ARRAY_SIZE(parents); i++)
		if (!h->link || strcmp(parents[i], h->link) != 0)
			make_parent(rootfs, parents[i]);
	if (h->link)
		r = make_link(a, rootfs, h, e);
	(void)snprintf(path, sizeof path, "%.560s/etc/passwd", rootfs);
	if (r == 0 && !(h->link && strcmp(h->link, "etc") == 0))
		r = file_replace(AT_FDCWD, path, STR("root:x:0:0:root:/tmp:/bin/sh\n"), 0644, e);
	if (r == 0)
		r = copy_probe(a, rootfs, e);
	if (h->more)
		h->more(rootfs);
	(void)snprintf(path, sizeof path, "%s/template.toml", dir);
	(void)snprintf(text, sizeof text, "user = \"root\"\ndisk_mb = %d\nmemory_mb = 256\n%s",
		HOSTILE_DISK_MB, h->toml ? h->toml : "workdir = \"/tmp\"\n");
	return r < 0 ? r : file_replace(AT_FDCWD, path, str_of(text), 0644, e);
}

static void remove_template(const struct attack *a, const struct hostile *h)
{
	char name[64], dir[HOSTILE_PATH];

	name_of(a, h, name);
	(void)snprintf(dir, sizeof dir, "%s/%s", a->templates, name);
	(void)dir_remove_tree(AT_FDCWD, dir, NULL);
}

/* The links lead to the bait: nothing may have appeared in it. */
static void judge_bait(struct attack *a, const struct hostile *h)
{
	DIR *dir = opendir(a->bait);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && strcmp(entry->d_name, "secret") != 0 &&
			strcmp(entry->d_name, "control") != 0)
			attack_say(a, h->name, "client", ATTACK_ESCAPED, h->title,
				"%.100s appeared on the host", entry->d_name);
	if (dir)
		(void)closedir(dir);
}

int hostile_start(struct attack *a, const struct hostile *h, const char *json_more,
	struct target *ret, struct err *e)
{
	char name[64];
	int r = make_template(a, h, e);

	name_of(a, h, name);
	if (r < 0)
		return err_set(e, -EUCLEAN, "the template could not be made: %s", e->msg);
	return attack_create(a,
		arena_printf(a->cli->arena, "{\"templateID\":\"%s\",\"timeout\":%d%s}", name,
			LIFE_S, json_more),
		ret, e);
}

void hostile_remove(struct attack *a, const struct hostile *h)
{
	judge_bait(a, h);
	remove_template(a, h);
}
