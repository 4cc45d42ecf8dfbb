/* The first byte chooses: a query, whose reply must fit and be an answer to it; or an answer, which
 * written again must read the same. */
#include "egress/dns.h"

#include "egress/egress-internal.h"
#include "egress/names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct dns_question asked = { .name = { 13, "\7example\3com" },
	.type = DNS_A,
	.class = DNS_CLASS_IN };

static bool is_odd(const void *arg, uint32_t address)
{
	(void)arg;
	return address & 1;
}

static void check_reply(const struct dns_query *query, const struct dns_answer *answer)
{
	CLEANUP(buf_done) struct buf out = BUF_INIT(256 << 10);
	struct dns_answer *again = NULL;
	int r;

	assert(dns_write_reply(&out, query, DNS_NXDOMAIN, answer, 0, query->udp_max) == 0);
	assert(out.n <= query->udp_max);
	if (query->question.name.n == 0)
		return;
	r = dns_parse_answer(buf_str(&out), query->id, &query->question, true, &again);
	assert(r == 0 || r == -E2BIG);
	if (r == 0 && answer) {
		assert(again->n == answer->n && again->rcode == answer->rcode);
		for (size_t i = 0; i < answer->n; i++)
			assert(str_eq(again->records[i].data, answer->records[i].data));
	}
	(void)dns_answer_unref(again);
}

static void try_query(struct str message)
{
	static const struct policy open = { .is_open = true };
	struct dns_query query;
	char text[DNS_TEXT_SIZE];
	struct dns_name again;

	if (dns_parse_query(message, &query) < 0)
		return;
	assert(query.udp_max >= DNS_PLAIN_MAX && query.udp_max <= DNS_UDP_MAX);
	check_reply(&query, NULL);
	if (query.question.name.n == 0)
		return;
	if (names_judge(&open, &query.question, (bool)(message.n & 1), text) == JUDGED_ASK) {
		assert(dns_name_parse(str_of(text), &again) == 0);
		assert(dns_name_equal(&again, &query.question.name));
	}
}

static void try_answer(struct str message)
{
	struct dns_query query = { .id = 0x3031, .udp_max = DNS_UDP_MAX, .question = asked };
	struct dns_answer *answer = NULL;

	if (dns_parse_answer(message, query.id, &asked, false, &answer) < 0)
		return;
	check_reply(&query, answer);
	(void)dns_answer_drop(answer, is_odd, NULL);
	for (size_t i = 0; i < answer->n; i++)
		assert(answer->records[i].type != DNS_A ||
			!is_odd(NULL, dns_record_address(&answer->records[i])));
	(void)dns_answer_unref(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 1)
		try_answer(str_make(data + 1, size - 1));
	else
		try_query(str_make(data + 1, size - 1));
	return 0;
}
