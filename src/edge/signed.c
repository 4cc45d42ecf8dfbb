/* A client that reaches every sandbox by one URL (E2B_SANDBOX_URL) makes signed file URLs that name
 * no sandbox. But the signature is made with the sandbox's token, so the one whose token makes it
 * right is meant. Whether it has expired, and everything else, is left to the guest, unless it
 * sleeps: then a signature must be good to wake it. */
#include "base/sign.h"
#include "edge/edge-internal.h"

struct search {
	const struct sandbox_book *sandboxes;
	struct signer signer;
	struct str signature;
	char *id;
	int64_t n_tried;
	bool found;
};

static void try_one(void *arg, const struct sandbox *sb)
{
	struct search *search = arg;
	char token[SANDBOX_TOKEN_SIZE];

	if (search->found || !sb->secure)
		return;
	search->n_tried++;
	sandbox_token(search->sandboxes, sb->id, token);
	search->found = sign_matches(&search->signer, token, search->signature);
	if (search->found)
		(void)snprintf(search->id, SANDBOX_ID_SIZE, "%s", sb->id);
	explicit_bzero(token, sizeof token);
}

/* What the URL claims, and its signature (p NULL: there is none). -EINVAL: whose expiration is no
 * number. */
static int read_claim(struct http_exchange *x, struct sign_claim *claim, struct str *signature)
{
	bool reads = str_is(http_method(x), "GET");

	*signature = STR_NONE;
	*claim = (struct sign_claim){ .operation = reads ? "read" : "write" };
	if (!str_is(http_path(x), "/files") || (!reads && !str_is(http_method(x), "POST")))
		return 0;
	*signature = http_query_value(x, "signature");
	claim->path = http_query_value(x, "path");
	claim->user = http_query_value(x, "username");
	return sign_read_expiration(http_query_value(x, "signature_expiration"), claim);
}

bool signed_by(const struct sandbox_book *sandboxes, struct http_exchange *x,
	const struct sandbox *sb)
{
	char token[SANDBOX_TOKEN_SIZE];
	struct sign_claim claim;
	struct signer signer;
	struct str signature;

	if (read_claim(x, &claim, &signature) < 0 || !signature.p)
		return false;
	if (claim.expires && claim.expires_s < time_wall_us() / 1000000)
		return false;
	sandbox_token(sandboxes, sb->id, token);
	sign_begin(&signer, &claim);
	return sign_matches(&signer, token, signature);
}

enum signed_kind signed_find(const struct sandbox_book *sandboxes, struct tries *tries,
	struct http_exchange *x, char id[SANDBOX_ID_SIZE])
{
	struct search search = { .sandboxes = sandboxes, .id = id };
	struct sign_claim claim;
	int r = read_claim(x, &claim, &search.signature);

	if (!search.signature.p)
		return SIGNED_NOT;
	if (r < 0)
		return SIGNED_EXPIRATION;
	if (search.signature.n != SIGN_SIZE - 1)
		return SIGNED_WRONG;
	if (!tries_may(tries, http_peer(x), time_now_ms()))
		return SIGNED_TOO_MANY;
	sign_begin(&search.signer, &claim);
	sandbox_each(sandboxes, NULL, try_one, &search);
	tries_count(tries, http_peer(x), search.n_tried);
	return search.found ? SIGNED_FOUND : SIGNED_WRONG;
}
