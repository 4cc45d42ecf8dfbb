/* settings - what the sandbox was told about itself, at boot and by POST /init.
 * The same JSON document serves both; what it does not mention stays as it was. */
#pragma once

#include "base/base.h"
#include "json/json.h"

/* What the E2B clients are told: every feature gate of theirs is open from here on. */
#define GUEST_ENVD_VERSION "0.6.13"

struct settings {
	struct arena *env_arena; /* owns env */
	struct json_map env;     /* the sandbox's own variables */
	char *token;             /* NULL: open to everybody who reaches the socket */
	char *default_user;
	char *workdir; /* NULL: the user's home */
	char *start_cmd;
	char *sandbox_id, *template_id;
	int64_t cpu_count, memory_mb; /* limits; 0: not told */
	int64_t disk_mb, max_inodes, max_processes, max_files;
	bool needs_preload; /* see compat.h */
	int64_t stamp_us;   /* of the newest document that carried a timestamp */
	char *authority;    /* PEM, several: whom programs here shall trust besides; NULL: nobody */
	bool is_trusted;    /* it has been put where they look */
	bool has_bundle;    /* where all are that they trust */
};

void settings_init(struct settings *s);
void settings_done(struct settings *s);

enum settings_trust {
	SETTINGS_BOOT, /* from the warden, before anybody could talk to us */
	SETTINGS_INIT, /* from the socket: an existing token must be repeated */
};
/* -EINVAL: not understood. -EACCES: the token does not match. Nothing is changed on failure. A
 * document older than the newest one seen changes nothing and succeeds. */
int settings_apply(struct settings *s, struct str json, enum settings_trust trust, struct err *e);
