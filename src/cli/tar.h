/* tar - reads an archive that comes in pieces from a machine we do not trust. Only tells what is in
 * it; untar.c decides what becomes of that. POSIX ustar and pax (path, linkpath, size, mtime) and
 * GNU long names are understood; what else changes the meaning of an entry (sparse files) is
 * refused. */
#pragma once

#include "base/base.h"

enum tar_kind {
	TAR_FILE,
	TAR_DIRECTORY,
	TAR_SYMLINK,
	TAR_HARDLINK,
	TAR_SPECIAL, /* devices, pipes: known, and nobody wants them */
};

struct tar_entry {
	enum tar_kind kind;
	const char *path;   /* as in the archive */
	const char *target; /* of a link; else "" */
	uint32_t mode;      /* permission bits only */
	int64_t mtime_s;
	int64_t size_bytes; /* of the data that follows */
};

struct tar_handlers {
	int (*entry)(void *arg, const struct tar_entry *entry, struct err *e);
	int (*data)(void *arg, struct str bytes, struct err *e); /* pieces of size_bytes in all */
	int (*entry_end)(void *arg, struct err *e);
	void *arg;
};

enum {
	TAR_BLOCK = 512,
	TAR_PATH_MAX = 4096,
	TAR_EXTENSION_MAX = 64 << 10, /* a pax header or long name */
};

enum tar_state {
	TAR_IN_HEADER,
	TAR_IN_DATA,
	TAR_IN_EXTENSION, /* data that describes the next entry */
	TAR_IN_PADDING,
	TAR_AT_END,
};

struct tar_reader {
	struct tar_handlers handlers;
	enum tar_state state;
	char block[TAR_BLOCK];
	size_t block_n;
	int64_t left;   /* of data or padding */
	size_t padding; /* after the data */
	char extension_type;
	struct buf extension;
	/* What extensions said of the next entry: "" or negative when they said nothing. */
	char path[TAR_PATH_MAX], target[TAR_PATH_MAX];
	int64_t size_bytes, mtime_s;
};

void tar_reader_init(struct tar_reader *t, const struct tar_handlers *handlers);
void tar_reader_done(struct tar_reader *t);
/* -EPROTO for what is no archive, or a handler's own error. */
int tar_reader_feed(struct tar_reader *t, struct str bytes, struct err *e);
/* At the end of the bytes: -EPROTO unless the archive was whole. */
int tar_reader_finish(const struct tar_reader *t, struct err *e);
