#include "edge/edge.h"

#include "test.h"

TEST(requests_find_their_sandbox)
{
	static const struct {
		const char *host, *id, *port;
		enum edge_kind kind;
		const char *want_id;
		int want_port;
	} cases[] = {
		{ "8000-iabc1.example.com", NULL, NULL, EDGE_TARGET, "iabc1", 8000 },
		{ "8000-iabc1.localhost:3000", NULL, NULL, EDGE_TARGET, "iabc1", 8000 },
		{ "49983-iabc1-6532622b.e.com", NULL, NULL, EDGE_TARGET, "iabc1", 49983 },
		{ "8000-iabc1.example.com", "iother", "1", EDGE_TARGET, "iabc1", 8000 },
		{ "localhost:3000", "iabc1", "49983", EDGE_TARGET, "iabc1", 49983 },
		{ "LOCALHOST", "iabc1", "49983", EDGE_TARGET, "iabc1", 49983 },
		{ "127.0.0.1:3000", "iabc1-6532622b", "80", EDGE_TARGET, "iabc1", 80 },
		{ "[::1]:3000", "iabc1", "80", EDGE_TARGET, "iabc1", 80 },
		{ "sandbox.example.com", "iabc1", "80", EDGE_TARGET, "iabc1", 80 },
		{ "localhost:3000", NULL, NULL, EDGE_OTHER, NULL, 0 },
		{ "api.example.com", "iabc1", "80", EDGE_OTHER, NULL, 0 },
		{ "my-host.example.com", NULL, NULL, EDGE_OTHER, NULL, 0 },
		{ "", NULL, NULL, EDGE_OTHER, NULL, 0 },
		{ "8000-iabc1", NULL, NULL, EDGE_OTHER, NULL, 0 },
		{ "localhost", "iabc1", NULL, EDGE_BAD, NULL, 0 },
		{ "localhost", NULL, "80", EDGE_BAD, NULL, 0 },
		{ "localhost", "iabc1", "http", EDGE_BAD, NULL, 0 },
		{ "localhost", "../etc", "80", EDGE_BAD, NULL, 0 },
		{ "localhost", "", "80", EDGE_BAD, NULL, 0 },
		{ "0-iabc1.example.com", NULL, NULL, EDGE_BAD, NULL, 0 },
		{ "65536-iabc1.example.com", NULL, NULL, EDGE_BAD, NULL, 0 },
		{ "80-IABC.example.com", NULL, NULL, EDGE_BAD, NULL, 0 },
		{ "80-.example.com", NULL, NULL, EDGE_BAD, NULL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct edge_target got = edge_parse(str_of(cases[i].host), str_of(cases[i].id),
			str_of(cases[i].port));

		if (got.kind != cases[i].kind)
			TEST_FAIL("%s: kind %d", cases[i].host, (int)got.kind);
		if (got.kind == EDGE_TARGET) {
			ASSERT_BYTES(got.id, cases[i].want_id);
			ASSERT_EQ(got.port, cases[i].want_port);
		}
		if (got.kind == EDGE_BAD)
			ASSERT(got.why);
	}
}
