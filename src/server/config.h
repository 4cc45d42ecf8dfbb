/* What `atoll serve` was told, read and checked whole before anything is done. Flags win over
 * ATOLL_* variables, these over the file given with --config, that over the defaults. */
#pragma once

#include "base/base.h"

struct config {
	struct arena *arena; /* holds the strings */
	const char *data, *listen, *template_cache, *network, *domain, *log_level;
	const char *tls_cert, *tls_key; /* both or neither */
	const char *dns_server;         /* NULL: the host's own */
	const char *admin_token_file;   /* NULL: /nodes and /admin are closed */
	int64_t pool, max_sandboxes, max_timeout_s, disk_mb;
	bool stop_sandboxes, no_restart;
};

/* `env` is a NULL-terminated environment. -EINVAL with what is wrong and what is allowed. */
int config_read(int argc, char **argv, char **env, struct config *ret, struct err *e);
void config_done(struct config *config);
/* The file's part alone, for the parser's fuzz target. */
int config_parse_file(struct str text, struct config *config, struct err *e);
