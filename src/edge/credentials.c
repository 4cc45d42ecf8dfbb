/* What opens this server, found by its shape in text of any kind. */
#include "edge/edge-internal.h"

enum {
	KEY_DIGITS = ACCESS_KEY_SIZE - 1 - 4,
	TOKEN_DIGITS = SANDBOX_TOKEN_SIZE - 1,
};

static_assert((int)SANDBOX_TOKEN_SIZE == (int)VOLUME_TOKEN_SIZE, "tokens are told by their length");

/* Lower case only: in upper case none of them opens anything. */
static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static size_t digits_at(struct str text, size_t at)
{
	size_t n = 0;

	while (at + n < text.n && is_hex(text.p[at + n]))
		n++;
	return n;
}

bool credential_is_token(struct str text)
{
	return text.n == TOKEN_DIGITS && digits_at(text, 0) == TOKEN_DIGITS;
}

/* The run of digits at `at` may be all of a token, or a key's behind its "e2b_". */
static bool check_run(struct str text, size_t at, size_t n, credential_fn is_ours, void *arg)
{
	if (n == TOKEN_DIGITS && is_ours(arg, str_make(text.p + at, n)))
		return true;
	return n >= KEY_DIGITS && at >= 4 && memcmp(text.p + at - 4, "e2b_", 4) == 0 &&
	       is_ours(arg, str_make(text.p + at - 4, KEY_DIGITS + 4));
}

bool credential_within(struct str text, credential_fn is_ours, void *arg)
{
	size_t at = 0;

	while (at < text.n) {
		size_t n = digits_at(text, at);

		if (n && check_run(text, at, n, is_ours, arg))
			return true;
		at += n + 1;
	}
	return false;
}

/* "Basic" hides what it carries. */
bool credential_in_login(struct str value, credential_fn is_ours, void *arg)
{
	CLEANUP(buf_done) struct buf plain = BUF_INIT(8 << 10);
	struct str rest = value, scheme;

	if (!str_split(&rest, ' ', &scheme) || !str_eq_nocase(scheme, STR("Basic")) ||
		base64_decode(str_trim(rest), &plain) < 0)
		return false;
	return credential_within(buf_str(&plain), is_ours, arg);
}
