/* What the files of this room share.
 *
 *   identity.c      certificate and key: asking for them, checking them, renewing them
 *   keeper-child.c  the process that opens the two files
 *   server.c        accepting, limits, stopping
 *   stream.c        one connection: from its first byte to its end */
#pragma once

#include "tls/tls.h"

#include <openssl/ssl.h>

enum {
	RECORD_BYTES = 16 * 1024, /* the most that one TLS record holds */
};

/* ---- keeper-child.c ---- */
/* What the keeper answers, with the descriptors of certificate and key when code is 0. */
struct keeper_answer {
	int code;
	int which; /* 0: the certificate, 1: the key */
};
/* Serves requests on `fd` until its other end is closed; does not return. */
_Noreturn void keeper_main(int fd, const char *const paths[2]);

/* ---- identity.c ---- */
SSL_CTX *identity_context(const struct tls_identity *identity); /* borrowed */

/* ---- server.c ---- */
struct tls_server {
	struct loop *loop;
	struct http_server *http;
	struct tls_identity *identity;
	struct tls_limits limits;
	struct loop_io io;
	int fd;
	struct list waiting; /* before or after being carried, the oldest first */
	struct list carried;
	size_t n_waiting, n_carried;
	struct loop_timer accept_timer, drain_timer;
	struct loop_task drain_task;
	done_fn drained;
	void *drained_arg;
	int drain_result;
	char *scratch; /* RECORD_BYTES, used within one callback only */
};

void server_stream_gone(struct tls_server *server);

/* ---- stream.c ---- */
/* Takes an accepted descriptor. */
void stream_start(struct tls_server *server, int fd, const struct sockaddr_storage *peer);
void stream_destroy(struct list *node); /* in waiting or carried; without a farewell */
