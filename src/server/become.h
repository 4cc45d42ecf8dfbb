/* How root works in a directory that somebody else may write to. What a name leads to there is that
 * other's choice: a link, a pipe without an end, a journal that SQLite finds beside a database and
 * obeys. So root opens nothing in it. It becomes whoever may do the same without being root, and
 * what goes wrong then harms that user alone. */
#pragma once

#include "base/base.h"

/* Where the directory is seen afterwards, in a mount namespace of the process's own: the way to it
 * may be barred to others (below /root, say), and no link on that way matters any more. */
#define STATE_DIR "/mnt"

/* The point of no return: from here on this process is nobody outside of the server's block of uids
 * (block.c), starts no program, and makes files for itself alone. Before any thread. */
int become_server(int dir_fd, struct err *e);

/* Runs fn in a process that has become the one who may write in the directory, and whose working
 * directory it is: its owner; the server, where others than root may write; root only where root
 * alone may. *ret, of that size, comes back as fn left it. For root; the caller's own process stays
 * as it is. */
typedef int (*become_fn)(void *arg, void *ret, struct err *e);
int become_run(int dir_fd, become_fn fn, void *arg, void *ret, size_t size, struct err *e);
