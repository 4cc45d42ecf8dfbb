#include "api/e2b/e2b.h"

const struct api_route api_e2b_routes[] = {
	{ "GET", "/health", e2b_health, API_OPEN },
	{ "POST", "/sandboxes", e2b_create_v1, API_BODY },
	{ "POST", "/v2/sandboxes", e2b_create_v2, API_BODY },
	{ "GET", "/sandboxes", e2b_list_v1, 0 },
	{ "GET", "/v2/sandboxes", e2b_list_v2, 0 },
	{ "GET", "/sandboxes/{id}", e2b_get, 0 },
	{ "DELETE", "/sandboxes/{id}", e2b_kill, 0 },
	{ "POST", "/sandboxes/{id}/timeout", e2b_timeout, API_BODY },
	{ "POST", "/sandboxes/{id}/refreshes", e2b_refresh, API_BODY },
	{ "POST", "/sandboxes/{id}/connect", e2b_connect_v1, API_BODY },
	{ "POST", "/v2/sandboxes/{id}/connect", e2b_connect_v2, API_BODY },
	{ "GET", "/api-keys", e2b_keys_list, 0 },
	{ "POST", "/api-keys", e2b_keys_create, API_BODY },
	{ "DELETE", "/api-keys/{id}", e2b_keys_revoke, 0 },
	{ 0 },
};
