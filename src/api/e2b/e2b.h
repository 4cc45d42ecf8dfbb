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
void e2b_keys_list(struct api_call *call);
void e2b_keys_create(struct api_call *call);
void e2b_keys_revoke(struct api_call *call);

/* The sandbox id in the path: its suffix behind '-' cut off, its characters checked. Answers 400
 * itself. */
int e2b_id(struct api_call *call, struct str *ret);
void e2b_not_found(struct api_call *call, struct str id);
/* A sandbox as lists show it: without tokens. */
void e2b_write_listed(struct jsonw *w, const struct sandbox *sb);
