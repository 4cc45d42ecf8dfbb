#include "egress/dns.h"

enum {
	HEADER_BYTES = 12,
	MAX_JUMPS = 32,         /* of compression in one name */
	MAX_SEEN_RECORDS = 512, /* looked at in one answer */
	ANSWER_MAX_BYTES = 64 << 10,
	NEGATIVE_TTL_S = 30,
	FLAG_RESPONSE = 0x8000,
	FLAG_CUT = 0x0200,
	FLAG_RECURSE = 0x0100,
	OPCODE_MASK = 0x7800,
	RCODE_MASK = 0x000f,
};

/* ---- a cursor that does not leave its message ---- */

struct reader {
	const uint8_t *p;
	size_t n, at;
	bool failed;
};

static uint8_t get8(struct reader *r)
{
	if (r->failed || r->at >= r->n) {
		r->failed = true;
		return 0;
	}
	return r->p[r->at++];
}

static uint16_t get16(struct reader *r)
{
	uint16_t high = get8(r);

	return (uint16_t)(high << 8 | get8(r));
}

static uint32_t get32(struct reader *r)
{
	uint32_t high = get16(r);

	return high << 16 | get16(r);
}

static bool add_label(struct reader *r, size_t *at, uint8_t n, struct dns_name *ret)
{
	if (*at + n > r->n || ret->n + n + 2u > DNS_NAME_MAX)
		return false;
	ret->p[ret->n++] = n;
	memcpy(ret->p + ret->n, r->p + *at, n);
	ret->n = (uint8_t)(ret->n + n);
	*at += n;
	return true;
}

/* A pointer must lead backwards, so that none leads in a circle; the cursor stays behind the first.
 */
static void get_name(struct reader *r, struct dns_name *ret)
{
	size_t at = r->at, end = 0, lowest = r->at;

	ret->n = 0;
	for (int jumps = 0; !r->failed && at < r->n;) {
		uint8_t n = r->p[at++];

		if (n == 0) {
			ret->p[ret->n++] = 0;
			r->at = end ? end : at;
			return;
		}
		if (n < 64) {
			if (!add_label(r, &at, n, ret))
				break;
			continue;
		}
		if ((n & 0xc0) != 0xc0 || at >= r->n || ++jumps > MAX_JUMPS)
			break;
		end = end ? end : at + 1;
		at = (size_t)(n & 0x3f) << 8 | r->p[at];
		if (at >= lowest)
			break;
		lowest = at;
	}
	r->failed = true;
}

struct header {
	uint16_t id, flags, n_questions, n_answers, n_authority, n_additional;
};

static struct header get_header(struct reader *r)
{
	struct header h;

	h.id = get16(r);
	h.flags = get16(r);
	h.n_questions = get16(r);
	h.n_answers = get16(r);
	h.n_authority = get16(r);
	h.n_additional = get16(r);
	return h;
}

static void get_question(struct reader *r, struct dns_question *ret)
{
	get_name(r, &ret->name);
	ret->type = get16(r);
	ret->class = get16(r);
}

struct record_head {
	struct dns_name owner;
	uint16_t type, class, n;
	uint32_t ttl_s;
};

/* Behind it the cursor is at its n bytes of data, all of which are there. */
static void get_record_head(struct reader *r, struct record_head *ret)
{
	get_name(r, &ret->owner);
	ret->type = get16(r);
	ret->class = get16(r);
	ret->ttl_s = get32(r);
	ret->n = get16(r);
	if (r->n - r->at < ret->n)
		r->failed = true;
}

/* ---- queries ---- */

static int read_options(struct reader *r, int n_records, struct dns_query *q)
{
	for (int i = 0; i < n_records; i++) {
		struct record_head head;

		get_record_head(r, &head);
		if (r->failed || (head.type == DNS_OPT && q->has_edns))
			return DNS_FORMERR;
		r->at += head.n;
		if (head.type != DNS_OPT)
			continue; /* TSIG, say: nothing that we could honour */
		q->has_edns = true;
		q->udp_max = MIN(MAX(head.class, DNS_PLAIN_MAX), DNS_UDP_MAX);
	}
	return DNS_OK;
}

int dns_parse_query(struct str message, struct dns_query *ret)
{
	struct reader r = { (const uint8_t *)message.p, message.n, 0, false };
	struct header h = get_header(&r);
	int rcode;

	*ret = (struct dns_query){ .id = h.id,
		.wants_recursion = (h.flags & FLAG_RECURSE) != 0,
		.udp_max = DNS_PLAIN_MAX };
	if (r.failed || (h.flags & FLAG_RESPONSE))
		return -EBADMSG;
	if (h.flags & OPCODE_MASK)
		return DNS_NOTIMP;
	if (h.n_questions != 1 || h.n_answers || h.n_authority || h.n_additional > 4)
		return DNS_FORMERR;
	get_question(&r, &ret->question);
	if (!r.failed) {
		rcode = read_options(&r, h.n_additional, ret);
		if (rcode == DNS_OK)
			return DNS_OK;
	}
	ret->question.name.n = 0;
	return DNS_FORMERR;
}

/* ---- answers ---- */

struct dns_answer *dns_answer_new(enum dns_rcode rcode)
{
	struct dns_answer *answer = XNEW(struct dns_answer);

	answer->n_refs = 1;
	answer->rcode = rcode;
	answer->ttl_s = NEGATIVE_TTL_S;
	answer->arena = arena_new((size_t)2 * ANSWER_MAX_BYTES);
	return answer;
}

struct dns_answer *dns_answer_unref(struct dns_answer *answer)
{
	if (!answer || --answer->n_refs > 0)
		return NULL;
	(void)arena_free(answer->arena);
	free(answer);
	return NULL;
}

uint32_t dns_record_address(const struct dns_record *record)
{
	const uint8_t *p = (const uint8_t *)record->data.p;

	assert(record->type == DNS_A && record->data.n == 4);
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

size_t dns_answer_drop(struct dns_answer *answer, bool (*drop)(const void *arg, uint32_t address),
	const void *arg)
{
	size_t kept = 0, dropped;

	for (size_t i = 0; i < answer->n; i++)
		if (answer->records[i].type != DNS_A ||
			!drop(arg, dns_record_address(&answer->records[i])))
			answer->records[kept++] = answer->records[i];
	dropped = answer->n - kept;
	answer->n = kept;
	return dropped;
}

/* How the data of a type is made: so many bytes, so many names, so many bytes. Names may be
 * compressed in these alone; the others are copied as they are. */
static void shape_of(uint16_t type, size_t *before, int *names, size_t *after)
{
	*before = type == DNS_MX ? 2 : type == DNS_SRV ? 6 : 0;
	*names = 0;
	if (type == DNS_CNAME || type == DNS_NS || type == DNS_PTR || type == DNS_MX ||
		type == DNS_SRV || type == DNS_DNAME)
		*names = 1;
	if (type == DNS_SOA)
		*names = 2;
	*after = type == DNS_SOA ? 20 : 0;
}

static int get_data(struct reader *r, const struct record_head *head, struct arena *arena,
	struct str *ret)
{
	size_t end = r->at + head->n, before, after;
	CLEANUP(buf_done) struct buf out = BUF_INIT(ANSWER_MAX_BYTES);
	char *copy;
	int names;

	shape_of(head->type, &before, &names, &after);
	if (head->n < before || (head->type == DNS_A && head->n != 4))
		return -EBADMSG;
	(void)buf_add(&out, r->p + r->at, before);
	r->at += before;
	for (int i = 0; i < names; i++) {
		struct dns_name name;

		get_name(r, &name);
		if (r->failed || r->at > end)
			return -EBADMSG;
		(void)buf_add(&out, name.p, name.n);
	}
	if (names > 0 && end - r->at != after)
		return -EBADMSG;
	(void)buf_add(&out, r->p + r->at, end - r->at);
	r->at = end;
	copy = out.failed ? NULL : arena_dup(arena, buf_str(&out));
	*ret = str_make(copy, out.n);
	return copy ? 0 : -EBADMSG;
}

static void keep(struct dns_answer *answer, const struct record_head *head, struct str data)
{
	answer->ttl_s = answer->n == 0 ? head->ttl_s : MIN(answer->ttl_s, head->ttl_s);
	answer->records[answer->n++] = (struct dns_record){ .owner = head->owner,
		.type = head->type,
		.ttl_s = head->ttl_s,
		.data = data };
}

/* What is not kept is not looked into either, so that an answer full of it costs nothing. */
static int keep_all(struct reader *r, int n_records, const struct dns_question *asked,
	struct dns_answer *answer)
{
	struct dns_name at = asked->name;

	for (int i = 0; i < MIN(n_records, MAX_SEEN_RECORDS); i++) {
		struct record_head head;
		struct str data;

		get_record_head(r, &head);
		if (r->failed)
			return -EBADMSG;
		if (head.class != DNS_CLASS_IN || !dns_name_equal(&head.owner, &at) ||
			answer->n == DNS_MAX_RECORDS ||
			(head.type != asked->type && head.type != DNS_CNAME)) {
			r->at += head.n;
			continue;
		}
		if (get_data(r, &head, answer->arena, &data) < 0)
			return -EBADMSG;
		keep(answer, &head, data);
		if (head.type == DNS_CNAME && asked->type != DNS_CNAME) {
			at.n = (uint8_t)data.n;
			memcpy(at.p, data.p, data.n);
		}
	}
	return 0;
}

/* The records must come in the order of the chain, as every server sends them: one that does not
 * belong to where the chain is now belongs to nobody. */
static int read_answers(struct reader *r, int n_records, const struct dns_question *asked,
	struct dns_answer *answer)
{
	struct dns_record kept[DNS_MAX_RECORDS];
	size_t size;
	int result;

	answer->records = kept;
	result = keep_all(r, n_records, asked, answer);
	answer->records = NULL;
	if (result < 0 || answer->n == 0)
		return result;
	size = answer->n * sizeof *kept;
	answer->records = arena_alloc(answer->arena, size);
	if (!answer->records)
		return -EBADMSG;
	memcpy(answer->records, kept, size);
	return 0;
}

static bool is_same_question(const struct dns_question *a, const struct dns_question *b,
	bool same_case)
{
	if (a->type != b->type || a->class != b->class || !dns_name_equal(&a->name, &b->name))
		return false;
	return !same_case || memcmp(a->name.p, b->name.p, a->name.n) == 0;
}

int dns_parse_answer(struct str message, uint16_t id, const struct dns_question *asked,
	bool same_case, struct dns_answer **ret)
{
	struct reader r = { (const uint8_t *)message.p, message.n, 0, false };
	struct header h = get_header(&r);
	CLEANUP(dns_answer_unrefp) struct dns_answer *answer = NULL;
	struct dns_question question;

	if (r.failed || h.id != id || !(h.flags & FLAG_RESPONSE) || (h.flags & OPCODE_MASK) ||
		h.n_questions != 1)
		return -EBADMSG;
	get_question(&r, &question);
	if (r.failed || !is_same_question(&question, asked, same_case))
		return -EBADMSG;
	if (h.flags & FLAG_CUT)
		return -E2BIG;
	answer = dns_answer_new((enum dns_rcode)(h.flags & RCODE_MASK));
	if (answer->rcode == DNS_OK || answer->rcode == DNS_NXDOMAIN) {
		if (read_answers(&r, h.n_answers, asked, answer) < 0)
			return -EBADMSG;
	}
	*ret = TAKE(answer);
	return 0;
}
