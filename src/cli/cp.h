/* cp - what the three files of `sandbox cp` share: cmd-cp.c decides what goes where, cp-file.c
 * moves one file through /files, cp-tree.c moves a directory as a tar archive through a command. */
#pragma once

#include "cli/cli-internal.h"

struct cp_entry { /* something in the sandbox */
	bool exists, is_directory;
	struct str path; /* absolute, in the run's arena */
	uint32_t mode;
	int64_t size_bytes;
};

struct cp_sum {
	uint64_t bytes;    /* of files, or of the archive that a tree was sent as */
	uint64_t left_out; /* devices, pipes and links */
};

/* All of them: 0 or -errno with words; a signal that stopped them is -EINTR, its number in
 * cli->signal_seen. */
int cp_stat(struct cli *cli, const struct target *target, const char *path, struct cp_entry *ret,
	struct err *e);
/* The directory and its parents; one that is there is fine. */
int cp_make_directory(struct cli *cli, const struct target *target, const char *path,
	struct cp_entry *ret, struct err *e);

/* fd: a regular file or anything that can be read; size_bytes -1: not known. */
int cp_upload(struct cli *cli, const struct target *target, int fd, int64_t size_bytes,
	const char *path, struct cp_sum *sum, struct err *e);
/* Into fd, which may be a pipe or terminal. */
int cp_download(struct cli *cli, const struct target *target, const struct cp_entry *from, int fd,
	struct cp_sum *sum, struct err *e);

/* The directory's content, without the directory itself. */
int cp_tree_up(struct cli *cli, const struct target *target, const char *local, const char *path,
	struct cp_sum *sum, struct err *e);
/* Into the directory root_fd; links that lead out of it are left out, unless all_links. */
int cp_tree_down(struct cli *cli, const struct target *target, const char *path, int root_fd,
	bool all_links, struct cp_sum *sum, struct err *e);
/* The archive itself: from stdin, to stdout. */
int cp_archive_up(struct cli *cli, const struct target *target, const char *path,
	struct cp_sum *sum, struct err *e);
int cp_archive_down(struct cli *cli, const struct target *target, const char *path, struct err *e);
/* Makes a file in the sandbox executable. */
int cp_make_executable(struct cli *cli, const struct target *target, const char *path,
	struct err *e);
