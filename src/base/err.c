#include "base/base.h"

__attribute__((format(printf, 3, 0))) static void put(struct err *e, int code, const char *fmt,
	va_list ap)
{
	e->code = code;
	(void)vsnprintf(e->msg, sizeof e->msg, fmt, ap);
}

/* Cutting a long message short is what its fixed size is for; never in the middle of UTF-8, since
 * the text ends up in JSON. */
static void trim_utf8(char *msg, size_t size)
{
	size_t n = strnlen(msg, size);

	if (n < size - 1)
		return;
	while (n > 0 && ((unsigned char)msg[n - 1] & 0xc0) == 0x80)
		n--;
	if (n > 0 && (unsigned char)msg[n - 1] >= 0xc0)
		n--;
	msg[n] = '\0';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	assert(code < 0);
	if (!e)
		return code;
	va_start(ap, fmt);
	put(e, code, fmt, ap);
	va_end(ap);
	trim_utf8(e->msg, sizeof e->msg);
	return code;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	assert(code < 0);
	if (!e)
		return code;
	va_start(ap, fmt);
	put(e, code, fmt, ap);
	va_end(ap);
	n = strnlen(e->msg, sizeof e->msg - 1);
	(void)snprintf(e->msg + n, sizeof e->msg - n, ": %s",
		strerrordesc_np(-code) ?: "unknown error");
	trim_utf8(e->msg, sizeof e->msg);
	return code;
}

int err_wrap(struct err *e, int code, const char *fmt, ...)
{
	char old[sizeof e->msg];
	va_list ap;
	size_t n;

	assert(code < 0);
	if (!e)
		return code;
	memcpy(old, e->msg, sizeof old);
	va_start(ap, fmt);
	put(e, code, fmt, ap);
	va_end(ap);
	n = strnlen(e->msg, sizeof e->msg - 1);
	(void)snprintf(e->msg + n, sizeof e->msg - n, ": %s", old);
	trim_utf8(e->msg, sizeof e->msg);
	return code;
}
