/* files - what up- and download share. */
#pragma once

#include "guest/guest.h"

/* Checks token or signature and the user; *ret_path is the query's, p NULL when absent. False: the
 * request was answered. `operation` is "read" or "write". */
bool files_admit(struct guest *g, struct http_exchange *x, const char *operation,
	struct user *ret_user, struct str *ret_path);
/* Before a failure is answered. */
void files_say_errno(struct http_exchange *x, int r);
