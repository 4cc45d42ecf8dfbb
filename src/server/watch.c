#include "server/watch.h"

#include "client/client.h"

enum {
	FLUSH_MS = 2000,
};

struct watch {
	struct loop *loop;
	const struct config *config;
	struct observe_metrics *metrics;
	struct observe_feed *feed;
	struct client *client; /* NULL: no traces are sent, as the next */
	struct observe_traces *traces;
	struct loop_task none;
	done_fn stopped;
	void *stopped_arg;
};

static int open_traces(struct watch *w, struct store *store, const char *node_id, struct err *e)
{
	struct observe_traces_config config = { .loop = w->loop,
		.store = store,
		.feed = w->feed,
		.metrics = w->metrics,
		.prices = &w->config->prices,
		.url = w->config->trace_url,
		.headers = w->config->trace_headers,
		.node_id = node_id };
	int r = client_new(w->loop, &w->client, e);

	config.client = w->client;
	return r < 0 ? r : observe_traces_new(&config, &w->traces, e);
}

static void watch_freep(struct watch **w)
{
	*w = watch_free(*w);
}

int watch_new(struct loop *loop, struct store *store, const struct config *config,
	const struct limit_teams *teams, const char *node_id, struct watch **ret, struct err *e)
{
	CLEANUP(watch_freep) struct watch *w = XNEW(struct watch);
	int r;

	w->loop = loop;
	w->config = config;
	w->metrics = observe_metrics_new();
	r = observe_feed_new(loop, store, w->metrics, &w->feed, e);
	if (r >= 0)
		observe_feed_forget(w->feed, config->history_retention_s, teams);
	if (r >= 0 && config->trace_url)
		r = open_traces(w, store, node_id, e);
	if (r < 0)
		return r;
	*ret = TAKE(w);
	return 0;
}

void watch_tell_api(struct watch *w, struct api_config *api)
{
	api->feed = w->feed;
	api->metrics = w->metrics;
	api->traces = w->traces;
	api->prices = &w->config->prices;
	api->metrics_open = w->config->metrics_open;
}

void watch_close(struct watch *w)
{
	observe_feed_close(w->feed);
}

static void tell_stopped(void *arg)
{
	struct watch *w = arg;

	w->stopped(w->stopped_arg, 0, NULL);
}

void watch_stop(struct watch *w, done_fn done, void *arg)
{
	w->stopped = done;
	w->stopped_arg = arg;
	if (w->traces)
		observe_traces_stop(w->traces, FLUSH_MS, done, arg);
	else
		loop_defer(w->loop, &w->none, tell_stopped, w);
}

struct watch *watch_free(struct watch *w)
{
	if (!w)
		return NULL;
	loop_task_cancel(&w->none);
	w->traces = observe_traces_free(w->traces);
	w->client = client_free(w->client);
	w->feed = observe_feed_free(w->feed);
	w->metrics = observe_metrics_free(w->metrics);
	free(w);
	return NULL;
}
