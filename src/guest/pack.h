/* pack - a file sent in gzip's form, made as it goes in constant memory. Reading and packing are
 * jobs, a piece at a time, as one costs more than a turn of the loop may. */
#pragma once

#include "guest/guest.h"

/* Takes the exchange and the descriptor of a regular file. */
void pack_send(struct guest *g, struct http_exchange *take_x, int take_fd, const char *type);
