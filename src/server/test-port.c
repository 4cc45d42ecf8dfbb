#include "server/port.h"
#include "http/http.h"

#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

TEST(only_who_listens_at_that_address_or_at_all_is_in_the_way)
{
	static const struct {
		const char *line, *address;
		bool want;
	} cases[] = {
		{ "   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     "
		  "0"
		  "        0 4711 1 0000000000000000 100 0 0 10 0",
			"0100007F", true },
		{ "  17: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     "
		  "0"
		  "        0 4711 1 0000000000000000 100 0 0 10 0",
			"0100007F", true },
		{ "   1: 00000000000000000000000000000000:0BB8 "
		  "00000000000000000000000000000000:0000 0A "
		  "00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0",
			"0100007F", true },
		{ "   0: 0200007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     "
		  "0"
		  "        0 4711 1 0000000000000000 100 0 0 10 0",
			"0100007F", false },
		{ "   0: 0200007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     "
		  "0"
		  "        0 4711 1 0000000000000000 100 0 0 10 0",
			NULL, true },
		{ "   0: 0100007F:0BB8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     "
		  "0"
		  "        0 4711 1 0000000000000000 100 0 0 10 0",
			"0100007F", false }, /* a connection */
		{ "   0: 0100007F:0BB9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     "
		  "0"
		  "        0 4711 1 0000000000000000 100 0 0 10 0",
			"0100007F", false },
		{ "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   "
		  "uid  "
		  "timeout inode",
			"0100007F", false },
		{ "   0: 0100007F:0BB8 00000000:0000 0A", "0100007F", false },
		{ "", "0100007F", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t inode = 0;
		bool got = port_listens(str_of(cases[i].line), 3000, cases[i].address, &inode);

		if (got != cases[i].want || (got && inode != 4711))
			TEST_FAIL("%zu: %d %" PRIu64, i, got, inode);
	}
}

TEST(the_process_that_listens_is_named_with_what_to_do)
{
	cleanup_close int fd = http_listen("127.0.0.1:0", NULL);
	struct sockaddr_in at = { 0 };
	socklen_t size = sizeof at;
	struct port_owner owner;
	struct err e = { 0 };
	char listen[32];

	ASSERT_EQ(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	(void)snprintf(listen, sizeof listen, "127.0.0.1:%d", ntohs(at.sin_port));
	ASSERT_EQ(port_find_owner(listen, &owner), 0);
	ASSERT_EQ(owner.pid, getpid());
	ASSERT(!owner.is_atoll);
	ASSERT_EQ(port_explain(listen, &e), -EADDRINUSE);
	ASSERT(strstr(e.msg, "test-") && strstr(e.msg, "--listen"));
	ASSERT_EQ(port_find_owner("unix:/tmp/x", &owner), -ENOENT);
	ASSERT_EQ(port_find_owner("127.0.0.1:0", &owner), -ENOENT);
}
