/* The iam part of a create request: identity tokens a sandbox would be given. They are checked as
 * E2B does; none is issued here, and a request that asks for one is told so instead of being given
 * a sandbox whose programs wait for it in vain. */
#include "api/e2b/e2b.h"

enum {
	MAX_TOKENS = 5
};

struct token_in {
	struct str audience, type;
};
static const struct json_field token_fields[] = {
	JSON_FIELD(struct token_in, audience, "audience", JSON_STR),
	JSON_FIELD(struct token_in, type, "tokenType", JSON_STR),
};
static const struct json_shape token_shape = JSON_SHAPE(struct token_in, token_fields);

struct iam_in {
	struct json_map tokens;
};
static const struct json_field iam_fields[] = {
	JSON_FIELD(struct iam_in, tokens, "tokens", JSON_RAW_MAP, .flags = JSON_NULLABLE),
};
static const struct json_shape iam_shape = JSON_SHAPE(struct iam_in, iam_fields);

static int check_token(struct arena *arena, const struct json_pair *token, struct err *e)
{
	struct token_in in;

	if (!token->key.n)
		return err_set(e, -EINVAL, "iam.tokens: token name must not be empty");
	if (json_decode(arena, token->value, &token_shape, &in, e) < 0)
		return err_wrap(e, -EINVAL, "validation error: iam.tokens.%.*s",
			STR_ARG(token->key));
	if (!in.audience.n)
		return err_set(e, -EINVAL, "iam.tokens.%.*s.audience: audience is required",
			STR_ARG(token->key));
	if (!str_is(in.type, "JWT-SVID"))
		return err_set(e, -EINVAL,
			"iam.tokens.%.*s.tokenType: only \"JWT-SVID\" is supported",
			STR_ARG(token->key));
	return 0;
}

static int check(struct arena *arena, struct str raw, struct err *e)
{
	struct iam_in in;
	int r = json_decode(arena, raw, &iam_shape, &in, e);

	if (r < 0)
		return err_wrap(e, -EINVAL, "validation error: iam");
	if (in.tokens.n > MAX_TOKENS)
		return err_set(e, -EINVAL, "iam.tokens: too many tokens: %zu (max %d)", in.tokens.n,
			MAX_TOKENS);
	for (size_t i = 0; i < in.tokens.n && r >= 0; i++)
		r = check_token(arena, &in.tokens.v[i], e);
	if (r >= 0 && in.tokens.n)
		return err_set(e, -EOPNOTSUPP,
			"Sandbox IAM workload tokens are not available: this server issues none");
	return r;
}

int e2b_iam_check(struct api_call *call, struct str raw)
{
	struct err e = { 0 };
	int r = raw.n ? check(http_arena(call->x), raw, &e) : 0;

	if (r < 0)
		api_fail(call, &e);
	return r;
}
