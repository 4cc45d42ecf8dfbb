/* watch-book - the watchers that clients poll, by id. */
#pragma once

#include "base/list.h"

/* Frees every watcher in guest->watchers. */
void watch_book_done(struct list *book);
