#include "guest/schema.h"

/* Our own additions to a message: far from the numbers that its owner may still give out, and in
 * two bytes. */
enum {
	OURS = 1000
};

enum {
	ONE_OF = 1 /* no message has two of them */
};

const struct proto_message schema_empty = { 0 };

/* ---- process.Process ---- */

static const struct proto_field selector_fields[] = {
	{ 1, "pid", PROTO_UINT32, .oneof = ONE_OF },
	{ 2, "tag", PROTO_STRING, .oneof = ONE_OF },
};
static const struct proto_message selector = PROTO_MESSAGE_OF(selector_fields);

static const struct proto_field size_fields[] = {
	{ 1, "cols", PROTO_UINT32 },
	{ 2, "rows", PROTO_UINT32 },
};
static const struct proto_message size = PROTO_MESSAGE_OF(size_fields);

static const struct proto_field pty_fields[] = {
	{ 1, "size", PROTO_MESSAGE, .message = &size },
};
static const struct proto_message pty = PROTO_MESSAGE_OF(pty_fields);

static const struct proto_field config_fields[] = {
	{ 1, "cmd", PROTO_STRING },
	{ 2, "args", PROTO_STRING, .is_repeated = true },
	{ 3, "envs", PROTO_STRING_MAP },
	{ 4, "cwd", PROTO_STRING },
};
static const struct proto_message config = PROTO_MESSAGE_OF(config_fields);

static const struct proto_field start_fields[] = {
	{ 1, "process", PROTO_MESSAGE, .message = &config },
	{ 2, "pty", PROTO_MESSAGE, .message = &pty },
	{ 3, "tag", PROTO_STRING },
	{ 4, "stdin", PROTO_BOOL },
};
const struct proto_message schema_process_start = PROTO_MESSAGE_OF(start_fields);

static const struct proto_field connect_fields[] = {
	{ 1, "process", PROTO_MESSAGE, .message = &selector },
	{ OURS, "replayFrom", PROTO_INT64 },
};
const struct proto_message schema_process_connect = PROTO_MESSAGE_OF(connect_fields);

static const struct proto_field gap_fields[] = {
	{ 1, "from", PROTO_INT64 },
	{ 2, "to", PROTO_INT64 },
};
static const struct proto_message gap = PROTO_MESSAGE_OF(gap_fields);

static const struct proto_field started_fields[] = {
	{ 1, "pid", PROTO_UINT32 },
	{ OURS, "replayGap", PROTO_MESSAGE, .message = &gap },
};
static const struct proto_message started = PROTO_MESSAGE_OF(started_fields);

static const uint32_t output_numbers[] = {
	[OUTPUT_STDOUT] = 1,
	[OUTPUT_STDERR] = 2,
	[OUTPUT_PTY] = 3,
};
static const struct proto_field output_fields[] = {
	{ 1, "stdout", PROTO_BYTES, .oneof = ONE_OF },
	{ 2, "stderr", PROTO_BYTES, .oneof = ONE_OF },
	{ 3, "pty", PROTO_BYTES, .oneof = ONE_OF },
	{ OURS, "seq", PROTO_INT64 },
};
static const struct proto_message output = PROTO_MESSAGE_OF(output_fields);

static const struct proto_field ended_fields[] = {
	{ 1, "exitCode", PROTO_SINT32 },
	{ 2, "exited", PROTO_BOOL },
	{ 3, "status", PROTO_STRING },
	{ 4, "error", PROTO_STRING },
};
static const struct proto_message ended = PROTO_MESSAGE_OF(ended_fields);

enum {
	FOLLOWED_EVENT = 1,
	EVENT_DATA = 2,
};
static const struct proto_field event_fields[] = {
	{ 1, "start", PROTO_MESSAGE, .oneof = ONE_OF, .message = &started },
	{ EVENT_DATA, "data", PROTO_MESSAGE, .oneof = ONE_OF, .message = &output },
	{ 3, "end", PROTO_MESSAGE, .oneof = ONE_OF, .message = &ended },
	{ 4, "keepalive", PROTO_MESSAGE, .oneof = ONE_OF, .message = &schema_empty },
};
static const struct proto_message event = PROTO_MESSAGE_OF(event_fields);

static const struct proto_field followed_fields[] = {
	{ FOLLOWED_EVENT, "event", PROTO_MESSAGE, .message = &event },
};
const struct proto_message schema_process_followed = PROTO_MESSAGE_OF(followed_fields);

void schema_add_output(struct buf *out, const struct backlog_event *e)
{
	size_t frame = connect_frame_begin(out), event_mark, data_mark;

	event_mark = proto_begin(out, FOLLOWED_EVENT);
	data_mark = proto_begin(out, EVENT_DATA);
	proto_add_bytes(out, output_numbers[e->kind], e->bytes);
	proto_add_number(out, OURS, e->seq);
	proto_end(out, data_mark);
	proto_end(out, event_mark);
	connect_frame_end(out, frame, 0);
}

static const struct proto_field info_fields[] = {
	{ 1, "config", PROTO_MESSAGE, .message = &config },
	{ 2, "pid", PROTO_UINT32 },
	{ 3, "tag", PROTO_STRING },
};
static const struct proto_message info = PROTO_MESSAGE_OF(info_fields);

static const struct proto_field listed_fields[] = {
	{ 1, "processes", PROTO_MESSAGE, .is_repeated = true, .message = &info },
};
const struct proto_message schema_process_listed = PROTO_MESSAGE_OF(listed_fields);

static const struct proto_field update_fields[] = {
	{ 1, "process", PROTO_MESSAGE, .message = &selector },
	{ 2, "pty", PROTO_MESSAGE, .message = &pty },
};
const struct proto_message schema_process_update = PROTO_MESSAGE_OF(update_fields);

static const struct proto_field input_fields[] = {
	{ 1, "stdin", PROTO_BYTES, .oneof = ONE_OF },
	{ 2, "pty", PROTO_BYTES, .oneof = ONE_OF },
};
static const struct proto_message input = PROTO_MESSAGE_OF(input_fields);

static const struct proto_field send_input_fields[] = {
	{ 1, "process", PROTO_MESSAGE, .message = &selector },
	{ 2, "input", PROTO_MESSAGE, .message = &input },
};
const struct proto_message schema_process_send_input = PROTO_MESSAGE_OF(send_input_fields);

/* CloseStdin, and how a stream of input begins. */
static const struct proto_field chosen_fields[] = {
	{ 1, "process", PROTO_MESSAGE, .message = &selector },
};
const struct proto_message schema_process_close_stdin = PROTO_MESSAGE_OF(chosen_fields);

static const struct proto_field input_data_fields[] = {
	{ 2, "input", PROTO_MESSAGE, .message = &input },
};
static const struct proto_message input_data = PROTO_MESSAGE_OF(input_data_fields);

static const struct proto_field stream_input_fields[] = {
	{ 1, "start", PROTO_MESSAGE, .oneof = ONE_OF, .message = &schema_process_close_stdin },
	{ 2, "data", PROTO_MESSAGE, .oneof = ONE_OF, .message = &input_data },
	{ 3, "keepalive", PROTO_MESSAGE, .oneof = ONE_OF, .message = &schema_empty },
};
const struct proto_message schema_process_stream_input = PROTO_MESSAGE_OF(stream_input_fields);

/* Other signals that rpc-process.c takes go by their numbers. */
static const struct proto_name signal_names[] = {
	{ "SIGNAL_UNSPECIFIED", 0 },
	{ "SIGNAL_SIGKILL", 9 },
	{ "SIGNAL_SIGTERM", 15 },
};
static const struct proto_enum signals = PROTO_ENUM_OF(signal_names);

static const struct proto_field send_signal_fields[] = {
	{ 1, "process", PROTO_MESSAGE, .message = &selector },
	{ 2, "signal", PROTO_ENUM, .values = &signals },
};
const struct proto_message schema_process_send_signal = PROTO_MESSAGE_OF(send_signal_fields);

/* ---- filesystem.Filesystem ---- */

static const struct proto_field path_fields[] = {
	{ 1, "path", PROTO_STRING },
};
const struct proto_message schema_filesystem_path = PROTO_MESSAGE_OF(path_fields);

static const struct proto_field move_fields[] = {
	{ 1, "source", PROTO_STRING },
	{ 2, "destination", PROTO_STRING },
};
const struct proto_message schema_filesystem_move = PROTO_MESSAGE_OF(move_fields);

static const struct proto_field list_fields[] = {
	{ 1, "path", PROTO_STRING },
	{ 2, "depth", PROTO_UINT32 },
};
const struct proto_message schema_filesystem_list = PROTO_MESSAGE_OF(list_fields);

static const struct proto_name file_type_names[] = {
	{ "FILE_TYPE_UNSPECIFIED", 0 },
	{ "FILE_TYPE_FILE", 1 },
	{ "FILE_TYPE_DIRECTORY", 2 },
	{ "FILE_TYPE_SYMLINK", 3 },
};
static const struct proto_enum file_types = PROTO_ENUM_OF(file_type_names);

static const struct proto_field entry_fields[] = {
	{ 1, "name", PROTO_STRING },
	{ 2, "type", PROTO_ENUM, .values = &file_types },
	{ 3, "path", PROTO_STRING },
	{ 4, "size", PROTO_INT64 },
	{ 5, "mode", PROTO_UINT32 },
	{ 6, "permissions", PROTO_STRING },
	{ 7, "owner", PROTO_STRING },
	{ 8, "group", PROTO_STRING },
	{ 9, "modifiedTime", PROTO_TIMESTAMP },
	{ 10, "symlinkTarget", PROTO_STRING },
	{ 11, "metadata", PROTO_STRING_MAP },
};
static const struct proto_message entry = PROTO_MESSAGE_OF(entry_fields);

static const struct proto_field one_entry_fields[] = {
	{ 1, "entry", PROTO_MESSAGE, .message = &entry },
};
const struct proto_message schema_filesystem_entry = PROTO_MESSAGE_OF(one_entry_fields);

static const struct proto_field entries_fields[] = {
	{ 1, "entries", PROTO_MESSAGE, .is_repeated = true, .message = &entry },
};
const struct proto_message schema_filesystem_listed = PROTO_MESSAGE_OF(entries_fields);

static const struct proto_field watch_fields[] = {
	{ 1, "path", PROTO_STRING },
	{ 2, "recursive", PROTO_BOOL },
	{ 3, "includeEntry", PROTO_BOOL },
	{ 4, "allowNetworkMounts", PROTO_BOOL },
};
const struct proto_message schema_filesystem_watch = PROTO_MESSAGE_OF(watch_fields);

static const struct proto_name event_type_names[] = {
	{ "EVENT_TYPE_UNSPECIFIED", 0 },
	{ "EVENT_TYPE_CREATE", 1 },
	{ "EVENT_TYPE_WRITE", 2 },
	{ "EVENT_TYPE_REMOVE", 3 },
	{ "EVENT_TYPE_RENAME", 4 },
	{ "EVENT_TYPE_CHMOD", 5 },
};
static const struct proto_enum event_types = PROTO_ENUM_OF(event_type_names);

static const struct proto_field change_fields[] = {
	{ 1, "name", PROTO_STRING },
	{ 2, "type", PROTO_ENUM, .values = &event_types },
	{ 3, "entry", PROTO_MESSAGE, .message = &entry },
};
static const struct proto_message change = PROTO_MESSAGE_OF(change_fields);

static const struct proto_field watched_fields[] = {
	{ 1, "start", PROTO_MESSAGE, .oneof = ONE_OF, .message = &schema_empty },
	{ 2, "filesystem", PROTO_MESSAGE, .oneof = ONE_OF, .message = &change },
	{ 3, "keepalive", PROTO_MESSAGE, .oneof = ONE_OF, .message = &schema_empty },
};
const struct proto_message schema_filesystem_watched = PROTO_MESSAGE_OF(watched_fields);

static const struct proto_field watcher_fields[] = {
	{ 1, "watcherId", PROTO_STRING },
};
const struct proto_message schema_filesystem_watcher = PROTO_MESSAGE_OF(watcher_fields);

static const struct proto_field events_fields[] = {
	{ 1, "events", PROTO_MESSAGE, .is_repeated = true, .message = &change },
};
const struct proto_message schema_filesystem_events = PROTO_MESSAGE_OF(events_fields);
