/* filesystem.Filesystem: single files and directories. What may take long (a deep tree, a directory
 * of a million names) runs as a job; listing lives in listing.c. */
#include "guest/rpc.h"

#include "guest/entry.h"
#include "guest/listing.h"
#include "guest/path.h"
#include "guest/remove.h"

#include <sys/stat.h>

enum {
	ENTRY_MAX_BYTES = 256 << 10
};

struct path_in {
	struct str path;
};
static const struct json_field path_fields[] = {
	JSON_FIELD(struct path_in, path, "path", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape path_shape =
	JSON_SHAPE(struct path_in, path_fields, .ignore_unknown = true);

static bool decode_path(struct rpc *rpc, struct str message, char out[PATH_MAX])
{
	struct path_in in;

	return rpc_decode(rpc, message, &path_shape, &in) && rpc_resolve(rpc, in.path, out);
}

static void fail_stat(struct rpc *rpc, const char *path, int r)
{
	if (r == -ENOENT || r == -ENOTDIR)
		rpc_fail(rpc, CONNECT_NOT_FOUND, "file not found: lstat %s: %s", path,
			r == -ENOENT ? "no such file or directory" : "not a directory");
	else
		rpc_fail(rpc, CONNECT_INTERNAL, "error getting file info: lstat %s: %s", path,
			strerror(-r));
}

static void note_change(struct rpc *rpc, const char *kind, const char *path, const char *to,
	bool is_partly)
{
	activity_file(&rpc->guest->activity, &(struct activity_file){ .asker = guest_asker(rpc->x),
						     .kind = kind,
						     .user = rpc->user.name,
						     .path = path,
						     .to = to,
						     .bytes = -1,
						     .is_partly = is_partly });
}

static void reply_entry(struct rpc *rpc, const char *path)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(ENTRY_MAX_BYTES);
	struct jsonw w;
	int r;

	users_refresh(&rpc->guest->users);
	jsonw_init(&w, &out);
	jsonw_object(&w, NULL);
	r = entry_write(&w, "entry", path, path, &rpc->guest->users);
	jsonw_end_object(&w);
	if (r < 0)
		fail_stat(rpc, path, r);
	else
		rpc_reply(rpc, &out);
}

void rpc_filesystem_stat(struct rpc *rpc, struct str message)
{
	char path[PATH_MAX];

	if (decode_path(rpc, message, path))
		reply_entry(rpc, path);
}

void rpc_filesystem_make_dir(struct rpc *rpc, struct str message)
{
	char path[PATH_MAX];
	struct err e = { 0 };
	struct stat st;

	if (!decode_path(rpc, message, path))
		return;
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			rpc_fail(rpc, CONNECT_ALREADY_EXISTS, "directory already exists: %s", path);
		else
			rpc_fail(rpc, CONNECT_INVALID_ARGUMENT,
				"path already exists but it is not a directory: %s", path);
		return;
	}
	if (path_make_dirs(path, rpc->user.uid, rpc->user.gid, &e) < 0) {
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", e.msg);
		return;
	}
	note_change(rpc, "file.directory_made", path, NULL, false);
	/* A recursive watch must see what the client puts in there next. */
	watch_set_drain(&rpc->guest->watches);
	reply_entry(rpc, path);
}

struct move_in {
	struct str source, destination;
};
static const struct json_field move_fields[] = {
	JSON_FIELD(struct move_in, source, "source", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct move_in, destination, "destination", JSON_STR, .flags = JSON_LAX),
};
static const struct json_shape move_shape =
	JSON_SHAPE(struct move_in, move_fields, .ignore_unknown = true);

void rpc_filesystem_move(struct rpc *rpc, struct str message)
{
	char from[PATH_MAX], to[PATH_MAX], parent[PATH_MAX];
	struct err e = { 0 };
	struct move_in in;

	if (!rpc_decode(rpc, message, &move_shape, &in))
		return;
	if (!rpc_resolve(rpc, in.source, from) || !rpc_resolve(rpc, in.destination, to))
		return;
	path_parent(to, parent);
	if (path_make_dirs(parent, rpc->user.uid, rpc->user.gid, &e) < 0) {
		rpc_fail(rpc, CONNECT_INTERNAL, "%s", e.msg);
		return;
	}
	if (rename(from, to) < 0) {
		int r = errno;

		rpc_fail(rpc, r == ENOENT ? CONNECT_NOT_FOUND : CONNECT_INTERNAL,
			r == ENOENT ? "source file not found: rename %s %s: %s"
				    : "error renaming: rename %s %s: %s",
			from, to, r == ENOENT ? "no such file or directory" : strerror(r));
		return;
	}
	note_change(rpc, "file.moved", from, to, false);
	watch_set_drain(&rpc->guest->watches);
	reply_entry(rpc, to);
}

/* ---- ListDir ---- */

struct list_in {
	struct str path;
	struct json_int depth;
};
static const struct json_field list_fields[] = {
	JSON_FIELD(struct list_in, path, "path", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct list_in, depth, "depth", JSON_INT, .flags = JSON_LAX, .min = 0,
		.max = UINT32_MAX),
};
static const struct json_shape list_shape =
	JSON_SHAPE(struct list_in, list_fields, .ignore_unknown = true);

struct list_call {
	struct rpc *rpc;
	const struct proto_message *codec;
	struct listing listing;
};

static int list_work(void *arg, struct err *e)
{
	struct list_call *call = arg;
	int r = listing_run(&call->listing, e);

	return r < 0 ? r : rpc_encode(call->codec, &call->listing.out, e);
}

static void list_done(void *arg, int r, const struct err *e)
{
	struct list_call *call = arg;
	enum connect_code code = r == -ENOENT    ? CONNECT_NOT_FOUND
				 : r == -ENOTDIR ? CONNECT_INVALID_ARGUMENT
				 : r == -ELOOP   ? CONNECT_FAILED_PRECONDITION
				 : r == -ENOBUFS ? CONNECT_RESOURCE_EXHAUSTED
						 : CONNECT_INTERNAL;

	if (r < 0)
		rpc_fail(call->rpc, code, "%s", e->msg);
	else
		rpc_reply_encoded(call->rpc, &call->listing.out);
	listing_done(&call->listing);
	free(call);
}

void rpc_filesystem_list_dir(struct rpc *rpc, struct str message)
{
	struct list_call *call;
	struct list_in in;
	char path[PATH_MAX];

	if (!rpc_decode(rpc, message, &list_shape, &in) || !rpc_resolve(rpc, in.path, path))
		return;
	call = XNEW(struct list_call);
	call->rpc = rpc;
	call->codec = rpc_codec(rpc);
	listing_init(&call->listing, path, (uint32_t)MAX(in.depth.value, 1));
	loop_job(rpc->guest->loop, LOOP_ANY, list_work, list_done, call);
}

/* ---- Remove ---- */

struct remove_call {
	struct rpc *rpc;
	char path[PATH_MAX];
};

static int remove_work(void *arg, struct err *e)
{
	struct remove_call *call = arg;

	return remove_all(call->path, e);
}

static void remove_done(void *arg, int r, const struct err *e)
{
	struct remove_call *call = arg;

	watch_set_drain(&call->rpc->guest->watches);
	note_change(call->rpc, "file.deleted", call->path, NULL, r < 0);
	if (r < 0)
		rpc_fail(call->rpc, CONNECT_INTERNAL, "error removing file or directory: %s",
			e->msg);
	else
		rpc_reply_empty(call->rpc);
	free(call);
}

void rpc_filesystem_remove(struct rpc *rpc, struct str message)
{
	struct remove_call *call = XNEW(struct remove_call);

	call->rpc = rpc;
	if (decode_path(rpc, message, call->path))
		loop_job(rpc->guest->loop, LOOP_ANY, remove_work, remove_done, call);
	else
		free(call);
}
