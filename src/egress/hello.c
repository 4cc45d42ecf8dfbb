/* The name in a TLS ClientHello, which may be spread over records in any way. Nothing is believed
 * that is not well-formed: a hello that cannot be read names nobody. */
#include "egress/egress-internal.h"

enum {
	RECORD_HANDSHAKE = 22,
	RECORD_HEAD_BYTES = 5,
	RECORD_MAX_BYTES = 16384,
	MESSAGE_HEAD_BYTES = 4,
	CLIENT_HELLO = 1,
	EXTENSION_SERVER_NAME = 0,
	NAME_TYPE_HOST = 0,
	RANDOM_BYTES = 32,
};

/* ---- a part of the hello; a read beyond its end makes it bad ---- */

struct part {
	const uint8_t *p;
	size_t n;
	bool bad;
};

static size_t get(struct part *part, int bytes)
{
	size_t value = 0;

	if (part->bad || part->n < (size_t)bytes) {
		part->bad = true;
		return 0;
	}
	for (int i = 0; i < bytes; i++)
		value = value << 8 | part->p[i];
	part->p += bytes;
	part->n -= (size_t)bytes;
	return value;
}

static struct part take(struct part *part, size_t n)
{
	struct part sub = { part->p, n, false };

	if (part->bad || part->n < n) {
		part->bad = true;
		return (struct part){ .bad = true };
	}
	part->p += n;
	part->n -= n;
	return sub;
}

/* What stands behind its own length of so many bytes. */
static struct part take_vector(struct part *part, int length_bytes)
{
	size_t n = get(part, length_bytes);

	return take(part, n);
}

/* ---- the name ---- */

static bool keep_name(struct part host, char name[DNS_TEXT_SIZE])
{
	struct dns_name wire;
	struct str text = str_make(host.p, host.n);

	if (host.n > 1 && text.p[host.n - 1] == '.')
		text.n--;
	return dns_name_parse(text, &wire) == 0 && dns_name_text(&wire, name) == 0;
}

/* Exactly one entry: with two, different readers could choose differently. */
static bool read_server_name(struct part extension, char name[DNS_TEXT_SIZE])
{
	struct part list = take_vector(&extension, 2), host;

	if (list.bad || extension.n > 0 || get(&list, 1) != NAME_TYPE_HOST)
		return false;
	host = take_vector(&list, 2);
	if (list.bad || list.n > 0 || host.n == 0)
		return false;
	return keep_name(host, name);
}

static void read_extensions(struct part all, char name[DNS_TEXT_SIZE])
{
	bool seen = false;

	while (all.n > 0) {
		size_t type = get(&all, 2);
		struct part extension = take_vector(&all, 2);

		if (all.bad)
			break;
		if (type != EXTENSION_SERVER_NAME)
			continue;
		if (seen || !read_server_name(extension, name)) {
			all.bad = true;
			break;
		}
		seen = true;
	}
	if (all.bad)
		name[0] = '\0';
}

static void read_hello(struct part hello, char name[DNS_TEXT_SIZE])
{
	struct part extensions;

	(void)get(&hello, 2);
	(void)take(&hello, RANDOM_BYTES);
	(void)take_vector(&hello, 1); /* session */
	(void)take_vector(&hello, 2); /* ciphers */
	(void)take_vector(&hello, 1); /* compression */
	if (hello.bad || hello.n == 0)
		return;
	extensions = take_vector(&hello, 2);
	if (!hello.bad && hello.n == 0)
		read_extensions(extensions, name);
}

/* ---- records ---- */

/* The message out of its records, as far as it is here: 1 whole, 0 not yet, -EBADMSG no hello. */
static int gather(struct str bytes, struct buf *message)
{
	while (bytes.n > 0) {
		const uint8_t *p = (const uint8_t *)bytes.p;
		size_t n, need;

		if (p[0] != RECORD_HANDSHAKE || (bytes.n > 1 && p[1] != 3))
			return -EBADMSG;
		if (bytes.n < RECORD_HEAD_BYTES)
			return 0;
		n = (size_t)p[3] << 8 | p[4];
		if (n == 0 || n > RECORD_MAX_BYTES)
			return -EBADMSG;
		if (buf_add(message, p + RECORD_HEAD_BYTES, MIN(n, bytes.n - RECORD_HEAD_BYTES)) <
			0)
			return -EBADMSG;
		if (message->n > 0 && message->p[0] != CLIENT_HELLO)
			return -EBADMSG;
		bytes = str_from(bytes, RECORD_HEAD_BYTES + n);
		if (message->n < MESSAGE_HEAD_BYTES)
			continue;
		p = (const uint8_t *)message->p;
		need = (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
		if (message->n >= need + MESSAGE_HEAD_BYTES) {
			message->n = need + MESSAGE_HEAD_BYTES;
			return 1;
		}
		if (need > SNIFF_MAX_BYTES)
			return -EBADMSG;
	}
	return 0;
}

enum sniffed hello_parse(struct str bytes, char name[DNS_TEXT_SIZE])
{
	CLEANUP(buf_done) struct buf message = BUF_INIT((size_t)2 * SNIFF_MAX_BYTES);
	struct part hello;
	int r = gather(bytes, &message);

	name[0] = '\0';
	if (r == 0)
		return SNIFF_MORE;
	if (r < 0)
		return SNIFF_OTHER;
	hello = (struct part){ (const uint8_t *)message.p + MESSAGE_HEAD_BYTES,
		message.n - MESSAGE_HEAD_BYTES, false };
	read_hello(hello, name);
	return SNIFF_TLS;
}
