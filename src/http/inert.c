/* Bytes that nobody vouches for, on an origin that is somebody's: what came out of a sandbox is
 * saved by a browser and neither shown nor run, whatever it says that it is. */
#include "http/http.h"

const char http_inert_lines[] = "X-Content-Type-Options: nosniff\r\n"
				"Content-Security-Policy: sandbox; default-src 'none'\r\n";

/* Nothing of these runs, styles or frames anything. */
static const char *const inert_types[] = { "application/gzip", "application/json",
	"application/octet-stream", "application/x-ndjson", "application/x-tar", "application/zip",
	"image/avif", "image/bmp", "image/gif", "image/jpeg", "image/png",
	"image/vnd.microsoft.icon", "image/webp", "image/x-icon", "text/csv", "text/plain" };

static bool begins_with(struct str text, struct str prefix)
{
	return text.n > prefix.n && str_eq_nocase(str_make(text.p, prefix.n), prefix);
}

struct str http_inert_type(struct str type)
{
	struct str rest = type, essence = STR_NONE;

	(void)str_split(&rest, ';', &essence);
	essence = str_trim(essence);
	if (begins_with(essence, STR("audio/")) || begins_with(essence, STR("video/")))
		return type;
	for (size_t i = 0; i < ARRAY_SIZE(inert_types); i++)
		if (str_eq_nocase(essence, str_of(inert_types[i])))
			return type;
	return STR("application/octet-stream");
}

void http_attachment(struct str disposition, struct buf *out)
{
	ptrdiff_t at = disposition.n ? str_find(disposition, ';') : -1;

	(void)buf_adds(out, "attachment");
	if (at >= 0)
		(void)buf_add_str(out, str_from(disposition, (size_t)at));
}

void http_add_inert(struct http_exchange *x)
{
	http_add_header(x, "X-Content-Type-Options", STR("nosniff"));
	http_add_header(x, "Content-Security-Policy", STR("sandbox; default-src 'none'"));
}

bool http_wants_worker(const struct http_exchange *x)
{
	return http_header(x, "Service-Worker").p;
}
