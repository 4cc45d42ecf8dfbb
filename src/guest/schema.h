/* schema - the messages of process.Process and filesystem.Filesystem, for clients that speak binary
 * protobuf: field numbers, and the names that JSON has for them. */
#pragma once

#include "connect/connect.h"
#include "guest/backlog.h"

extern const struct proto_message schema_empty; /* every answer that says nothing but yes */

extern const struct proto_message schema_process_start;
extern const struct proto_message schema_process_connect;
extern const struct proto_message schema_process_followed; /* what Start and Connect stream */
/* One of those, made at once: output is too much to go through JSON. */
void schema_add_output(struct buf *out, const struct backlog_event *event);
extern const struct proto_message schema_process_listed;
extern const struct proto_message schema_process_update;
extern const struct proto_message schema_process_send_input;
extern const struct proto_message schema_process_stream_input;
extern const struct proto_message schema_process_send_signal;
extern const struct proto_message schema_process_close_stdin;

extern const struct proto_message schema_filesystem_path; /* Stat, MakeDir, Remove */
extern const struct proto_message schema_filesystem_move;
extern const struct proto_message schema_filesystem_list;
extern const struct proto_message schema_filesystem_entry; /* what Stat, MakeDir, Move answer */
extern const struct proto_message schema_filesystem_listed;
extern const struct proto_message schema_filesystem_watch; /* WatchDir, CreateWatcher */
extern const struct proto_message schema_filesystem_watched;
extern const struct proto_message schema_filesystem_watcher; /* a watcher by its id */
extern const struct proto_message schema_filesystem_events;
