/* The book-keeping of admission.h, without a socket. */
#include "http/admission.h"

#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum {
	SLOTS = 64,
};

struct fixture {
	struct admission a;
	struct slot slots[SLOTS * 2];
	struct slot *evicted; /* the last one */
	int n_evicted;
};

static struct fixture *fixture; /* of the test that runs */

static void on_evict(struct slot *slot)
{
	fixture->evicted = slot;
	fixture->n_evicted++;
}

static void fixture_done(struct fixture **h)
{
	for (size_t i = 0; i < ARRAY_SIZE((*h)->slots); i++)
		admission_leave(&(*h)->slots[i]);
	admission_done(&(*h)->a);
	free(*h);
	fixture = NULL;
}

static struct fixture *fixture_new(size_t stranger_body_bytes)
{
	struct http_limits limits = { .max_connections = SLOTS,
		.stranger_body_bytes = stranger_body_bytes,
		.max_queued_bytes = 1000 };

	fixture = XNEW(struct fixture);
	admission_init(&fixture->a, &limits);
	for (size_t i = 0; i < ARRAY_SIZE(fixture->slots); i++)
		fixture->slots[i].evict = on_evict;
	return fixture;
}

#define FIXTURE(bytes) __attribute__((cleanup(fixture_done))) struct fixture *h = fixture_new(bytes)

static struct sockaddr_storage peer(const char *text)
{
	struct sockaddr_storage address = { .ss_family = AF_INET };
	struct sockaddr_in *in4 = (void *)&address;
	struct sockaddr_in6 *in6 = (void *)&address;

	if (inet_pton(AF_INET, text, &in4->sin_addr) == 1)
		return address;
	address.ss_family = AF_INET6;
	(void)inet_pton(AF_INET6, text, &in6->sin6_addr);
	return address;
}

static int enter(struct fixture *h, size_t i, const char *from)
{
	struct sockaddr_storage address = peer(from);

	return admission_enter(&h->a, &h->slots[i], &address);
}

static int admit(struct fixture *h, size_t i, const char *team, enum http_use use)
{
	struct http_claim claim = { .holder = str_of(team), .use = use };

	return admission_admit(&h->slots[i], &claim, NULL);
}

/* How many of `n` more a team gets. */
static size_t grab(struct fixture *h, size_t from, size_t n, const char *team, enum http_use use)
{
	size_t got = 0;

	for (size_t i = from; i < from + n; i++) {
		if (enter(h, i, "127.0.0.1") < 0)
			break;
		if (admit(h, i, team, use) < 0)
			admission_leave(&h->slots[i]);
		else
			got++;
	}
	return got;
}

TEST(the_slowest_stranger_gives_way)
{
	FIXTURE(1);

	for (size_t i = 0; i < SLOTS; i++)
		ASSERT_EQ(enter(h, i, "127.0.0.1"), 0);
	admission_set_idle(&h->slots[0]); /* was answered just now */
	ASSERT_EQ(enter(h, SLOTS, "127.0.0.1"), 0);
	ASSERT_EQ(h->evicted - h->slots, 1);
	ASSERT_EQ(enter(h, SLOTS + 1, "127.0.0.1"), 0);
	ASSERT_EQ(h->evicted - h->slots, 2);
	ASSERT_EQ(h->a.n, SLOTS);
	ASSERT_EQ(h->a.counts.evicted_strangers, 2);
}

TEST(strangers_push_out_those_of_the_busiest_address)
{
	FIXTURE(1);

	ASSERT_EQ(enter(h, 0, "192.0.2.1"), 0); /* the oldest of all, and alone */
	ASSERT_EQ(enter(h, 1, "2001:db8:1:1::7"), 0);
	for (size_t i = 2; i < SLOTS; i++)
		ASSERT_EQ(enter(h, i, "198.51.100.9"), 0);
	for (size_t i = SLOTS; i < 2 * SLOTS - 8; i++) {
		ASSERT_EQ(enter(h, i, i % 2 ? "198.51.100.9" : "192.0.2.77"), 0);
		ASSERT(h->evicted != &h->slots[0] && h->evicted != &h->slots[1]);
	}
	ASSERT_EQ(h->n_evicted, SLOTS - 8);
}

TEST(addresses_are_those_of_a_network)
{
	FIXTURE(1);

	ASSERT_EQ(enter(h, 0, "2001:db8:1:1::1"), 0);
	ASSERT_EQ(enter(h, 1, "2001:db8:1:1:ffff::2"), 0);
	ASSERT_EQ(enter(h, 2, "192.0.2.1"), 0);
	ASSERT_EQ(enter(h, 3, "::ffff:192.0.2.1"), 0);
	ASSERT(h->slots[0].address == h->slots[1].address);
	ASSERT(h->slots[2].address == h->slots[3].address);
}

TEST(a_team_gets_half_of_what_others_leave)
{
	size_t usable = SLOTS - SLOTS / 16, first, second, third;
	FIXTURE(1);

	ASSERT_EQ(h->a.reserve, SLOTS - usable);
	first = grab(h, 0, SLOTS, "one", HTTP_CALL);
	ASSERT_EQ(first, usable / 2);
	second = grab(h, SLOTS, SLOTS, "two", HTTP_CALL);
	ASSERT_EQ(second, (usable - first + 1) / 2);
	for (size_t i = first; i < SLOTS; i++)
		admission_leave(&h->slots[i]);
	third = grab(h, first, SLOTS - first, "three", HTTP_CALL);
	ASSERT_EQ(third, (usable - first - second + 1) / 2);
	ASSERT_EQ(h->a.n_teams, first + second + third);
}

TEST(streams_and_visitors_leave_room_for_calls)
{
	size_t half = (SLOTS - SLOTS / 16) / 2, visits, streams, calls;
	FIXTURE(1);

	visits = grab(h, 0, half, "one", HTTP_VISIT);
	ASSERT_EQ(visits, half - half / 2);
	streams = grab(h, half, half, "one", HTTP_STREAM);
	ASSERT_EQ(visits + streams, half - half / 4);
	calls = grab(h, 2 * half, half, "one", HTTP_CALL);
	ASSERT_EQ(visits + streams + calls, half);
	ASSERT_EQ(h->a.counts.refused > 0, true);
}

TEST(a_team_at_its_limit_closes_its_own_idle_ones_first)
{
	size_t half = (SLOTS - SLOTS / 16) / 2;
	FIXTURE(1);

	ASSERT_EQ(grab(h, 0, half, "one", HTTP_CALL), half);
	admission_set_idle(&h->slots[3]);
	admission_set_idle(&h->slots[2]);
	ASSERT_EQ(grab(h, SLOTS, 3, "one", HTTP_CALL), 2);
	ASSERT_EQ(h->n_evicted, 2);
	ASSERT_EQ(h->evicted - h->slots, 2);
	/* One that has its slot goes on using it. */
	ASSERT_EQ(admit(h, 0, "one", HTTP_CALL), 0);
}

TEST(a_newcomer_finds_a_seat_while_teams_hold_theirs)
{
	size_t n = 0;
	FIXTURE(1);

	for (int i = 0; i < 8; i++) { /* each takes what it gets */
		char name[8];

		(void)snprintf(name, sizeof name, "t%d", i);
		n += grab(h, n, SLOTS, name, HTTP_CALL);
		for (size_t k = n; k < ARRAY_SIZE(h->slots); k++)
			admission_leave(&h->slots[k]);
	}
	ASSERT(h->a.n_teams <= SLOTS - h->a.reserve);
	h->n_evicted = 0;
	for (size_t i = n; i < ARRAY_SIZE(h->slots); i++)
		ASSERT_EQ(enter(h, i, "127.0.0.1"), 0);
	ASSERT_EQ(h->a.n, SLOTS);
	ASSERT_EQ(h->a.counts.evicted_idle, 0);
	ASSERT_EQ(h->a.counts.turned_away, 0);
}

TEST(operators_have_what_teams_never_get)
{
	size_t n, reserve;
	FIXTURE(1);

	reserve = h->a.reserve;
	h->a.n_teams = SLOTS - reserve; /* as if all were taken */
	ASSERT_EQ(enter(h, 0, "127.0.0.1"), 0);
	ASSERT_EQ(admit(h, 0, "one", HTTP_CALL), -EDQUOT);
	n = grab(h, 1, SLOTS / 2, "", HTTP_CALL);
	ASSERT_EQ(n, reserve);
	h->a.n_teams = 0;
}

TEST(administrators_of_a_team_get_half_of_the_reserve)
{
	struct http_claim claim = { .holder = STR("one"), .is_admin = true };
	size_t got = 0;
	FIXTURE(1);

	h->a.n_teams = SLOTS - h->a.reserve;
	for (size_t i = 0; i < h->a.reserve; i++) {
		ASSERT_EQ(enter(h, i, "127.0.0.1"), 0);
		got += admission_admit(&h->slots[i], &claim, NULL) == 0;
	}
	ASSERT_EQ(got, h->a.reserve / 2);
	claim.use = HTTP_STREAM; /* calls alone */
	admission_leave(&h->slots[0]);
	ASSERT_EQ(enter(h, 0, "127.0.0.1"), 0);
	ASSERT_EQ(admission_admit(&h->slots[0], &claim, NULL), -EDQUOT);
	h->a.n_teams = 0;
}

TEST(a_connection_changes_hands)
{
	FIXTURE(1);

	ASSERT_EQ(enter(h, 0, "127.0.0.1"), 0);
	ASSERT_EQ(admit(h, 0, "one", HTTP_CALL), 0);
	admission_note(&h->slots[0], 10, 0);
	ASSERT_EQ(admit(h, 0, "two", HTTP_STREAM), 0);
	ASSERT(!map_get(&h->a.by_name, STR("one")));
	ASSERT_EQ(h->slots[0].holder->bytes, 10);
	ASSERT_EQ(h->a.n_teams, 1);
	admission_leave(&h->slots[0]);
	ASSERT(!map_get(&h->a.by_name, STR("two")));
	ASSERT_EQ(h->a.bytes, 0);
}

TEST(who_does_not_read_loses_its_longest_unread_reply)
{
	FIXTURE(1);

	for (size_t i = 0; i < 6; i++)
		ASSERT_EQ(enter(h, i, "127.0.0.1"), 0);
	for (size_t i = 0; i < 5; i++)
		ASSERT_EQ(admit(h, i, "one", HTTP_CALL), 0);
	ASSERT_EQ(admit(h, 5, "two", HTTP_CALL), 0);
	admission_note(&h->slots[5], 100, 0); /* the oldest, of another team */
	for (size_t i = 0; i < 4; i++)
		admission_note(&h->slots[i], 110, 0);
	ASSERT_EQ(h->n_evicted, 0); /* 440 of (1000 - 100) / 2 */
	ASSERT(admission_should_throttle(&h->slots[0]) && !admission_should_throttle(&h->slots[5]));
	ASSERT(!admission_may_collect(&h->slots[4], 11) && admission_may_collect(&h->slots[4], 10));
	admission_note(&h->slots[4], 110, 0);
	ASSERT_EQ(h->n_evicted, 1);
	ASSERT_EQ(h->evicted - h->slots, 0);
	ASSERT_EQ(h->a.counts.cut_bytes, 110);
	ASSERT(strcmp(h->a.counts.last_cut, "one") == 0);
	ASSERT_EQ(h->slots[5].holder->bytes, 100);
}

TEST(one_reply_that_is_too_large_alone_is_cut_itself)
{
	FIXTURE(1);

	ASSERT_EQ(enter(h, 0, "127.0.0.1"), 0);
	ASSERT_EQ(admit(h, 0, "one", HTTP_CALL), 0);
	admission_note(&h->slots[0], 501, 0);
	ASSERT_EQ(h->n_evicted, 1);
	ASSERT(!map_get(&h->a.by_name, STR("one")));
	ASSERT_EQ(h->a.n, 0);
}

TEST(where_nobody_is_told_apart_only_the_idle_give_way)
{
	FIXTURE(0);

	for (size_t i = 0; i < SLOTS; i++) {
		ASSERT_EQ(enter(h, i, "127.0.0.1"), 0);
		admission_set_busy(&h->slots[i]);
	}
	ASSERT_EQ(enter(h, SLOTS, "127.0.0.1"), -EAGAIN);
	ASSERT_EQ(h->a.counts.turned_away, 1);
	admission_set_idle(&h->slots[7]);
	ASSERT_EQ(enter(h, SLOTS, "127.0.0.1"), 0);
	ASSERT_EQ(h->evicted - h->slots, 7);
	ASSERT_EQ(admit(h, 0, "one", HTTP_VISIT), 0);
	admission_note(&h->slots[0], 1 << 20, 0);
	ASSERT_EQ(h->n_evicted, 1);
}
