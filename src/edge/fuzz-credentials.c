/* Every word that is asked for has the shape of a key or a token and stands in the text; and a key
 * put anywhere into a text is found. */
#include "edge/edge-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY "e2b_0123456789abcdef0123456789abcdef01234567"

static bool check_word(void *arg, struct str word)
{
	const struct str *text = arg;
	bool is_key = word.n == ACCESS_KEY_SIZE - 1 && str_has_prefix(word, STR("e2b_"));

	assert(is_key || credential_is_token(word));
	assert(word.p >= text->p && word.p + word.n <= text->p + text->n);
	return false;
}

static bool is_key(void *arg, struct str word)
{
	(void)arg;
	return str_is(word, KEY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf mixed = BUF_INIT(1 << 20);
	struct str text = str_make(data, size);
	size_t cut = size ? data[0] % size : 0;

	(void)credential_within(text, check_word, &text);
	(void)credential_in_login(text, is_key, NULL);
	if (size > 1 << 19)
		return 0;
	(void)buf_add(&mixed, data, cut);
	(void)buf_adds(&mixed, KEY);
	(void)buf_add_str(&mixed, str_from(text, cut));
	assert(credential_within(buf_str(&mixed), is_key, NULL));
	return 0;
}
