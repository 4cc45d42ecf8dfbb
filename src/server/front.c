#include "server/front.h"

#include <sys/resource.h>

enum {
	LOOK_MS = 10000,
	STRANGER_BODY_BYTES = 4096,
	FILES_OF_PLAIN = 2, /* a client, and the sandbox that it is passed to; */
	FILES_OF_TLS = 4,   /* under TLS a pair of sockets between the two as well */
};

struct front {
	struct loop *loop;
	const struct http_server *http;
	struct loop_timer timer;
	struct http_admission last;
};

/* A quarter of the descriptors is for everything else: sandboxes, rows, files. */
void front_limits(const struct config *config, struct http_limits *ret)
{
	size_t each = config->tls_cert ? FILES_OF_TLS : FILES_OF_PLAIN;
	struct rlimit files;

	*ret = (struct http_limits){ .stranger_body_bytes = STRANGER_BODY_BYTES,
		.max_connections = (size_t)config->max_connections,
		.max_holder_connections = (size_t)config->max_team_connections,
		.max_queued_bytes = (size_t)config->max_queued_mb << 20 };
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY)
		ret->max_connections = MIN(ret->max_connections,
			MAX((size_t)(files.rlim_cur - files.rlim_cur / 4) / each, (size_t)16));
}

static void on_look(void *arg)
{
	struct front *front = arg;
	struct http_admission *last = &front->last, now;

	http_server_admission(front->http, &now);
	if (now.evicted_strangers > last->evicted_strangers ||
		now.turned_away > last->turned_away || now.refused > last->refused)
		log_warn("http.overloaded",
			"connections=%zu max=%zu strangers=%zu evicted=%" PRIu64 " refused=%" PRIu64
			" turned_away=%" PRIu64,
			now.connections, now.max, now.strangers,
			now.evicted_strangers - last->evicted_strangers,
			now.refused - last->refused, now.turned_away - last->turned_away);
	if (now.cut_unread > last->cut_unread)
		log_warn("http.unread_cut", "replies=%" PRIu64 " bytes=%" PRIu64 " last_holder=%s",
			now.cut_unread - last->cut_unread, now.cut_bytes - last->cut_bytes,
			log_quote(str_of(now.last_cut)));
	*last = now;
	loop_timer_set(&front->timer, loop_now_ms(front->loop) + LOOK_MS);
}

struct front *front_watch(struct loop *loop, const struct http_server *http)
{
	struct front *front = XNEW(struct front);

	front->loop = loop;
	front->http = http;
	loop_timer_init(&front->timer, loop, on_look, front);
	on_look(front);
	return front;
}

struct front *front_free(struct front *front)
{
	if (!front)
		return NULL;
	loop_timer_cancel(&front->timer);
	free(front);
	return NULL;
}
