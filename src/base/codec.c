#include "base/base.h"

#include <sodium.h>
#include <sys/random.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

void hex_encode(const void *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *in = p;

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[in[i] >> 4];
		out[2 * i + 1] = digits[in[i] & 15];
	}
	out[2 * n] = '\0';
}

int hex_decode(struct str s, void *out, size_t n)
{
	uint8_t *to = out;

	if (s.n != 2 * n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int high = hex_digit(s.p[2 * i]), low = hex_digit(s.p[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		to[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

static const char base64_alphabet[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_size(size_t n)
{
	return (n + 2) / 3 * 4;
}

void base64_encode(const void *p, size_t n, char *out)
{
	const uint8_t *in = p;

	for (; n >= 3; n -= 3, in += 3, out += 4) {
		uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

		out[0] = base64_alphabet[v >> 18];
		out[1] = base64_alphabet[v >> 12 & 63];
		out[2] = base64_alphabet[v >> 6 & 63];
		out[3] = base64_alphabet[v & 63];
	}
	if (n) {
		uint32_t v = (uint32_t)in[0] << 16 | (n > 1 ? (uint32_t)in[1] << 8 : 0);

		out[0] = base64_alphabet[v >> 18];
		out[1] = base64_alphabet[v >> 12 & 63];
		out[2] = n > 1 ? base64_alphabet[v >> 6 & 63] : '=';
		out[3] = '=';
	}
}

/* By character from ' ' on: the digit's value plus one, so that what is no digit is zero. */
static const uint8_t base64_value[256 - ' '] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 63, 0, 63, 0, 64,
	53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
	11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 0, 0, 0, 0, 64, 0, 27, 28,
	29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
	52, 0, 0, 0, 0, 0 };

static bool base64_digits(const char *p, size_t n, uint32_t *ret)
{
	uint32_t v = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i];
		uint32_t digit = c < ' ' ? 0 : base64_value[c - ' '];

		if (digit == 0)
			return false;
		v = v << 6 | (digit - 1);
	}
	*ret = v;
	return true;
}

/* The last group, of two or three digits: one or two bytes, and spare bits that must be zero. */
static int base64_decode_rest(struct str s, struct buf *out)
{
	unsigned spare = s.n == 2 ? 4 : 2;
	uint32_t v;

	if (s.n == 0)
		return 0;
	if (s.n == 1 || !base64_digits(s.p, s.n, &v) || v & ((1u << spare) - 1))
		return -EINVAL;
	v >>= spare;
	if (s.n == 3)
		(void)buf_addc(out, (char)(v >> 8));
	return buf_addc(out, (char)(v & 255));
}

int base64_decode(struct str s, struct buf *out)
{
	char *to = buf_reserve(out, s.n / 4 * 3 + 3);
	uint32_t v;

	if (!to)
		return -ENOBUFS;
	if (s.n % 4 == 0) /* padding only ever fills the last group */
		for (int padding = 0; s.n && padding < 2 && s.p[s.n - 1] == '='; padding++)
			s.n--;
	for (; s.n >= 4; s = str_from(s, 4)) {
		if (!base64_digits(s.p, 4, &v))
			return -EINVAL;
		*to++ = (char)(v >> 16);
		*to++ = (char)(v >> 8);
		*to++ = (char)v;
		out->n += 3;
	}
	*to = '\0';
	return base64_decode_rest(s, out);
}

int percent_decode(struct str s, bool plus, struct buf *out)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (c == '%') {
			int high = i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1;
			int low = i + 2 < s.n ? hex_digit(s.p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return -EINVAL;
			c = (char)(high << 4 | low);
			i += 2;
		} else if (plus && c == '+') {
			c = ' ';
		}
		if (buf_addc(out, c) < 0)
			return -ENOBUFS;
	}
	return 0;
}

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

int percent_encode(struct str s, struct buf *out)
{
	for (size_t i = 0; i < s.n; i++) {
		int r = is_unreserved(s.p[i]) ? buf_addc(out, s.p[i])
					      : buf_printf(out, "%%%02X", (unsigned char)s.p[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

void sha256(const void *p, size_t n, uint8_t out[SHA256_SIZE])
{
	(void)crypto_hash_sha256(out, p, n);
}

void hmac_sha256(const uint8_t key[SHA256_SIZE], struct str text, uint8_t out[SHA256_SIZE])
{
	(void)crypto_auth_hmacsha256(out, (const unsigned char *)text.p, text.n, key);
}

bool mem_equal_ct(const void *a, const void *b, size_t n)
{
	return sodium_memcmp(a, b, n) == 0;
}

void random_bytes(void *p, size_t n)
{
	char *to = p;

	while (n) {
		ssize_t got = getrandom(to, n, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			abort();
		to += got;
		n -= (size_t)got;
	}
}

void random_id(char *out, size_t n)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t bytes[64];
	size_t have = 0, done = 0;

	while (done < n) {
		uint8_t byte;

		if (!have) {
			random_bytes(bytes, sizeof bytes);
			have = sizeof bytes;
		}
		byte = bytes[--have];
		if (byte < 36 * 7) /* the rest would favour the first letters */
			out[done++] = letters[byte % 36];
	}
	out[n] = '\0';
}

void uuid_format(const uint8_t bytes[16], char out[UUID_SIZE])
{
	uint8_t b[16];

	memcpy(b, bytes, sizeof b);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	(void)snprintf(out, UUID_SIZE,
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
		b[15]);
}

void uuid_make(char out[UUID_SIZE])
{
	uint8_t bytes[16];

	random_bytes(bytes, sizeof bytes);
	uuid_format(bytes, out);
}

bool str_is_uuid(struct str s)
{
	if (s.n != UUID_SIZE - 1)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = s.p[i];

		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}

int seal_text(const uint8_t key[SHA256_SIZE], struct str plain, struct buf *out)
{
	CLEANUP(buf_done) struct buf box = BUF_INIT(plain.n + 64);
	uint8_t *p = (uint8_t *)buf_reserve(&box,
		crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + plain.n);
	size_t n = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES + plain.n;
	char *to = buf_reserve(out, base64_size(n));

	if (!p || !to)
		return -ENOBUFS;
	random_bytes(p, crypto_secretbox_NONCEBYTES);
	(void)crypto_secretbox_easy(p + crypto_secretbox_NONCEBYTES, (const uint8_t *)plain.p,
		plain.n, p, key);
	base64_encode(p, n, to);
	out->n += base64_size(n);
	out->p[out->n] = '\0';
	return 0;
}

int unseal_text(const uint8_t key[SHA256_SIZE], struct str sealed, struct buf *out)
{
	const size_t head = crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES;
	CLEANUP(buf_done) struct buf box = BUF_INIT(sealed.n + 8);
	const uint8_t *p;
	char *to;

	if (base64_decode(sealed, &box) < 0 || box.n < head)
		return -EBADMSG;
	p = (const uint8_t *)box.p;
	to = buf_reserve(out, box.n - head + 1);
	if (!to)
		return -ENOBUFS;
	if (crypto_secretbox_open_easy((uint8_t *)to, p + crypto_secretbox_NONCEBYTES,
		    box.n - crypto_secretbox_NONCEBYTES, p, key) < 0)
		return -EBADMSG;
	out->n += box.n - head;
	out->p[out->n] = '\0';
	return 0;
}
