/* The target a request names must not depend on what stands behind the host's port, nor on letter
 * case of the domain; and an accepted id or port is always within its alphabet and range. */
#include "edge/edge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct edge_target *t)
{
	if (t->kind == EDGE_BAD)
		assert(t->why);
	if (t->kind != EDGE_TARGET)
		return;
	assert(t->port >= 1 && t->port <= 65535 && t->id.n > 0);
	for (size_t i = 0; i < t->id.n; i++)
		assert((t->id.p[i] >= 'a' && t->id.p[i] <= 'z') ||
			(t->id.p[i] >= '0' && t->id.p[i] <= '9'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str rest = str_make(data, size), host = STR_NONE, id = STR_NONE, port = STR_NONE;
	CLEANUP(buf_done) struct buf with_port = BUF_INIT(1 << 20);
	struct edge_target plain, other;

	if (!str_split(&rest, '\n', &host))
		return 0;
	(void)str_split(&rest, '\n', &id);
	(void)str_split(&rest, '\n', &port);
	plain = edge_parse(host, id, port);
	check(&plain);
	if (str_find(host, ':') >= 0 || str_find(host, '[') >= 0)
		return 0;
	(void)buf_add_str(&with_port, host);
	(void)buf_adds(&with_port, ":3000");
	other = edge_parse(buf_str(&with_port), id, port);
	assert(plain.kind == other.kind && plain.port == other.port && str_eq(plain.id, other.id));
	return 0;
}
