/* Signed file URLs: who holds a sandbox's token can make an address that opens one file without it.
 * The signature is "v1_" and the unpadded base64 of SHA-256 over
 *     path ":" operation ":" user ":" token            [":" expiration, in seconds since 1970]
 * What stands before the token is hashed once, so that trying it with many tokens is cheap however
 * long the path is. */
#pragma once

#include "base/str.h"

#include <sodium.h>

enum {
	SIGN_SIZE = 47 /* "v1_", 43 characters, NUL */
};

struct sign_claim {
	struct str path, user; /* as in the query, decoded; empty when absent */
	const char *operation; /* "read" or "write" */
	bool expires;
	int64_t expires_s;
};

struct signer {
	crypto_hash_sha256_state head;
	char tail[24];
};

void sign_begin(struct signer *signer, const struct sign_claim *claim);
void sign_with(const struct signer *signer, const char *token, char out[SIGN_SIZE]);
/* Constant in time but for the length. */
bool sign_matches(const struct signer *signer, const char *token, struct str signature);
/* The query's signature_expiration; p NULL: none. It is signed as a number: "007" and "7" are the
 * same. -EINVAL for anything else. */
int sign_read_expiration(struct str text, struct sign_claim *claim);
