/* Encodings and digests. */
#pragma once

#include "base/buf.h"

#include <stdint.h>

enum {
	SHA256_SIZE = 32
};

void hex_encode(const void *p, size_t n, char *out); /* writes 2n characters and a NUL */
int hex_decode(struct str s, void *out, size_t n);   /* exactly n bytes, lower or upper case */

size_t base64_size(size_t n);                           /* characters, padded, without a NUL */
void base64_encode(const void *p, size_t n, char *out); /* base64_size(n) characters, no NUL */
/* Standard or url-safe alphabet, padded or not; whitespace is refused. Appends to `out`. */
int base64_decode(struct str s, struct buf *out);

/* Percent-decoding; '+' becomes a space only when plus is set (forms). Bad escapes: -EINVAL. */
int percent_decode(struct str s, bool plus, struct buf *out);
int percent_encode(struct str s, struct buf *out); /* keeps RFC 3986 unreserved characters only */

void sha256(const void *p, size_t n, uint8_t out[SHA256_SIZE]);
/* Keyed with 32 bytes. */
void hmac_sha256(const uint8_t key[SHA256_SIZE], struct str text, uint8_t out[SHA256_SIZE]);
bool mem_equal_ct(const void *a, const void *b, size_t n); /* time does not depend on content */
void random_bytes(void *p, size_t n);                      /* aborts if the kernel has none */
/* n characters of [a-z0-9], uniformly, and a NUL. */
void random_id(char *out, size_t n);

enum {
	UUID_SIZE = 37
};
void uuid_format(const uint8_t bytes[16], char out[UUID_SIZE]); /* sets version 4's marks */
void uuid_make(char out[UUID_SIZE]);                            /* a random one */
bool str_is_uuid(struct str s);                                 /* 8-4-4-4-12 lower-case hex */

/* Authenticated encryption of a text for the store, base64 out; the nonce is random and included.
 */
int seal_text(const uint8_t key[SHA256_SIZE], struct str plain, struct buf *out);
/* -EBADMSG: damaged, or sealed with another key. */
int unseal_text(const uint8_t key[SHA256_SIZE], struct str sealed, struct buf *out);
