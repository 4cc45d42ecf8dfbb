/* A port of a sandbox on this machine's loopback: every connection becomes a tunnel of its own to
 * the server's edge. What one of them suffers is told and leaves the others alone; only what no
 * later one could mend ends the command. */
#include "cli/cli-internal.h"
#include "http/http.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>

enum {
	MAX_LINKS = 1000, /* at once */
};

struct forward {
	struct cli *cli;
	const char *url;
	const char *const *headers;
	int port, local_port;
	struct loop_listener listener;
	struct list links;
	size_t n_links;
	int signo;        /* that ended it; 0: none */
	char told[256];   /* the last complaint: it is not repeated for every connection */
	struct err fatal; /* code < 0: the end */
};

struct link {
	struct list node;
	struct forward *forward;
	struct client_tunnel *tunnel;
};

/* What the edge says of a connection that it cannot make. */
struct refusal {
	struct str message;
	struct json_int port; /* set: the sandbox is there, and only this port is closed */
};
static const struct json_field refusal_fields[] = {
	JSON_FIELD(struct refusal, message, "message", JSON_STR, .flags = JSON_LAX),
	JSON_FIELD(struct refusal, port, "port", JSON_INT, .flags = JSON_LAX),
};
static const struct json_shape refusal_shape =
	JSON_SHAPE(struct refusal, refusal_fields, .ignore_unknown = true);

static void complain(struct forward *f, const char *text)
{
	if (f->cli->out.quiet || strncmp(f->told, text, sizeof f->told - 1) == 0)
		return;
	out_clean(str_of(text), f->told, sizeof f->told);
	out_warn(&f->cli->out, "a connection failed: %s", f->told);
}

static void end(struct forward *f, int code, const char *text)
{
	(void)err_set(&f->fatal, code, "%s", text);
	loop_stop(f->cli->loop);
}

static void refused(struct forward *f, int status, struct str body)
{
	struct arena *arena = arena_new(1 << 20);
	struct refusal refusal = { 0 };
	char text[200];

	if (json_decode(arena, body, &refusal_shape, &refusal, NULL) == 0 && refusal.message.n)
		(void)snprintf(text, sizeof text, "%.*s", STR_ARG(refusal.message));
	else
		(void)snprintf(text, sizeof text, "the server answered with status %d", status);
	if (refusal.port.is_set || status == 409 || status == 429 || status == 503 || status == 504)
		complain(f, text);
	else if (status >= 400)
		end(f, cli_api_code_of(status), text);
	else
		end(f, -EPROTO, "the server knows no tunnels");
	arena_free(arena);
}

static void link_end(struct link *link)
{
	client_tunnel_free(link->tunnel);
	list_remove(&link->node);
	link->forward->n_links--;
	free(link);
}

static void on_end(void *arg, struct client_tunnel *tunnel, int r, int status, struct str body,
	const struct err *e)
{
	struct link *link = arg;
	struct forward *f = link->forward;

	(void)tunnel;
	if (r == -EREMOTEIO)
		refused(f, status, body);
	else if (r == -EKEYREJECTED)
		end(f, r, e->msg);
	else if (r < 0 && r != -EPIPE) /* that is the local program's own affair */
		complain(f, e->msg);
	else
		f->told[0] = '\0';
	link_end(link);
}

static void on_connection(void *arg, int fd, const struct sockaddr_storage *peer)
{
	struct forward *f = arg;
	struct client_request request = { .url = f->url, .headers = f->headers };
	struct link *link;

	(void)peer;
	if (f->n_links == MAX_LINKS) {
		complain(f, "there are too many at once");
		(void)close(fd);
		return;
	}
	link = XNEW(struct link);
	link->forward = f;
	list_append(&f->links, &link->node);
	f->n_links++;
	link->tunnel = client_take_tunnel(f->cli->client, &request, "atoll-tcp", fd, on_end, link);
}

static void on_signal(void *arg, int signo)
{
	struct forward *f = arg;

	if (signo == SIGWINCH)
		return;
	f->signo = signo;
	loop_stop(f->cli->loop);
}

static int hear_signals(struct forward *f, struct err *e)
{
	f->cli->on_signal = on_signal;
	f->cli->signal_arg = f;
	return cli_catch_signals(f->cli, e);
}

static int listen_here(struct forward *f, struct err *e)
{
	struct sockaddr_in address = { 0 };
	socklen_t size = sizeof address;
	char text[32];
	int fd;

	(void)snprintf(text, sizeof text, "127.0.0.1:%d", f->local_port);
	fd = http_listen(text, e);
	if (fd < 0) /* this machine's refusal is none of the server's */
		return err_wrap(e, fd == -EACCES ? -EPERM : fd, "--forward");
	if (getsockname(fd, (struct sockaddr *)&address, &size) == 0)
		f->local_port = ntohs(address.sin_port);
	return loop_listener_take(f->cli->loop, &f->listener, fd, on_connection, f, e);
}

/* Every connection takes several. */
static void want_descriptors(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = files.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &files);
}

/* At once: whoever started us waits for it. */
static int announce(struct forward *f, const struct target *target, struct err *e)
{
	struct out *out = &f->cli->out;
	struct jsonw *w = &out->json_writer;
	const char *local = arena_printf(f->cli->arena, "127.0.0.1:%d", f->local_port);

	if (out->json) {
		jsonw_object(w, NULL);
		jsonw_strz(w, "sandboxID", target->id);
		jsonw_int(w, "port", f->port);
		jsonw_strz(w, "local", local);
		jsonw_end_object(w);
		(void)buf_addc(&out->text, '\n');
	} else {
		out_line(out, "%s", local);
		out_note(out, "leads to port %d of %s; Ctrl+C ends it", f->port, target->id);
	}
	return out_flush(out, e);
}

static void forward_done(struct forward *f)
{
	f->cli->on_signal = NULL;
	f->cli->signal_arg = NULL;
	loop_listener_close(&f->listener);
	LIST_EACH(&f->links, node)
	link_end(container_of(node, struct link, node));
}

int forward_run(struct cli *cli, const struct target *target, int port, int local_port)
{
	CLEANUP(forward_done)
	struct forward f = { .cli = cli,
		.port = port,
		.local_port = local_port,
		.listener = { .fd = -EBADF } };
	int r;

	list_init(&f.links);
	f.url = arena_printf(cli->arena, "%s/", cli->config.sandbox_url);
	f.headers = cli_port_headers(cli, target, port, NULL, NULL);
	want_descriptors();
	r = hear_signals(&f, &cli->e);
	if (r == 0)
		r = listen_here(&f, &cli->e);
	if (r == 0)
		r = announce(&f, target, &cli->e);
	if (r == 0)
		r = loop_run(cli->loop, &cli->e);
	if (r == 0 && f.fatal.code < 0)
		cli->e = f.fatal;
	return r < 0 ? r : f.fatal.code < 0 ? f.fatal.code : EXIT_SIGNAL + f.signo;
}
