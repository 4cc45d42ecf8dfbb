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
