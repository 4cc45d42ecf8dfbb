#include "guest/mime.h"

static const struct {
	const char *ending;
	const char *type;
} types[] = {
	{ "avif", "image/avif" },
	{ "bmp", "image/bmp" },
	{ "css", "text/css; charset=utf-8" },
	{ "csv", "text/csv; charset=utf-8" },
	{ "gif", "image/gif" },
	{ "gz", "application/gzip" },
	{ "htm", "text/html; charset=utf-8" },
	{ "html", "text/html; charset=utf-8" },
	{ "ico", "image/x-icon" },
	{ "jpeg", "image/jpeg" },
	{ "jpg", "image/jpeg" },
	{ "js", "text/javascript; charset=utf-8" },
	{ "json", "application/json" },
	{ "md", "text/markdown; charset=utf-8" },
	{ "mjs", "text/javascript; charset=utf-8" },
	{ "mp3", "audio/mpeg" },
	{ "mp4", "video/mp4" },
	{ "pdf", "application/pdf" },
	{ "png", "image/png" },
	{ "py", "text/x-python; charset=utf-8" },
	{ "sh", "application/x-sh" },
	{ "svg", "image/svg+xml" },
	{ "tar", "application/x-tar" },
	{ "txt", "text/plain; charset=utf-8" },
	{ "wasm", "application/wasm" },
	{ "wav", "audio/x-wav" },
	{ "webm", "video/webm" },
	{ "webp", "image/webp" },
	{ "xml", "text/xml; charset=utf-8" },
	{ "yaml", "application/yaml" },
	{ "yml", "application/yaml" },
	{ "zip", "application/zip" },
};

const char *mime_of(struct str name)
{
	const char *dot = memrchr(name.p, '.', name.n);

	for (size_t i = 0; dot && i < ARRAY_SIZE(types); i++)
		if (str_eq_nocase(str_from(name, (size_t)(dot - name.p) + 1),
			    str_of(types[i].ending)))
			return types[i].type;
	return "application/octet-stream";
}

void mime_disposition(struct str name, struct buf *out)
{
	bool is_token = name.n > 0, is_ascii = true;

	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i];

		is_ascii = is_ascii && c >= 0x20 && c < 0x7f;
		is_token = is_token && is_ascii && !strchr("()<>@,;:\\\"/[]?= ", c);
	}
	buf_adds(out, is_ascii ? "inline; filename=" : "inline; filename*=utf-8''");
	if (!is_ascii) {
		percent_encode(name, out);
	} else if (is_token) {
		buf_add_str(out, name);
	} else {
		buf_addc(out, '"');
		for (size_t i = 0; i < name.n; i++) {
			if (name.p[i] == '"' || name.p[i] == '\\')
				buf_addc(out, '\\');
			buf_addc(out, name.p[i]);
		}
		buf_addc(out, '"');
	}
}
