#include "server/renew.h"

#include <signal.h>

struct renew {
	struct tls_identity *identity;
	struct loop *loop;
	bool running, again; /* a signal that comes meanwhile may be for files written meanwhile */
};

static void tell(const struct renew *renew)
{
	int64_t expires_us = tls_identity_expires_us(renew->identity);
	char until[RFC3339_SIZE];

	time_rfc3339(expires_us, until);
	if (expires_us < time_wall_us())
		log_warn("tls.expired", "certificate_until=%s", until);
	else
		log_info("tls.loaded", "certificate_until=%s", until);
}

int renew_new(const struct config *config, struct renew **ret, struct err *e)
{
	CLEANUP(renew_freep) struct renew *renew = XNEW(struct renew);
	int r = tls_identity_open(config->tls_cert, config->tls_key, &renew->identity, e);

	if (r < 0)
		return r;
	tell(renew);
	*ret = TAKE(renew);
	return 0;
}

struct renew *renew_free(struct renew *renew)
{
	if (!renew)
		return NULL;
	renew->identity = tls_identity_free(renew->identity);
	free(renew);
	return NULL;
}

struct tls_identity *renew_identity(struct renew *renew)
{
	return renew->identity;
}

static void start(struct renew *renew);

static void renewed(void *arg, int r, const struct err *e)
{
	struct renew *renew = arg;

	renew->running = false;
	if (r < 0)
		log_error("tls.reload_failed", "err=%s", log_quote(str_of(e->msg)));
	else
		tell(renew);
	if (renew->again)
		start(renew);
}

static void start(struct renew *renew)
{
	renew->running = true;
	renew->again = false;
	tls_identity_reload(renew->identity, renew->loop, renewed, renew);
}

static void on_hangup(void *arg, int signo)
{
	struct renew *renew = arg;

	(void)signo;
	if (renew->running)
		renew->again = true;
	else
		start(renew);
}

int renew_on_signal(struct renew *renew, struct loop *loop, struct err *e)
{
	renew->loop = loop;
	return loop_signal(loop, SIGHUP, on_hangup, renew, e);
}
