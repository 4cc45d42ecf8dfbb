/* One name asked for upstream: by datagram from a port of its own, with an id and a letter case
 * that a forger would have to guess; over TCP when the answer was cut short or the server does not
 * keep the case. The servers are tried in turn until one answers. */
#include "egress/names.h"

enum {
	MAX_LOOKUPS = 1024, /* of all sandboxes together */
	MAX_ATTEMPTS = 6,
	DATAGRAM_MS = 1500,
	STREAM_MS = 3000,
	TOTAL_MS = 8000,
	MAX_FORGED = 64, /* datagrams that are not the answer, then the server is left */
};

struct lookup {
	struct tenant *tenant;
	struct dns_question question; /* as the sandbox put it */
	struct dns_question asked;    /* as we put it */
	uint16_t id;
	struct sockaddr_storage servers[SERVERS_MAX];
	int n_servers, attempt, n_forged;
	int fd;
	bool is_stream;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_task task;
	int64_t until_ms;
	struct buf out, in; /* of a stream */
	struct dns_answer *answer;
	uint32_t age_s;
	lookup_fn fn;
	void *arg;
};

static void on_io(void *arg, uint32_t events);
static void on_timer(void *arg);
static void try_next(struct lookup *l);

/* ---- its end ---- */

static void close_socket(struct lookup *l)
{
	loop_io_remove(&l->io);
	loop_timer_cancel(&l->timer);
	close_fdp(&l->fd);
	l->fd = -EBADF;
	buf_done(&l->out);
	buf_done(&l->in);
}

static void lookup_free(struct lookup *l)
{
	close_socket(l);
	loop_task_cancel(&l->task);
	l->tenant->egress->n_lookups--;
	tenant_give_back(l->tenant, SHARE_LOOKUPS);
	(void)tenant_unref(l->tenant);
	(void)dns_answer_unref(l->answer);
	free(l);
}

void lookup_cancel(struct lookup *l)
{
	if (l)
		lookup_free(l);
}

static void on_done(void *arg)
{
	struct lookup *l = arg;

	l->fn(l->arg, l->answer, l->age_s);
	lookup_free(l);
}

static void finish(struct lookup *l)
{
	close_socket(l);
	loop_defer(l->tenant->egress->loop, &l->task, on_done, l);
}

/* ---- answers ---- */

static bool is_final(const struct dns_answer *answer)
{
	return answer->rcode == DNS_OK || answer->rcode == DNS_NXDOMAIN;
}

/* A name out there may be another one for what must not be asked for, and the name server of this
 * host follows it: what lies behind stays there. */
static void cut_hidden(struct dns_answer *answer)
{
	for (size_t i = 0; i < answer->n; i++) {
		const struct dns_record *record = &answer->records[i];
		struct dns_name target = { .n = (uint8_t)record->data.n };
		char text[DNS_TEXT_SIZE];

		if (record->type != DNS_CNAME)
			continue;
		memcpy(target.p, record->data.p, target.n);
		if (dns_name_text(&target, text) == 0 && names_is_hidden(str_of(text)))
			answer->n = i;
	}
}

/* At no port. */
static bool is_closed(const void *arg, uint32_t address)
{
	const struct egress *egress = arg;

	return private_is_closed(&egress->opened, address, 0);
}

/* Of what is left, only what the operator has opened is private. */
static bool has_opened(const struct dns_answer *answer)
{
	for (size_t i = 0; i < answer->n; i++)
		if (answer->records[i].type == DNS_A &&
			policy_is_private(dns_record_address(&answer->records[i])))
			return true;
	return false;
}

/* A name of the host's own network that leads to nothing that is opened is nobody's. */
static void hide(const struct lookup *l, struct dns_answer *answer)
{
	char text[DNS_TEXT_SIZE];

	cut_hidden(answer);
	if (dns_name_text(&l->question.name, text) < 0 || !names_is_hidden(str_of(text)))
		return;
	answer->rcode = DNS_NXDOMAIN;
	answer->n = 0;
}

/* A server that cannot or will not is not the last word, unless it is the last. */
static void take_answer(struct lookup *l, struct dns_answer *answer)
{
	(void)dns_answer_unref(l->answer);
	l->answer = answer;
	if (!is_final(answer)) {
		try_next(l);
		return;
	}
	if (dns_answer_drop(answer, is_closed, l->tenant->egress) > 0)
		log_debug("egress.private_answer", "sandbox_id=%s", l->tenant->id);
	if (!has_opened(answer))
		hide(l, answer);
	cache_put(l->tenant, &l->question, answer);
	finish(l);
}

/* ---- sending ---- */

static int open_socket(struct lookup *l, int type)
{
	const struct sockaddr_storage *to = &l->servers[l->attempt % l->n_servers];
	socklen_t size =
		to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	struct loop *loop = l->tenant->egress->loop;

	close_socket(l);
	l->fd = socket(to->ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0)
		return -errno;
	if (connect(l->fd, (const struct sockaddr *)to, size) < 0 && errno != EINPROGRESS)
		return -errno;
	l->is_stream = type == SOCK_STREAM;
	loop_timer_set(&l->timer,
		MIN(loop_now_ms(loop) + (l->is_stream ? STREAM_MS : DATAGRAM_MS), l->until_ms));
	return loop_io_add(loop, &l->io, l->fd, l->is_stream ? EPOLLOUT : EPOLLIN, on_io, l, NULL);
}

static int make_query(struct lookup *l, struct buf *out)
{
	random_bytes(&l->id, sizeof l->id);
	l->asked = l->question;
	dns_mix_case(&l->asked.name);
	return dns_write_query(out, l->id, &l->asked);
}

static int send_datagram(struct lookup *l)
{
	CLEANUP(buf_done) struct buf query = BUF_INIT(DNS_PLAIN_MAX);
	int r = open_socket(l, SOCK_DGRAM);

	if (r >= 0)
		r = make_query(l, &query);
	if (r >= 0 && send(l->fd, query.p, query.n, MSG_NOSIGNAL) != (ssize_t)query.n)
		r = -EIO;
	return r;
}

/* The same server again, where nobody can answer in its place. */
static void start_stream(struct lookup *l)
{
	CLEANUP(buf_done) struct buf query = BUF_INIT(DNS_PLAIN_MAX);
	char size[2];
	int r = make_query(l, &query);

	if (r >= 0)
		r = open_socket(l, SOCK_STREAM);
	size[0] = (char)(query.n >> 8);
	size[1] = (char)query.n;
	(void)buf_add(&l->out, size, sizeof size);
	(void)buf_add_str(&l->out, buf_str(&query));
	if (r < 0)
		try_next(l);
}

/* The first attempt has number 0; each failure to even send moves on at once. */
static void try_next(struct lookup *l)
{
	struct loop *loop = l->tenant->egress->loop;
	int last = MIN(MAX_ATTEMPTS, l->n_servers * 2);

	while (++l->attempt < last && loop_now_ms(loop) < l->until_ms) {
		l->n_forged = 0;
		if (send_datagram(l) >= 0)
			return;
	}
	finish(l);
}

static void on_timer(void *arg)
{
	try_next(arg);
}

/* ---- receiving ---- */

static void take_datagram(struct lookup *l, struct str message)
{
	struct dns_answer *answer = NULL;
	int r = dns_parse_answer(message, l->id, &l->asked, true, &answer);

	if (r == 0)
		take_answer(l, answer);
	else if (r == -E2BIG)
		start_stream(l);
	else if (dns_parse_answer(message, l->id, &l->asked, false, &answer) == 0) {
		(void)dns_answer_unref(answer);
		start_stream(l);
	} else if (++l->n_forged > MAX_FORGED)
		try_next(l);
}

static void receive_datagram(struct lookup *l)
{
	char *scratch = l->tenant->egress->scratch;
	ssize_t n = recv(l->fd, scratch, SCRATCH_BYTES, MSG_DONTWAIT);

	if (n >= 0)
		take_datagram(l, str_make(scratch, (size_t)n));
	else if (errno != EAGAIN && errno != EINTR)
		try_next(l);
}

static void send_stream(struct lookup *l)
{
	ssize_t n = send(l->fd, l->out.p, l->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n >= 0)
		buf_consume(&l->out, (size_t)n);
	else if (errno != EAGAIN && errno != EINTR) {
		try_next(l);
		return;
	}
	if (l->out.n == 0)
		loop_io_set(&l->io, EPOLLIN);
}

static void receive_stream(struct lookup *l)
{
	char *scratch = l->tenant->egress->scratch;
	ssize_t n = recv(l->fd, scratch, SCRATCH_BYTES, MSG_DONTWAIT);
	struct dns_answer *answer = NULL;
	size_t size;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || buf_add(&l->in, scratch, (size_t)n) < 0) {
		try_next(l);
		return;
	}
	if (l->in.n < 2)
		return;
	size = (size_t)(uint8_t)l->in.p[0] << 8 | (uint8_t)l->in.p[1];
	if (l->in.n < size + 2)
		return;
	if (dns_parse_answer(str_make(l->in.p + 2, size), l->id, &l->asked, false, &answer) == 0)
		take_answer(l, answer);
	else
		try_next(l);
}

static void on_io(void *arg, uint32_t events)
{
	struct lookup *l = arg;

	if (!l->is_stream)
		receive_datagram(l);
	else if (l->out.n > 0 && (events & EPOLLOUT))
		send_stream(l);
	else
		receive_stream(l);
}

/* ---- its beginning ---- */

static bool find_cached(struct lookup *l)
{
	l->answer = cache_get(l->tenant, &l->question, &l->age_s);
	if (l->answer)
		l->answer->n_refs++;
	return l->answer != NULL;
}

struct lookup *lookup_start(struct tenant *tenant, const struct dns_question *question,
	lookup_fn fn, void *arg)
{
	struct egress *egress = tenant->egress;
	struct lookup *l;

	if (!tenant_take(tenant, SHARE_LOOKUPS, egress->n_lookups, MAX_LOOKUPS))
		return NULL;
	egress->n_lookups++;
	l = XNEW(struct lookup);
	l->tenant = tenant_ref(tenant);
	l->question = *question;
	l->fd = -EBADF;
	l->attempt = -1;
	l->fn = fn;
	l->arg = arg;
	l->out = BUF_INIT(DNS_PLAIN_MAX);
	l->in = BUF_INIT(DNS_MESSAGE_MAX + 2 + SCRATCH_BYTES);
	l->until_ms = loop_now_ms(egress->loop) + TOTAL_MS;
	loop_timer_init(&l->timer, egress->loop, on_timer, l);
	if (find_cached(l)) {
		finish(l);
		return l;
	}
	l->n_servers = servers_get(egress->servers, l->servers);
	try_next(l);
	return l;
}
