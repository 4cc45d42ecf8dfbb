/* What protobuf says in JSON, said in protobuf again, is the same JSON; and any text may be offered
 * as JSON. The table has one field of each kind, and itself inside itself. */
#include "connect/connect.h"

static const struct proto_name names[] = { { "ZERO", 0 }, { "ONE", 1 }, { "LESS", -1 } };
static const struct proto_enum values = PROTO_ENUM_OF(names);
static const struct proto_message message;
static const struct proto_field fields[] = {
	{ 1, "bool", PROTO_BOOL },
	{ 2, "uint", PROTO_UINT32 },
	{ 3, "long", PROTO_INT64 },
	{ 4, "sint", PROTO_SINT32 },
	{ 5, "enum", PROTO_ENUM, .values = &values },
	{ 6, "string", PROTO_STRING, .oneof = 1 },
	{ 7, "bytes", PROTO_BYTES, .oneof = 1 },
	{ 8, "message", PROTO_MESSAGE, .oneof = 1, .message = &message },
	{ 9, "time", PROTO_TIMESTAMP },
	{ 10, "map", PROTO_STRING_MAP },
	{ 11, "strings", PROTO_STRING, .is_repeated = true },
	{ 12, "sints", PROTO_SINT32, .is_repeated = true },
	{ 13, "messages", PROTO_MESSAGE, .is_repeated = true, .message = &message },
	{ 1000, "enums", PROTO_ENUM, .is_repeated = true, .values = &values },
};
static const struct proto_message message = PROTO_MESSAGE_OF(fields);

enum {
	MAX_BYTES = 1 << 20
};

static void there_and_back(struct str bytes)
{
	CLEANUP(buf_done) struct buf json = BUF_INIT(MAX_BYTES);
	CLEANUP(buf_done) struct buf again = BUF_INIT(MAX_BYTES);
	CLEANUP(buf_done) struct buf proto = BUF_INIT((size_t)2 * MAX_BYTES);
	int r;

	if (proto_to_json(&message, bytes, &json, NULL) < 0)
		return;
	r = proto_from_json(&message, buf_str(&json), &proto, NULL);
	assert(r == 0);
	r = proto_to_json(&message, buf_str(&proto), &again, NULL);
	assert(r == 0);
	assert(str_eq(buf_str(&json), buf_str(&again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(buf_done) struct buf proto = BUF_INIT(MAX_BYTES);
	struct str bytes = str_make(data, size);

	there_and_back(bytes);
	if (proto_from_json(&message, bytes, &proto, NULL) == 0)
		there_and_back(buf_str(&proto));
	return 0;
}
