/* The two heads of an upgrade: ours, and the server's answer to it. */
#include "client/client-internal.h"

enum {
	MAX_INTERIM = 16,
};

static int add_host(struct buf *out, CURLU *url)
{
	char *host = NULL, *port = NULL;
	int r = -EINVAL;

	if (curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
		(void)buf_printf(out, "Host: %s", host);
		if (curl_url_get(url, CURLUPART_PORT, &port, 0) == CURLUE_OK)
			(void)buf_printf(out, ":%s", port);
		(void)buf_adds(out, "\r\n");
		r = 0;
	}
	curl_free(host);
	curl_free(port);
	return r;
}

int upgrade_request(const struct client_request *request, const char *protocol, struct buf *out,
	struct err *e)
{
	CURLU *url = curl_url();
	char *path = NULL;
	int r = -EINVAL;

	if (url && curl_url_set(url, CURLUPART_URL, request->url, 0) == CURLUE_OK &&
		curl_url_get(url, CURLUPART_PATH, &path, 0) == CURLUE_OK) {
		(void)buf_printf(out, "GET %s HTTP/1.1\r\n", path);
		r = add_host(out, url);
	}
	curl_free(path);
	curl_url_cleanup(url);
	if (r < 0)
		return err_set(e, r, "not an http or https URL: '%s'", request->url);
	(void)buf_printf(out, "Connection: Upgrade\r\nUpgrade: %s\r\n", protocol);
	for (const char *const *line = request->headers; line && *line; line++) {
		if (strpbrk(*line, "\r\n"))
			return err_set(e, -EINVAL, "a request header holds a line break");
		(void)buf_printf(out, "%s\r\n", *line);
	}
	(void)buf_adds(out, "\r\n");
	return out->failed ? err_set(e, -EMSGSIZE, "the request's head is too long") : 0;
}

/* "HTTP/1.1 101 Switching Protocols" */
static int status_of(struct str line)
{
	int64_t status;

	if (line.n < 12 || !str_has_prefix(line, STR("HTTP/1.")) || line.p[8] != ' ' ||
		(line.n > 12 && line.p[12] != ' ') ||
		str_to_int(str_make(line.p + 9, 3), 100, 599, &status) < 0)
		return -EPROTO;
	return (int)status;
}

static bool next_line(struct str *head, struct str *line)
{
	if (!str_split(head, '\n', line))
		return false;
	if (line->n > 0 && line->p[line->n - 1] == '\r')
		line->n--;
	return true;
}

/* One head, if it is here whole: its length, 0: more is needed. */
static ssize_t take_head(struct str bytes, struct upgrade_answer *ret)
{
	const char *end = bytes.n ? memmem(bytes.p, bytes.n, "\r\n\r\n", 4) : NULL;
	struct str head = { bytes.p, end ? (size_t)(end - bytes.p) + 2 : 0 }, line, name;
	int status;

	/* Whoever speaks something else need not be listened to any longer. */
	if (memcmp(bytes.p, "HTTP/1.", MIN(bytes.n, (size_t)7)) != 0)
		return -EPROTO;
	if (!end)
		return 0;
	status = next_line(&head, &line) ? status_of(line) : -EPROTO;
	if (status < 0)
		return status;
	*ret = (struct upgrade_answer){ .status = status, .length = -1 };
	while (next_line(&head, &line)) {
		if (str_find(line, ':') < 0 || !str_split(&line, ':', &name) ||
			!str_eq_nocase(name, STR("Content-Length")))
			continue;
		if (str_to_int(str_trim(line), 0, INT64_MAX, &ret->length) < 0)
			return -EPROTO;
	}
	return end + 4 - bytes.p;
}

int upgrade_answer(struct str bytes, struct upgrade_answer *ret)
{
	struct upgrade_answer answer = { 0 };
	size_t at = 0;

	for (int i = 0; i < MAX_INTERIM && at < bytes.n; i++) {
		ssize_t n = take_head(str_from(bytes, at), &answer);

		if (n <= 0)
			return (int)n;
		at += (size_t)n;
		if (answer.status == 101 || answer.status >= 200) {
			answer.head_n = at;
			*ret = answer;
			return 1;
		}
	}
	return at < bytes.n ? -EPROTO : 0;
}
