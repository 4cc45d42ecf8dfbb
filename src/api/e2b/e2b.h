/* The handlers of E2B's control plane, one file a subject; routes.c lists them. */
#pragma once

#include "api/api-internal.h"

#define E2B_ENVD_VERSION "0.6.13" /* turns every feature of the clients on */
#define E2B_CLIENT_ID "6532622b"  /* a constant in E2B too; the Python SDK requires it */

void e2b_health(struct api_call *call);
void e2b_create_v1(struct api_call *call);
void e2b_create_v2(struct api_call *call);
void e2b_connect_v1(struct api_call *call);
void e2b_connect_v2(struct api_call *call);
void e2b_list_v1(struct api_call *call);
void e2b_list_v2(struct api_call *call);
void e2b_get(struct api_call *call);
void e2b_kill(struct api_call *call);
void e2b_timeout(struct api_call *call);
void e2b_refresh(struct api_call *call);
void e2b_pause(struct api_call *call);
void e2b_resume(struct api_call *call);
void e2b_network_put(struct api_call *call);
void e2b_metrics(struct api_call *call);
void e2b_metrics_many(struct api_call *call);
void e2b_logs_v1(struct api_call *call);
void e2b_logs_v2(struct api_call *call);
void e2b_snapshot_create(struct api_call *call);
void e2b_snapshot_list(struct api_call *call);
void e2b_fork(struct api_call *call);
void e2b_keys_list(struct api_call *call);
void e2b_keys_create(struct api_call *call);
void e2b_keys_revoke(struct api_call *call);

/* A sandbox id: its suffix behind '-' cut off, its characters checked. Answers 400 itself. */
int e2b_check_id(struct api_call *call, struct str id, struct str *ret);
/* The one in the path. */
int e2b_id(struct api_call *call, struct str *ret);
void e2b_not_found(struct api_call *call, struct str id);
/* A sandbox as lists show it: without tokens. */
void e2b_write_listed(struct jsonw *w, const struct sandbox *sb);
/* As create and connect answer, with its tokens; key as in jsonw_object. */
void e2b_write_sandbox(struct api_call *call, struct jsonw *w, const char *key,
	const struct sandbox *sb);
void e2b_reply_sandbox(struct api_call *call, int status, const struct sandbox *sb);
void e2b_write_detail(struct api_call *call, struct jsonw *w, const struct sandbox *sb);

/* ---- cursor.c ---- */
/* Where a page ended: the last row's time and id. Rows go newest first, of the same microsecond by
 * id; ascending is the exact reverse. */
struct e2b_cursor {
	bool is_set, ascending;
	int64_t at_us;
	struct str id;
};
/* The query's nextToken. -EINVAL: not one of this order. */
int e2b_cursor_read(struct api_call *call, bool ascending, struct e2b_cursor *ret);
/* Does this row come after it? */
bool e2b_cursor_passed(const struct e2b_cursor *cursor, int64_t at_us, const char *id);
/* There is more: the answer says where to go on. */
void e2b_cursor_add(struct api_call *call, int64_t at_us, const char *id, bool ascending);

/* The iam object's JSON (empty: none); answers 400 itself. */
int e2b_iam_check(struct api_call *call, struct str raw);

/* ---- keys, teams, the operator ---- */
void e2b_keys_rename(struct api_call *call);
void e2b_tokens_create(struct api_call *call);
void e2b_tokens_delete(struct api_call *call);
void e2b_teams_list(struct api_call *call);
void e2b_team_metrics(struct api_call *call);
void e2b_team_metrics_max(struct api_call *call);
void e2b_nodes_list(struct api_call *call);
void e2b_nodes_get(struct api_call *call);
void e2b_nodes_set(struct api_call *call);
void e2b_admin_counts(struct api_call *call);
void e2b_admin_kill(struct api_call *call);
void e2b_admin_cancel_builds(struct api_call *call);
void e2b_admin_key_create(struct api_call *call);
void e2b_admin_key_revoke(struct api_call *call);
/* The team in the path; answers 404 itself. */
const struct access_team *e2b_admin_team(struct api_call *call);

/* ---- templates ---- */
void e2b_templates_list(struct api_call *call); /* v1, and v2 in pages */
void e2b_templates_get(struct api_call *call);
void e2b_templates_alias(struct api_call *call);
void e2b_templates_delete(struct api_call *call);
void e2b_templates_patch(struct api_call *call);
void e2b_tags_list(struct api_call *call);
void e2b_tags_assign(struct api_call *call);
void e2b_tags_remove(struct api_call *call);
/* A snapshot's image stands for its build. */
void e2b_snapshot_build_id(const struct sandbox_snapshot *snap, char out[UUID_SIZE]);

/* ---- limits.c, events.c ---- */
/* What it may use, and how often that was not enough. */
void e2b_write_limits(struct api_call *call, struct jsonw *w, const struct sandbox *sb);
/* Of the caller's team. */
const struct limit_ceilings *e2b_ceilings(const struct api_call *call, struct limit_ceilings *ret);
void e2b_team_limits(struct api_call *call);
void e2b_admin_teams(struct api_call *call);
void e2b_admin_limits_get(struct api_call *call);
void e2b_admin_limits_put(struct api_call *call);
void e2b_admin_limits_patch(struct api_call *call);
void e2b_admin_environment_get(struct api_call *call);
void e2b_admin_environment_put(struct api_call *call);
void e2b_admin_activity_get(struct api_call *call);
void e2b_admin_activity_put(struct api_call *call);
void e2b_events(struct api_call *call);

/* ---- secrets, volumes ---- */
void e2b_secrets_list(struct api_call *call);
void e2b_secrets_create(struct api_call *call);
void e2b_secrets_get(struct api_call *call);
void e2b_secrets_update(struct api_call *call);
void e2b_secrets_remove(struct api_call *call);
void e2b_volumes_list(struct api_call *call);
void e2b_volumes_create(struct api_call *call);
void e2b_volumes_get(struct api_call *call);
void e2b_volumes_remove(struct api_call *call);
void e2b_volumes_rotate_token(struct api_call *call);
void e2b_content_stat(struct api_call *call);
void e2b_content_patch(struct api_call *call);
void e2b_content_remove(struct api_call *call);
void e2b_content_list(struct api_call *call);
void e2b_content_mkdir(struct api_call *call);
void e2b_content_read(struct api_call *call);
void e2b_content_write(struct api_call *call);

void e2b_openapi(struct api_call *call);
