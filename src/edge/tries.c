#include "edge/edge-internal.h"

#include <sodium.h>

/* A try takes about a microsecond: all of them a tenth of a processor. */
enum {
	PER_SECOND = 100000,
	AT_ONCE = 200000,
	CLIENT_PART = 4, /* one client has this part of either */
};

void tries_init(struct tries *tries, int64_t now_ms)
{
	random_bytes(tries->key, sizeof tries->key);
	tries->all = (struct tries_left){ AT_ONCE, now_ms };
	for (size_t i = 0; i < TRIES_CLIENTS; i++)
		tries->clients[i] = (struct tries_left){ AT_ONCE / CLIENT_PART, now_ms };
}

/* The same for all connections from one address. */
static struct tries_left *client_of(struct tries *tries, struct str peer)
{
	uint8_t hash[crypto_shorthash_BYTES];

	while (peer.n > 0 && peer.p[peer.n - 1] != ':')
		peer.n--;
	(void)crypto_shorthash(hash, (const uint8_t *)peer.p, peer.n, tries->key);
	return &tries->clients[hash[0] % TRIES_CLIENTS];
}

static bool has_some(struct tries_left *left, int64_t part, int64_t now_ms)
{
	int64_t more = (now_ms - left->filled_ms) * (PER_SECOND / part) / 1000;

	if (more > 0) {
		left->n = MIN(left->n + more, AT_ONCE / part);
		left->filled_ms = now_ms;
	}
	return left->n > 0;
}

bool tries_may(struct tries *tries, struct str peer, int64_t now_ms)
{
	return has_some(client_of(tries, peer), CLIENT_PART, now_ms) &&
	       has_some(&tries->all, 1, now_ms);
}

/* What was begun is finished, however many it takes: the debt is paid by waiting. */
void tries_count(struct tries *tries, struct str peer, int64_t n)
{
	client_of(tries, peer)->n -= n;
	tries->all.n -= n;
}
