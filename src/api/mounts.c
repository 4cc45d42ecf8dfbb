/* The volumes of a new sandbox: `volumes` in the request, `volumeMounts` in E2B's. */
#include "api/api-internal.h"

struct mount_in {
	struct str name, path;
};
static const struct json_field mount_fields[] = {
	JSON_FIELD(struct mount_in, name, "name", JSON_STR, .flags = JSON_REQUIRED),
	JSON_FIELD(struct mount_in, path, "path", JSON_STR, .flags = JSON_REQUIRED),
};
const struct json_shape api_mount_shape = JSON_SHAPE(struct mount_in, mount_fields);

static bool is_taken(const struct sandbox_mount *mounts, size_t n, struct str path)
{
	for (size_t i = 0; i < n; i++)
		if (str_is(path, mounts[i].path))
			return true;
	return false;
}

/* Fills in *ret, or says what is wrong with it. */
static bool read_one(const struct api_call *call, const struct mount_in *in,
	struct sandbox_mount *ret, struct buf *wrong)
{
	const struct volume *v =
		volume_find_name(call->api->config.volumes, &call->volume_owner, in->name);
	const char *problem = runtime_mount_problem(in->path);

	if (!v)
		(void)buf_printf(wrong, "volume '%.*s' not found", STR_ARG(in->name));
	else if (problem)
		(void)buf_adds(wrong, problem);
	if (!v || problem)
		return false;
	(void)snprintf(ret->volume_id, sizeof ret->volume_id, "%s", v->id);
	(void)snprintf(ret->name, sizeof ret->name, "%s", v->name);
	(void)snprintf(ret->path, sizeof ret->path, "%.*s", STR_ARG(in->path));
	return true;
}

/* All that is wrong is said at once, in E2B's words. */
static size_t read_all(const struct api_call *call, const struct json_list *list,
	struct sandbox_mount *mounts, struct buf *wrong)
{
	const struct mount_in *in = list->v;
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++) {
		CLEANUP(buf_done) struct buf why = BUF_INIT(4096);

		if (is_taken(mounts, n, in[i].path))
			(void)buf_printf(&why, "path '%.*s' is already used", STR_ARG(in[i].path));
		else if (read_one(call, &in[i], &mounts[n], &why))
			n++;
		if (why.n)
			(void)buf_printf(wrong, "%s\t- volume mount #%zu: %s",
				wrong->n ? "\n" : "invalid mounts:\n", i, buf_str(&why).p);
	}
	return n;
}

/* What the kernel does not count is not given out again once it is too much: what is in the volume
 * can still be removed, through its content. Answers 429 itself. */
static int check_room(struct api_call *call, const struct sandbox_options *options)
{
	struct volume_book *volumes = call->api->config.volumes;

	for (size_t i = 0; i < options->n_mounts; i++) {
		const struct volume *v = volume_find(volumes, &call->volume_owner,
			str_of(options->mounts[i].volume_id));
		struct err e = { 0 };

		if (!v || volume_check_room(volumes, v, 0, &e) >= 0)
			continue;
		e.code = -EDQUOT;
		api_fail(call, &e);
		return e.code;
	}
	return 0;
}

int api_mounts_read(struct api_call *call, const struct json_list *list,
	struct sandbox_options *options)
{
	CLEANUP(buf_done) struct buf wrong = BUF_INIT(64 << 10);
	struct sandbox_mount *mounts;

	if (list->n == 0)
		return 0;
	if (!api_may(call, ACCESS_VOLUMES)) {
		api_fail_as(call, 403, "missing_scope",
			"volumes are mounted, and this key lacks the scope volumes", NULL);
		return -EPERM;
	}
	mounts = list->n > SANDBOX_MAX_MOUNTS
			 ? NULL
			 : arena_alloc(http_arena(call->x), list->n * sizeof *mounts);
	if (!mounts) {
		api_fail_status(call, 400,
			call->is_v1 ? "too many volumes: a sandbox has 16 at most"
				    : "too many volumeMounts: a sandbox has 16 at most");
		return -EINVAL;
	}
	options->n_mounts = read_all(call, list, mounts, &wrong);
	options->mounts = mounts;
	if (wrong.n == 0)
		return check_room(call, options);
	api_fail_status(call, 400, buf_str(&wrong).p);
	return -EINVAL;
}
