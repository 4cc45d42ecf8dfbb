/* metadata - user-defined words about a file, kept in its `user.e2b.` extended attributes. */
#pragma once

#include "base/base.h"
#include "json/json.h"

#define METADATA_PREFIX "user.e2b."

/* Printable ASCII, key lengths, the 4 KiB an inode's attributes have. -EINVAL says which. */
int metadata_check(const struct json_map *m, struct err *e);
/* Makes m the whole set: what is not in it goes. -EOPNOTSUPP: the file system has no attributes. */
int metadata_write(int fd, const struct json_map *m, struct err *e);
/* Writes `"key":{...}` when there is something to write; what is not UTF-8 is left out. */
void metadata_write_json(struct jsonw *w, const char *key, const char *path);
