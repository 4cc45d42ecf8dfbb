/* inflate - gzip undone as it comes, in constant memory. */
#pragma once

#include "base/base.h"

struct inflate;
/* Gets the plain bytes, a piece at a time; a negative result stops. */
typedef int (*inflate_fn)(void *arg, struct str bytes, struct err *e);

int inflate_new(inflate_fn fn, void *arg, struct inflate **ret, struct err *e);
struct inflate *inflate_free(struct inflate *z);
int inflate_feed(struct inflate *z, struct str bytes, struct err *e); /* -EPROTO: not gzip */
int inflate_finish(const struct inflate *z, struct err *e);           /* -EPROTO: cut short */
