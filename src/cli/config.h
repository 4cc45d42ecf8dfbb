/* config - which server to speak to, and with which key. One source is taken whole, so that the key
 *of one server never goes to another; the first of:
 *	1. DIR/env of --data DIR
 *	2. E2B_API_URL, E2B_API_KEY, E2B_SANDBOX_URL, when one of the first two is set
 *	3. DIR/env of ATOLL_DATA
 *	4. atoll-data/env in the current directory, when it can be read
 *	5. http://127.0.0.1:3000 without a key
 * --api-url goes before the address of any of them. Whose certificates are trusted is asked for
 * apart: --ca-file, ATOLL_CA_FILE, SSL_CERT_FILE, or else the system's authorities. */
#pragma once

#include "base/base.h"

enum {
	CONFIG_VALUE = 512,
};

struct config {
	char api_url[CONFIG_VALUE];
	char sandbox_url[CONFIG_VALUE];
	char api_key[CONFIG_VALUE]; /* "": none found */
	char data[CONFIG_VALUE];    /* the data directory whose env file was read; "": none */
	const char *api_url_source; /* for people: "E2B_API_URL", "the default" ... */
	const char *api_key_source, *sandbox_url_source, *data_source, *ca_file_source;
	char ca_file[CONFIG_VALUE]; /* "": the system's authorities */
};

/* What main() saw of the environment and the flags; NULL: not set. */
struct config_input {
	const char *flag_api_url, *flag_data, *flag_ca_file;
	const char *env_api_url, *env_sandbox_url, *env_api_key, *env_data;
	const char *env_ca_file, *env_ssl_cert_file;
};

int cli_config_load(const struct config_input *in, struct config *ret, struct err *e);

/* The value of KEY in shell assignments (`KEY=v`, `export KEY='v'`, `KEY="v"`), the last one given.
 * -ENOENT: not there. -EINVAL: the line is nothing a shell would assign, or holds an expansion. */
int cli_config_assignment(struct str text, const char *key, char *ret, size_t size);
