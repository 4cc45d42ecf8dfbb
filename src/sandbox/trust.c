/* Header rules need a guest that trusts the server's own authority. A new guest is told when it
 * boots; one that runs is told here, by the same call that E2B's orchestrator makes. */
#include "http/http.h"
#include "sandbox/sandbox-internal.h"

enum {
	ANSWER_BYTES = 16 << 10,
	ANSWER_MS = 3000,
};

void trust_write(const struct sandbox_book *book, bool has_rules, struct jsonw *w)
{
	struct str own = has_rules ? book->config.authority : STR_NONE;
	struct str given = book->config.authorities;
	CLEANUP(buf_done) struct buf both = BUF_INIT(own.n + given.n + 1);

	(void)buf_add_str(&both, given);
	(void)buf_add_str(&both, own);
	if (both.n)
		jsonw_str(w, "caBundle", buf_str(&both));
}

struct telling {
	struct sandbox_book *book;
	char id[SANDBOX_ID_SIZE];
	struct buf body;
	done_fn done;
	void *arg;
};

/* What runs in there may keep it from answering. That is its loss: the rules hold without it. */
static void told(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct telling *t = arg;

	(void)body;
	if (r < 0 || status != 204)
		log_warn("sandbox.trust_failed", "sandbox_id=%s status=%d err=%s", t->id, status,
			log_quote(str_of(r < 0 ? e->msg : "")));
	t->done(t->arg, 0, NULL);
	if (t->body.p)
		explicit_bzero(t->body.p, t->body.n);
	buf_done(&t->body);
	free(t);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	struct telling *t = arg;
	struct http_request request = { .method = "POST",
		.target = "/init",
		.host = "localhost",
		.headers = "Content-Type: application/json\r\n",
		.body = buf_str(&t->body),
		.max_bytes = ANSWER_BYTES,
		.timeout_ms = ANSWER_MS };

	if (fd < 0)
		told(t, fd, 0, STR_NONE, e);
	else
		http_request(t->book->config.loop, fd, &request, told, t);
}

void live_trust(struct live *live, done_fn done, void *arg)
{
	struct telling *t = XNEW(struct telling);
	char token[SANDBOX_TOKEN_SIZE];
	struct jsonw w;

	t->book = live->book;
	memcpy(t->id, live->view.id, sizeof t->id);
	t->body = BUF_INIT(1 << 20);
	t->done = done;
	t->arg = arg;
	jsonw_init(&w, &t->body);
	jsonw_object(&w, NULL);
	if (live->view.secure) {
		sandbox_token(live->book, live->view.id, token);
		jsonw_strz(&w, "accessToken", token);
	}
	trust_write(live->book, true, &w);
	jsonw_end_object(&w);
	explicit_bzero(token, sizeof token);
	runtime_dial(live->runtime, live->view.id, RUNTIME_GUEST_PORT, dialled, t);
}
