/* What opens a volume's content: a token derived from its id and how often it was replaced. The
 * row counts, so that an old token stays worthless over restarts. */
#include "volume/volume-internal.h"

/* The first token is made of the id alone, as it was before there could be others. */
void volume_token(const struct volume_book *book, const struct volume *volume,
	char token[VOLUME_TOKEN_SIZE])
{
	uint8_t mac[SHA256_SIZE];
	char text[96];
	int n = snprintf(text, sizeof text, "volume-%s", volume->id);

	if (volume->token_epoch > 0)
		n = snprintf(text, sizeof text, "volume-%s-%" PRId64, volume->id,
			volume->token_epoch);
	hmac_sha256(book->config.seed, str_make(text, (size_t)n), mac);
	hex_encode(mac, sizeof mac, token);
}

bool volume_opens(const struct volume_book *book, const struct volume *volume, struct str token)
{
	static const struct volume nobody = { .id = "none" };
	char want[VOLUME_TOKEN_SIZE];

	volume_token(book, volume ? volume : &nobody, want);
	return token.n == sizeof want - 1 && mem_equal_ct(token.p, want, token.n) && volume;
}

bool volume_is_token(const struct volume_book *book, struct str text)
{
	LIST_EACH(&book->holdings, node)
	{
		const struct holding *h = container_of(node, struct holding, node);

		if (text.n == sizeof h->token - 1 && mem_equal_ct(text.p, h->token, text.n))
			return true;
	}
	return false;
}

void volume_hold(const struct volume_book *book, const struct volume *volume, struct notice *n,
	loop_fn fn, void *arg)
{
	struct holding *h = map_get(&book->by_id, str_of(volume->id));

	notice_want(&h->holders, n, fn, arg);
}

/* ---- replacing it ---- */

static int read_epoch(void *arg, const struct store_row *row, struct err *e)
{
	(void)e;
	*(int64_t *)arg = store_int(row, 0);
	return 0;
}

static int advance(struct store_tx *tx, void *arg, struct err *e)
{
	struct volume_change *c = arg;
	struct store_event event = { .actor = c->actor,
		.kind = "volume.token_rotated",
		.subject = c->volume.id };
	int r = store_exec(tx, "UPDATE volumes SET token_epoch = token_epoch + 1 WHERE id = $1",
		STORE_PARAMS(P_TEXT(c->volume.id)), e);

	if (r == 0)
		return err_set(e, -ENOENT, "volume '%s' not found", c->volume.id);
	if (r > 0)
		r = store_query(tx, "SELECT token_epoch FROM volumes WHERE id = $1",
			STORE_PARAMS(P_TEXT(c->volume.id)), read_epoch, &c->volume.token_epoch, e);
	return r < 0 ? r
		     : store_add_caused_event(tx, &event,
			       &(struct store_cause){ .team_id = c->volume.team_id,
				       .agent_id = c->volume.agent_id },
			       e);
}

static void advanced(void *arg, int r, const struct err *e)
{
	struct volume_change *c = arg;
	struct holding *h = r >= 0 ? map_get(&c->book->by_id, str_of(c->volume.id)) : NULL;

	if (h) {
		h->view.token_epoch = c->volume.token_epoch;
		volume_token(c->book, &h->view, h->token);
		notice_tell(&h->holders);
	}
	volume_change_end(c, r, e);
}

void volume_rotate_token(struct volume_book *book, const struct volume_owner *who, struct str id,
	const char *actor, volume_fn fn, void *arg)
{
	struct volume_change *c = volume_change_new(book, actor);

	c->fn = fn;
	c->arg = arg;
	if (volume_change_find(c, who, id) >= 0)
		store_run_for(book->config.store, c->volume.team_id, advance, advanced, c);
}
