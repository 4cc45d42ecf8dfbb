/* The proxy in front of the sandboxes: one sandbox's name with another's token, and the guest's own
 * control routes from outside. The neighbour's /dev/shm holds the mark; whoever gets it with the
 * attacker's token got to the neighbour. */
#include "cli/attack.h"

enum {
	REQUEST_MAX = 16 << 10,
	RESPONSE_MAX = 1 << 20,
	WAIT_MS = 3000, /* for the end of a connection that is to be closed */
};

static const char confusion_title[] = "reach one sandbox with another's token";
static const char control_title[] = "call the guest's control routes from outside";

int edge_status(struct str answer)
{
	int64_t status = 0;

	if (answer.n < 12 || !str_has_prefix(answer, STR("HTTP/1.")) ||
		str_to_int(str_make(answer.p + 9, 3), 100, 599, &status) < 0)
		return 0;
	return (int)status;
}

void edge_expand(const struct attack *a, const char *pattern, struct buf *out)
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

	edge_expand(a, pattern, &request);
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

/* Not with that token, no such sandbox, or a head that nobody should send. */
static const int not_yours[] = { 400, 401, 403, 404, 0 };

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
			 edge_status(buf_str(&answer)) / 100 == 2)
			attack_say(a, "edge.confusion", "client", ATTACK_ESCAPED, confusion_title,
				"%s: the neighbour's file came", confusions[i].name);
		else
			attack_say(a, "edge.confusion", "client",
				attack_judge_status(0, edge_status(buf_str(&answer)), not_yours),
				confusion_title, "%s: status %d", confusions[i].name,
				edge_status(buf_str(&answer)));
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
		edge_status(buf_str(&answer)), e.msg);
	return false;
}

/* ---- control routes ---- */

static const char *const control_targets[] = { "/init", "/init/", "//init", "/./init", "/x/../init",
	"/%%69nit", "/%%69%%6e%%69%%74", "/init%%2f", "/init%%00", "/init?x=1", "/init#x", "/INIT",
	"/init;x", "/init/.", "/files/../init", "http://localhost/init", "/freeze", "/unfreeze",
	"/collapse", "/fsfreeze", "/fsthaw", "/upgrade", "\\init", "/init\\" };

/* Refused by the proxy, or no such route or method of the guest. */
static const int no_route[] = { 400, 403, 404, 405, 0 };

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

			status = edge_status(buf_str(&answer));
			attack_say(a, "edge.control", "client",
				attack_judge_status(r, status, no_route), control_title,
				"POST %s: status %d %s", control_targets[i], status,
				r < 0 ? e.msg : "");
		}
	}
}

/* ---- without a key ---- */

static const int no_key[] = { 401, 403, 0 };

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

		status = edge_status(buf_str(&answer));
		attack_say(a, "edge.key", "client", attack_judge_status(r, status, no_key), title,
			"%.*s: status %d %s", (int)strcspn(heads[i], "\r"), heads[i], status,
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
