/* The certificate that is served, and SIGHUP, which renews it. */
#pragma once

#include "server/config.h"
#include "tls/tls.h"

struct renew;
/* Still as root: the key is its own. */
int renew_new(const struct config *config, struct renew **ret, struct err *e);
struct renew *renew_free(struct renew *renew);
DEFINE_CLEANUP(struct renew, renew_free)
int renew_on_signal(struct renew *renew, struct loop *loop, struct err *e);
struct tls_identity *renew_identity(struct renew *renew); /* borrowed */
