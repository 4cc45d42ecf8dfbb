/* volume - files that outlive sandboxes, and their content by path.
 * Owns:   the volumes table and the volumes directory: DIR/.images/<id> is a file system of one
 *         volume, which others make and mount (struct volume_maker); DIR/<id>/ is a plain one.
 * Uses:   base, loop, store, limit, observe.
 * Never:  follows a path out of a volume. What is inside may have been written by a sandbox, so
 *         every path is resolved by the kernel with the volume as its root, and every directory is
 *         reached by descriptor.
 *
 * Sandboxes that have a volume mounted write into it while this room works on it, as any of their
 * users. The server runs where those uids are the same numbers, and may change what is theirs
 * (server/block.c). */
#pragma once

#include "base/base.h"
#include "base/notice.h"
#include "limit/limit.h"
#include "loop/loop.h"
#include "store/store.h"

enum {
	VOLUME_NAME_SIZE = 129,
	VOLUME_AGENT_SIZE = 129,
	VOLUME_TOKEN_SIZE = 2 * SHA256_SIZE + 1,
	VOLUME_MAX_LISTED = 100000, /* entries in one listing */
	VOLUME_MAX_TEXT = 16 << 20, /* what is made of them */
	VOLUME_MAX_DEPTH = 64,
};

struct volume { /* a view: read it, keep nothing of it beyond the callback */
	char id[UUID_SIZE], team_id[UUID_SIZE];
	char name[VOLUME_NAME_SIZE];
	char agent_id[VOLUME_AGENT_SIZE]; /* whose alone it is; empty: the team's */
	int64_t created_us;
	int64_t token_epoch; /* how often its token was replaced */
};

/* Who makes volumes that are file systems of their own, with a limit in the kernel; arg comes
 * first. make: -EOPNOTSUPP where there are none: then the volume is a plain directory. open: its
 * root, and a directory beside it; both are the callee's. */
typedef void (*volume_opened_fn)(void *arg, int r, const int take_fds[2], const struct err *e);
struct volume_maker {
	void (*make)(void *maker, const char *id, int64_t bytes, done_fn done, void *arg);
	void (*open)(void *maker, const char *id, volume_opened_fn fn, void *arg);
	void (*remove)(void *maker, const char *id, done_fn done, void *arg);
	void *arg;
};
#define VOLUME_IMAGES ".images" /* where they are, in the volumes directory */

struct observe_log;
struct volume_book;
struct volume_book_config {
	struct loop *loop;
	struct store *store;
	int dir_fd; /* the volumes directory; taken */
	uint8_t seed[SHA256_SIZE];
	struct limit_teams teams;   /* how many volumes a team may have, and how large */
	struct observe_log *events; /* what is told of full ones; NULL: nobody listens */
	int64_t walk_ms;            /* that measuring one volume may work; 0: two minutes */
	int64_t idle_ms;           /* that an image stays open after its last use; 0: ten seconds */
	struct volume_maker maker; /* all NULL: there are only plain directories */
};
/* Loads the rows; blocking, at start. What a crash left without a row is removed in a job. */
int volume_book_new(const struct volume_book_config *config, struct volume_book **ret,
	struct err *e);
/* Leaves what it does by itself, in the background, to the next start. */
void volume_book_rest(struct volume_book *book);
struct volume_book *volume_book_free(struct volume_book *book);
DEFINE_CLEANUP(struct volume_book, volume_book_free)

/* Who asks. What an agent made is its own and the team's; the team's others do not exist for it. */
struct volume_owner {
	const char *team_id;
	const char *agent_id; /* NULL or empty: all of the team's */
};

typedef void (*volume_fn)(void *arg, int r, const struct volume *volume, const struct err *e);
/* -EINVAL: the name is not of letters, digits, '_' and '-', or taken. -EDQUOT: too many. */
void volume_create(struct volume_book *book, const struct volume_owner *who, struct str name,
	const char *actor, volume_fn fn, void *arg);
/* who NULL: of any team (the content API asks so, and checks the token). NULL: not there. */
const struct volume *volume_find(const struct volume_book *book, const struct volume_owner *who,
	struct str id);
const struct volume *volume_find_name(const struct volume_book *book,
	const struct volume_owner *who, struct str name);
/* Newest first. */
void volume_each(const struct volume_book *book, const struct volume_owner *who,
	void (*fn)(void *arg, const struct volume *volume), void *arg);
/* Done when nobody can reach it any more; its files go in the background. -ENOENT. */
void volume_remove(struct volume_book *book, const struct volume_owner *who, struct str id,
	const char *actor, done_fn done, void *arg);
/* What opens the content of this one volume, until it is replaced. */
void volume_token(const struct volume_book *book, const struct volume *volume,
	char token[VOLUME_TOKEN_SIZE]);
/* Does it? NULL: nothing does, and it takes as long to say so. */
bool volume_opens(const struct volume_book *book, const struct volume *volume, struct str token);
/* Replaces the token: the old one opens nothing any more. -ENOENT. */
void volume_rotate_token(struct volume_book *book, const struct volume_owner *who, struct str id,
	const char *actor, volume_fn fn, void *arg);
/* Tells who goes on with what the token opened when it is replaced, or the volume removed. */
void volume_hold(const struct volume_book *book, const struct volume *volume, struct notice *n,
	loop_fn fn, void *arg);
/* Is this the token of any volume? */
bool volume_is_token(const struct volume_book *book, struct str text);

/* ---- size ---- */
/* Sandboxes write directly, so what is used is measured now and then: soon after it is asked for.
 */
struct volume_use {
	int64_t used_bytes; /* -1: not measured yet */
	int64_t most_bytes;
	bool is_hard; /* the kernel enforces it; else it is measured from time to time */
};
/* Whether the kernel enforces its limit; else it is measured, and later refused. */
bool volume_is_hard(const struct volume_book *book, const struct volume *volume);
void volume_use(struct volume_book *book, const struct volume *volume, struct volume_use *ret);
struct volume_team_use {
	int64_t count, used_bytes;
};
void volume_team_use(const struct volume_book *book, const char *team_id,
	struct volume_team_use *ret);
/* -ENOSPC: with that many bytes more it or its team has too much, as far as is known. */
int volume_check_room(struct volume_book *book, const struct volume *volume, int64_t more_bytes,
	struct err *e);

/* ---- content ---- */
enum volume_type {
	VOLUME_UNKNOWN,
	VOLUME_FILE,
	VOLUME_DIRECTORY,
	VOLUME_SYMLINK,
};
struct volume_entry {
	struct str path, name, target; /* target: of symlinks, as it is written there */
	enum volume_type type;
	int64_t size_bytes, mode, uid, gid;
	int64_t atime_us, mtime_us, ctime_us;
};
/* Where in which volume. Paths are cleaned by name first; `..` never gets above the root. */
struct volume_at {
	const struct volume *volume;
	struct str path;
};
/* -ENOENT: no such path. -EEXIST: something is in the way. -EINVAL: no usable path. -EPERM: its
 * mode does not allow it. -ENOSPC. Every operation ends in one of these callbacks. */
typedef void (*volume_entries_fn)(void *arg, int r, const struct volume_entry *v, size_t n,
	const struct err *e);
void volume_stat(struct volume_book *book, const struct volume_at *at, volume_entries_fn fn,
	void *arg);
/* By name, each directory before what is in it. depth: 1 to VOLUME_MAX_DEPTH. The text is made of
 * the entries in the job: for so many the loop would stand still. -E2BIG: too many, or too long. */
typedef void (*volume_render_fn)(struct buf *out, const struct volume_entry *v, size_t n);
typedef void (*volume_text_fn)(void *arg, int r, struct str text, const struct err *e);
void volume_list(struct volume_book *book, const struct volume_at *at, int depth,
	volume_render_fn render, volume_text_fn fn, void *arg);
enum {
	VOLUME_KEEP = -1,
	VOLUME_MODE_MAX = 01777, /* no set-user-id: nobody inside gets more than they have */
	VOLUME_ID_MAX = 65535,
};
/* VOLUME_KEEP: as it is; a new one is root's and open to all, since whoever runs in a sandbox may
 * be meant to work on it. */
struct volume_attr {
	int mode, uid, gid;
};
void volume_change(struct volume_book *book, const struct volume_at *at,
	const struct volume_attr *attr, volume_entries_fn fn, void *arg);
/* parents: makes what is missing above, and takes a directory that is there. */
void volume_mkdir(struct volume_book *book, const struct volume_at *at,
	const struct volume_attr *attr, bool parents, volume_entries_fn fn, void *arg);
void volume_delete(struct volume_book *book, const struct volume_at *at, done_fn done, void *arg);
/* A descriptor of a regular file, open for reading (taken by fn), and its size. */
typedef void (*volume_open_fn)(void *arg, int fd, int64_t size_bytes, const struct err *e);
void volume_open(struct volume_book *book, const struct volume_at *at, volume_open_fn fn,
	void *arg);

/* A file that is written: nobody sees it before it is whole. */
struct volume_upload;
typedef void (*volume_upload_fn)(void *arg, int r, struct volume_upload *up, const struct err *e);
/* replace: a file may be there already. On success fn owns `up`. */
void volume_upload(struct volume_book *book, const struct volume_at *at,
	const struct volume_attr *attr, bool replace, volume_upload_fn fn, void *arg);
/* Writes the bytes, which must stay until done. One at a time. */
void volume_upload_write(struct volume_upload *up, struct str bytes, done_fn done, void *arg);
/* Puts it into its place; `up` is gone afterwards, whatever comes. */
void volume_upload_finish(struct volume_upload *up, volume_entries_fn fn, void *arg);
void volume_upload_abort(struct volume_upload *up); /* not while a write is under way */
