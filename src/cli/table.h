/* What the parts of the command table share. */
#pragma once

#include "cli/cli-internal.h"

#define OPTIONS(table) .options = (table), .n_options = ARRAY_SIZE(table)

/* A part of the table. */
#define TABLE(name, commands) const struct cli_table name = { (commands), ARRAY_SIZE(commands) }

#define AGENT_OPTION                                                                               \
	{                                                                                          \
		"agent", 0, "NAME", "the agent whose it is (a key of one agent says it by itself)" \
	}
#define TASK_OPTION                                 \
	{                                           \
		"task", 0, "NAME", "what it is for" \
	}

/* What a new sandbox is to be like, of `sandbox create` and `run`. */
#define ALLOW_OPTION                                                                     \
	{                                                                                \
		"allow", 0, "HOST,...", "what it may reach: addresses, ranges and names" \
	}
#define CPU_OPTION                          \
	{                                   \
		"cpu", 0, "N", "processors" \
	}
#define DENY_OPTION                                                                   \
	{                                                                             \
		"deny", 0, "RANGE,...", "what it may not reach: addresses and ranges" \
	}
#define DISK_OPTION                                      \
	{                                                \
		"disk", 0, "SIZE", "its disk, like 2GiB" \
	}
#define MEMORY_OPTION                                          \
	{                                                      \
		"memory", 0, "SIZE", "its memory, like 512MiB" \
	}
#define NESTED_OPTION                                                              \
	{                                                                          \
		"nested", 0, NULL, "with namespaces and FUSE for its own programs" \
	}
#define NO_INTERNET_OPTION                                                          \
	{                                                                           \
		"no-internet", 0, NULL, "it reaches nothing but what --allow names" \
	}
#define RUNTIME_OPTION                                                            \
	{                                                                         \
		"runtime", 0, "RUNTIME", "what runs it (default: the template's)" \
	}
#define SECRET_OPTION                                                                       \
	{                                                                                   \
		"secret", 0, "SECRET[=VAR]", "a secret in its environment; may be repeated" \
	}
#define VOLUME_OPTION                                                                  \
	{                                                                              \
		"volume", 0, "VOLUME:/PATH", "a volume mounted there; may be repeated" \
	}
