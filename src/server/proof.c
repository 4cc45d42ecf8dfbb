#include "server/proof.h"
#include "connect/connect.h"
#include "http/http.h"

struct proof {
	struct loop *loop;
	struct sandbox_book *book;
	char id[SANDBOX_ID_SIZE], token[SANDBOX_TOKEN_SIZE];
	int64_t began_us, made_us;
	struct err e;
	done_fn done;
	void *arg;
};

static void killed(void *arg, int r, const struct err *e)
{
	struct proof *p = arg;

	(void)r;
	(void)e;
	p->done(p->arg, p->e.code, &p->e);
	free(p);
}

static void end(struct proof *p)
{
	sandbox_kill(p->book, NULL, str_of(p->id), "system", killed, p);
}

static void answered(void *arg, int r, int status, struct str body, const struct err *e)
{
	struct proof *p = arg;
	int64_t ran_us = time_now_us() - p->made_us;

	if (r < 0)
		(void)err_set(&p->e, r, "%s", e->msg);
	else if (status != 200 || !memmem(body.p, body.n, "\"exited\":true", 13))
		(void)err_set(&p->e, -EIO,
			"a command in the first sandbox did not end well (HTTP %d)", status);
	else
		printf("\n✓ sandbox made in %.1f ms, a command run in it in %.1f ms. The same from "
		       "your code:\n\n"
		       "    import { Sandbox } from 'e2b'            // with the variables above\n"
		       "    const sandbox = await Sandbox.create()\n"
		       "    console.log((await sandbox.commands.run('echo hello')).stdout)\n\n",
			(double)(p->made_us - p->began_us) / 1000, (double)ran_us / 1000);
	(void)fflush(stdout);
	end(p);
}

static void dialled(void *arg, int fd, const struct err *e)
{
	CLEANUP(buf_done) struct buf body = BUF_INIT(4096);
	struct proof *p = arg;
	struct http_request request = { .method = "POST",
		.target = "/process.Process/Start",
		.host = "localhost",
		.max_bytes = 64 << 10,
		.timeout_ms = 10000 };
	char headers[256];
	size_t mark;

	if (fd < 0) {
		p->e = *e;
		end(p);
		return;
	}
	(void)snprintf(headers, sizeof headers,
		"Content-Type: application/connect+json\r\nConnect-Protocol-Version: "
		"1\r\nX-Access-Token: %s\r\n",
		p->token);
	mark = connect_frame_begin(&body);
	(void)buf_adds(&body,
		"{\"process\":{\"cmd\":\"/bin/echo\",\"args\":[\"hello\"]},\"stdin\":false}");
	connect_frame_end(&body, mark, 0);
	request.headers = headers;
	request.body = buf_str(&body);
	http_request(p->loop, fd, &request, answered, p);
}

static void created(void *arg, int r, const struct sandbox *sb, const struct err *e)
{
	struct proof *p = arg;

	if (r < 0) {
		p->e = *e;
		p->done(p->arg, r, &p->e);
		free(p);
		return;
	}
	p->made_us = time_now_us();
	(void)snprintf(p->id, sizeof p->id, "%s", sb->id);
	sandbox_token(p->book, sb->id, p->token);
	sandbox_dial(p->book, sb, RUNTIME_GUEST_PORT, dialled, p);
}

void proof_run(struct loop *loop, struct sandbox_book *book, const char *team_id, done_fn done,
	void *arg)
{
	struct proof *p = XNEW(struct proof);
	struct sandbox_spec spec = { .team_id = team_id,
		.actor = "system",
		.template_name = STR("base"),
		.timeout_s = 60,
		.secure = true };

	p->loop = loop;
	p->book = book;
	p->began_us = time_now_us();
	p->done = done;
	p->arg = arg;
	sandbox_create(book, &spec, created, p);
}
