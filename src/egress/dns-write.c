#include "egress/dns.h"

enum {
	FLAGS_QUERY = 0x0100, /* recursion desired */
	FLAGS_REPLY = 0x8080, /* a response, recursion available */
	FLAG_CUT = 0x0200,
	FLAG_RECURSE = 0x0100,
	POINTER_TO_QUESTION = 0xc00c,
	FLAGS_AT = 2,
	ANSWERS_AT = 6,
	OPT_BYTES = 11,
};

static void put16(struct buf *out, unsigned value)
{
	const char bytes[2] = { (char)(value >> 8), (char)value };

	(void)buf_add(out, bytes, sizeof bytes);
}

static void put32(struct buf *out, uint32_t value)
{
	put16(out, value >> 16);
	put16(out, value & 0xffff);
}

static void set16(struct buf *out, size_t at, unsigned value)
{
	out->p[at] = (char)(value >> 8);
	out->p[at + 1] = (char)value;
}

static void put_question(struct buf *out, const struct dns_question *question)
{
	(void)buf_add(out, question->name.p, question->name.n);
	put16(out, question->type);
	put16(out, question->class);
}

static void put_options(struct buf *out)
{
	(void)buf_addc(out, 0); /* the root owns it */
	put16(out, DNS_OPT);
	put16(out, DNS_UDP_MAX);
	put32(out, 0);
	put16(out, 0);
}

int dns_write_query(struct buf *out, uint16_t id, const struct dns_question *question)
{
	put16(out, id);
	put16(out, FLAGS_QUERY);
	put16(out, 1);
	put32(out, 0);
	put16(out, 1);
	put_question(out, question);
	put_options(out);
	return out->failed ? -ENOBUFS : 0;
}

static void put_record(struct buf *out, const struct dns_question *question,
	const struct dns_record *record, uint32_t age_s)
{
	if (dns_name_equal(&record->owner, &question->name))
		put16(out, POINTER_TO_QUESTION);
	else
		(void)buf_add(out, record->owner.p, record->owner.n);
	put16(out, record->type);
	put16(out, DNS_CLASS_IN);
	put32(out, record->ttl_s - MIN(age_s, record->ttl_s));
	put16(out, (unsigned)record->data.n);
	(void)buf_add_str(out, record->data);
}

/* False: they did not all fit, and none is there: half a set would be taken for the whole. */
static bool put_records(struct buf *out, const struct dns_query *query,
	const struct dns_answer *answer, uint32_t age_s, size_t max)
{
	size_t start = out->n;

	for (size_t i = 0; i < answer->n; i++) {
		put_record(out, &query->question, &answer->records[i], age_s);
		if (out->failed || out->n > max) {
			out->n = start;
			return false;
		}
	}
	set16(out, ANSWERS_AT, (unsigned)answer->n);
	return true;
}

int dns_write_reply(struct buf *out, const struct dns_query *query, enum dns_rcode rcode,
	const struct dns_answer *answer, uint32_t age_s, size_t max)
{
	unsigned flags = FLAGS_REPLY | (unsigned)(answer ? answer->rcode : rcode) |
			 (query->wants_recursion ? FLAG_RECURSE : 0);
	size_t reserved = query->has_edns ? OPT_BYTES : 0;

	put16(out, query->id);
	put16(out, flags);
	put16(out, query->question.name.n > 0);
	put32(out, 0);
	put16(out, query->has_edns);
	if (query->question.name.n > 0)
		put_question(out, &query->question);
	if (out->failed)
		return -ENOBUFS;
	if (answer && !put_records(out, query, answer, age_s, max - reserved))
		set16(out, FLAGS_AT, flags | FLAG_CUT);
	out->failed = false;
	if (query->has_edns)
		put_options(out);
	return out->failed ? -ENOBUFS : 0;
}
