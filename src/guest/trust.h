/* Whom programs in the sandbox trust: the server's own authority, where header rules need it. */
#pragma once

#include "guest/settings.h"

/* Every authority, where OpenSSL and most programs of a Debian look. */
#define TRUST_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
/* Ours alone: update-ca-certificates finds it when it writes the bundle anew. */
#define TRUST_FILE "/usr/local/share/ca-certificates/atoll-egress.crt"

/* Puts the settings' authority in both places, if it is not there yet. What cannot be written is
 * left: programs that need it fail with a certificate that they do not know. */
void trust_install(struct settings *s);
/* For tests: the same elsewhere. *ret_existed: there was a bundle before. */
int trust_write(const char *bundle, const char *file, struct str pem, bool *ret_existed,
	struct err *e);
