#include "guest/schema.h"

#include "test.h"

/* The tables are checked through what is reachable from the requests and the answers. */
static void check_message(const struct proto_message *m, unsigned depth)
{
	ASSERT(m->n_fields <= PROTO_MAX_FIELDS);
	ASSERT(depth <= PROTO_MAX_DEPTH);
	for (size_t i = 0; i < m->n_fields; i++) {
		const struct proto_field *f = &m->fields[i];

		ASSERT(f->number > 0 && f->name);
		ASSERT_EQ(f->kind == PROTO_MESSAGE, f->message != NULL);
		ASSERT_EQ(f->kind == PROTO_ENUM, f->values != NULL);
		for (size_t j = 0; j < i; j++) {
			ASSERT(m->fields[j].number < f->number);
			ASSERT(strcmp(m->fields[j].name, f->name) != 0);
		}
		if (f->message)
			check_message(f->message, depth + 1);
	}
}

TEST(every_table_is_sound)
{
	static const struct proto_message *const all[] = { &schema_empty, &schema_process_start,
		&schema_process_connect, &schema_process_followed, &schema_process_listed,
		&schema_process_update, &schema_process_send_input, &schema_process_stream_input,
		&schema_process_send_signal, &schema_process_close_stdin, &schema_filesystem_path,
		&schema_filesystem_move, &schema_filesystem_list, &schema_filesystem_entry,
		&schema_filesystem_listed, &schema_filesystem_watch, &schema_filesystem_watched,
		&schema_filesystem_watcher, &schema_filesystem_events };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		check_message(all[i], 1);
}

struct output_case {
	struct backlog_event event;
	const char *json;
};

/* What is made by hand must be what the table makes of the same event. */
static void check_output(const struct output_case *c)
{
	CLEANUP(buf_done) struct buf frame = BUF_INIT(4096), proto = BUF_INIT(4096);
	struct str payload;

	schema_add_output(&frame, &c->event);
	payload = str_from(buf_str(&frame), CONNECT_HEAD);
	ASSERT_EQ(frame.p[0], 0);
	ASSERT_EQ(frame.p[4], payload.n);
	ASSERT_EQ(proto_from_json(&schema_process_followed, str_of(c->json), &proto, NULL), 0);
	ASSERT(str_eq(payload, buf_str(&proto)));
}

TEST(output_made_at_once_is_what_the_table_says)
{
	static const struct output_case cases[] = {
		{ { 1, OUTPUT_STDOUT, STR("hi\0\xff") },
			"{\"event\":{\"data\":{\"stdout\":\"aGkA/w==\",\"seq\":1}}}" },
		{ { 300, OUTPUT_STDERR, STR("") },
			"{\"event\":{\"data\":{\"stderr\":\"\",\"seq\":300}}}" },
		{ { UINT64_C(1) << 40, OUTPUT_PTY, STR("$ ") },
			"{\"event\":{\"data\":{\"pty\":\"JCA=\",\"seq\":1099511627776}}}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		check_output(&cases[i]);
}
