#include "edge/edge-internal.h"

#include "test.h"

TEST(of_a_signed_file_what_a_file_needs_passes)
{
	static const char *const kept[] = { "ETag", "content-range", "Last-Modified",
		"Access-Control-Allow-Origin", "Content-Encoding" };
	static const char *const left[] = { "WWW-Authenticate", "Set-Cookie", "Location", "Refresh",
		"Link", "X-Accel-Redirect", "Access-Control-", "Cache-Control", "X-Own" };
	struct edge_call call = { .is_shared = true, .is_signed = true };

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		ASSERT_BYTES(fields_reply(&call, str_of(kept[i]), STR("v")), "v");
	for (size_t i = 0; i < ARRAY_SIZE(left); i++)
		ASSERT(!fields_reply(&call, str_of(left[i]), STR("v")).p);
	ASSERT_BYTES(fields_reply(&call, STR("Content-Type"), STR("text/html")),
		"application/octet-stream");
}

TEST(orders_to_a_proxy_pass_nowhere)
{
	struct edge_call calls[] = { { .is_shared = false }, { .is_shared = true } };

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		ASSERT(!fields_reply(&calls[i], STR("x-accel-redirect"), STR("/v")).p);
		ASSERT(!fields_reply(&calls[i], STR("X-Sendfile"), STR("/v")).p);
		ASSERT_BYTES(fields_reply(&calls[i], STR("X-Own"), STR("v")), "v");
	}
}
