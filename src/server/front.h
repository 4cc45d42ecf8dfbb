/* The one port: how many may be served at once, and telling the operator when that is too few. */
#pragma once

#include "http/http.h"
#include "server/config.h"

/* What the file limit allows of what was configured. */
void front_limits(const struct config *config, struct http_limits *ret);

struct front;
/* Borrows the server. Says in the log, at most once in ten seconds, what was refused and cut. */
struct front *front_watch(struct loop *loop, const struct http_server *http);
struct front *front_free(struct front *front);
