/* entry - a file as the clients see it (EntryInfo). */
#pragma once

#include "base/base.h"
#include "guest/users.h"
#include "json/json.h"

#include <sys/stat.h>

enum {
	ENTRY_MODE_SIZE = 16
};

/* Go's os.FileMode text: "-rw-r--r--", "dtrwxrwxrwx", "Lrwxrwxrwx", "Dcrw-rw-rw-" ... */
void entry_mode_text(mode_t mode, char out[ENTRY_MODE_SIZE]);
/* Writes the object; `shown` is the path the client is told. -ENOENT and other lstat errors;
 * nothing was written then. The users must be fresh. */
int entry_write(struct jsonw *w, const char *key, const char *path, const char *shown,
	const struct users *users);
/* As entry_write, with the lstat already done. */
void entry_write_stat(struct jsonw *w, const char *key, const char *path, const char *shown,
	const struct users *users, const struct stat *st);
