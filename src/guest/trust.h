/* Whom programs in the sandbox trust besides: the operator's authorities, and the server's own
 * where header rules need it. What update-ca-certificates would make of them is made here, so that
 * nothing has to run for it and a later run of it comes to the same. */
#pragma once

#include "guest/settings.h"

/* Every authority, where most programs of a Debian look. */
#define TRUST_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
/* Those of the settings alone: for programs that bring their own list and add a file to it. */
#define TRUST_OWN "/etc/ssl/atoll.pem"

/* Puts the settings' authorities in their places, if they are not there yet. What cannot be written
 * is left: programs that need it fail with a certificate that they do not know. */
void trust_install(struct settings *s);

/* One of a text of several. A line "# HASH" before it is OpenSSL's name for it. */
enum {
	TRUST_HASH_CHARS = 8,
};
struct trust_certificate {
	struct str pem; /* from its first line to the end of its last, in the text */
	char hash[TRUST_HASH_CHARS + 1]; /* hexadecimal digits; empty: not known */
};
/* The next one; false: there is none, or what is left is not whole. */
bool trust_next(struct str *rest, struct trust_certificate *ret);

/* For tests: the same below another root. *ret_existed: there was a bundle before.
 * Programs find those that have a hash by that, too. */
int trust_write(const char *root, struct str pem, bool *ret_existed, struct err *e);

/* The variables that tell programs of proxies, mirrors and authorities. sudo takes all variables
 * away but those it is told to keep: it is told of these, where it is installed. */
void trust_keep_env(const char *root);
