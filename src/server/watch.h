/* Those who watch: the feed of events, metrics and traces, wired to the store and the API. */
#pragma once

#include "api/api.h"
#include "server/config.h"

struct watch;
/* Blocking, at start. */
int watch_new(struct loop *loop, struct store *store, const struct config *config,
	const struct limit_teams *teams, const char *node_id, struct watch **ret, struct err *e);
void watch_tell_api(struct watch *watch, struct api_config *api);
/* The server stops: ends the streams, so that nobody waits for them. */
void watch_close(struct watch *watch);
/* Then, when nothing more happens: sends what traces there are, for a moment at most. */
void watch_stop(struct watch *watch, done_fn done, void *arg);
struct watch *watch_free(struct watch *watch);
