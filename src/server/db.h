/* The database of a data directory, looked at by root beside the server that has it. */
#pragma once

#include "server/config.h"

struct server_db_request;
int db_read_config(const struct server_db_request *request, struct config *ret, struct err *e);
/* -ENOTSUP: it was written by a newer build. One that is not there yet is fine. */
int db_check_version(const struct config *config, struct err *e);
