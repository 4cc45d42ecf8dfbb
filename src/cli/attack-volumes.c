/* Volumes: directories of the host's disk that sandboxes share. What one sandbox leaves there must
 * give it nothing in another, nothing on the host, and nothing by the API that serves the content.
 */
#include "cli/attack.h"

#include <sys/stat.h>

enum {
	OUTPUT_MAX = 1 << 20,
	LIFE_S = 120,
	NO_RIGHTS = 77,          /* exit status of what was not permitted */
	NOBODY = 65534,          /* what is outside of a user namespace, in it */
	SERVER_UID = 0x70000000, /* what 0 on a volume is on disk */
};

int attack_volume_make(struct attack *a, const char *suffix, struct attack_volume *ret,
	struct err *e)
{
	struct made {
		struct str id, name, token;
	} made = { 0 };
	static const struct json_field fields[] = {
		JSON_FIELD(struct made, id, "volumeID", JSON_STR, .flags = JSON_REQUIRED),
		JSON_FIELD(struct made, name, "name", JSON_STR, .flags = JSON_REQUIRED),
		JSON_FIELD(struct made, token, "token", JSON_STR, .flags = JSON_REQUIRED),
	};
	static const struct json_shape shape =
		JSON_SHAPE(struct made, fields, .ignore_unknown = true);
	struct api_request request = { .method = "POST", .path = "/volumes" };
	struct api_reply reply;
	int r;

	request.body =
		str_of(arena_printf(a->cli->arena, "{\"name\":\"attack-%s-%s\"}", a->mark, suffix));
	r = cli_api_call(a->cli, &request, &reply, e);
	if (r == 0)
		r = json_decode(a->cli->arena, reply.body, &shape, &made, e);
	if (r < 0)
		return r;
	(void)snprintf(ret->id, sizeof ret->id, "%.*s", STR_ARG(made.id));
	(void)snprintf(ret->name, sizeof ret->name, "%.*s", STR_ARG(made.name));
	(void)snprintf(ret->authorization, sizeof ret->authorization, "Authorization: Bearer %.*s",
		STR_ARG(made.token));
	return 0;
}

void attack_volume_remove(struct attack *a, const struct attack_volume *v)
{
	struct api_request request = { .method = "DELETE" };
	struct api_reply reply;

	if (!v->id[0])
		return;
	request.path = arena_printf(a->cli->arena, "/volumes/%s", v->id);
	(void)cli_api_call(a->cli, &request, &reply, &(struct err){ 0 });
}

static const char *mount_json(struct attack *a, const struct attack_volume *v, const char *path)
{
	return arena_printf(a->cli->arena, ",\"volumeMounts\":[{\"name\":\"%s\",\"path\":\"%s\"}]",
		v->name, path);
}

typedef int (*create_fn)(struct attack *a, const char *json, struct target *ret, struct err *e);

static int start_with(struct attack *a, create_fn create, const struct attack_volume *v,
	const char *path, struct target *ret, struct err *e)
{
	return create(a,
		arena_printf(a->cli->arena, "{\"templateID\":\"base\",\"timeout\":%d%s}", LIFE_S,
			mount_json(a, v, path)),
		ret, e);
}

/* ---- files with power ---- */

/* Root of one sandbox leaves programs that should make another's user root. */
static void try_power(struct attack *a, const struct target *planter, const struct target *victim)
{
	static const struct {
		const char *name, *title, *plant, *use, *gained;
	} ways[] = {
		{ "volumes.set-user-id", "gain power by a set-user-id program on a volume",
			"cp /usr/bin/id /data/id && chmod 6755 /data/id",
			"echo =$(/data/id -u)= =$(/data/id -g)=", "=0=" },
		{ "volumes.capabilities", "gain power by file capabilities on a volume",
			"cp /bin/cat /data/cat && python3 -c \"import os,struct,sys\n"
			"try:\n"
			"    os.setxattr('/data/cat','security.capability',"
			"struct.pack('<5I',0x02000001,0x2000,0,0,0))\n"
			"except PermissionError: sys.exit(77)\"",
			"/data/cat /proc/self/status | grep CapEff", "2000" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		CLEANUP(buf_done)
		struct buf out = BUF_INIT(OUTPUT_MAX), used = BUF_INIT(OUTPUT_MAX);
		struct err e = { 0 };
		int r = attack_shell(a, planter, "root", ways[i].plant, &out, &e);

		if (r != 0) {
			attack_say(a, ways[i].name, "root",
				r == NO_RIGHTS ? ATTACK_REFUSED : ATTACK_INCONCLUSIVE,
				ways[i].title, "it cannot even be left there (exit status %d) %s",
				r, e.msg);
			continue;
		}
		r = attack_shell(a, victim, "user", ways[i].use, &used, &e);
		attack_say(a, ways[i].name, "user",
			r != 0 || used.n == 0            ? ATTACK_INCONCLUSIVE
			: strstr(used.p, ways[i].gained) ? ATTACK_ESCAPED
							 : ATTACK_CONTAINED,
			ways[i].title, "it runs (exit status %d) with: %s %s", r, buf_str(&used).p,
			e.msg);
	}
}

/* ---- the content by the API ---- */

static int content(struct attack *a, const struct attack_volume *v, const char *method,
	const char *kind, const char *path, struct attack_answer *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf query = BUF_INIT(16 << 10);
	const char *const headers[] = { v->authorization, "Content-Type: application/octet-stream",
		NULL };
	struct attack_request request = { .method = method, .headers = headers };

	(void)buf_printf(&query, "/volumecontent/%s/%s?path=", v->id, kind);
	(void)percent_encode(str_of(path), &query);
	if (strcmp(method, "PUT") == 0) {
		(void)buf_adds(&query, "&force=true");
		request.body = STR("x");
	}
	request.path = arena_dup(a->cli->arena, buf_str(&query));
	return request.path ? attack_fetch(a, NULL, &request, ret, e) : -ENOMEM;
}

/* A volume that is a file system of its own is no directory of the host's. The server sees what is
 * nobody's of its users as the kernel's nobody. */
static void ask_the_server(struct attack *a, const struct attack_volume *v, const char *title)
{
	struct entry {
		struct json_int uid;
	} entry = { 0 };
	static const struct json_field fields[] = {
		JSON_FIELD(struct entry, uid, "uid", JSON_INT, .min = 0, .max = UINT32_MAX,
			.flags = JSON_REQUIRED),
	};
	static const struct json_shape shape =
		JSON_SHAPE(struct entry, fields, .ignore_unknown = true);
	struct attack_answer answer = { 0 };
	struct err e = { 0 };
	int r = content(a, v, "GET", "path", "/id", &answer, &e);

	if (r >= 0)
		r = json_decode(a->cli->arena, answer.body, &shape, &entry, &e);
	if (r < 0 || answer.status != 200)
		attack_say(a, "volumes.owner", "host", ATTACK_INCONCLUSIVE, title,
			"the server said %d %s", answer.status, e.msg);
	else
		attack_say(a, "volumes.owner", "host",
			entry.uid.value == NOBODY ? ATTACK_ESCAPED : ATTACK_REFUSED, title,
			"what root inside made is user %" PRId64 " of the server's own",
			entry.uid.value);
}

/* On the host's disk nothing may belong to anybody but the server's own users. */
static void look_on_disk(struct attack *a, const struct attack_volume *v)
{
	static const char title[] = "leave a file of the host's root on its disk";
	char path[HOSTILE_PATH + VOLUME_ID];
	struct stat st;

	if (!a->cli->config.data[0] || geteuid() != 0)
		return;
	(void)snprintf(path, sizeof path, "%s/volumes/%s/id", a->cli->config.data, v->id);
	if (lstat(path, &st) < 0 && errno == ENOENT)
		ask_the_server(a, v, title);
	else if (lstat(path, &st) < 0)
		attack_say(a, "volumes.owner", "host", ATTACK_INCONCLUSIVE, title, "%s: %s", path,
			strerrordesc_np(errno));
	else
		attack_say(a, "volumes.owner", "host",
			st.st_uid < SERVER_UID ? ATTACK_ESCAPED : ATTACK_REFUSED, title,
			"what root inside made is user %u's on disk", (unsigned)st.st_uid);
}

/* Nothing there, nothing of that kind, or not to be followed. */
static const int no_way[] = { 400, 403, 404, 409, 0 };

/* Through links that a sandbox left in the volume: the server can read the secret, and must not. */
static void follow_links(struct attack *a, const struct attack_volume *v,
	const struct target *planter)
{
	static const char title[] = "read or write files of the host by links on a volume";
	static const struct {
		const char *method, *kind, *path;
	} calls[] = { { "GET", "file", "/far/secret" }, { "GET", "file", "/secret" },
		{ "GET", "file", "/../../../secret" }, { "GET", "file", "/proc/root/secret" },
		{ "GET", "dir", "/far" }, { "GET", "path", "/far/secret" },
		{ "PUT", "file", "/far/escaped" }, { "PUT", "file", "/new" },
		{ "DELETE", "path", "/far/secret" }, { "POST", "dir", "/far/escaped" } };
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX), secret = BUF_INIT(4096);
	struct err e = { 0 };
	char escape[HOSTILE_PATH];
	struct stat st;
	int r;

	(void)snprintf(escape, sizeof escape, "%s/escaped", a->bait);
	r = attack_shell(a, planter, "root",
		arena_printf(a->cli->arena,
			"cd /data && ln -sfn %s far && ln -sfn %s secret &&"
			" ln -sfn /proc/self proc && ln -sfn %s/escaped new",
			a->bait, a->secret, a->bait),
		&out, &e);
	if (r != 0)
		attack_say(a, "volumes.links", "client", ATTACK_INCONCLUSIVE, title,
			"the links cannot be left there (exit status %d) %s", r, e.msg);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct attack_answer answer = { 0 };
		bool got, wrote;

		r = content(a, v, calls[i].method, calls[i].kind, calls[i].path, &answer, &e);
		got = answer.body.n && memmem(answer.body.p, answer.body.n, a->mark, ATTACK_MARK);
		wrote = lstat(escape, &st) == 0;

		/* What is there is a link: to be looked at and removed, but not to be followed. */
		attack_say(a, "volumes.links", "client",
			got || wrote               ? ATTACK_ESCAPED
			: answer.status / 100 == 2 ? ATTACK_CONTAINED
						   : attack_judge_status(r, answer.status, no_way),
			title, "%s %s %s: status %d %s", calls[i].method, calls[i].kind,
			calls[i].path, answer.status, r < 0 ? e.msg : "");
		(void)unlink(escape);
		(void)rmdir(escape);
	}
	if (file_read(AT_FDCWD, a->secret, &secret, NULL) < 0 || !str_is(buf_str(&secret), a->mark))
		attack_say(a, "volumes.links", "client", ATTACK_ESCAPED, title,
			"the secret is gone");
}

/* Pipes, sockets and endless trees: the server reads volumes itself, and serves everybody. */
static void hang_server(struct attack *a, const struct attack_volume *v,
	const struct target *planter)
{
	static const char title[] = "hang the server by pipes and sockets on a volume";
	static const char *const paths[] = { "/fifo", "/socket", "/loop", "/loop/loop/loop" };
	static const struct {
		const char *method, *kind;
	} calls[] = { { "GET", "file" }, { "PUT", "file" }, { "GET", "path" }, { "GET", "dir" } };
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct err e = { 0 };

	if (attack_shell(a, planter, "root",
		    "cd /data && mkfifo -m 666 fifo && ln -sfn . loop && python3 -c "
		    "\"import socket;socket.socket(socket.AF_UNIX).bind('socket')\" && "
		    "chmod 666 socket",
		    &out, &e) != 0)
		attack_say(a, "volumes.strange", "client", ATTACK_INCONCLUSIVE, title,
			"they cannot be left there: %s", e.msg);
	for (size_t i = 0; i < ARRAY_SIZE(paths) * ARRAY_SIZE(calls); i++) {
		const char *path = paths[i / ARRAY_SIZE(calls)];
		const char *method = calls[i % ARRAY_SIZE(calls)].method;
		struct attack_answer answer = { 0 };
		int64_t began_ms = time_now_ms();
		int r = content(a, v, method, calls[i % ARRAY_SIZE(calls)].kind, path, &answer, &e);
		bool slow = time_now_ms() - began_ms > ATTACK_HANGS_MS;

		attack_say(a, "volumes.strange", "client",
			slow                       ? ATTACK_ESCAPED
			: answer.status / 100 == 2 ? ATTACK_CONTAINED
						   : attack_judge_status(r, answer.status, no_way),
			title, "%s %s: status %d %s", method, path, answer.status,
			slow    ? "after far too long"
			: r < 0 ? e.msg
				: "at once");
	}
}

/* ---- where it is mounted ---- */

static const char target_title[] = "have a volume mounted elsewhere by a symbolic link";

static void try_targets(struct attack *a, const struct attack_volume *v)
{
	static const struct {
		struct hostile template;
		const char *path;
	} traps[] = {
		{ { "volumes.target-far", target_title, "data", "%s", NULL, NULL, false },
			"/data" },
		{ { "volumes.target-above", target_title, "up", "%s", NULL, NULL, false },
			"/up/data" },
		{ { "volumes.target-up", target_title, "up", "../../../../..", NULL, NULL, false },
			"/up/etc/data" },
		{ { "volumes.target-proc", target_title, "data", "/proc", NULL, NULL, false },
			"/data" },
		{ { "volumes.target-self", target_title, "up", "/proc/self/root", NULL, NULL,
			  false },
			"/up/data" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(traps); i++) {
		const struct hostile *h = &traps[i].template;
		struct attack_answer comm = { 0 };
		struct target target = { 0 };
		struct err e = { 0 };
		int r = hostile_start(a, h, mount_json(a, v, traps[i].path), &target, &e);

		if (r == 0)
			r = attack_file(a, &target, "GET", "/proc/1/comm", STR_NONE, &comm, &e);
		if (target.id[0])
			attack_say(a, h->name, "client",
				str_is(comm.body, "atoll-guest\n") ? ATTACK_CONTAINED
								   : ATTACK_ESCAPED,
				target_title, "%s: it starts, and /proc is %s", traps[i].path,
				str_is(comm.body, "atoll-guest\n") ? "its own" : "covered");
		else
			attack_say(a, h->name, "client", attack_judge_code(r), target_title,
				"%s: %s", traps[i].path, e.msg);
		if (target.id[0])
			(void)cli_sandbox_remove(a->cli, target.id, &e);
		hostile_remove(a, h);
	}
}

/* What is found there the next time, after a pause to disk. attack-races.c changes it meanwhile. */
static void change_target(struct attack *a, const struct attack_volume *v)
{
	static const char title[] = "change where a volume is mounted between two starts";
	CLEANUP(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct api_request pause = { .method = "POST", .body = STR("{\"memory\":false}") };
	struct target target = { 0 }, again = { 0 };
	struct api_reply reply;
	struct err e = { 0 };
	char path[HOSTILE_PATH];
	struct stat st;
	int r = start_with(a, attack_create, v, "/deep/er/data", &target, &e);

	if (r == 0)
		r = attack_shell(a, &target, "root",
			arena_printf(a->cli->arena, "mv /deep /other && ln -s %s /deep", a->bait),
			&out, &e);
	pause.path = arena_printf(a->cli->arena, "/sandboxes/%s/pause", target.id);
	if (r == 0)
		r = cli_api_call(a->cli, &pause, &reply, &e);
	if (r != 0) {
		attack_say(a, "volumes.target-changed", "client", ATTACK_INCONCLUSIVE, title,
			"exit status %d %s", r, e.msg);
	} else {
		r = cli_sandbox_wake(a->cli, target.id, &(struct cli_wake){ .timeout_s = 120 },
			&again, &e);
		(void)snprintf(path, sizeof path, "%s/er", a->bait);
		attack_say(a, "volumes.target-changed", "client",
			lstat(path, &st) == 0 ? ATTACK_ESCAPED
			: r < 0               ? attack_judge_code(r)
					      : ATTACK_CONTAINED,
			title, "%s",
			r < 0 ? e.msg : "it starts again, and nothing appeared on the host");
	}
	if (target.id[0])
		(void)cli_sandbox_remove(a->cli, target.id, &e);
}

void attack_volumes(struct attack *a)
{
	struct target planter = { 0 }, victim = { 0 };
	struct attack_volume v = { 0 };
	struct err e = { 0 };
	int r = attack_volume_make(a, "shared", &v, &e);

	if (r == 0)
		r = start_with(a, attack_create_local, &v, "/data", &planter, &e);
	if (r == 0)
		r = start_with(a, attack_create, &v, "/data", &victim, &e);
	if (r < 0) {
		attack_say(a, "volumes.set-user-id", "user", ATTACK_INCONCLUSIVE,
			"share a volume between two sandboxes", "%s", e.msg);
	} else {
		try_power(a, &planter, &victim);
		look_on_disk(a, &v);
		follow_links(a, &v, &planter);
		hang_server(a, &v, &planter);
		change_target(a, &v);
		if (hostile_is_possible(a))
			try_targets(a, &v);
	}
	if (planter.id[0])
		(void)cli_sandbox_remove(a->cli, planter.id, &e);
	if (victim.id[0])
		(void)cli_sandbox_remove(a->cli, victim.id, &e);
	attack_volume_remove(a, &v);
}
