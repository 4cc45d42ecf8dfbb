/* auth - who may talk to this sandbox: its access token, or a signed file URL. */
#pragma once

#include "base/base.h"

/* Constant in time but for the length. No token in the sandbox: everybody may. */
bool auth_token_matches(const char *token, struct str given);

struct auth_claim {             /* a request for /files */
	struct str given_token; /* X-Access-Token; n 0: absent */
	struct str signature;   /* p NULL: absent */
	struct str expiration;  /* as sent; p NULL: none */
	struct str path, user;
	const char *operation; /* "read", "write" */
};
/* -EACCES with E2B's own words, which its tests compare. */
int auth_file_check(const char *token, const struct auth_claim *claim, int64_t now_s,
	struct err *e);
