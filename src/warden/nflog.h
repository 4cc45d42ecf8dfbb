/* nflog - hears from the kernel of packets that a rule chose to tell about. */
#pragma once

#include "base/base.h"

struct logged_packet {
	uint32_t index;   /* of the interface it came in by */
	uint8_t protocol; /* IPPROTO_TCP ... */
	uint32_t address; /* where it was meant to go; host byte order */
	uint16_t port;    /* 0: none */
};
typedef void (*nflog_fn)(void *arg, const struct logged_packet *packet);

/* A group of our own; the name makes servers of one host begin their search apart. */
int nflog_open(const char *name, int *ret_fd, uint16_t *ret_group, struct err *e);
/* Reads what is there, up to a bound. */
void nflog_read(int fd, nflog_fn fn, void *arg);
/* The message of one packet; false: not one that can be told. */
bool nflog_parse(struct str attributes, struct logged_packet *ret);
